"""Locks that a forked child finds free, whoever held them in the parent."""

import os
import threading
import weakref

_locks = weakref.WeakSet()


class ForkSafeLock:
    """
    A re-entrant lock for ``with`` statements: ``ForkSafeLock()``.

    A state with ``parallel: True`` forks while jobs run beside it; the thread that holds a lock is not
    there in the child, and would never let it go.
    """

    __slots__ = ("_lock", "__weakref__")

    def __init__(self):
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self):
        self._lock.acquire()
        return self

    def __exit__(self, *exc_info):
        try:
            self._lock.release()
        except RuntimeError:
            # Taken before a fork by the thread that forked: the child has another lock.
            pass


def _renew():
    for lock in list(_locks):
        lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
