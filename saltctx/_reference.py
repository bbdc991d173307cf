"""
The types of :mod:`saltctx._core` in plain Python.

This is the executable specification: every test of a type runs on the C type and on the one
here. It is also what runs where the extension could not be built; ``saltctx.status`` says so.

All operations may be called from any thread, with or without the GIL. A compound operation on
one mapping is not atomic against another thread of the *same* job.
"""

import contextvars
import copy
import functools
import inspect
import os
import reprlib
import time
import types

from .forksafe import ForkSafeLock

__all__ = [
    "Counter",
    "FileStamps",
    "FileWatch",
    "Job",
    "JobContext",
    "LayeredLookup",
    "LoadedFunction",
    "LoaderBase",
    "NamedContext",
    "ObjectEvidence",
    "bind",
    "current_job",
    "loading",
]

_scope = contextvars.ContextVar("saltctx_job")
_MISSING = object()


class _Deleted:
    """Marks a key of the base layer that a job deleted for itself."""

    def __repr__(self):
        return "<deleted>"


_DELETED = _Deleted()


class _Loading:
    """The scope of a module that is being loaded: writes go to the base layer."""

    __slots__ = ("outer",)

    def __init__(self, outer):
        self.outer = outer


class Job:
    """
    One run of a job: ``Job(jid="", fun="", minion_id="")``, three str.

    ``start_ns`` is ``time.time_ns()`` at construction. ``layer`` is the dict of what the job wrote to
    ``__context__``, ``views`` the dict of values made once a job for a loader's dunders, ``uses`` what
    the job looked up in shared loaders: {id(loader): (loader, {key: the job's own function or None})}.
    A Job may be entered by several threads at once, and by one thread again.
    """

    __slots__ = ("jid", "fun", "minion_id", "start_ns", "layer", "views", "uses", "__weakref__")

    def __init__(self, jid="", fun="", minion_id=""):
        for name, value in (("jid", jid), ("fun", fun), ("minion_id", minion_id)):
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a str, not {type(value).__name__}")
            object.__setattr__(self, name, value)
        object.__setattr__(self, "start_ns", time.time_ns())
        object.__setattr__(self, "layer", {})
        object.__setattr__(self, "views", {})
        object.__setattr__(self, "uses", {})

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} of a Job cannot be assigned")

    def run(self, func, /, *args, **kwargs):
        """Call ``func`` with this job as the current one; the outer job is back afterwards, whatever happens."""
        token = _scope.set(self)
        try:
            return func(*args, **kwargs)
        finally:
            _scope.reset(token)

    def enter(self):
        """Make this the current job of the running context; returns the token for :meth:`exit`."""
        return _scope.set(self)

    def exit(self, token, /):
        """Give the context its outer job back. ValueError in another context, RuntimeError for a used token."""
        _scope.reset(token)

    def __repr__(self):
        return f"<Job jid={self.jid!r} fun={self.fun!r} minion_id={self.minion_id!r}>"


def current_job():
    """The :class:`Job` of the running context, or None."""
    scope = _scope.get(None)
    while type(scope) is _Loading:
        scope = scope.outer
    return scope


def loading(func, /, *args, **kwargs):
    """Call ``func`` while what it writes to a :class:`JobContext` goes to the base layer."""
    token = _scope.set(_Loading(_scope.get(None)))
    try:
        return func(*args, **kwargs)
    finally:
        _scope.reset(token)


class JobContext(dict):
    """
    The mapping behind ``__context__``: ``JobContext(share_base=False)``.

    Inside a job a read finds the job's layer, then the base layer, and a write goes to the job's
    layer; a delete of a base key hides it from this job. Outside a job, reads and writes go to the
    outside layer over the base layer; inside :func:`loading` to the base layer alone. A plain dict,
    list or set of the base layer is deep-copied into the job's layer when the job first reads it,
    unless ``share_base``; what cannot be copied is shared. All JobContexts share one job's layer.

    The inherited dict storage holds one marker only: C code that takes a dict's size before it asks
    for its items (``json``) must not find it empty.
    """

    __slots__ = ("_base", "_outside", "_share_base", "__weakref__")

    def __new__(cls, share_base=False):
        self = dict.__new__(cls)
        dict.__setitem__(self, _DELETED, _DELETED)
        self._base = {}
        self._outside = {}
        self._share_base = bool(share_base)
        return self

    def __init__(self, share_base=False):
        """Nothing: dict's own would fill the inherited storage."""

    @property
    def base(self):
        """The base layer, a plain dict."""
        return self._base

    @property
    def outside(self):
        """The layer of what runs in no job, a plain dict."""
        return self._outside

    def _top(self):
        """The layer that takes writes; None while loading (then the base layer does)."""
        scope = _scope.get(None)
        if scope is None:
            return self._outside
        return None if type(scope) is _Loading else scope.layer

    def _own(self, top, key, value):
        """A base value as a reader of ``top`` may have it: its own copy of a plain container."""
        if type(value) not in (dict, list, set) or self._share_base or top is self._outside:
            return value
        try:
            value = copy.deepcopy(value)
        except Exception:  # a lock or socket inside: shared, as the value of any other type
            return value
        return top.setdefault(key, value)

    def _lookup(self, key):
        top = self._top()
        if top is None:
            return self._base.get(key, _MISSING)
        value = top.get(key, _MISSING)
        if value is _MISSING:
            value = self._base.get(key, _MISSING)
            if value is not _MISSING:
                value = self._own(top, key, value)
        return _MISSING if value is _DELETED else value

    def _snapshot(self):
        top = self._top()
        merged = dict(self._base)
        if top is None:
            return merged
        for key, value in merged.items():
            if key not in top:
                merged[key] = self._own(top, key, value)
        merged.update(dict(top))
        return {key: value for key, value in merged.items() if value is not _DELETED}

    def __getitem__(self, key):
        value = self._lookup(key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key, value):
        top = self._top()
        (self._base if top is None else top)[key] = value

    def __delitem__(self, key):
        if self._pop(key) is _MISSING:
            raise KeyError(key)

    def _pop(self, key):
        value = self._lookup(key)
        if value is _MISSING:
            return value
        top = self._top()
        if top is None:
            self._base.pop(key, None)
        elif key in self._base:
            top[key] = _DELETED
        else:
            top.pop(key, None)
        return value

    def __contains__(self, key):
        top = self._top()
        if top is not None:
            value = top.get(key, _MISSING)
            if value is _DELETED:
                return False
            if value is not _MISSING:
                return True
        return key in self._base

    def __len__(self):
        top = self._top()
        if not top:
            return len(self._base)
        merged = dict(self._base)
        merged.update(dict(top))
        return sum(value is not _DELETED for value in merged.values())

    def __iter__(self):
        return iter(self._snapshot())

    def __reversed__(self):
        return reversed(self._snapshot())

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, dict):
            return NotImplemented
        if isinstance(other, JobContext):
            other = other._snapshot()
        return self._snapshot() == other

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None

    @reprlib.recursive_repr("{...}")
    def __repr__(self):
        return repr(self._snapshot())

    def get(self, key, default=None, /):
        value = self._lookup(key)
        return default if value is _MISSING else value

    def setdefault(self, key, default=None, /):
        value = self._lookup(key)
        if value is _MISSING:
            self[key] = value = default
        return value

    def pop(self, key, default=_MISSING, /):
        value = self._pop(key)
        if value is not _MISSING:
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self):
        for key in reversed(self._snapshot()):
            value = self._pop(key)
            if value is not _MISSING:
                return key, value
        raise KeyError("popitem(): dictionary is empty")

    def update(self, other=(), /, **kwargs):
        for key, value in dict(other, **kwargs).items():
            self[key] = value

    def clear(self):
        for key in self._snapshot():
            self._pop(key)

    def keys(self):
        return self._snapshot().keys()

    def values(self):
        return self._snapshot().values()

    def items(self):
        return self._snapshot().items()

    def copy(self):
        """A plain dict of what this job sees; values are shared."""
        return self._snapshot()

    __copy__ = copy

    def __deepcopy__(self, memo):
        made = memo[id(self)] = {}
        made.update(copy.deepcopy(self._snapshot(), memo))
        return made

    def __reduce_ex__(self, protocol):
        return dict, (self._snapshot(),)

    def __or__(self, other):
        return self._snapshot() | other if isinstance(other, dict) else NotImplemented

    def __ror__(self, other):
        return other | self._snapshot() if isinstance(other, dict) else NotImplemented

    def __ior__(self, other):
        self.update(other)
        return self


class _Binding:
    """What :func:`bind` handed over."""

    loader_var = contextvars.ContextVar("saltctx_loader")
    loaded_function = None
    loaded_coroutine = None
    named_context = None
    is_coroutine = staticmethod(inspect.iscoroutinefunction)
    keep_generator = None
    inject = None
    before_call = None
    after_call = None
    no_value = None
    variables = {}
    views = {}


# The calls of loaders under way in a context, innermost first: (loader, outer chain or None).
_calls = contextvars.ContextVar("saltctx_calls", default=None)


def bind(
    *,
    loader_var,
    loaded_function,
    loaded_coroutine,
    named_context,
    is_coroutine,
    keep_generator,
    inject,
    before_call,
    after_call,
    no_value,
    variables,
    views,
):
    """
    Hand over what belongs to the host: once a process, before any loader is made.

    loader_var: ContextVar of the running loader.
    loaded_function, loaded_coroutine: subclasses of LoadedFunction that a lookup returns.
    named_context: type with a method value(): for an instance that a function returns, what that gives is
    handed out.
    is_coroutine(func) -> bool: asked for anything but a plain function.
    keep_generator(context, generator) -> generator: runs each step of ``generator`` in ``context``.
    inject(loaded, inject_globals, func) -> callable: wraps the function of ``loaded``, a LoadedFunction, whose loader
    has ``inject_globals``.
    before_call(loader, func), after_call(loader, func): called around a call, in the loader's context,
    unless the loader is shared and the job has no views; ``after_call`` only if the call returned.
    no_value(name): raises the host's error for a dunder that the loader does not pack.
    variables: {dunder name: ContextVar that holds its value}.
    views: {dunder name: view(loader, value) -> the value as one job may have it}.

    Raises TypeError for a wrong type. Not safe against calls under way.
    """
    for type_ in (loaded_function, loaded_coroutine):
        if not (isinstance(type_, type) and issubclass(type_, LoadedFunction)):
            raise TypeError(f"a subclass of LoadedFunction was expected, not {type_!r}")
    if not isinstance(named_context, type):
        raise TypeError(f"a type was expected, not {named_context!r}")
    for variable in (loader_var, *variables.values()):
        if not isinstance(variable, contextvars.ContextVar):
            raise TypeError(f"a ContextVar was expected, not {type(variable).__name__}")
    _Binding.loader_var = loader_var
    _Binding.loaded_function = loaded_function
    _Binding.loaded_coroutine = loaded_coroutine
    _Binding.named_context = named_context
    _Binding.is_coroutine = staticmethod(is_coroutine)
    _Binding.keep_generator = staticmethod(keep_generator)
    _Binding.inject = staticmethod(inject)
    _Binding.before_call = staticmethod(before_call)
    _Binding.after_call = staticmethod(after_call)
    _Binding.no_value = staticmethod(no_value)
    _Binding.variables = dict(variables)
    _Binding.views = dict(views)


class LoaderBase:
    """
    The hot methods of a loader, with no state of a call on the loader.

    Fields, set by the subclass: ``_dict`` {name: function}, ``loaded`` (all is in ``_dict``), ``pack``
    {dunder name: value}, ``pack_self`` (the dunder that is this loader, or None), ``inject_globals``,
    ``module_opts`` {module: its own value of a dunder}, ``shared`` (jobs share this loader). A field
    that was not set raises AttributeError. The subclass provides ``_load_missing(key)``, which loads
    and returns the function or raises KeyError; ``_first_use(key)``, called when a job first looks up
    a key in a shared loader, which returns the function that this job is to have, or None for the
    loader's; and ``_load_all()``.
    """

    shared = False

    def _find(self, key):
        """The function and whether it is the job's own; KeyError."""
        job = current_job() if self.shared else None
        if job is not None:
            # The entry keeps the loader alive, so that its id is not used again within the job.
            _, used = job.uses.get(id(self)) or job.uses.setdefault(id(self), (self, {}))
            func = used.get(key, _MISSING)
            if func is _MISSING:
                func = used.setdefault(key, self._first_use(key))
            if func is not None:
                return func, True
        func = self._dict.get(key, _MISSING)
        if func is not _MISSING:
            return func, False
        # What others load or take back between these two looks, only _load_missing() can tell.
        if not self.shared and self.loaded:
            raise KeyError(key)
        return self._load_missing(key), False

    def __getitem__(self, key):
        func, own = self._find(key)
        coroutine = _is_coroutine(func)
        type_ = _Binding.loaded_coroutine if coroutine else _Binding.loaded_function
        return type_(key, self, func, own)

    def __contains__(self, key):
        try:
            self._find(key)
        except KeyError:
            return False
        return True

    def get(self, key, default=None):
        """The loaded function, or ``default``."""
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self):
        if not self.loaded:
            self._load_all()
        return iter(list(self._dict))

    @property
    def parent_loader(self):
        """The loader whose function called into this one, in the running context; None at the outermost."""
        chain = _calls.get()
        while chain is not None:
            if chain[0] is self:
                return None if chain[1] is None else chain[1][0]
            chain = chain[1]
        return None

    @parent_loader.setter
    def parent_loader(self, value):
        if value is not None:
            raise AttributeError("parent_loader follows the running call: only None can be assigned")

    def run(self, _func_or_method, /, *args, **kwargs):
        """Call in this loader's context: a copy of the running thread's, entered for this call alone."""
        context = contextvars.copy_context()
        return context.run(_run_in_context, self, None, context, False, _func_or_method, args, kwargs)


def _is_coroutine(func):
    """Whether ``func`` gives a coroutine: a plain function tells by its code, the host is asked for others."""
    if isinstance(func, types.FunctionType):
        if func.__code__.co_flags & inspect.CO_COROUTINE:
            return True
        if "_is_coroutine_marker" not in vars(func):  # left by inspect.markcoroutinefunction
            return False
    return bool(_Binding.is_coroutine(func))


def _enter_loader(loader, job):
    if job is not None:
        _scope.set(job)
    current = _Binding.loader_var.get(None)
    if current is not loader:
        _push_call(loader, current)
        _Binding.loader_var.set(loader)


def _push_call(loader, current):
    outer = _calls.get()
    if current is None:
        if outer is None:
            return  # an outermost call has no parent, which is what no entry means
        outer = None
    elif outer is None or outer[0] is not current:
        outer = (current, None)
    _calls.set((loader, outer))


def _has_views(loader):
    """Whether a call may meet a module's own opts, so that the host must be asked around it."""
    if not loader.shared:
        return True
    job = current_job()
    return job is None or bool(job.views)


def _run_in_context(loader, job, context, ask_host, func, args, kwargs):
    _enter_loader(loader, job)
    if ask_host and _has_views(loader):
        _Binding.before_call(loader, func)
    result = func(*args, **kwargs)
    if ask_host and _has_views(loader):
        _Binding.after_call(loader, func)
    if isinstance(result, _Binding.named_context or NamedContext):
        return result.value()
    if type(result) is types.GeneratorType:
        return _Binding.keep_generator(context, result)
    return result


def _value_or_missing(mapping, key):
    """In one step if it is a plain dict: another thread may take the key away between two."""
    if type(mapping) is dict:
        return mapping.get(key, _MISSING)
    return mapping[key] if key in mapping else _MISSING


class LayeredLookup:
    """
    A method of a class of dicts that lie over each other: ``_local`` and, below, that of ``_parent``, and so on;
    ``_base`` of the last. The nearest value counts.

    kind: ``__getitem__``, ``__contains__`` or ``get``. deleted: the value that hides a key. wrap(self, key, value):
    what is handed out for a dict or list that is not the object's own, unless it is a ``layered``, or
    ``_proxy_cache`` has ``(what, id(value))`` for the key. snapshot: a class of dicts, each of which holds what it
    would hand out; of exactly such an object what is no dict or list is taken from there, where it is there.
    """

    def __init__(self, kind, deleted, wrap, layered, snapshot=None):
        if kind not in ("__getitem__", "__contains__", "get"):
            raise ValueError(f"no lookup of this kind: {kind}")
        if not isinstance(layered, type):
            raise TypeError("layered must be a class")
        if not isinstance(snapshot, (type, type(None))):
            raise TypeError("snapshot must be a class or None")
        self._kind, self._deleted, self._wrap, self._layered = kind, deleted, wrap, layered
        self._snapshot = snapshot

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, opts, /, *args, **kwargs):
        if self._kind == "get":
            return self._get(opts, *args, **kwargs)
        return {"__getitem__": self._getitem, "__contains__": self._contains}[self._kind](opts, *args, **kwargs)

    def _stored(self, opts, key):
        """The value nearest to ``opts`` and whether it is its own; the marker if there is none."""
        node = opts
        while True:
            value = _value_or_missing(node._local, key)
            if value is not _MISSING:
                return value, node is opts
            parent = node._parent
            if parent is None:
                value = _value_or_missing(node._base, key)
                return self._deleted if value is _MISSING else value, False
            node = parent

    def _held(self, opts, key):
        """What a snapshot itself holds, but no dict or list; the marker if there is none."""
        value = dict.get(opts, key, _MISSING) if type(opts) is self._snapshot else _MISSING
        return _MISSING if isinstance(value, (dict, list)) else value

    def _contains(self, opts, key, /):
        return self._held(opts, key) is not _MISSING or self._stored(opts, key)[0] is not self._deleted

    def _getitem(self, opts, key, /):
        held = self._held(opts, key)
        if held is not _MISSING:
            return held
        value, own = self._stored(opts, key)
        if value is self._deleted:
            raise KeyError(key)
        if own or not isinstance(value, (dict, list)) or isinstance(value, self._layered):
            return value
        cached = opts._proxy_cache.get(key)
        if cached is not None and cached[1] == id(value):
            return cached[0]
        return self._wrap(opts, key, value)

    def _get(self, opts, key, default=None):
        # By the class's __getitem__, which a subclass may have replaced.
        try:
            return opts[key]
        except KeyError:
            return default


class LoadedFunction:
    """
    One function of a loader: ``LoadedFunction(name, loader, func=None, own=False)``.

    Without ``func`` it is looked up in the loader, KeyError if it is not there. A call finds the function
    in the loader again, unless it is the job's ``own``, or the loader has it no more: then ``func`` it is.
    It runs in the loader's context. Attributes are the function's. Made inside a job and called where
    there is none (a thread of the job), it runs in that job.
    """

    # Not in the instance dict, which functools.wraps() hands on to whatever wraps this.
    __slots__ = ("_func", "_own", "_job", "__dict__", "__weakref__")

    def __init__(self, name, loader, func=None, own=False):
        self._func = loader._dict[name] if func is None else func
        self._own = bool(own)
        self._job = current_job()
        self.name = name
        self.loader = loader
        functools.update_wrapper(self, self._func)

    @property
    def func(self):
        """The function that a call runs now."""
        return self._func if self._own else self.loader._dict.get(self.name, self._func)

    def __getattr__(self, name):
        if name in ("_func", "_own", "_job", "func", "loader", "name"):
            raise AttributeError(name)
        return getattr(self.func, name)

    def __call__(self, /, *args, **kwargs):
        loader = self.loader
        func = self.func
        if loader.inject_globals:
            func = _Binding.inject(self, loader.inject_globals, func)
        job = self._job if _scope.get(None) is None else None
        context = contextvars.copy_context()
        return context.run(_run_in_context, loader, job, context, True, func, args, kwargs)

    def __reduce__(self):
        return type(self), (self.name, self.loader, self._func, self._own), self.__dict__

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name!r}>"


class NamedContext:
    """
    A dunder of a module: ``NamedContext(name, loader_context, default=None)``.

    Resolves at each use: through the running loader's ``pack``, or the module's own value if ``owner``
    (a module name) is set and the loader holds one in ``module_opts``; through the job's view of it if
    the loader is shared. ``default`` where no loader runs.
    """

    owner = None

    def __init__(self, name, loader_context, default=None):
        self.name = name
        self.loader_context = loader_context
        self.default = default

    def loader(self):
        """The running loader, or None."""
        variable = getattr(self.loader_context, "loader_ctxvar", None)
        return None if variable is None else variable.get(None)

    def value(self):
        """What the dunder stands for here and now."""
        variable = _Binding.variables.get(self.name)
        if variable is not None:
            return variable.get()
        loader = self.loader()
        if loader is None:
            return self.default
        if self.name == loader.pack_self:
            return loader
        value = _value_or_missing(loader.pack, self.name)
        if value is _MISSING:
            return _Binding.no_value(self.name)
        if not isinstance(loader, LoaderBase):
            return value
        if self.owner is not None:
            value = loader.module_opts.get(self.owner, value)
        view = _Binding.views.get(self.name)
        job = current_job()
        if view is None or job is None or not loader.shared:
            return value
        # The entry keeps the loader alive, so that its id is not used again within the job.
        _, views = job.views.setdefault(id(loader), (loader, {}))
        key = (self.name, self.owner)
        if key not in views:
            views.setdefault(key, view(loader, value))
        return views[key]

    def get(self, key, default=None):
        return self.value().get(key, default)

    def __getitem__(self, item):
        return self.value()[item]

    def __setitem__(self, item, value):
        self.value()[item] = value

    def __delitem__(self, item):
        del self.value()[item]

    def __contains__(self, item):
        return item in self.value()

    def __bool__(self):
        return bool(self.value())

    def __len__(self):
        return len(self.value())

    def __iter__(self):
        return iter(self.value())

    def __getattr__(self, name):
        if name in ("name", "loader_context", "default"):
            raise AttributeError(name)
        return getattr(self.value(), name)


class FileStamps:
    """
    What a set of paths looked like: ``FileStamps(tick_ns=50_000_000, coarse_ns=2_000_000_000)``.

    A stamp is type, mtime, ctime, size, inode and device, or that there was nothing. One taken within
    ``tick_ns`` of a change (``coarse_ns`` where the file's times are whole seconds) is *young*: a
    further change may leave no trace in it. Symbolic links are followed. A path that no file can have
    counts as one where there is nothing; anything but a str raises TypeError. Each method may be called
    from any thread; the stat calls run without the GIL.
    """

    def __init__(self, tick_ns=50_000_000, coarse_ns=2_000_000_000):
        self._tick_ns = tick_ns
        self._coarse_ns = coarse_ns
        self._stamps = {}
        self._lock = ForkSafeLock()

    def _take(self, path):
        now = time.time_ns()
        try:
            stat = os.stat(path)
        except (OSError, ValueError):
            return None, False
        newest = max(stat.st_mtime_ns, stat.st_ctime_ns)
        coarse = stat.st_mtime_ns % 1_000_000_000 == 0 and stat.st_ctime_ns % 1_000_000_000 == 0
        stamp = (
            stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev,
        )
        return stamp, now - newest < (self._coarse_ns if coarse else self._tick_ns)

    def add(self, path, /):
        """Stamp a path that has no stamp yet (the first stamp stays). True if its stamp is young."""
        _check_path(path)
        with self._lock:
            known = self._stamps.get(path)
        if known is None:
            taken = self._take(path)
            with self._lock:
                known = self._stamps.setdefault(path, taken)
        return known[1]

    def restamp(self, path, /):
        """Stamp a path anew. True if the new stamp is young."""
        _check_path(path)
        taken = self._take(path)
        with self._lock:
            self._stamps[path] = taken
        return taken[1]

    def suspects(self):
        """The paths that look otherwise than stamped, or whose stamp is young: a list of str, or None."""
        with self._lock:
            stamps = list(self._stamps.items())
        found = [path for path, (stamp, young) in stamps if young or self._take(path)[0] != stamp]
        return found or None

    def paths(self):
        """The stamped paths, a list of str in the order of their adding."""
        with self._lock:
            return list(self._stamps)

    def __len__(self):
        return len(self._stamps)

    def __contains__(self, path):
        _check_path(path)
        return path in self._stamps


class FileWatch(FileStamps):
    """
    A FileStamps that asks the system what happened instead of looking at each path:
    ``FileWatch(tick_ns=50_000_000, coarse_ns=2_000_000_000, max_watches=None)``.

    suspects() answers the same, and looks only at paths that something happened to since they were last
    found as stamped. What cannot be watched is looked at each time: all paths where there is no inotify, in
    a forked child, or beyond ``max_watches`` (of this object; None: what the system allows); a path with
    a symbolic link in it or on a file system that others may write to. Here that is every path.

    ``polled``: how many of the paths are looked at each time, int. ``reason``: why the first of them
    is, str; None if none is.
    """

    def __init__(self, tick_ns=50_000_000, coarse_ns=2_000_000_000, max_watches=None):
        super().__init__(tick_ns, coarse_ns)

    @property
    def polled(self):
        return len(self)

    @property
    def reason(self):
        return "the implementation in Python does not watch" if len(self) else None


class ObjectEvidence:
    """
    Tells whether dicts hold the objects that they should: ``ObjectEvidence(places)``.

    places: iterable of (mapping: dict, key: str, value: object, reason: object); a missing key counts as
    None. Raises TypeError for anything else. Its length is the number of places. The objects are kept
    alive, and compared by identity. All of it may be used from any thread.
    """

    def __init__(self, places, /):
        self._places = tuple(map(self._place, places))

    @staticmethod
    def _place(item):
        if not (isinstance(item, tuple) and len(item) == 4 and isinstance(item[0], dict) and isinstance(item[1], str)):
            raise TypeError(f"(dict, str, value, reason) was expected, not {item!r}")
        return item

    def changed(self):
        """None while each key holds its very object; else the reason given with the first that does not."""
        for mapping, key, value, reason in self._places:
            if dict.get(mapping, key) is not value:
                return reason
        return None

    def __len__(self):
        return len(self._places)


class Counter:
    """A number that starts at 0 and is added to from any thread: ``Counter()``."""

    def __init__(self):
        self._value = 0
        self._lock = ForkSafeLock()

    def add(self):
        """Add one. No addition of any thread is lost."""
        with self._lock:
            self._value += 1

    @property
    def value(self):
        """How often one was added, an int."""
        return self._value


def _check_path(path):
    if not isinstance(path, str):
        raise TypeError(f"a path must be a str, not {type(path).__name__}")
