"""
What the stress scripts share: threads that start together, run until a deadline, and report.

Environment: SALTCTX_STRESS_SECONDS (2), SALTCTX_STRESS_THREADS (8), SALTCTX_PURE (the Python types).
A script's exit status: 0 for passed, 77 for skipped, anything else for failed. That one passes is
evidence, not proof.
"""

import contextvars
import faulthandler
import inspect
import os
import random
import sys
import threading
import time

PURE = os.environ.get("SALTCTX_PURE", "") not in ("", "0")
SECONDS = float(os.environ.get("SALTCTX_STRESS_SECONDS", "2"))
THREADS = int(os.environ.get("SALTCTX_STRESS_THREADS", "8"))
GRACE = 60
"""Seconds after the deadline until a thread that does not end counts as a deadlock."""
SKIP = 77

if PURE:
    import saltctx._reference as core
else:
    import saltctx._core as core

loader_var = contextvars.ContextVar("loader")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


class Function(core.LoadedFunction):
    pass


class Dunder(core.NamedContext):
    pass


class LoaderContext:
    loader_ctxvar = loader_var


class Loader(core.LoaderBase):
    def __init__(self, functions=(), pack=None, shared=True):
        self._dict = dict(functions)
        self.loaded = True
        self.pack = dict(pack or {})
        self.pack_self = None
        self.inject_globals = {}
        self.module_opts = {}
        self.shared = shared

    def _load_missing(self, key):
        raise KeyError(key)

    def _load_all(self):
        pass

    def _first_use(self, key):
        return None


def dunder(name, default=None):
    return Dunder(name, LoaderContext(), default)


def no_value(name):
    raise LookupError(name)


def bind(**changes):
    core.bind(
        **{
            "loader_var": loader_var,
            "loaded_function": Function,
            "loaded_coroutine": Function,
            "named_context": core.NamedContext,
            "is_coroutine": inspect.iscoroutinefunction,
            "keep_generator": lambda context, generator: list(generator),
            "inject": lambda loaded, inject_globals, func: func,
            "before_call": lambda loader, func: None,
            "after_call": lambda loader, func: None,
            "no_value": no_value,
            "variables": {},
            "views": {},
            **changes,
        }
    )


def run(*workers, check=lambda: None, **bound):
    """
    Run ``THREADS`` threads, dealt out over ``workers``, until the deadline, then ``check()``.

    A worker is called over and over with a random.Random of its own. ``bound`` goes to :func:`bind`.
    """
    bind(**bound)
    faulthandler.enable()
    faulthandler.dump_traceback_later(SECONDS + GRACE, exit=True)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        sys.setswitchinterval(1e-5)
    count = max(THREADS, len(workers))
    barrier = threading.Barrier(count)
    errors, turns = [], [0] * count
    deadline = []

    def work(number):
        rng = random.Random(number)
        worker = workers[number % len(workers)]
        barrier.wait(GRACE)
        if not number:
            deadline.append(time.monotonic() + SECONDS)
        try:
            while not errors and not (deadline and time.monotonic() > deadline[0]):
                worker(rng)
                turns[number] += 1
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    check()
    faulthandler.cancel_dump_traceback_later()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"{sum(turns)} turns in {count} threads, {'with' if gil else 'without'} the GIL, {core.__name__}")
    if not all(turns):
        sys.exit("a thread never had a turn")
