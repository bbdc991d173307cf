"""``salt.utils.entrypoints``: installed packages are searched again when an installation changed, not by the clock."""

import sys
import threading

import salt.utils.entrypoints

from ..core import FileStamps
from . import deep

_lock = threading.Lock()
_known = {}


def install():
    """Keep what iter_entry_points found while no directory of sys.path changed."""

    def make(original):
        def iter_entry_points(group, name=None):
            key = group, name, tuple(sys.path)
            with _lock:
                known = _known.get(key)
            if known is not None and known[0].suspects() is None:
                return list(known[1])
            stamps = FileStamps()
            for path in sys.path:
                stamps.add(path or ".")
            # Salt's own memory, of half a second, may be older than the stamps.
            found = original.__wrapped__(group, name)
            with _lock:
                _known.clear()
                _known[key] = stamps, found
            return list(found)

        return iter_entry_points

    deep.replace(salt.utils.entrypoints, "iter_entry_points", make)
