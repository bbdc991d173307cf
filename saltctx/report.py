"""What saltctx did for a minion: counters, and the last reasons in a person's words."""

import collections
import time

from .core import Counter
from .forksafe import ForkSafeLock

KEPT_REASONS = 50
COUNTERS = ("adopted", "rebuilt", "partial", "reloaded", "fallback")


class Report:
    """
    What a person may ask about one minion. Safe in any thread.

    counters: {name: Counter}: ``adopted``, ``rebuilt``, ``partial`` (changed modules that were loaded anew
    while all else was kept), ``reloaded`` (asked for by a person), ``fallback`` (jobs that ran Salt's own path
    after an error).
    """

    def __init__(self):
        self.counters = {name: Counter() for name in COUNTERS}
        self._lock = ForkSafeLock()
        self._reasons = collections.deque(maxlen=KEPT_REASONS)
        self._logged = set()

    def reason(self, text, generation=None):
        """Keep a reason; the oldest of more than KEPT_REASONS goes."""
        with self._lock:
            self._reasons.append((time.time(), generation, text))

    def once(self, key):
        """True the first time it is asked with this key."""
        with self._lock:
            if key in self._logged:
                return False
            self._logged.add(key)
            return True

    def counts(self):
        """{counter: int}."""
        return {name: counter.value for name, counter in self.counters.items()}

    def reasons(self):
        """The kept reasons, oldest first: [{"at": epoch seconds, "generation": int or None, "reason": str}]."""
        with self._lock:
            return [
                {"at": at, "generation": generation, "reason": text}
                for at, generation, text in self._reasons
            ]
