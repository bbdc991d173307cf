"""``LazyLoader._iter_files``: a lookup that misses does not load what cannot have the name."""

import types

from ..core import FileStamps
from ..forksafe import ForkSafeLock


class Names:
    """
    The module names that files of one kind of loader may answer to, as long as a file is as it was. Safe in any thread.

    Salt takes for a module's name that of its file, its ``__virtualname__`` or what its ``__virtual__`` returns, and
    its ``__virtual_aliases__``. What ``__virtual__`` may return is taken from its code: good for Salt's own modules.
    """

    def __init__(self):
        self._lock = ForkSafeLock()
        self._stamps = FileStamps()
        self._names = {}
        self._changes = {}

    def expect(self, path):
        """Call before the file is read; hand the answer to :meth:`note`."""
        with self._lock:
            if path not in self._stamps:
                self._stamps.add(path)
            return self._changes.get(path, 0)

    def note(self, path, expected, name, module):
        """Remember the names of a module that was executed to its end. name: str, of its file."""
        if path in self._names:
            return
        names = names_of(name, vars(module))
        with self._lock:
            if names is not None and self._changes.get(path, 0) == expected:
                self._names[path] = names

    def known(self):
        """{path: set of names} of files that are as they were when they were noted."""
        with self._lock:
            for path in self._stamps.suspects() or ():
                self._stamps.restamp(path)
                self._changes[path] = self._changes.get(path, 0) + 1
                self._names.pop(path, None)
            return dict(self._names)


def names_of(name, own):
    """All that Salt may call the module of a file ``name`` with the globals ``own``; None if that is not to be told."""
    virtual, virtualname = own.get("__virtual__"), own.get("__virtualname__")
    aliases = own.get("__virtual_aliases__", ())
    if not isinstance(aliases, (tuple, list)) or not isinstance(virtual, (types.FunctionType, type(None))):
        return None
    names = {name, *aliases}
    if virtual is not None:
        names |= set(_words(virtual.__code__, own, set()))
        names |= {virtualname} if isinstance(virtualname, str) else set()
    return names


def _words(code, own, seen):
    """The strings that a function may return: its constants, and the globals and other functions that it names."""
    seen.add(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _words(constant, own, seen)
        else:
            constants = constant if isinstance(constant, tuple) else (constant,)
            yield from (each for each in constants if isinstance(each, str))
    for value in map(own.get, code.co_names):
        if isinstance(value, str):
            yield value
        elif isinstance(value, types.FunctionType) and value.__globals__ is own and value.__code__ not in seen:
            yield from _words(value.__code__, own, seen)


_lock = ForkSafeLock()
_kinds = {}


def of_loader(loader):
    """The Names of the loader's kind."""
    kind = loader.loaded_base_name, loader.tag
    try:
        return _kinds[kind]
    except KeyError:
        with _lock:
            return _kinds.setdefault(kind, Names())
