"""``tornado.platform.asyncio``: an event loop can be made whenever the garbage collector runs."""

import sys

from tornado.platform.asyncio import BaseAsyncIOLoop

from . import deep

TRIES = 10


def install():
    """
    IOLoop() looks once more at the loops there are, if they changed while it did.

    Tornado goes through a copy of the dict of them. Up to Python 3.11 the collector may run within dict.copy(); if it
    frees a loop that a job left behind, the copy has a wrong length and cannot be gone through, and the job that
    wanted a loop (a state run, for its pillar) fails: some one in a thousand on a busy minion.
    """
    if sys.version_info >= (3, 12):
        return  # there the collector runs between two instructions of Python only

    def make(original):
        def initialize(self, *args, **kwargs):
            for _ in range(TRIES):
                try:
                    return original(self, *args, **kwargs)
                except RuntimeError as exc:
                    if "during iteration" not in str(exc):
                        raise
            return original(self, *args, **kwargs)

        return initialize

    deep.replace(BaseAsyncIOLoop, "initialize", make)
