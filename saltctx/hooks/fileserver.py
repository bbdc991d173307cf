"""``salt.fileserver``: a masterless minion's list of file times is written again only if it changed."""

import os

import salt.fileserver
import salt.utils.stringutils
from salt.fileserver import Fileserver

from ..core import LoaderBase
from . import deep


def install():
    """
    Fileserver.update() leaves out the backend ``roots`` where it would write what its ``mtime_map`` says already.

    Each file client of each state run updates; to truncate a file that was written a moment ago waits for the disk.
    """

    def make(original):
        def update(self, back=None, **kwargs):
            if kwargs or not isinstance(self.servers, LoaderBase):
                return original(self, back, **kwargs)
            due = [name for name in self.backends(back) if name != "roots" or not _is_up_to_date(self)]
            return original(self, due) if due else None

        return update

    deep.replace(Fileserver, "update", make)


def _is_up_to_date(fileserver):
    """Whether roots.update() has nothing to tell; what else it does, reaping its cache, is done then."""
    opts = fileserver.opts
    if opts.get("fileserver_events", False):
        return False
    base = os.path.join(opts["cachedir"], "roots")
    try:
        times = salt.fileserver.generate_mtime_map(opts, opts["file_roots"])
        lines = "".join(f"{path}:{mtime}\n" for path, mtime in times.items())
        with open(os.path.join(base, "mtime_map"), "rb") as file:
            if file.read() != salt.utils.stringutils.to_bytes(lines):
                return False
    except (OSError, UnicodeError):
        return False
    try:
        salt.fileserver.reap_fileserver_cache_dir(os.path.join(base, "hash"), fileserver.servers["roots.find_file"])
    except OSError:
        pass  # nothing was served up yet
    return True
