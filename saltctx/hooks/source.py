"""``salt.loader.lazy.MODULE_KIND_MAP``: module files become code once, and never from a stale ``.pyc``."""

import importlib.machinery
import importlib.util
import os
import time

import salt.loader.lazy
from salt.loader.lazy import MODULE_KIND_SOURCE

from ..forksafe import ForkSafeLock
from . import deep

TICK_NS = 50_000_000
COARSE_NS = 2_000_000_000

_lock = ForkSafeLock()
_codes = {}


class SourceLoader(importlib.machinery.SourceFileLoader):
    """
    A SourceFileLoader that keeps the code object of a file while the file's stamp is the same.

    Python takes a ``.pyc`` for right if the source has the size and the whole second of the time that the
    ``.pyc`` notes. Here it must also have been written after the source's last change.
    """

    def get_code(self, fullname):
        stamp, newest = _stamp(self.path)
        try:
            known = _codes[self.path]
        except KeyError:
            known = None, None
        if known[0] == stamp:
            return known[1]
        if _pyc_is_newer(self.path, newest):
            code = super().get_code(fullname)
        else:
            code = self.source_to_code(self.get_data(self.path), self.path)
        if not _is_young(newest):
            with _lock:
                _codes[self.path] = stamp, code
        return code


def trustworthy(loader):
    """A SourceLoader in the place of Python's own, which Salt takes for a package; any other loader as it is."""
    if type(loader) is importlib.machinery.SourceFileLoader:
        return SourceLoader(loader.name, loader.path)
    return loader


def stamp(path):
    """A value that is another one when the file is; None if there is none, or it changed too lately to tell."""
    try:
        found, newest = _stamp(path)
    except OSError:
        return None
    return None if _is_young(newest) else found


def _stamp(path):
    stat, link = os.stat(path), os.lstat(path)
    return (
        (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev),
        # A link's own time is that of its last swap.
        max(stat.st_mtime_ns, stat.st_ctime_ns, link.st_ctime_ns),
    )


def _is_young(newest):
    return time.time_ns() - newest < (TICK_NS if newest % 1_000_000_000 else COARSE_NS)


def _pyc_is_newer(path, newest):
    try:
        cached = os.stat(importlib.util.cache_from_source(path))
    except (OSError, NotImplementedError):
        return True  # none there: Python compiles the source, and writes one
    return cached.st_mtime_ns > newest + TICK_NS


def install():
    """Let Salt's loaders make code of source files by :class:`SourceLoader`."""
    deep.replace_item(salt.loader.lazy.MODULE_KIND_MAP, MODULE_KIND_SOURCE, SourceLoader)
