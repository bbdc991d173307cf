"""``LazyLoader._refresh_file_mapping``: one look into the module directories serves every loader of the process."""

import collections
import importlib.util
import os

from ..evidence import FileEvidence
from ..forksafe import ForkSafeLock

KEPT = 256

_lock = ForkSafeLock()
_scans = collections.OrderedDict()
# Source files that were modules: what Python leaves of one in __pycache__ is no module once it is gone.
_sources = set()


class Scan:
    """
    What Salt's scan of a loader's directories found, and the evidence of what it looked at.

    packages: list of str, the directories inside them, which are modules or may become some.
    """

    def __init__(self, loader, look):
        self._files = FileEvidence()
        for directory in loader.module_dirs:
            self._files.add_directory(directory)
        look()
        mapping = loader.file_mapping
        self.packages = []
        for name, (path, suffix, _) in list(mapping.items()):
            if suffix == ".py":
                _sources.add(path)
            elif suffix == ".pyc" and _is_left_over(path):
                del mapping[name]
        for directory in loader.module_dirs:
            # A directory becomes a module when it gets an __init__ file; its parent does not tell.
            for package in _directories(directory):
                self._files.add_directory(package)
                self.packages.append(package)
        self._found = dict(mapping), dict(loader.suffix_map), list(loader.suffix_order)

    def holds(self):
        """Whether the directories still list what the scan found."""
        return self._files.changed() is None

    def give(self, loader):
        """Set on the loader what the scan itself would set."""
        mapping, suffix_map, suffix_order = self._found
        loader.file_mapping = dict(mapping)
        loader.suffix_map = dict(suffix_map)
        loader.suffix_order = list(suffix_order)


def refresh(loader, look):
    """
    Bring the loader's ``file_mapping`` up to date; ``look()`` is Salt's own scan. Returns the Scan.

    A scan counts while its directories list the same names.
    """
    key = _key(loader)
    try:
        scan = _scans[key]
    except KeyError:
        scan = None
    if scan is not None and scan.holds():
        scan.give(loader)
        return scan
    scan = Scan(loader, look)
    with _lock:
        _scans[key] = scan
        _scans.move_to_end(key)
        while len(_scans) > KEPT:
            _scans.popitem(last=False)
    return scan


def _key(loader):
    """All that Salt's scan depends on beside the disk."""
    opts = loader.opts
    return (
        tuple(loader.module_dirs), frozenset(loader.disabled), tuple(loader.static_modules),
        tuple(opts.get("optimization_order") or ()), opts.get("cython_enable", True) is True,
        opts.get("enable_zip_modules", True) is True,
    )


def _is_left_over(path):
    try:
        return importlib.util.source_from_cache(path) in _sources
    except ValueError:
        return False


def _directories(directory):
    try:
        with os.scandir(directory) as entries:
            return [
                entry.path for entry in entries
                if entry.name[0] not in "_." and "." not in entry.name and entry.is_dir()
            ]
    except OSError:
        return []
