"""What a loaded module may keep or change between jobs, where Salt executes its file anew for each."""

import collections
import copy
import dis
import types
import weakref

from salt.utils.decorators import Depends

from ..core import current_job, loading

_CONTAINERS = (dict, list, set, bytearray, collections.deque)
_STORES = {"STORE_GLOBAL", "DELETE_GLOBAL"}


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
        self.virtualname = getattr(module, "__virtualname__", None)
        self.missing = {name, *missing}

    def may_be(self, module):
        """Whether the file, asked again, may answer to the module name ``module``."""
        return self.name == module or self.virtualname in (None, module)


class LoadedModule:
    """
    A module of a shared loader: ``namespace``, ``name`` of its file, and what of it a job may change.

    ``watched`` are its globals that code of the module assigns, or whose value is a plain container.
    """

    def __init__(self, name, module, answer, functions, tag):
        self.loaded_by = _weak(current_job())
        self.name = name
        self.namespace = module.__name__
        self.globals = module.__dict__
        self.answer = _plain(answer)
        self.virtual = module.__dict__.get("__virtual__")
        self.path = getattr(module, "__file__", None) or self.namespace
        self.unmet = _has_unmet_dependency(name, module, functions, tag)
        self.watched = _watched(module)

    def is_volatile(self, loader):
        """Whether each job is to have an instance of its own."""
        return self.unmet or self.path in loader._volatile

    def answers_otherwise(self, loader):
        """Ask ``__virtual__`` again, as each job did; whether the answer is another than when it was loaded."""
        if not isinstance(self.virtual, types.FunctionType) or not loader.virtual_enable:
            return False
        try:
            answer = loading(loader.run, self.virtual)
        except Exception:  # Salt logs it when it loads the module again
            return True
        return _plain(answer) != self.answer

    def changed(self):
        """The first global that is not as the file left it: its name, None if all are."""
        for name, value, content in self.watched:
            now = self.globals.get(name, _GONE)
            if now is not value:
                return name
            if content is not None and not _same(now, content):
                return name
        return None


_GONE = object()


def _same(value, content):
    try:
        return bool(value == content)
    except Exception:  # what cannot be compared is taken for changed
        return False


def _plain(answer):
    """What counts of an answer of ``__virtual__``: the reason for a no does not."""
    return answer[0] if isinstance(answer, tuple) and answer else answer


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
    """[(name, value, a copy of a container's content or None)] of the globals that jobs may change."""
    assigned = set()
    for value in list(module.__dict__.values()):
        if isinstance(value, types.FunctionType) and value.__globals__ is module.__dict__:
            assigned |= _globals_assigned(value.__code__)
    watched = []
    for name, value in list(module.__dict__.items()):
        if name.startswith("__") and name.endswith("__"):
            continue
        content = None
        if isinstance(value, _CONTAINERS):
            try:
                content = copy.deepcopy(value)
            except Exception:  # holds what cannot be copied: only its identity is watched
                content = None
            else:
                if not _same(value, content):
                    content = None
        if content is not None or name in assigned:
            watched.append((name, value, content))
    for name in assigned - set(module.__dict__):
        watched.append((name, _GONE, None))
    return tuple(watched)


def _globals_assigned(code):
    names = {
        instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in _STORES
    }
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
                report.reason(
                    f"module {known.path} changes its global {name}: each job has an instance of its own"
                )


def _shared_modules(loader, used):
    """The LoadedModules that the job used as they stand in the loader."""
    found = {}
    for key, own in list(used.items()):
        if isinstance(key, str) and own is None:
            func = loader._dict.get(key)
            known = loader._modules.get(getattr(func, "__module__", None))
            if known is not None and known.watched:
                found[known.namespace] = known
    return found.values()
