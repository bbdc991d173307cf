"""``salt.loader.lazy``: the loaders of a minion that runs on saltctx."""

import contextlib
import contextvars
import inspect
import logging

from salt.loader.context import NamedLoaderContext, loader_ctxvar, resource_ctxvar
from salt.loader.lazy import LazyLoader, LoadedCoro, LoadedFunc

from ..core import LoadedFunction, LoaderBase, bind
from ..forksafe import ForkSafeLock
from . import context, deep, names, scans
from .injected import inject
from .jobuse import JobUse
from .load import ModuleLoading
from .optsdict import minion_data
from .views import after_call, before_call, view_dict, view_opts

log = logging.getLogger(__name__)

MISSES = 256
"""So many keys that are in no file a loader remembers."""

STOCK = object()
"""In place of a generation: loaders made here are Salt's own."""

_making_for = contextvars.ContextVar("saltctx_making_for", default=None)


@contextlib.contextmanager
def making_for(generation):
    """Loaders that the block makes are those of ``generation``; of none and Salt's own class for STOCK."""
    token = _making_for.set(generation)
    try:
        yield
    finally:
        _making_for.reset(token)


def making_stock():
    """Whether loaders made here are Salt's own."""
    return _making_for.get() is STOCK


class Function(LoadedFunction, LoadedFunc):
    """A LoadedFunc that is called in C."""


class Coroutine(LoadedFunction, LoadedCoro):
    """A LoadedCoro whose body, too, runs in the loader's context."""

    async def __call__(self, /, *args, **kwargs):
        loader = self.loader
        func = self.func
        if loader.inject_globals:
            func = inject(self, loader.inject_globals, func)
        token = loader_ctxvar.set(loader)
        try:
            before_call(loader, func)
            result = await func(*args, **kwargs)
            after_call(loader, func)
        finally:
            loader_ctxvar.reset(token)
        return result.value() if isinstance(result, NamedLoaderContext) else result


# What their repr says.
Function.__name__, Coroutine.__name__ = LoadedFunc.__name__, LoadedCoro.__name__


class Loader(JobUse, ModuleLoading, LoaderBase, LazyLoader):
    """
    A LazyLoader whose hot methods are in C.

    One made for a generation is ``shared``: jobs run on it side by side, so a module's ``__opts__``,
    ``__pillar__`` and ``__grains__`` are each job's own views. Any other belongs to who made it.
    """

    def __init__(self, module_dirs, opts=None, *args, **kwargs):
        self.module_opts = {}
        generation = _making_for.get()
        self.shared = generation is not None
        self._files = generation.files if generation is not None else None
        self._scan = None
        self._is_made = False
        self._refused = {}
        self._asked_before = set()
        self._misses, self._settled = {}, {}
        self._modules = {}
        self._apart, self._own_functions = None, {}
        self._volatile = generation.volatile if generation is not None else None
        super().__init__(module_dirs, opts, *args, **kwargs)
        self._is_made = True
        if generation is not None:
            self._minion_data = minion_data(self.opts)
            if not self.pack["__context__"]:
                self.pack["__context__"] = generation.context

    def _get_lock(self):
        # Salt's is one that a state run's fork leaves taken, if another job is just loading a module.
        return ForkSafeLock()

    def _refresh_file_mapping(self):
        # Salt's __init__ scans, and has clear() scan once more.
        if self._scan is not None and (not self._is_made or self._scan.holds()):
            return
        if self._files is not None:
            for directory in self.module_dirs:
                self._files.add_directory(directory)
        self._scan = scans.refresh(self, super()._refresh_file_mapping)
        self._unsettle()
        if self._files is not None:
            for package in self._scan.packages:
                self._files.add_directory(package)

    def _iter_files(self, mod_name):
        """As Salt's, which goes on to all files there are: without those of Salt's own that have other names."""
        known = None
        for name in super()._iter_files(mod_name):
            if name != mod_name and name not in self.loaded_files:
                known = names.of_loader(self).known() if known is None else known
                if mod_name not in known.get(self.file_mapping[name][0], (mod_name,)):
                    continue
            yield name

    def _load_missing(self, key):
        """Load and return ``key`` as LazyDict.__getitem__ does."""
        # These two: who takes files back meanwhile puts another in its place.
        misses, files, settled = self._misses, self.loaded_files, self._settled
        # A subscript, for the reason that known_of() has.
        if key not in misses or misses[key] is not files or not self._scan.holds():
            # In one: another job may take the module back as soon as it is loaded.
            with self._lock:
                if self._load(key):
                    log.debug("LazyLoaded %s", key)
                    return self._dict[key]
            if len(misses) < MISSES:
                misses[key] = files
                if self._is_settled_miss(key.partition(".")[0]):
                    settled[key] = False
        log.debug("Could not LazyLoad %s: %s", key, self.missing_fun_string(key))
        raise KeyError(key)

    def copy(self):
        """A loader that has loaded what this one has, and packs the same."""
        copy = self._twin()
        # Before the modules: a function whose module is not known yet is just being loaded, and is loaded again.
        functions = dict(self._dict)
        copy.loaded, copy.shared = False, self.shared
        copy.module_opts = dict(self.module_opts)
        copy._modules, copy._refused = dict(self._modules), dict(self._refused)
        copy._dict = {
            key: func for key, func in functions.items()
            if getattr(func, "__module__", None) in copy._modules or not self._is_loaded_name(func)
        }
        copy.loaded_files = {*(known.name for known in copy._modules.values()), *copy._refused}
        copy.loaded_modules = {key.partition(".")[0] for key in copy._dict}
        missing = set().union(*(refusal.missing for refusal in copy._refused.values()))
        copy.missing_modules = {name: why for name, why in list(self.missing_modules.items()) if name in missing}
        copy._asked_before = set(self._asked_before)
        return copy

    def forget_refusals(self):
        """Let all files that said no be asked again."""
        self.loaded_files.difference_update(self._refused)
        self._refused, self.missing_modules = {}, {}
        self._unsettle()

    def _is_loaded_name(self, func):
        """Whether a function says that it is of a module which a loader of this kind executed."""
        return str(getattr(func, "__module__", "")).startswith(f"{self.loaded_base_name}.")

    def _twin(self):
        """Another loader with the attributes of this one."""
        twin = LoaderBase.__new__(Loader)
        vars(twin).update(vars(self))
        twin.pack, twin.pack_self, twin.inject_globals = self.pack, self.pack_self, self.inject_globals
        twin.module_opts = self.module_opts
        twin._own_functions = {}
        twin._unsettle()
        twin._lock, twin._clean_module_dirs = self._get_lock(), []
        return twin


def keep_generator(running, generator):
    """Run each step of a job's generator in the context its function was called in, as the function itself ran."""
    step, value = generator.send, None
    try:
        while True:
            try:
                item = running.run(step, value)
            except StopIteration as stop:
                return stop.value
            try:
                step, value = generator.send, (yield item)
            except GeneratorExit:
                raise
            except BaseException as exc:
                step, value = generator.throw, exc
    finally:
        running.run(generator.close)


def install(wanted):
    """Make Loaders, where Salt makes LazyLoaders, for opts for which ``wanted(opts)`` is true, and for generations."""
    bind(
        loader_var=loader_ctxvar,
        loaded_function=Function,
        loaded_coroutine=Coroutine,
        # Salt's own, too: one that was made before saltctx was switched on.
        named_context=NamedLoaderContext,
        is_coroutine=inspect.iscoroutinefunction,
        keep_generator=keep_generator,
        inject=inject,
        before_call=before_call,
        after_call=after_call,
        no_value=context.no_value,
        variables={"__resource__": resource_ctxvar},
        views={
            "__opts__": view_opts,
            "__pillar__": view_dict("__pillar__"),
            "__grains__": view_dict("__grains__"),
        },
    )

    def make_loader(cls, module_dirs=None, opts=None, *args, **kwargs):
        if cls is LazyLoader:
            generation = _making_for.get()
            if generation is not STOCK and (generation is not None or wanted(opts)):
                return LoaderBase.__new__(Loader)
        return object.__new__(cls)

    deep.new(LazyLoader, make_loader)
