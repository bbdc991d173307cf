"""``LazyLoader._load_module``: a file is executed when it has to be, and what it left is known afterwards."""

import functools
import importlib
import os
import sys
import types

from salt.loader.context import NamedLoaderContext
from salt.loader.lazy import SALT_BASE_PATH
from salt.utils.optsdict import safe_opts_copy

from ..core import JobContext, loading
from ..forksafe import ForkSafeLock
from . import context, helpers, installation, names, source
from .modulestate import LoadedModule, Refusal, afresh, forget_frames, reusable
from .optsdict import are_the_same

_SALT = str(SALT_BASE_PATH)

# Salt itself writes which provider a call is for into the globals of these.
_NEVER_REUSED = {"clouds"}

_loading = context.loading
_looks = {}


class _Loading:
    """
    The load of one module.

    is_custom: bool, the file is none of Salt's own. stamp, imports: what the file and what it can import
    were like before either was read; stamp None where that cannot be told, and where none is used again. known: the
    LoadedModule that is used again, module: the module object, answer: what its ``__virtual__`` said; None until known.
    wrote_context: it wrote to the base layer of ``__context__``, or another load at the same time did.
    is_whole: bool, the file was executed to its end. is_executed: bool, that is done in a module object which is there
    before. look: the lock that is held from when one is put into sys.modules until Salt has found it, and not while the
    module's own code runs, which may wait for other loads.
    """

    __slots__ = (
        "is_custom", "stamp", "imports", "known", "module", "answer", "wrote_context", "is_whole",
        "is_executed", "look",
    )

    def __init__(self, namespace, path, suffix, tag):
        self.is_custom = not path.startswith(_SALT)
        self.imports = installation.revision(), helpers.forget_changed() if self.is_custom else 0
        self.stamp = source.stamp(path) if suffix == ".py" and tag not in _NEVER_REUSED else None
        self.known = self.module = self.answer = None
        self.wrote_context = self.is_whole = False
        self.is_executed = _is_executed(path, suffix)
        self.look = _look(namespace) if self.is_executed else ForkSafeLock()


class _OtherModule(BaseException):
    """Salt is about to use a module object that is another load's; nothing of Salt's catches it."""


def _look(namespace):
    """The lock of all loads of a module."""
    if namespace not in _looks:
        _looks.setdefault(namespace, ForkSafeLock())
    return _looks[namespace]


def _is_executed(path, suffix):
    """Whether the file is code, not an extension module or an archive."""
    return suffix in (".py", ".pyc") or suffix == "" and os.path.isfile(os.path.join(path, "__init__.py"))


def _without_load(func, args, kwargs):
    # What the module's own code loads meanwhile is another load.
    _loading.set(None)
    return func(*args, **kwargs)


class ModuleLoading:
    """The part of a Loader that loads a module from its file."""

    def _load_module(self, name):
        missing = set(self.missing_modules)
        try:
            return self._load_whole(name, missing)
        except Exception:
            raise
        except BaseException:
            self._forget_half(name, missing)
            raise

    def _forget_half(self, name, missing):
        """A job that is interrupted leaves no half of a module to those after it; in Salt its loaders die with it."""
        namespace = self._namespace(name, self.file_mapping[name][0])
        self._modules.pop(namespace, None)
        self.loaded = False
        self._dict = {
            key: func for key, func in list(self._dict.items()) if getattr(func, "__module__", None) != namespace
        }
        for module in set(self.missing_modules) - missing:
            self.missing_modules.pop(module, None)
        self.loaded_files.discard(name)
        self._unsettle()

    def _namespace(self, name, path):
        return f"{self.loaded_base_name}.{self.mod_type_check(path)}.{self.tag}.{name}"

    def _load_whole(self, name, missing):
        path, suffix = self.file_mapping[name][:2]
        if self._files is not None:
            self._files.add_file(os.path.join(path, "__init__.py") if suffix == "" else path)
        namespace = self._namespace(name, path)
        load = _Loading(namespace, path, suffix, self.tag)
        expected = names.of_loader(self).expect(path) if suffix == ".py" and not load.is_custom else None
        self._drop_import_caches(load.imports[0])
        if self._apart is not None:
            load.known = self._apart.get(namespace)
        elif load.stamp is not None:
            load.known = reusable.find(namespace, path, load.stamp, load.imports)
        while True:
            try:
                load.look.acquire()
                self._put_module(namespace, load)
                loaded = self._load_and_note_helpers(name, path, load)
                break
            except _OtherModule:
                # Another load of the same file ended between this and Salt's own look into sys.modules.
                continue
            finally:
                # In one line: what interrupts a job between two would leave the lock taken.
                load.look._is_owned() and load.look.release()
        forget_frames(name, self.tag)
        if expected is not None and load.is_whole:
            names.of_loader(self).note(path, expected, name, load.module)
        if load.module is not None and load.known is None:
            self._own_opts(load)
        if loaded is not True:
            self._refused[name] = Refusal(name, load.module, set(self.missing_modules) - missing)
            self._unsettle()
            self._asked_before.add(name)
            reusable.forget(namespace, path)
        elif load.module is not None:
            self._keep(name, path, load)
        return loaded

    def _put_module(self, namespace, load):
        """Into sys.modules what Salt is to use: it would execute the file in what running jobs use."""
        if load.known is not None:
            sys.modules[namespace] = load.module = load.known.module
            # Its __init__ and __virtual__ read it, too.
            self._own_opts(load)
        elif load.is_executed:
            # Another in its place, not none: Salt asks whether there is one, and then for it.
            sys.modules[namespace] = load.module = types.ModuleType(namespace)
        else:
            sys.modules.pop(namespace, None)

    def _keep(self, name, path, load):
        known = LoadedModule(name, load, self._dict, self.tag)
        if self.shared:
            self._modules[known.namespace] = known
            self._unsettle()
        if self._apart is not None:
            self._apart.setdefault(known.namespace, known)
        elif load.stamp is not None and load.known is None:
            reusable.keep(path, load.stamp, load.imports, known)

    def _load_and_note_helpers(self, name, path, load):
        token = _loading.set(load)
        imported = dict(sys.modules) if load.is_custom else None
        shared = self.pack["__context__"] if self.shared else None
        base = shared.base if isinstance(shared, JobContext) else {}
        before = dict(base)
        try:
            return self._load_into_base(name)
        finally:
            _loading.reset(token)
            load.wrote_context = not are_the_same(before, dict(base))
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
        if isinstance(opts, context.ModuleOpts) and opts.owner is not None:
            # Salt leaves a named context alone: what it would have made for this loader is made here.
            own = safe_opts_copy(self.opts, name=f"module:{load.known.name}" if load.known else "module:")
            if module.__orig_opts__:
                own.update(module.__orig_opts__)
            self.module_opts[opts.owner] = opts.default = own
        elif opts is not None and not isinstance(opts, NamedLoaderContext):
            self.module_opts[module.__name__] = opts
            module.__opts__ = context.ModuleOpts("__opts__", module.__salt_loader__, opts)
            module.__opts__.owner = module.__name__

    def run(self, _func_or_method, /, *args, **kwargs):
        load = _loading.get()
        if load is None:
            return super().run(_func_or_method, *args, **kwargs)
        name = getattr(_func_or_method, "__name__", "")
        if name == "exec_module":
            load.look._is_owned() and load.look.release()
            if load.module is None:
                load.module = args[0]
            elif args[0] is not load.module:
                raise _OtherModule
            if load.known is not None:
                load.is_whole = True
                return None
            _func_or_method = source.trustworthy(_func_or_method.__self__).exec_module
        result = super().run(_without_load, _func_or_method, args, kwargs)
        if name == "__virtual__":
            load.answer = result
        elif name == "exec_module":
            load.is_whole = True
        return result
