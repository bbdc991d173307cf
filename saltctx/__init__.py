"""
What a custom module or a script imports. Importing it changes nothing in Salt.

``context`` is the running job's ``__context__``, a mapping that looks itself up at each use;
``current_job()`` the :class:`Job` that runs, or None; ``job_scope()`` makes one for a test or a script;
``propagate(func)`` carries the job into a thread or a pool.
"""

import contextlib
import contextvars

from .core import Job, JobContext, current_job

__version__ = "0.1.0"
__all__ = ["Job", "__version__", "context", "current_job", "job_scope", "propagate"]

context = JobContext()
"""The running job's ``__context__``: a dict. Outside any job, a layer of its own."""


@contextlib.contextmanager
def job_scope(jid="", fun="", minion_id=""):
    """
    Run the ``with`` block as a job of its own, with an empty ``context``; yields the :class:`Job`.

    The outer job, if any, is back afterwards, whatever happens. For the thread and task that runs the
    block; use :func:`propagate` to carry it further.
    """
    job = Job(jid, fun, minion_id)
    token = job.enter()
    try:
        yield job
    finally:
        job.exit(token)


def propagate(func):
    """
    A callable that runs ``func`` where :func:`propagate` was called: same job, same loader, same
    context variables, in whichever thread calls it, any number of times and at once.

    ``func`` may be a coroutine function only if the caller awaits it in a task of its own.
    """
    captured = contextvars.copy_context()

    def propagated(*args, **kwargs):
        # A Context can be entered once at a time: each call has a copy. Copying one that nobody runs in is safe.
        return captured.copy().run(func, *args, **kwargs)

    propagated.__wrapped__ = func
    propagated.__name__ = getattr(func, "__name__", "propagated")
    propagated.__doc__ = getattr(func, "__doc__", None)
    return propagated
