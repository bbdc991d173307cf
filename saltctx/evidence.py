"""The files and directories that a generation was made from, and whether they still are as they were."""

import hashlib
import os
import time

from .core import FileStamps
from .forksafe import ForkSafeLock

# Directories are the same from one generation to the next, and long: what they list is kept by their times.
KEPT_LISTINGS = 1000
SETTLED_NS = 2_000_000_000
"""Age of a directory's last change at which any further change moves its times, on every file system."""

_known_listings = {}


class FileEvidence:
    """
    Stamps of files and directories, with a second look at those that the stamps leave in doubt.

    A directory is the same while it lists the same names; a file while its stamp is the same, or, where
    the stamp was too young to tell, while its bytes are. All methods may be called from any thread.

    changed_file: the path, str, if it is a file's change that changed() tells of, else None.
    stamps: FileStamps, or FileWatch to be told of changes where the platform tells.
    """

    def __init__(self, stamps=FileStamps):
        self._stamps = stamps()
        self._suspects = self._stamps.suspects
        self._lock = ForkSafeLock()
        self._looking = 0
        self._listings = {}
        self._digests = {}
        self._changed = None
        self.changed_file = None

    def after(self, path):
        """
        A FileEvidence for what is made anew from the file ``path`` and otherwise from what this one stands for.

        Call before reading the file; the file is as it is now, all else as this one knows it. This one has to
        have changed: it takes no further look then, and the stamps are the other's.
        """
        after = object.__new__(FileEvidence)
        vars(after).update(vars(self))
        after._looking, after._changed, after.changed_file = 0, None, None
        # Without a digest any other stamp is a change: what the file was before it changed is no proof.
        digest = _digest(path) if self._stamps.restamp(path) else None
        with self._lock:
            self._digests[path] = digest
        return after

    def add_directory(self, path):
        """Call before reading the directory, a str or os.PathLike. One that does not exist counts too."""
        path = os.fspath(path)
        if path in self._listings:
            return
        self._stamps.add(path)
        listing = _listing(path)
        with self._lock:
            self._listings.setdefault(path, listing)

    def add_file(self, path):
        """Call before reading the file."""
        if self._stamps.add(path):
            digest = _digest(path)
            with self._lock:
                self._digests.setdefault(path, digest)

    def changed(self):
        """None while all is as it was, else what is not: a reason for a person, str, the same from then on."""
        if self._changed is None:
            suspects = self._suspects()
            if suspects is not None:
                self._look_again(suspects)
            elif self._looking:
                # Another thread has taken a new stamp already and does not know yet what it means.
                with self._lock:
                    pass
        return self._changed

    def _look_again(self, suspects):
        with self._lock:
            self._looking += 1
            try:
                for path in suspects:
                    # A second look takes a new stamp, which would find nothing the next time.
                    if self._changed is None:
                        self._changed = self._second_look(path)
            except BaseException:
                # The new stamp may hide what there was no time to say.
                self._changed = self._changed or "a look at changed module files was interrupted"
                raise
            finally:
                self._looking -= 1

    def _second_look(self, path):
        with self._lock:
            listing = self._listings.get(path)
            digest = self._digests.get(path)
        if listing is not None:
            # Stamped first, listed then: a change in between leaves the stamp wrong, not right.
            self._stamps.restamp(path)
            now = _listing(path)
            if now == listing:
                return None
            return f"module directory changed: {path}: {_difference(listing, now)}"
        if digest is not None:
            self._stamps.restamp(path)
            if _digest(path) == digest:
                return None
        self.changed_file = path
        return f"module file changed: {path}"

    @property
    def polled(self):
        """How many of the paths are looked at by stat each time, int."""
        return getattr(self._stamps, "polled", len(self._stamps))

    @property
    def reason(self):
        """Why paths that were to be watched are not: str, None if all are or none was to be."""
        return getattr(self._stamps, "reason", None)

    def __len__(self):
        return len(self._stamps)


def _listing(path):
    """The names that a loader could take for modules: not what an editor or Python itself leaves there."""
    try:
        stat = os.stat(path)
        signature = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev
        known = _known_listings.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        names = os.listdir(path)
    except OSError:
        return None, ()
    listing = True, tuple(sorted(
        name for name in names if (name[0] not in "_." or name.startswith("__init__.")) and name[-1] != "~"
    ))
    if time.time_ns() - max(signature[:2]) > SETTLED_NS:
        if len(_known_listings) >= KEPT_LISTINGS:
            _known_listings.clear()
        _known_listings[path] = signature, listing
    return listing


def _difference(before, after):
    if before[0] != after[0]:
        return "appeared" if after[0] else "disappeared"
    old, new = set(before[1]), set(after[1])
    added = [f"{name} added" for name in sorted(new - old)]
    removed = [f"{name} removed" for name in sorted(old - new)]
    return ", ".join((added + removed)[:5])


def _digest(path):
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).digest()
    except OSError:
        return b""
