"""``salt.minion``: a job adopts the minion's loaders; the loaders are rebuilt when the evidence changed."""

import asyncio
import concurrent.futures
import functools
import logging
import os
import sys

from salt.exceptions import SaltReqTimeoutError
from salt.minion import Minion, MinionBase

from .. import options, status
from ..core import FileStamps, FileWatch, Job, JobContext, ObjectEvidence, current_job
from ..forksafe import ForkSafeLock
from ..generation import Generations
from ..report import Report
from . import deep, partial, passthroughs
from . import process as process_hook
from .asked import asked_of, is_master, left_to_salt, said
from .loader import STOCK, making_for, making_stock
from .modulestate import settle
from .optsdict import hand, watch

log = logging.getLogger(__name__)

# What gen_modules() sets on a minion: a generation is these, whole.
LOADERS = (
    "utils", "functions", "serializers", "returners", "proxy", "resource_funcs", "resource_loaders",
    "states", "rend", "matchers", "executors",
)
MODULE_DIR_TYPES = (
    "modules", "utils", "returners", "executors", "states", "renderers", "proxy", "matchers",
    "serializers", "resources",
)


# Key of the MinionJobs in the views of a job that has not asked for its loaders yet. In a set of the minion's, all jobs
# would lock it.
_BEGUN = "begun"


class MinionJobs:
    """What saltctx keeps for one minion: its generations, its report, and how jobs run."""

    def __init__(self, minion):
        self.minion_id = str(minion.opts["id"])
        self.report = Report()
        self.generations = Generations(
            functools.partial(self._build, minion), functools.partial(_renew, minion),
            functools.partial(JobContext, False), self.report,
        )
        self.freshness = options.Options.freshness
        self.enabled = True
        self._asked_with = None
        watch(minion.opts)
        process_hook.hook(minion)
        status.register(self)

    def run(self, thread_return, cls, minion, opts, data):
        """Run one job: enter it, let Salt's own code do the work, leave it whatever happens."""
        fun = data["fun"]
        job = Job(str(data["jid"]), fun if isinstance(fun, str) else ",".join(fun), self.minion_id)
        job.views[_BEGUN] = self
        try:
            known = getattr(opts, "handed", None)
            # Salt writes the minion's own returners into the load, which is not the job's alone.
            return job.run(thread_return, cls, minion, self._hand(opts) if known is None else known, dict(data))
        finally:
            if job.uses:
                self._settle(job)

    def _hand(self, opts):
        try:
            return hand(opts)
        except Exception:
            if self.report.once("hand"):
                log.exception("saltctx could not copy the minion's opts (this is logged once)")
            return opts

    def _settle(self, job):
        try:
            settle(job, self.report, self.generations.volatile)
        except Exception:
            if self.report.once("settle"):
                log.exception("saltctx could not look at the modules that a job used (this is logged once)")

    def asked_before(self, opts):
        """Whether the same opts said ``saltctx: true`` for an earlier job, and nothing in them changed since."""
        asked = self._asked_with
        return asked is not None and asked[0] is opts and asked[1] == opts.changes

    def follow(self, asked, opts, changes):
        """Take what the config says; it counts for this job, what is watched from the next rebuild."""
        self.enabled = True
        # A block may be changed in place, which nobody would notice.
        self._asked_with = (opts, changes) if changes is not None and asked is options.ON else None
        if asked.freshness != self.freshness:
            self.freshness = asked.freshness
            self.generations.stamps = FileWatch if asked.freshness == "watch" else FileStamps

    def leave(self):
        """The config does not ask for saltctx any more: Salt's own code runs the jobs."""
        self.enabled, self._asked_with = False, None

    def _build(self, minion, generation):
        _build(minion, generation)
        if self.freshness == "watch" and generation.files.reason is not None and self.report.once("polled"):
            log.warning(
                "saltctx looks at %d of %d paths of minion %s by stat instead of watching them: %s "
                "(this is logged once)",
                generation.files.polled, len(generation.files), self.minion_id, generation.files.reason,
            )

    def load(self, minion, gen_modules, asked_for=None):
        """
        Give a job that has just begun its loaders; on an error of ours, by Salt's own code.

        asked_for: str, why somebody wants them rebuilt, whatever the evidence says.
        """
        try:
            if asked_for is None:
                self.generations.adopt_or_rebuild(self.freshness == "always")
            else:
                self.generations.rebuild(asked_for)
        except Exception:
            if self.report.once("load"):
                log.exception(
                    "saltctx could not give a job of minion %s its loaders; such jobs run Salt's own code "
                    "(this is logged once)", self.minion_id,
                )
            self.report.counters["fallback"].add()
            with making_for(STOCK):
                gen_modules(minion)


def jobs_of(minion):
    """The MinionJobs of a minion that ran a job on saltctx, or None."""
    return vars(minion).get("_saltctx_jobs")


def _enabled_jobs(minion):
    """The MinionJobs of a minion whose last job started with saltctx switched on, or None."""
    jobs = jobs_of(minion)
    return jobs if jobs is not None and jobs.enabled else None


def _build(minion, generation):
    """
    Build a generation by Salt's own gen_modules(), apart from the minion, then hand it over whole.

    Jobs that run meanwhile never see a minion with loaders of two generations half assigned.
    """
    opts = minion.opts
    seen = _seen(opts)
    _add_module_dirs(opts, generation.files)
    for path in filter(os.path.isabs, sys.path):
        # A package installed there may bring loader directories of its own. What is no path is an importer's mark.
        generation.files.add_directory(path)
    apart = object.__new__(_apart_class(type(minion)))
    vars(apart).update(vars(minion))
    with making_for(generation):
        _gen_modules(apart, context=generation.context)
    made = {
        name: value for name, value in vars(apart).items()
        if vars(minion).get(name, minion) is not value
    }
    functions = made["functions"]
    functions["sys.reload_modules"] = minion.gen_modules
    # gen_modules() itself looks for them.
    seen["resources"] = opts._local.get("resources")
    generation.objects = _objects(minion, {name: made[name] for name in LOADERS}, seen)
    vars(minion).update(made)


def _renew(minion, old, generation, path):
    """Make a generation of an old one that is right but for the file ``path``; whether that could be done."""
    seen = _seen(minion.opts)
    if old.objects.changed() is not None:
        return False
    made = partial.reload({name: getattr(minion, name) for name in LOADERS}, old, generation, path)
    if made is None:
        return False
    generation.objects = _objects(minion, made, seen)
    vars(minion).update(made)
    return True


def _gen_modules(minion, **kwargs):
    return MinionBase.gen_modules.__wrapped__(minion, **kwargs)


def _seen(opts):
    """What a generation that is made from now on knows of the opts."""
    local = opts._local
    return {"changes": opts.changes, **{name: local.get(name) for name in ("pillar", "grains", "resources")}}


def _objects(minion, loaders, seen):
    """The evidence of the objects that a generation hangs on: its loaders, and what ``seen`` has of the opts."""
    opts = minion.opts
    local = opts._local
    attributes = vars(minion)
    replaced = "the minion's {} were replaced (a refresh of modules or pillar)".format
    return ObjectEvidence([
        *((attributes, name, loader, replaced(name)) for name, loader in loaders.items()),
        (attributes, "opts", opts, "the minion's opts were replaced"),
        (vars(opts), "changes", seen["changes"], lambda: f"minion option changed: {opts.last_changed}"),
        *((local, name, seen[name], f"the {name} were replaced") for name in ("grains", "resources")),
        (local, "pillar", seen["pillar"], "the pillar was replaced"),
    ])


def _add_module_dirs(opts, files):
    """Directories that Salt takes as module directories only once they exist."""
    for base in opts.get("module_dirs") or ():
        for kind in MODULE_DIR_TYPES:
            files.add_directory(f"{base}/{kind}")
            files.add_directory(f"{base}/_{kind}")


@functools.cache
def _apart_class(cls):
    """``cls`` without its ``__del__``: what the instance holds belongs to the minion."""
    return type(cls.__name__, (cls,), {"__del__": lambda self: None, "__module__": cls.__module__})


_first_lock = ForkSafeLock()


def wanted(opts):
    """Whether the loaders that a job makes for itself from these opts (a state run's) are saltctx's."""
    try:
        asked = options.parse(opts.get("saltctx"))
    except (options.OptionsError, AttributeError):
        return False
    return asked.enabled and asked.states and not is_master(opts) and left_to_salt(opts) is None


def active_jobs(minion, opts, activate):
    """The MinionJobs that run this minion's jobs, or None where Salt's own code does."""
    jobs = jobs_of(minion)
    if jobs is not None and jobs.asked_before(opts):
        return jobs
    changes = getattr(opts, "changes", None)
    asked = asked_of(minion, opts, activate)
    if asked is None:
        if jobs is not None:
            jobs.leave()
        return None
    jobs = jobs or _first_job(minion)
    if jobs is not None:
        jobs.follow(asked, opts, changes)
    return jobs


def _first_job(minion):
    with _first_lock:
        jobs = jobs_of(minion)
        if jobs is not None:
            return jobs
        try:
            jobs = minion._saltctx_jobs = MinionJobs(minion)
            return jobs
        except Exception as exc:
            reason = exc
    if said.once(minion, "jobs"):
        log.error("saltctx is not used by minion %s: %s", minion.opts.get("id"), reason)
    return None


def install_passthroughs(activate):
    """Stand before what runs a job or refreshes the loaders; ``activate()`` is called for a minion's first."""

    def make(original):
        def thread_return(cls, minion_instance, opts, data):
            jobs = active_jobs(minion_instance, opts, activate)
            if jobs is None:
                return original(cls, minion_instance, opts, data)
            return jobs.run(original, cls, minion_instance, opts, data)

        return thread_return

    def make_load_modules(original):
        def _load_modules(self, force_refresh=False, notify=False, grains=None, opts=None, context=None):
            # Before any job, too: it may end when jobs are under way, and they would find its loaders.
            jobs = active_jobs(self, self.opts, activate)
            if jobs is None or context is not None:
                return original(self, force_refresh, notify, grains, opts, context)
            refresh = jobs.generations.apart()
            with making_for(refresh):
                return original(self, force_refresh, notify, grains, opts, refresh.context)

        return _load_modules

    passthroughs.replace(Minion, "_thread_return", make)
    passthroughs.replace(Minion, "_thread_multi_return", make)
    passthroughs.replace(Minion, "_load_modules", make_load_modules)


def install():
    """The deep hooks: adopt at a job's first gen_modules(), refreshes, requests to the master."""

    def make_gen_modules(original):
        def gen_modules(self, initial_load=False, context=None):
            # The way of nearly every job, as in jobs_of(): no call more than it takes.
            jobs = self.__dict__.get("_saltctx_jobs")
            if jobs is None or initial_load or context is not None:
                return original(self, initial_load=initial_load, context=context)
            job = current_job()
            # Of the threads that a job started, one takes it out.
            if job is not None and job.views.get(_BEGUN) is jobs and job.views.pop(_BEGUN, None) is jobs:
                if jobs.freshness == "always" or not jobs.generations.adopt():
                    jobs.load(self, original)
                return None
            if not jobs.enabled or making_stock():
                return original(self, initial_load=initial_load, context=context)
            jobs.load(self, original, "modules reloaded (sys.reload_modules)")
            return None

        return gen_modules

    def make_send(original):
        def _send_req_sync(self, load, timeout):
            if _enabled_jobs(self) is None or not _is_reachable(self.io_loop):
                return original(self, load, timeout)
            return _send_through_loop(self, load, timeout)

        return _send_req_sync

    deep.replace(MinionBase, "gen_modules", make_gen_modules)
    deep.replace(Minion, "_send_req_sync", make_send)


def _is_reachable(loop):
    """Whether ``loop`` runs, in another thread than this."""
    if not isinstance(loop, asyncio.AbstractEventLoop) or not loop.is_running():
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _send_through_loop(minion, load, timeout):
    """
    Minion._send_req_sync from a thread of the minion's own process.

    Salt fires the load on the minion's event bus, where the main loop takes it and fires the reply: two
    sockets, an event loop and a wait for each job, and every waiting job reads every reply. The main loop
    can be asked directly for the same request (Minion.handle_event, "__master_req_channel_payload").
    """
    request = minion.req_channel.send(
        load, timeout=minion._return_retry_timer(), tries=minion.opts["return_retry_tries"]
    )
    future = asyncio.run_coroutine_threadsafe(request, minion.io_loop)
    try:
        return future.result(timeout)
    except SaltReqTimeoutError as exc:
        log.error("Timeout encountered while sending %r request", load.get("cmd"))
        raise SaltReqTimeoutError(f"Request timed out in main process: {exc}") from exc
    except concurrent.futures.TimeoutError as exc:
        future.cancel()
        raise SaltReqTimeoutError("Request timed out") from exc
