"""``salt.utils.process``: the minion's list of running jobs is tidied without waiting for threads."""

import threading
import types

from salt.utils.process import SubprocessList


def cleanup(self):
    """
    SubprocessList.cleanup, for jobs that are threads: Salt joins each live one for 10 ms, in the main
    loop, five times a second. A thread that has ended needs no join; processes are left to Salt.
    """
    with self.lock:
        ended = [job for job in self.processes if _is_ended_thread(job)]
        for job in ended:
            self.processes.remove(job)
            self.count -= 1
        threads_only = all(isinstance(job, threading.Thread) for job in self.processes)
    if not threads_only:
        SubprocessList.cleanup(self)


def _is_ended_thread(job):
    # A thread that was not started yet is not alive either, but is none to forget.
    return isinstance(job, threading.Thread) and job.ident is not None and not job.is_alive()


def hook(minion):
    """Let this minion's list use :func:`cleanup`; Salt's class stays as it is."""
    running = getattr(minion, "subprocess_list", None)
    if type(running) is SubprocessList:
        running.cleanup = types.MethodType(cleanup, running)
