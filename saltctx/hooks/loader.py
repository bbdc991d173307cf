"""``salt.loader.lazy``: the loaders of a minion that runs on saltctx."""

import contextlib
import contextvars
import functools
import importlib
import inspect
import logging
import os
import sys
import types

from salt.loader.context import NamedLoaderContext, loader_ctxvar, resource_ctxvar
from salt.loader.lazy import (
    SALT_BASE_PATH,
    LazyLoader,
    LoadedCoro,
    LoadedFunc,
    global_injector_decorator,
)
from salt.utils.optsdict import safe_opts_copy

from ..core import JobContext, LoadedFunction, LoaderBase, bind, current_job, loading
from ..forksafe import ForkSafeLock
from . import context, deep, helpers, installation, names, scans, source
from .modulestate import LoadedModule, Refusal, afresh, forget_frames, known_of, reusable
from .optsdict import job_dict, job_opts, minion_data, unwrapped

log = logging.getLogger(__name__)

_SALT = str(SALT_BASE_PATH)
_SHARED = {}

STOCK = object()
"""In place of a generation: loaders made here are Salt's own."""

_making_for = contextvars.ContextVar("saltctx_making_for", default=None)
_loading = context.loading


class _Loading:
    """
    The load of one module.

    is_custom: bool, the file is none of Salt's own. stamp, imports: what the file and what it can import
    were like before either was read; stamp None where that cannot be told. known: the LoadedModule that
    is used again, module: the module object, answer: what its ``__virtual__`` said; None until known.
    wrote_context: it wrote to the base layer of ``__context__``, or another load at the same time did.
    is_whole: bool, the file was executed to its end.
    """

    __slots__ = ("is_custom", "stamp", "imports", "known", "module", "answer", "wrote_context", "is_whole")

    def __init__(self, path, suffix):
        self.is_custom = not path.startswith(_SALT)
        self.imports = installation.revision(), helpers.forget_changed() if self.is_custom else 0
        self.stamp = source.stamp(path) if suffix == ".py" else None
        self.known = self.module = self.answer = None
        self.wrote_context = self.is_whole = False


class _OtherModule(BaseException):
    """Salt is about to use a module object that is another load's; nothing of Salt's catches it."""


def _without_load(func, args, kwargs):
    # What the module's own code loads meanwhile is another load.
    _loading.set(None)
    return func(*args, **kwargs)


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
            func = global_injector_decorator(loader.inject_globals)(func)
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


class Loader(LoaderBase, LazyLoader):
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
        self._modules = {}
        self._apart = None
        self._volatile = generation.volatile if generation is not None else None
        super().__init__(module_dirs, opts, *args, **kwargs)
        self._is_made = True
        self._names = names.of(self.loaded_base_name, self.tag)
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
        if self._files is not None:
            for package in self._scan.packages:
                self._files.add_directory(package)

    def _iter_files(self, mod_name):
        """As Salt's, which goes on to all files there are: without those of Salt's own that have other names."""
        known = None
        for name in super()._iter_files(mod_name):
            if name != mod_name and name not in self.loaded_files:
                known = self._names.known() if known is None else known
                if mod_name not in known.get(self.file_mapping[name][0], (mod_name,)):
                    continue
            yield name

    def _load_missing(self, key):
        """Load and return ``key`` as LazyDict.__getitem__ does."""
        if not self._load(key):
            log.debug("Could not LazyLoad %s: %s", key, self.missing_fun_string(key))
            raise KeyError(key)
        log.debug("LazyLoaded %s", key)
        return self._dict[key]

    def _load_all(self):
        """As Salt's; each job that lists all functions asks again what may have another answer now."""
        job = current_job() if self.shared else None
        if job is not None:
            self._ask_again(None, job)
        super()._load_all()
        if self.shared:
            self.loaded = False

    def _ask_again(self, module, job):
        """
        Ask what another job loaded, or was refused, and what may stand for ``module`` (any for None).

        Returns what the job has an instance of its own of: a list of {key: function}.
        """
        self._forget_refusals(module, job)
        return [
            self._use(known, job) for known in list(self._modules.values())
            if known.loaded_by() is not job and known.may_be(module)
        ]

    def _forget_refusals(self, module, job):
        """Let files that said no to an earlier job, and may stand for ``module``, be loaded again."""
        if not self._refused:
            return
        with self._lock:
            for name, refusal in list(self._refused.items()):
                if refusal.by() is job or not refusal.may_be(module):
                    continue
                self.loaded = False
                del self._refused[name]
                self.loaded_files.discard(name)
                for missing in refusal.missing:
                    self.missing_modules.pop(missing, None)

    def _load_module(self, name):
        path, suffix = self.file_mapping[name][:2]
        if self._files is not None:
            self._files.add_file(os.path.join(path, "__init__.py") if suffix == "" else path)
        namespace = f"{self.loaded_base_name}.{self.mod_type_check(path)}.{self.tag}.{name}"
        load = _Loading(path, suffix)
        expected = self._names.expect(path) if suffix == ".py" and not load.is_custom else None
        self._drop_import_caches(load.imports[0])
        if self._apart is not None:
            load.known = self._apart.get(namespace)
        elif load.stamp is not None:
            load.known = reusable.find(namespace, path, load.stamp, load.imports)
        missing = set(self.missing_modules)
        while True:
            if load.known is not None:
                sys.modules[namespace] = load.module = load.known.module
            else:
                # Salt executes the file again in the module object that other loaders and running jobs use.
                sys.modules.pop(namespace, None)
            try:
                loaded = self._load_and_note_helpers(name, path, load)
                break
            except _OtherModule:
                # Another thread loaded the same file between this and Salt's own look into sys.modules.
                load.module = None
        forget_frames(name, self.tag)
        if expected is not None and load.is_whole:
            self._names.note(path, expected, name, load.module)
        if load.module is not None:
            self._own_opts(load)
        if loaded is not True:
            self._refused[name] = Refusal(name, load.module, set(self.missing_modules) - missing)
            self._asked_before.add(name)
            reusable.forget(namespace, path)
        elif load.module is not None:
            self._keep(name, path, load)
        return loaded

    def _keep(self, name, path, load):
        known = LoadedModule(name, load, self._dict, self.tag)
        if self.shared:
            self._modules[known.namespace] = known
        if self._apart is not None:
            self._apart.setdefault(known.namespace, known)
        elif load.stamp is not None and load.known is None:
            reusable.keep(path, load.stamp, load.imports, known)

    def _load_and_note_helpers(self, name, path, load):
        token = _loading.set(load)
        imported = set(sys.modules) if load.is_custom else None
        shared = self.pack["__context__"] if self.shared else None
        base = shared.base if isinstance(shared, JobContext) else {}
        before = dict(base)
        try:
            return self._load_into_base(name)
        finally:
            _loading.reset(token)
            load.wrote_context = not _are_the_same(before, base)
            if imported is not None:
                self._note_helpers(imported)

    def _load_into_base(self, name):
        """Let Salt load the file; what it writes to ``__context__`` is for all jobs."""
        if not self.shared or name not in self._asked_before:
            return loading(super()._load_module, name)
        # What it wrote when it was loaded before is not there for it to find.
        loaded, written = afresh(self, functools.partial(super()._load_module, name))
        if written:
            self.pack["__context__"].base.update(written)
        return loaded

    def _LazyLoader__clean_sys_path(self):
        """As Salt's, which drops all import caches after each load; here it is done before one that needs it."""
        appended, self._clean_module_dirs = self._clean_module_dirs, []
        for directory in appended:
            if directory in sys.path:
                sys.path.remove(directory)

    def _drop_import_caches(self, revision):
        """If something was installed, or the path was changed."""
        if installation.is_new_to_importers(revision):
            importlib.invalidate_caches()
            for directory in self.extra_module_dirs:
                if sys.path_importer_cache.get(directory, self) is None:
                    sys.path_importer_cache.pop(directory, None)

    def clean_modules(self):
        """As Salt's, which gives the memory back once the grains are known: what is kept to be used again goes too."""
        super().clean_modules()
        reusable.forget_tag(self.loaded_base_name, self.tag)

    def _note_helpers(self, imported):
        directories = [
            directory for directory in map(os.fspath, self.module_dirs) if not directory.startswith(_SALT)
        ]
        for path in helpers.imported(imported, directories, self.loaded_base_name):
            if self._files is not None:
                self._files.add_file(path)

    def _own_opts(self, load):
        """A module's ``__opts__`` follows the running loader and job, with what the module laid down itself."""
        module = load.module
        opts = module.__dict__.get("__opts__")
        if isinstance(opts, context.Dunder) and opts.owner is not None:
            # Salt leaves a named context alone: what it would have made for this loader is made here.
            own = safe_opts_copy(self.opts, name=f"module:{load.known.name}" if load.known else "module:")
            if module.__orig_opts__:
                own.update(module.__orig_opts__)
            self.module_opts[opts.owner] = opts.default = own
        elif opts is not None and not isinstance(opts, NamedLoaderContext):
            self.module_opts[module.__name__] = opts
            module.__opts__ = context.Dunder("__opts__", module.__salt_loader__, opts)
            module.__opts__.owner = module.__name__

    def run(self, _func_or_method, /, *args, **kwargs):
        load = _loading.get()
        if load is None:
            return super().run(_func_or_method, *args, **kwargs)
        name = getattr(_func_or_method, "__name__", "")
        if name == "exec_module":
            if load.known is not None:
                if args[0] is not load.known.module:
                    raise _OtherModule
                load.is_whole = True
                return None
            if "__builtins__" in vars(args[0]):
                raise _OtherModule
            load.module = args[0]
            _func_or_method = source.trustworthy(_func_or_method.__self__).exec_module
        result = super().run(_without_load, _func_or_method, args, kwargs)
        if name == "__virtual__":
            load.answer = result
        elif name == "exec_module":
            load.is_whole = True
        return result

    def _first_use(self, key):
        """What a rebuild gave a job for free, for the one module it is about to use."""
        if not isinstance(key, str):
            return None
        job = current_job()
        module = key.partition(".")[0]
        known = known_of(self, key)
        if known is not None:
            own = self._use(known, job)
            if known.loaded_by() is not job and self._has_better(module, job):
                self.unload(known)
            if key in own or key in self._dict:
                return own.get(key)
        if key in self._dict:
            return None
        for own in self._ask_again(module, job):
            if key in own:
                return own[key]
        if self.loaded:
            return None
        self._load_missing(key)
        # It may be another job that has loaded it while this one waited.
        known = known_of(self, key)
        return None if known is None else self._use(known, job).get(key)

    def _has_better(self, module, job):
        """Whether a file that Salt would rather load for ``module``, and that said no to another job, says yes now."""
        if not self._refused:
            return False
        _, used = job.uses.setdefault(id(self), (self, {}))
        refusals = [
            refusal for refusal in list(self._refused.values())
            if refusal.by() is not job and refusal.is_of(module) and refusal not in used
        ]
        used.update(dict.fromkeys(refusals, _SHARED))
        return any(refusal.says_yes(self) for refusal in refusals)

    def _use(self, known, job):
        """The functions that the job has of its own of a module, {} if it shares the loader's."""
        _, used = job.uses.setdefault(id(self), (self, {}))
        own = used.get(known)
        if own is None:
            if known.loaded_by() is job or not known.is_volatile(self):
                own = used.setdefault(known, _SHARED)
                if known.loaded_by() is not job and known.answers_otherwise(self):
                    self.unload(known)
            else:
                own = used.setdefault(known, self._private(known, job))
        return own

    def names_of(self, known):
        """The module names, a set of str, under which the loader has functions of a LoadedModule."""
        return {
            key.partition(".")[0] for key, func in list(self._dict.items())
            if getattr(func, "__module__", None) == known.namespace
        }

    def _is_from(self, key, func, known, names):
        """Whether a function is of ``known``, which has the module names ``names``, or one that it imported."""
        namespace = getattr(func, "__module__", None)
        if namespace == known.namespace:
            return True
        # A method is no file's: the minion's own, for sys.reload_modules.
        is_foreign = namespace in self._modules or isinstance(func, types.MethodType)
        return not is_foreign and key.partition(".")[0] in names

    def unload(self, known):
        """Forget a module that is not what it was when it was loaded; the next lookup loads it again."""
        with self._lock:
            if self._modules.pop(known.namespace, None) is None:
                return
            names = self.names_of(known)
            kept = {
                key: func for key, func in self._dict.items() if not self._is_from(key, func, known, names)
            }
            self.loaded_modules.difference_update(
                {key.partition(".")[0] for key in self._dict}
                - {key.partition(".")[0] for key in kept}
            )
            # Replaced, not changed: a job that iterates or calls goes on with what it has.
            self._dict = kept
            self.loaded_files.discard(known.name)
            self._asked_before.add(known.name)
            self.loaded = False

    def _private(self, known, job):
        """The functions of an instance of the module for one job alone: {key: function}."""
        apart = self._twin()
        # The job's other loaders of this kind use the same instance.
        apart._apart = job.views.setdefault(id(reusable), (reusable, {}))[1]
        apart.shared, apart._files, apart._modules, apart._refused = False, None, {}, {}
        apart.loaded_files, apart.loaded_modules, apart.missing_modules = set(), set(), {}
        apart._dict, apart.loaded = {}, True
        apart._load_module(known.name)
        return apart._dict

    def copy(self):
        """A loader that has loaded what this one has, and packs the same."""
        copy = self._twin()
        copy._dict, copy.loaded, copy.shared = dict(self._dict), False, self.shared
        copy.module_opts = dict(self.module_opts)
        copy._modules, copy._refused = dict(self._modules), dict(self._refused)
        # What another job is just loading is loaded again.
        copy._dict = {
            key: func for key, func in copy._dict.items()
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

    def _is_loaded_name(self, func):
        """Whether a function says that it is of a module which a loader of this kind executed."""
        return str(getattr(func, "__module__", "")).startswith(f"{self.loaded_base_name}.")

    def _twin(self):
        """Another loader with the attributes of this one."""
        twin = LoaderBase.__new__(Loader)
        vars(twin).update(vars(self))
        twin.pack, twin.pack_self, twin.inject_globals = self.pack, self.pack_self, self.inject_globals
        twin.module_opts = self.module_opts
        twin._lock, twin._clean_module_dirs = self._get_lock(), []
        return twin


def _are_the_same(before, now):
    """Whether two dicts hold the same objects."""
    now = dict(now)
    return before.keys() == now.keys() and all(now[key] is value for key, value in before.items())


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


def _test_of(loader, job):
    """Where the loader's ``opts["test"]`` stands for this job: a (mapping, key) to read and write."""
    if job is None or not loader.shared:
        return loader.opts, "test"
    _, views = job.views.setdefault(id(loader), (loader, {}))
    tests = views.setdefault("test", {})
    if "test" not in tests and "test" in loader.opts:
        tests["test"] = loader.opts["test"]
    return tests, "test"


def _module_opts_in_use(loader, func, job):
    """The ``__opts__`` that ``func``'s module reads in this loader and job, if it read any yet."""
    owner = getattr(func, "__module__", None)
    if job is None or not loader.shared:
        return loader.module_opts.get(owner)
    views = job.views.get(id(loader))
    return views[1].get(("__opts__", owner)) if views is not None else None


def before_call(loader, func):
    """Salt makes ``__opts__["test"]`` of the module a bool from the loader's, at each call."""
    job = current_job()
    opts = _module_opts_in_use(loader, func, job)
    if opts is not None:
        tests, key = _test_of(loader, job)
        if key in tests:
            opts[key] = tests[key] is not False


def after_call(loader, func):
    """Salt takes a changed ``__opts__["test"]`` of the module over into the loader's."""
    job = current_job()
    opts = _module_opts_in_use(loader, func, job)
    if opts is not None:
        tests, key = _test_of(loader, job)
        if key in tests:
            tests[key] = opts[key]


def view_opts(loader, value):
    """A job's own opts over those of a shared loader or of one of its modules."""
    opts = job_opts(value, loader._minion_data)
    if str(getattr(value, "_name", "")).startswith("module:") and "test" in loader.opts:
        opts["test"] = _test_of(loader, current_job())[0]["test"] is not False
    return opts


def view_dict(name):
    """A job's own view of the pillar or grains of a shared loader: one for all loaders that share them."""

    def view(loader, value):
        if not isinstance(value, dict):
            return value
        shared = unwrapped(value)
        _, views = current_job().views.setdefault(id(shared), (shared, {}))
        if name not in views:
            views.setdefault(name, job_dict(shared, name))
        return views[name]

    return view


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
        inject=lambda inject_globals, func: global_injector_decorator(inject_globals)(func),
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
