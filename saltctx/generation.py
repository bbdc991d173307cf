"""Generations of a minion's loaders: built whole, adopted while the evidence holds, replaced whole."""

import time

from .core import FileStamps
from .evidence import FileEvidence
from .forksafe import ForkSafeLock


class Generation:
    """
    One complete set of loaders and the evidence that it is still right.

    number: int, 1 for a minion's first. context: the JobContext its loaders pack. files: FileEvidence.
    objects: ObjectEvidence whose reasons are str or callables that return one. reason: str, why it was built.
    volatile: set of paths of modules of which each job has an instance of its own. built: time.time()
    of its completion. stamps: the class that the FileEvidence keeps its stamps in.
    """

    def __init__(self, number, context, reason, volatile, stamps=FileStamps):
        self.number = number
        self.context = context
        self.reason = reason
        self.volatile = volatile
        self.files = FileEvidence(stamps)
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

    build(generation) makes the loaders, records evidence in it and sets ``objects``. context() makes the
    JobContext of a new generation. One thread builds at a time, others wait for its result. stamps: the
    class for the evidence of the generations to come, FileStamps or FileWatch.
    """

    def __init__(self, build, context, report):
        self._build = build
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

    def adopt_or_rebuild(self, always=False):
        """The generation that a job which starts now runs on. ``always``: a rebuild in any case."""
        current = self.current
        # The way of nearly every job: no call more than it takes.
        if (
            current is not None
            and not always
            and current.objects.changed() is None
            and current.files.changed() is None
        ):
            self._adopted()
            return current
        reason = "freshness is always"
        with self._lock:
            if not always:
                # Another job may have rebuilt while this one waited.
                reason = self._stale()
                if reason is None:
                    self._adopted()
                    return self.current
            generation = self._rebuild(reason)
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
        return Generation(0, self._context(), "a refresh", self.volatile)

    def _stale(self):
        current = self.current
        if current is None:
            return "flushed (saltctx.flush)" if self._forgotten else "first job of this minion"
        return current.stale()

    def _rebuild(self, reason):
        self._numbers += 1
        generation = Generation(self._numbers, self._context(), reason, self.volatile, self.stamps)
        self._build(generation)
        generation.built = time.time()
        self.current = generation
        self._report.reason(reason, generation.number)
        return generation
