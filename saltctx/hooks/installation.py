"""``sys.path`` and ``PATH``: whether what can be imported or executed may be other than it was."""

import os
import sys

from ..core import FileStamps
from ..forksafe import ForkSafeLock

_lock = ForkSafeLock()
_stamps = FileStamps()
_revision = 0
_told_importers = 0


def revision():
    """
    An int that is another one after a directory of sys.path or PATH changed, or one came that was never there.

    What is installed, upgraded or removed changes its directory; what is edited inside one does not.
    """
    global _revision
    with _lock:
        changed = False
        for path in (*sys.path, *os.environ.get("PATH", "").split(os.pathsep)):
            if path not in _stamps:
                _stamps.add(path)
                changed = True
        for path in _stamps.suspects() or ():
            _stamps.restamp(path)
            changed = True
        if changed:
            _revision += 1
        return _revision


def is_new_to_importers(now):
    """Whether ``now``, a :func:`revision`, is another one than at the last such question: import caches are to go."""
    global _told_importers
    with _lock:
        is_new, _told_importers = _told_importers != now, now
    return is_new
