"""``threading`` and ``concurrent.futures``: threads that a module starts inside a job run in that job."""

import concurrent.futures
import contextvars
import threading
from concurrent.futures.thread import ThreadPoolExecutor

from ..core import current_job
from . import deep

# A pool's worker serves whoever submits next: it must not keep the job that happened to start it.
_pool_worker = getattr(concurrent.futures.thread, "_worker", None)


def install():
    """Carry the context of a job into Thread.start() and ThreadPoolExecutor.submit(); elsewhere nothing changes."""

    def make_start(original):
        def start(self):
            # Python 3.14: the maker of a thread may have chosen a context for it.
            if current_job() is None or getattr(self, "_context", None) is not None:
                return original(self)
            if getattr(self, "_target", None) is not _pool_worker:
                run, context = self.run, contextvars.copy_context()

                def run_in_job():
                    del self.run  # a thread that has run keeps nothing of the job
                    context.run(run)

                self.run = run_in_job
            # A thread that inherits a context (`-X thread_inherit_context=1`, usual without the GIL) keeps it for good.
            return contextvars.Context().run(original, self)

        return start

    def make_submit(original):
        def submit(self, fn, /, *args, **kwargs):
            if current_job() is None:
                return original(self, fn, *args, **kwargs)
            return original(self, contextvars.copy_context().run, fn, *args, **kwargs)

        return submit

    deep.replace(threading.Thread, "start", make_start)
    deep.replace(ThreadPoolExecutor, "submit", make_submit)
