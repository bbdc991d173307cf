"""``sys.path`` and ``PATH``: whether what can be imported or executed may be other than it was."""

import os
import sys

from ..core import FileStamps
from ..forksafe import ForkSafeLock

_lock = ForkSafeLock()
_stamps = FileStamps()
_stamped = None
_revision = 0
_told_importers = 0


def revision():
    """
    An int that is another one after a directory of sys.path or PATH changed, or one came that was never there.

    What is installed, upgraded or removed changes its directory; what is edited inside one does not. Safe in any
    thread; where nothing changed, without a lock: jobs ask side by side.
    """
    asked = (*sys.path, *os.environ.get("PATH", "").split(os.pathsep))
    # In this order: who finds the new stamps finds the new revision as well.
    if asked == _stamped and _stamps.suspects() is None:
        return _revision
    return _look_again(asked)


def _look_again(asked):
    global _revision, _stamped
    with _lock:
        missing = [path for path in dict.fromkeys(asked) if path not in _stamps]
        suspects = _stamps.suspects() or ()
        if missing or suspects:
            _revision += 1
        for path in missing:
            _stamps.add(path)
        for path in suspects:
            _stamps.restamp(path)
        _stamped = asked
        return _revision


def is_new_to_importers(now):
    """Whether ``now``, a :func:`revision`, is another one than at the last such question: import caches are to go."""
    global _told_importers
    with _lock:
        is_new, _told_importers = _told_importers != now, now
    return is_new
