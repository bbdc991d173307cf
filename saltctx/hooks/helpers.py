"""``import`` from a loader's directories: helper files that custom modules share, imported anew when they change."""

import importlib.util
import os
import sys

from ..evidence import FileEvidence
from ..forksafe import ForkSafeLock

_lock = ForkSafeLock()
_helpers = {}
_searched = set()
_changes = 0


def imported(before, directories, loaded_base_name):
    """
    Note what was imported from ``directories`` since sys.modules had the names in ``before``, a container of str.

    Returns the paths, a list of str, of all the helpers known there.
    """
    if not _searched.issuperset(directories):
        # What was imported from there before saltctx was switched on counts too.
        _searched.update(directories)
        before = ()
    for name in [name for name in list(sys.modules) if name not in before]:
        path = _file_of(sys.modules.get(name))
        if path and not name.startswith(loaded_base_name) and _under(path, directories):
            evidence = FileEvidence()
            evidence.add_file(path)
            with _lock:
                _helpers.setdefault(path, (name, evidence))
    with _lock:
        return [path for path in _helpers if _under(path, directories)]


def is_known(path):
    """Whether a file was imported from a loader's directory: who imported it may hold what it was."""
    return path in _helpers


def forget_changed():
    """
    Take helpers whose file changed out of sys.modules; who imports them next gets the new code.

    Returns how many did so far, int: a module that was executed at another number may hold old code.
    """
    global _changes
    with _lock:
        known = list(_helpers.items())
    for path, (name, evidence) in known:
        if evidence.changed() is None:
            continue
        with _lock:
            if _helpers.pop(path, None) is None:
                continue
            _changes += 1
        for other in list(sys.modules):
            if other == name or other.startswith(name + "."):
                sys.modules.pop(other, None)
        try:
            # Its time in whole seconds and its size may fit the new source too.
            os.unlink(importlib.util.cache_from_source(path))
        except (OSError, NotImplementedError):
            pass
    return _changes


def _file_of(module):
    """The path that a module says it is from, a str, or None. One that is made when it is first asked is not asked."""
    try:
        path = object.__getattribute__(module, "__file__")
    except Exception:
        return None
    return path if isinstance(path, str) else None


def _under(path, directories):
    return any(path.startswith(directory + os.sep) for directory in directories)
