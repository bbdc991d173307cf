"""``LazyLoader.inject_globals``: what a state run lays into the globals of a module is there for that run alone."""

import contextlib
import functools

from salt.utils.context import func_globals_inject

from ..forksafe import ForkSafeLock

_lock = ForkSafeLock()
_laid = {}


class Laid:
    """The ``values`` that are in a module's globals now, for so many ``calls``; ``injection`` takes them out."""

    def __init__(self, func, values):
        self.values = values
        self.calls = 0
        self.injection = func_globals_inject(func, **values)
        self.injection.__enter__()


@contextlib.contextmanager
def _lay(func, values):
    """
    Have ``values``, a dict of globals, in those of ``func`` for the block, unless another's are there.

    Gives whether they are, a bool. Safe in any thread.
    """
    place = id(func.__globals__)
    with _lock:
        laid = _laid.get(place)
        # One without a call was interrupted right here.
        if laid is None or not laid.calls:
            laid = _laid[place] = Laid(func, values)
        are_there = laid.values is values
        laid.calls += are_there
    try:
        yield are_there
    finally:
        if are_there:
            with _lock:
                laid.calls -= 1
                if not laid.calls:
                    del _laid[place]
                    laid.injection.__exit__(None, None, None)


def inject(loaded, values, func):
    """
    ``func``, the function of a LoadedFunction, with the globals ``values``: as Salt's ``global_injector_decorator``.

    Salt lays them into the module for the time of the call. Two state runs that call functions of one module at once
    would see each other's, and the first to end takes out what the other reads: where another run's are, the call goes
    to an instance of the module that is this loader's own.
    """

    @functools.wraps(func)
    def with_globals(*args, **kwargs):
        with _lay(func, values) as are_there:
            if are_there:
                return func(*args, **kwargs)
        own = loaded.loader.own_function(loaded.name, func)
        with _lay(own, values):
            return own(*args, **kwargs)

    return with_globals
