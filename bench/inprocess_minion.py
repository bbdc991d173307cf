"""A real Minion of Salt, with threads, in this process and without a master: for benchmarks and functional tests."""

import asyncio
import contextlib
import contextvars
import gc
import importlib.metadata
import itertools
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time


class InProcessMinion:
    """
    One minion in a temporary directory; ``saltctx`` is the value of that key of its config. If that is given and
    saltctx is not installed, importlib.metadata.PackageNotFoundError is raised.

    Jobs run as the minion runs them, each in a thread of its own or in one of :meth:`run_many`'s, and their
    returns are kept instead of being sent. Use as a context manager.
    """

    def __init__(self, saltctx=None, minion_id="m1", **opts):
        import salt.config
        import salt.loader
        import salt.minion

        if saltctx is not None:
            # Salt finds it by its entry point: one that is on the path only would leave the jobs to stock Salt.
            importlib.metadata.distribution("saltctx")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="saltctx-minion-"))
        for directory in ("cache/proc", "pki", "run", "srv", "dev", "pillar", "ext"):
            (self.root / directory).mkdir(parents=True)
        config = salt.config.minion_config(None, minion_id=minion_id)
        config.update(
            root_dir=str(self.root), cachedir=str(self.root / "cache"), pki_dir=str(self.root / "pki"),
            sock_dir=str(self.root / "run"), log_file=str(self.root / "log"),
            conf_file=str(self.root / "minion"), extension_modules=str(self.root / "ext"),
            file_client="local", master_type="disable", multiprocessing=False, mine_enabled=False,
            file_roots={"base": [str(self.root / "srv")], "dev": [str(self.root / "dev")]},
            pillar_roots={"base": [str(self.root / "pillar")]}, grains={}, pillar={},
            enable_fqdns_grains=False, enable_gpu_grains=False,
        )
        if saltctx is not None:
            config["saltctx"] = saltctx
        config.update(opts)
        self._config = config
        self._jids = itertools.count(1)
        self._lock = threading.Lock()
        self.returns = {}
        self.minion = None

    def start(self):
        """Make the Minion; the first module files are to be there already."""
        import salt.loader
        import salt.minion
        import salt.utils.schedule

        self._config["grains"] = salt.loader.grains(self._config)
        self.minion = minion = salt.minion.Minion(self._config, load_grains=False)
        minion.connected = True
        minion.proc_dir = salt.minion.get_proc_dir(minion.opts["cachedir"])
        minion.beacons_leader = False
        minion._return_pub = self._keep
        minion._fire_master = lambda *args, **kwargs: True
        minion.gen_modules(initial_load=True)
        # What module_refresh() hands the new loaders to.
        minion.schedule = salt.utils.schedule.Schedule(
            minion.opts, minion.functions, minion.returners, new_instance=True
        )
        return self

    def __enter__(self):
        return self if self.minion is not None else self.start()

    def __exit__(self, *exc_info):
        shutil.rmtree(self.root, ignore_errors=True)

    def _keep(self, ret, *args, **kwargs):
        with self._lock:
            self.returns.setdefault(ret["jid"], dict(ret))

    def write(self, path, text):
        """Write a file below the minion's directory as an editor does: a new file in the place of the old."""
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + "~")
        new.write_text(text)
        new.replace(path)
        return path

    def load(self, fun, *args, _load=None, **kwargs):
        """What the master publishes for this job."""
        arg = [*args, dict(kwargs, __kwarg__=True)] if kwargs else list(args)
        return {
            "jid": f"{next(self._jids):020d}", "fun": fun, "arg": arg, "ret": "", "tgt": "m1",
            "tgt_type": "glob", "user": "root", **(_load or {}),
        }

    def run(self, load):
        """Run one job in this thread, as the thread of a job does; its return, {} if the job was lost."""
        minion = self.minion
        type(minion)._target(minion, minion.opts, load, True, None)
        return self.returns.pop(load["jid"], {})

    def job(self, fun, *args, **kwargs):
        """Run one job in a thread of its own; its return, a dict."""
        load = self.load(fun, *args, **kwargs)
        results = []
        thread = threading.Thread(
            target=lambda: results.append(self.run(load)), name=f"ProcessPayload(jid={load['jid']})"
        )
        thread.start()
        thread.join(60)
        return results[0] if results else {}

    def run_many(self, loads, in_flight=16):
        """Run jobs from ``in_flight`` threads; their returns in the order of ``loads``, {} for a lost one."""
        loads = list(loads)
        results = [{}] * len(loads)
        self.run_each(enumerate(loads), results.__setitem__, in_flight)
        return results

    def run_each(self, tagged, done, in_flight=16):
        """
        Run jobs from ``in_flight`` threads as ``tagged`` yields them, pairs of anything and a load.

        ``done(tag, ret)`` is called in the thread of the job, with {} for a lost one.
        """
        waiting = iter(tagged)
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    tag, load = next(waiting, (None, None))
                if load is None:
                    return
                # A job's own thread starts with an empty context.
                done(tag, contextvars.Context().run(self._run_or_lose, load))

        threads = [threading.Thread(target=work) for _ in range(in_flight)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_or_lose(self, load):
        try:
            return self.run(load)
        except Exception:
            logging.getLogger(__name__).exception("job %s died", load["jid"])
            return {}

    @contextlib.contextmanager
    def repeating(self, every, action, *args):
        """Call ``action(*args)`` in a thread of its own, ``every`` so many seconds, while the block runs."""
        stop = threading.Event()
        errors = []

        def repeat():
            try:
                while not stop.wait(every):
                    action(*args)
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if errors:
            raise errors[0]

    def reload_modules(self):
        """What ``sys.reload_modules`` does, a job."""
        return self.run(self.load("sys.reload_modules"))

    def pillar(self, **data):
        """Lay down a pillar; it counts from the start or the next refresh."""
        self.write("pillar/top.sls", "base:\n  '*': [data]\n")
        self.write("pillar/data.sls", json.dumps(data))

    def refresh_pillar(self):
        """What the minion does on a pillar_refresh event."""
        import salt.pillar
        import salt.utils.event

        async def nothing(*_args, **_kwargs):
            return None

        # What only a master, or a bus to it, has an answer for.
        self.minion._register_resources_with_master = nothing
        if not hasattr(salt.pillar.AsyncPillar, "aclose"):
            salt.pillar.AsyncPillar.aclose = nothing
        get_event = salt.utils.event.get_event
        salt.utils.event.get_event = lambda *_args, **_kwargs: _NoBus()
        try:
            asyncio.run(self.minion.pillar_refresh())
        finally:
            salt.utils.event.get_event = get_event

    def refresh_grains(self, **grains):
        """Write the grains file and do what the minion does when its grains are to be loaded anew."""
        import salt.loader

        self.write("grains", json.dumps(grains))
        self.minion.opts.mutate_key("grains", salt.loader.grains(self.minion.opts, True))


class _NoBus:
    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def fire_event(self, *_args, **_kwargs):
        return True


OWN_RETCODE = '''
import time
def fail(code, delay=0.0):
    keys = [key for key in __context__ if key != "retcode"]
    __context__[f"of{code}"] = code
    __context__["retcode"] = code
    if delay:
        time.sleep(delay)
    return [code, keys, __salt__["own.seen"]()]
def seen():
    return sorted(key for key in __context__ if key != "retcode")
'''
"""A module whose job returns its code, foreign keys found at its start, and the keys a nested call sees."""


def own_retcode_loads(minion, count, delay=0.002):
    """(load, code) for ``count`` jobs, each with a retcode of its own."""
    return [(minion.load("own.fail", number % 250 + 1, delay), number % 250 + 1) for number in range(count)]


def is_right(ret, code):
    """Whether a return of ``own.fail`` is that of its own job."""
    return ret.get("retcode") == code and ret.get("return") == [code, [], [f"of{code}"]]


def fds():
    """Open file descriptors of this process, int; 0 where the platform does not list them."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def footprint():
    """What this process holds once garbage is collected: KiB of RSS, descriptors, threads, Jobs, loaders."""
    import psutil
    from salt.loader.lazy import LazyLoader

    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    return {
        "rss_kib": psutil.Process().memory_info().rss / 1024, "fds": fds(), "threads": threading.active_count(),
        "jobs": sum(kind.__name__ == "Job" for kind in kinds),
        "loaders": sum(issubclass(kind, LazyLoader) for kind in kinds),
    }


def seconds(function, *args):
    """(seconds, result) of one call."""
    began = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - began, result


def quiet():
    """No log output: it would be measured too."""
    logging.disable(logging.CRITICAL)
    sys.dont_write_bytecode = False
