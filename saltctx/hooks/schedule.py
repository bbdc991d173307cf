"""``salt.utils.schedule``: a scheduled run on a threaded minion is a job of its own, with loaders of its own."""

from salt.utils.schedule import Schedule

from ..core import Job
from . import passthroughs
from .asked import asked_of


def install_passthrough(activate):
    """Stand before Schedule.handle_func; ``activate()`` puts the deep hooks in."""

    def make(original):
        def handle_func(self, multiprocessing_enabled, func, data, jid=None):
            opts = self.opts
            if multiprocessing_enabled or asked_of(self, opts, activate) is None:
                return original(self, multiprocessing_enabled, func, data, jid)
            # Salt stores the loaders it makes for a run on the one Schedule, where other runs find them.
            apart = object.__new__(type(self))
            vars(apart).update(vars(self))
            job = Job(str(jid or data.get("name", "")), str(func), str(opts.get("id")))
            return job.run(original, apart, multiprocessing_enabled, func, data, jid)

        return handle_func

    passthroughs.replace(Schedule, "handle_func", make)
