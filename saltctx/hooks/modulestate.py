"""What a loaded module may keep or change between jobs, where Salt executes its file anew for each."""

import collections.abc
import contextvars
import copy
import dis
import functools
import io
import types
import weakref

from salt.utils.decorators import Depends

from ..core import Job, JobContext, current_job
from ..forksafe import ForkSafeLock
from . import installation

_CONTAINERS = (dict, list, set, bytearray, collections.deque)
_PLAIN = (int, float, str, bytes, tuple, type(None))
_STORES = {dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]}
_GONE = object()
# In the place of a look at what no look tells anything of: another thing each time.
_UNKNOWN = object
_asking = contextvars.ContextVar("saltctx_asking", default=())


def known_of(loader, key):
    """The LoadedModule that a function of a loader is from, or None."""
    # Subscripts: get() of a dict that threads share is a hundred times slower without the GIL, up to CPython 3.13.
    try:
        return loader._modules[loader._dict[key].__module__]
    except (KeyError, AttributeError):
        return None


def _weak(job):
    """A weak reference to a job, so that no generation keeps one alive; one to nothing outside any job."""
    return _no_job if job is None else weakref.ref(job)


def _no_job():
    return None


class Refusal:
    """A file that did not load: the job that asked (weakly), its ``__virtualname__``, what it is missing under."""

    def __init__(self, name, module, missing):
        self.by = _weak(current_job())
        self.name = name
        self.virtual = getattr(module, "__virtual__", None)
        self.virtualname = getattr(module, "__virtualname__", None)
        self.missing = {name, *missing}

    def may_be(self, module):
        """Whether the file, asked again, may answer to the module name ``module``; None is any name."""
        return module is None or self.name == module or self.virtualname in (None, module)

    def is_of(self, module):
        """Whether the file says itself that it answers to the module name ``module``."""
        return module in (self.name, self.virtualname)

    def says_yes(self, loader):
        """Ask ``__virtual__`` of the module as it stands; False where it did not come to have one."""
        if not isinstance(self.virtual, types.FunctionType) or not loader.virtual_enable:
            return False
        try:
            return bool(_plain(_ask(self.virtual, loader)))
        except Exception:  # Salt logs it when it loads the module
            return False


class LoadedModule:
    """
    A module of a loader: ``namespace``, ``name`` of its file, and what of it a job may change.

    ``watched`` is what code of the module assigns or fills: globals, caches, defaults, attributes. ``is_settled``:
    bool, it is in the next job what it is in this.
    """

    def __init__(self, name, load, functions, tag):
        module = load.module
        self.loaded_by = _weak(current_job())
        self.name = name
        self.namespace = module.__name__
        self.module = module
        self.answer = _plain(load.answer)
        self.is_custom = load.is_custom
        self.wrote_context = load.wrote_context
        self.imports = load.imports
        self.virtual = module.__dict__.get("__virtual__")
        self.may_answer_otherwise = _may_answer_otherwise(self.virtual)
        self.path = getattr(module, "__file__", None) or self.namespace
        self.unmet = _has_unmet_dependency(name, module, functions, tag)
        self.is_settled = not self.may_answer_otherwise and not self.unmet
        self.watched = _watched(module) if load.known is None else load.known.watched

    def may_be(self, module):
        """Whether the module, asked again, may be one of the name ``module``, or have more of it; None is any name."""
        virtualname = self.module.__dict__.get("__virtualname__")
        return (
            module is None or module in (self.name, self.answer, virtualname)
            or (self.virtual is not None and virtualname is None)
        )

    def is_volatile(self, loader):
        """Whether each job is to have an instance of its own."""
        volatile = loader._volatile
        # Nearly always empty, which needs no lock to see.
        if volatile and self.path in volatile:
            return True
        # What Salt's own modules depend on is imported or executed; a custom one may look at anything.
        return self.unmet and self.is_custom

    def is_outdated(self, loader):
        """Whether it is to be loaded again: what it lacks may be there now, or ``__virtual__`` answers otherwise."""
        return self.unmet and self.imports[0] != installation.revision() or self.answers_otherwise(loader)

    def answers_otherwise(self, loader):
        """Ask ``__virtual__`` again, as each job did; whether the answer is another than when it was loaded."""
        if not self.may_answer_otherwise or not loader.virtual_enable:
            return False
        if self.virtual in _asking.get():
            return False  # by what it calls itself
        try:
            answer = _ask(self.virtual, loader)
        except Exception:  # Salt logs it when it loads the module again
            return True
        return _plain(answer) != self.answer

    def changed(self):
        """The first place that is not as the file left it: its name, None if all are."""
        for name, read, value, content in self.watched:
            now = read()
            if now is not value if content is None else not _same(now, content):
                return name
        return None


class Reusable:
    """
    Modules that need no second execution: the file is as it was, and so is what the module may change.

    One for the process. A module that keeps state, or lacks a dependency, is executed for each loader,
    as Salt does with all. Safe in any thread.
    """

    def __init__(self):
        self._lock = ForkSafeLock()
        self._known = {}
        self._volatile = set()

    def find(self, namespace, path, stamp, revision):
        """The LoadedModule to use again, or None."""
        try:
            at, loaded = self._known[namespace, path]
        except KeyError:
            return None
        if path in self._volatile:
            return None
        if at != (stamp, revision):
            return None
        if loaded.changed() is not None:
            self._volatile.add(path)
            self.forget(namespace, path)
            return None
        return loaded

    def keep(self, path, stamp, revision, loaded):
        """Let ``loaded`` be found, unless it keeps state or lacks a dependency that may be anything."""
        if not (loaded.unmet and loaded.is_custom) and path not in self._volatile:
            with self._lock:
                self._known[loaded.namespace, path] = (stamp, revision), loaded

    def forget(self, namespace, path):
        """Let the module be executed again."""
        with self._lock:
            self._known.pop((namespace, path), None)

    def forget_tag(self, base_name, tag):
        """Let all modules of one kind of loader, and of its ``loaded_base_name``, be executed again."""
        kind = tuple(f"{base_name}.{place}.{tag}." for place in ("int", "ext"))
        with self._lock:
            for key in [key for key in self._known if key[0].startswith(kind)]:
                del self._known[key]

    def add_volatile(self, path):
        """A module that keeps state is never used again."""
        self._volatile.add(path)


reusable = Reusable()


def _same(value, content):
    try:
        return bool(value == content)
    except Exception:  # what cannot be compared is taken for changed
        return False


def _ask(virtual, loader):
    """What ``__virtual__`` says now; nothing of what it said before is in its ``__context__``."""
    return afresh(loader, lambda: loader.run(virtual), (*_asking.get(), virtual))[0]


def afresh(loader, func, asking=()):
    """
    (what ``func()`` returns, what it wrote to ``__context__``), in a job of its own where that is empty.

    asking: the ``__virtual__`` functions that wait for the answer.
    """
    shared = loader.pack.get("__context__")

    def run():
        if not isinstance(shared, JobContext):
            return func(), {}
        shared.clear()
        return func(), shared.copy()

    token = _asking.set(asking or _asking.get())
    try:
        return Job().run(run)
    finally:
        _asking.reset(token)


def _may_answer_otherwise(virtual):
    """Whether a module's ``__virtual__`` is a function that looks at anything but constants and ``__virtualname__``."""
    if not isinstance(virtual, types.FunctionType):
        return False
    code = virtual.__code__
    return not (
        set(code.co_names) <= {"__virtualname__"} and not code.co_freevars
        and not any(isinstance(constant, types.CodeType) for constant in code.co_consts)
    )


def _plain(answer):
    """What counts of an answer of ``__virtual__``: the reason for a no does not."""
    return answer[0] if isinstance(answer, tuple) and answer else answer


def forget_frames(name, tag):
    """
    Keep of the frames that ``@depends`` registers what Salt reads of them.

    A frame holds all frames below it, and with them the job that happened to load the module.
    """
    for dependents in list(Depends.dependency_dict.get(tag, {}).values()):
        for key, (frame, params) in list(dependents.items()):
            if key[0] == name and isinstance(frame, types.FrameType):
                own = frame.f_globals
                local = own if frame.f_locals is own else dict(frame.f_locals)
                dependents[key] = types.SimpleNamespace(f_globals=own, f_locals=local), params


def _has_unmet_dependency(name, module, functions, tag):
    """Whether ``@depends`` took away or replaced one of the module's functions."""
    registered = Depends.dependency_dict.get(tag)
    if not registered:
        return False
    for dependents in list(registered.values()):
        for module_name, function_name in list(dependents):
            if module_name != name:
                continue
            function = module.__dict__.get(function_name)
            if not any(found is function for found in list(functions.values())):
                return True
    return False


def _watched(module):
    """[(name, read(), the value, a copy of its content or None)] of what code of the module may change."""
    own = module.__dict__
    places = []
    assigned = set()
    for name, value in list(own.items()):
        if name.startswith("__") and name.endswith("__"):
            continue
        try:
            if isinstance(value, types.FunctionType) and value.__globals__ is own:
                assigned |= _globals_assigned(value.__code__)
            places += _places(name, value, own)
        except Exception:  # a proxy of what is not there now
            places.append((name, _UNKNOWN))
    for function in ("__virtual__", "__init__"):
        # What these assign is made anew whenever a loader asks them.
        if isinstance(own.get(function), types.FunctionType):
            assigned -= _globals_assigned(own[function].__code__)
    watched = [place for place in map(_snapshot, *zip(*places)) if place] if places else []
    watched += [
        (name, functools.partial(own.get, name, _GONE), own.get(name, _GONE), None) for name in assigned
    ]
    return tuple(watched)


def _places(name, value, own):
    """[(name, read())] of the containers that ``value``, a global of the module, is or holds."""
    if isinstance(value, _CONTAINERS):
        return [(name, functools.partial(own.get, name, _GONE))]
    if isinstance(value, functools._lru_cache_wrapper):
        return [(name, lambda: value.cache_info().currsize)]
    if isinstance(value, collections.abc.Iterator) and not isinstance(value, io.IOBase):
        return [(name, _UNKNOWN)]  # no look at it tells how far it is: whoever uses the module may move it
    places = []
    if isinstance(value, types.FunctionType) and value.__module__ == own["__name__"]:
        kept = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        places += [(name, lambda held=held: held) for held in kept if isinstance(held, _CONTAINERS)]
        places += [
            (name, functools.partial(_content, cell)) for cell in value.__closure__ or ()
            if isinstance(_content(cell), (*_CONTAINERS, *_PLAIN))
        ]
        if value.__dict__:
            places.append((name, lambda: value.__dict__))
    elif isinstance(value, type) and value.__module__ == own["__name__"]:
        places += [
            (f"{name}.{key}", functools.partial(getattr, value, key, _GONE))
            for key, held in list(vars(value).items())
            if isinstance(held, (*_CONTAINERS, *_PLAIN)) and not (key.startswith("__") and key.endswith("__"))
        ]
    elif getattr(type(value), "__module__", None) == own["__name__"] and hasattr(value, "__dict__"):
        places.append((name, lambda: vars(value)))
    return places


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return _GONE


def _snapshot(name, read):
    value = read()
    try:
        content = copy.deepcopy(value)
    except Exception:  # holds what cannot be copied
        content = None
    if content is None or not _same(value, content):
        return name, read, value, None
    return name, read, value, content


def _globals_assigned(code):
    names = set()
    # Each second byte is an opcode, and few functions have such a one: to find out is cheaper than to decode.
    if not _STORES.isdisjoint(code.co_code[::2]):
        names = {each.argval for each in dis.get_instructions(code) if each.opcode in _STORES}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_assigned(constant)
    return names


def settle(job, report, volatile):
    """
    At a job's end: a module that it changed is given to each later job as an instance of its own.

    volatile: the set of paths of such modules. What each job used is in ``job.uses``.
    """
    for loader, used in list(job.uses.values()):
        for known in _shared_modules(loader, used):
            name = known.changed()
            if name is not None and known.path not in volatile:
                volatile.add(known.path)
                reusable.add_volatile(known.path)
                report.reason(
                    f"module {known.path} changes its global {name}: each job has an instance of its own"
                )


def _shared_modules(loader, used):
    """The LoadedModules that the job used as they stand in the loader."""
    found, settled = {}, loader._settled
    for key, own in list(used.items()):
        if isinstance(key, str) and own is None and not (key in settled and not settled[key]):
            known = known_of(loader, key)
            if known is not None and known.watched:
                found[known.namespace] = known
    return found.values()
