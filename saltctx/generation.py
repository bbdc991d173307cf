"""Generations of a minion's loaders: built whole, adopted while the evidence holds, replaced whole."""

import time

from .core import FileStamps
from .evidence import FileEvidence
from .forksafe import ForkSafeLock

PARTIAL_REBUILDS = 10
"""How many changed files one job loads anew one by one: with more, all is built anew."""


class Generation:
    """
    One complete set of loaders and the evidence that it is still right.

    number: int, 1 for a minion's first. context: the JobContext its loaders pack. files: FileEvidence.
    objects: ObjectEvidence whose reasons are str or callables that return one. reason: str, why it was built.
    volatile: set of paths of modules of which each job has an instance of its own. built: time.time()
    of its completion.
    """

    def __init__(self, number, context, reason, volatile, files):
        self.number = number
        self.context = context
        self.reason = reason
        self.volatile = volatile
        self.files = files
        self.objects = None
        self.built = None

    def stale(self):
        """Why this generation is not right any more, in a person's words; None while it is."""
        reason = self.objects.changed()
        if reason is None:
            return self.files.changed()
        return reason() if callable(reason) else reason


class Generations:
    """
    The generations of one minion.

    build(generation) makes the loaders, records evidence in it and sets ``objects``. renew(old, generation,
    path) does so from those of ``old``, of whose evidence only the file ``path`` is not as it was; it returns
    whether that was enough. context() makes the JobContext of a new generation. One thread builds at a time,
    others wait for its result. stamps: the class for the evidence of the generations to come, FileStamps or
    FileWatch.
    """

    def __init__(self, build, renew, context, report):
        self._build = build
        self._renew = renew
        self._context = context
        self._report = report
        self._adopted = report.counters["adopted"].add
        # Re-entrant: what a resource's init() does while a generation is built may reload modules.
        self._lock = ForkSafeLock()
        self._numbers = 0
        self._forgotten = False
        # Known for longer than a generation lives: a module does not change its habits with an edit elsewhere.
        self.volatile = set()
        self.current = None
        self.stamps = FileStamps

    def adopt(self):
        """
        Let a job that starts now run on the current generation, the way of nearly every job; whether it does.

        An error is a no: adopt_or_rebuild() meets it again.
        """
        current = self.current
        try:
            if current is None or current.objects.changed() is not None or current.files.changed() is not None:
                return False
        except Exception:
            return False
        self._adopted()
        return True

    def adopt_or_rebuild(self, always=False):
        """The generation that a job which starts now runs on. ``always``: a rebuild in any case."""
        reason = "freshness is always"
        with self._lock:
            if not always:
                # Another job may have rebuilt while this one waited.
                reason = self._stale()
                if reason is None:
                    self._adopted()
                    return self.current
            generation = (None if always else self._rebuild_partially(reason)) or self._rebuild(reason)
        self._report.counters["rebuilt"].add()
        return generation

    def rebuild(self, reason):
        """Build a new generation because somebody asked for one."""
        with self._lock:
            generation = self._rebuild(reason)
        self._report.counters["reloaded"].add()
        return generation

    def forget(self):
        """Let the next job rebuild; True if there was a generation to forget."""
        with self._lock:
            known, self.current = self.current is not None, None
            self._forgotten = known
        return known

    def apart(self):
        """A generation for loaders that are made outside any job (a refresh): never adopted, only used."""
        return Generation(0, self._context(), "a refresh", self.volatile, FileEvidence())

    def _stale(self):
        current = self.current
        if current is None:
            return "flushed (saltctx.flush)" if self._forgotten else "first job of this minion"
        return current.stale()

    def _rebuild_partially(self, reason):
        """A new generation where all that changed are files of single modules; None where that is not so."""
        for _ in range(PARTIAL_REBUILDS):
            current = self.current
            path = None if current is None else current.files.changed_file
            if path is None or current.objects.changed() is not None:
                return None
            generation = self._next(reason, current.files.after(path))
            if not self._renew(current, generation, path):
                return None
            self._complete(generation)
            self._report.counters["partial"].add()
            # Another file may have changed too: the evidence tells of one at a time.
            reason = generation.stale()
            if reason is None:
                return generation
        return None

    def _rebuild(self, reason):
        generation = self._next(reason, FileEvidence(self.stamps))
        self._build(generation)
        self._complete(generation)
        return generation

    def _next(self, reason, files):
        self._numbers += 1
        return Generation(self._numbers, self._context(), reason, self.volatile, files)

    def _complete(self, generation):
        generation.built = time.time()
        self.current = generation
        self._report.reason(generation.reason, generation.number)
