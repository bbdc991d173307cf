"""Locks that a forked child finds free, whoever held them in the parent."""

import os
import threading
import weakref

_locks = weakref.WeakSet()


class ForkSafeLock(type(threading.RLock())):
    """
    A ``threading.RLock``: ``ForkSafeLock()``.

    A state with ``parallel: True`` forks while jobs run beside it; the thread that holds a lock is not
    there in the child, and would never let it go. One that the forking thread holds stays held.
    """

    def __init__(self):
        super().__init__()
        _locks.add(self)


def _renew():
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
