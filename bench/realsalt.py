"""A real Salt master and a real threaded minion on loopback, in a directory of their own.

The demo, the benchmarks and tests/integration all drive Salt through this one class:

    with RealSalt(saltctx=True) as salt:
        salt.run("test.ping")                     # one job, its Return
        salt.run_many(retcode_jobs(400))          # many jobs, 16 in flight

Jobs are published through LocalClient, and their returns are read from the master's event bus, which is subscribed
to before anything is published. Every wait is bounded, and every process started here is ended by its id.
"""

# Not pytest-salt-factories: its event listener binds all interfaces, and it loads a log handler and an engine of its
# own into the daemons, which are what we measure.

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import salt.client
import salt.config
import salt.exceptions
import salt.utils.jid
import yaml

LOOPBACK = "127.0.0.1"
WORKER_THREADS = 5
START_SECONDS = 120
STOP_SECONDS = 20
JOB_SECONDS = 120

# A daemon ends when the process that started it dies, even by SIGKILL (Linux only; elsewhere stop() alone does it).
DAEMON = """
import sys
if sys.platform == "linux":
    import ctypes
    import signal
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from salt.scripts import salt_{0} as main
main()
"""

# One job writes its own retcode and its own key to __context__, gives the other jobs time to get in between, and
# then looks at what it finds there.
RIG_MODULE = '''
"""Jobs of the saltctx rig."""
import time

PREFIX = "rig-job-"


def own(number, retcode, delay=0.0):
    """
    Set a retcode and a context key of one's own, wait, and report what __context__ then holds.

    CLI Example:

    .. code-block:: bash

        salt '*' rig.own 1 7 0.1
    """
    mine = f"{PREFIX}{number}"
    __context__[mine] = number
    if retcode:
        __context__["retcode"] = retcode
    time.sleep(delay)
    return {
        "number": number,
        "kept": __context__.get(mine) == number,
        "foreign": sorted(key for key in __context__ if key.startswith(PREFIX) and key != mine),
    }


def keys():
    """
    The keys that earlier or other jobs of this module left in __context__.

    CLI Example:

    .. code-block:: bash

        salt '*' rig.keys
    """
    return sorted(key for key in __context__ if key.startswith(PREFIX))


def pillar_is(key, value):
    """
    Whether this job's __pillar__ has this value; a return that holds a pillar value itself comes back masked.

    CLI Example:

    .. code-block:: bash

        salt '*' rig.pillar_is name value
    """
    return __pillar__.get(key) == value
'''

# A state that looks late whether it is a dry run, as states that first compare do.
RIG_STATE = '''
"""A state of the saltctx rig."""
import time


def there(name, delay=0.01, **kwargs):
    """Act unless this is a dry run, and say which it was."""
    time.sleep(delay)
    if __opts__["test"]:
        return {"name": name, "changes": {}, "result": None, "comment": "dry"}
    return {"name": name, "changes": {"did": name}, "result": True, "comment": "acted"}
'''

STATES = 20
STATE_FILE = "".join(f"nothing-{number}:\n  test.nop: []\n" for number in range(STATES))

FAST_START = {
    "enable_fqdns_grains": False,
    "enable_gpu_grains": False,
    "disable_grains": ["core_fqdns"],
}


class RigError(Exception):
    """Salt did not start, or did not answer, in the time it was given."""


@dataclass(frozen=True)
class Call:
    """One job to publish; `retcode` is what it must come back with, where that is known."""

    fun: str | list[str]
    arg: tuple = ()
    kwarg: dict[str, Any] = field(default_factory=dict)
    retcode: int | None = None


@dataclass(frozen=True)
class Return:
    """How one job ended; `data` is the return event, or None when none came in time."""

    call: Call
    jid: str
    seconds: float
    data: dict[str, Any] | None

    @property
    def lost(self) -> bool:
        return self.data is None

    @property
    def value(self) -> Any:
        return None if self.data is None else self.data.get("return")

    @property
    def retcode(self) -> int | None:
        return None if self.data is None else self.data.get("retcode")

    @property
    def success(self) -> bool:
        return bool(self.data and self.data.get("success"))

    @property
    def wrong_retcode(self) -> bool:
        return not self.lost and self.call.retcode is not None and self.retcode != self.call.retcode

    @property
    def foreign_keys(self) -> list[str]:
        """Keys of other jobs in this job's __context__ (for `rig.own` alone)."""
        return list(self.value.get("foreign", ())) if isinstance(self.value, dict) else []

    @property
    def failed(self) -> bool:
        """The module raised, or lost what it had written itself (for `rig.own` alone)."""
        return not self.lost and not (isinstance(self.value, dict) and self.value.get("kept"))


    @property
    def acted(self) -> bool | None:
        """Whether a run of `rig_state.there` changed something; None where it did not run."""
        if not isinstance(self.value, dict) or len(self.value) != 1:
            return None
        (state,) = self.value.values()
        return bool(state["changes"]) if isinstance(state, dict) and "changes" in state else None

    @property
    def wrong_dry_run(self) -> bool:
        """A dry run that acted."""
        return bool(self.call.kwarg.get("test")) and self.acted is True

    @property
    def wrong_real_run(self) -> bool:
        """A real run that stayed dry."""
        return not self.call.kwarg.get("test") and self.acted is False


@dataclass(frozen=True)
class Sizes:
    """What the minion's processes hold, all together."""

    rss: int
    fds: int
    threads: int


def retcode_jobs(count: int, seed: int = 0, longest_delay: float = 0.05) -> Iterator[Call]:
    """Jobs that each expect a retcode of their own; one in four succeeds, so that false failures show as well."""
    chance = random.Random(seed)
    for number in range(1, count + 1):
        retcode = 0 if number % 4 == 0 else number
        yield Call("rig.own", (number, retcode, round(chance.uniform(0, longest_delay), 4)), retcode=retcode)


def dry_and_real_runs(pairs: int) -> Iterator[Call]:
    """State runs that may overlap: a dry one, then a real one, and so on."""
    for number in range(pairs):
        name = f"name=n{number}"
        yield Call("state.single", ("rig_state.there", name), {"test": True, "concurrent": True})
        yield Call("state.single", ("rig_state.there", name), {"concurrent": True})


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((LOOPBACK, 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does, so that every `with RealSalt(...)` stops its daemons."""

    def leave(signum: int, _frame: Any) -> None:
        # A second signal must not cut the unwinding short.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Daemon:
    """One Salt daemon and the processes it started."""

    def __init__(self, kind: str, conf_dir: Path, log: Path, env: dict[str, str]) -> None:
        self.kind = kind
        self.log = log
        command = [sys.executable, "-c", DAEMON.format(kind), "--config-dir", str(conf_dir), "--log-level", "warning"]
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.process = psutil.Process(self.popen.pid)
        # Processes that were seen once are ended even if their parent is gone by then.
        self._seen = {self.process}

    def running(self) -> bool:
        return self.popen.poll() is None

    def processes(self) -> list[psutil.Process]:
        """The daemon's living processes, and a note of them for stop()."""
        try:
            alive = [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            alive = []
        self._seen.update(alive)
        return alive

    def cpu_seconds(self) -> float:
        """User and system time of every process of this daemon, ended children included."""
        total = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def sizes(self) -> Sizes:
        rss = fds = threads = 0
        for process in self.processes():
            try:
                with process.oneshot():
                    rss += process.memory_info().rss
                    fds += process.num_fds()
                    threads += process.num_threads()
            except psutil.NoSuchProcess:
                continue
        return Sizes(rss, fds, threads)

    def stop(self) -> None:
        self.processes()
        # The whole set is asked first: a master's children end with it, and what hangs is killed below.
        if self.running():
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(STOP_SECONDS)
        self.processes()
        left = [process for process in self._seen if process.is_running()]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=STOP_SECONDS)
        self.popen.wait(STOP_SECONDS)

    def last_words(self, lines: int = 30) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class RealSalt:
    """
    A master and one threaded minion, stock or with saltctx.

    saltctx
        False: Salt alone (saltctx is switched off in the minion's environment). True or a dict: what the minion's
        config says under `saltctx:`; metadata.PackageNotFoundError is raised if saltctx is not installed.
    minion_opts, master_opts
        More configuration for either.
    modules
        Custom execution modules, name to source: laid into the minion's extension_modules, and into the master's
        file roots so that a sync keeps them.
    """

    def __init__(
        self,
        saltctx: bool | dict[str, Any] = False,
        *,
        minion_id: str = "rig",
        minion_opts: dict[str, Any] | None = None,
        master_opts: dict[str, Any] | None = None,
        modules: dict[str, str] | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        if saltctx:
            # Salt finds it by its entry point: one that is on the path only would leave the jobs to stock Salt.
            metadata.distribution("saltctx")
        self.minion_id = minion_id
        self.name = "saltctx" if saltctx else "stock"
        self.root = Path(tempfile.mkdtemp(prefix="saltctx-rig-"))
        self._flag = saltctx
        self._master_opts = master_opts or {}
        self._minion_opts = minion_opts or {}
        self._modules = {"rig": RIG_MODULE, **(modules or {})}
        self._environ = environ or {}
        self._daemons: list[Daemon] = []
        self._client: salt.client.LocalClient | None = None

    # -- start and stop

    def __enter__(self) -> RealSalt:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._write_configs()
        for name, source in self._modules.items():
            self.write_module(name, source)
        deadline = time.monotonic() + START_SECONDS
        self.master = self._spawn("master")
        self._connect(deadline)
        self.minion = self._spawn("minion")
        self._await_event(f"salt/minion/{self.minion_id}/start", deadline)
        # The first job also tells that the minion's way back to the master stands.
        if self.run("test.ping").lost:
            raise RigError(f"the minion started but does not answer\n{self.minion.last_words()}")

    def stop(self) -> None:
        # Each step runs whatever became of the last: a signal may have caught the client's event loop half way.
        with ExitStack() as steps:
            steps.callback(shutil.rmtree, self.root, ignore_errors=True)
            for daemon in self._daemons:
                steps.callback(daemon.stop)
            self._daemons = []
            if self._client is not None:
                client, self._client = self._client, None
                with suppress(Exception):
                    client.destroy()

    def restart_minion(self) -> None:
        """End the minion and start it anew, on the same configuration."""
        self.minion.stop()
        self._daemons.remove(self.minion)
        self.minion = self._spawn("minion")
        self._await_event(f"salt/minion/{self.minion_id}/start", time.monotonic() + START_SECONDS)

    def _spawn(self, kind: str) -> Daemon:
        env = {**os.environ, **self._environ}
        if not self._flag:
            env["SALTCTX_DISABLE"] = "1"
        daemon = Daemon(kind, self.root / "conf", self.root / f"{kind}.out", env)
        self._daemons.append(daemon)
        return daemon

    def _write_configs(self) -> None:
        root = self.root
        publish_port, ret_port = free_ports(2)
        for name in ("conf", "srv/_modules", "pillar", "ext/modules", "ext/states", "run/master", "run/minion"):
            (root / name).mkdir(parents=True)
        common: dict[str, Any] = {
            "user": getpass.getuser(),
            "root_dir": str(root),
            "publish_port": publish_port,
            "log_level_logfile": "warning",
            **FAST_START,
        }
        self.master_config: dict[str, Any] = {
            **common,
            "interface": LOOPBACK,
            "ret_port": ret_port,
            "worker_threads": WORKER_THREADS,
            "open_mode": True,
            "auto_accept": True,
            "pki_dir": str(root / "pki/master"),
            "cachedir": str(root / "cache/master"),
            "sock_dir": str(root / "run/master"),
            "log_file": str(root / "master.log"),
            "file_roots": {"base": [str(root / "srv")]},
            "pillar_roots": {"base": [str(root / "pillar")]},
            # A file that a test lays down is there for the next job, not 20 seconds later.
            "fileserver_list_cache_time": 0,
            **self._master_opts,
        }
        self.minion_config: dict[str, Any] = {
            **common,
            "id": self.minion_id,
            "master": LOOPBACK,
            "master_port": ret_port,
            "multiprocessing": False,
            "mine_enabled": False,
            "acceptance_wait_time": 1,
            "pki_dir": str(root / "pki/minion"),
            "cachedir": str(root / "cache/minion"),
            "sock_dir": str(root / "run/minion"),
            "log_file": str(root / "minion.log"),
            "extension_modules": str(root / "ext"),
            **({"saltctx": self._flag} if self._flag else {}),
            **self._minion_opts,
        }
        (root / "srv/rig.sls").write_text(STATE_FILE)
        (root / "ext/states/rig_state.py").write_text(RIG_STATE)
        for kind, config in (("master", self.master_config), ("minion", self.minion_config)):
            (root / "conf" / kind).write_text(yaml.safe_dump(config))

    def _connect(self, deadline: float) -> None:
        ready = self.root / "run/master/publish_pull.ipc"
        while time.monotonic() < deadline:
            if not self.master.running():
                raise RigError(f"the master ended at once\n{self.master.last_words()}")
            if ready.exists() and self._answers(self.master_config["ret_port"]):
                opts = salt.config.client_config(str(self.root / "conf/master"))
                self._client = salt.client.LocalClient(mopts=opts)
                if self._client.event.connect_pub(timeout=10):
                    self._client.event.subscribe("salt/job/")
                    return
                self._client.destroy()
                self._client = None
            time.sleep(0.1)
        raise RigError(f"the master did not come up\n{self.master.last_words()}")

    @staticmethod
    def _answers(port: int) -> bool:
        with socket.socket() as sock:
            sock.settimeout(1)
            return sock.connect_ex((LOOPBACK, port)) == 0

    def _await_event(self, tag: str, deadline: float) -> None:
        while time.monotonic() < deadline:
            if not self.minion.running():
                raise RigError(f"the minion ended at once\n{self.minion.last_words()}")
            if self.client.event.get_event(wait=1, tag=tag, full=True) is not None:
                return
        raise RigError(f"no event {tag}\n{self.minion.last_words()}")

    # -- what a test lays down

    def write_module(self, name: str, source: str, kind: str = "modules") -> None:
        """Lay a custom module where the minion loads it, and where `saltutil.sync_*` takes it from."""
        for folder in (self.root / "ext" / kind, self.root / "srv" / f"_{kind}"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.py").write_text(source)

    def write_master_module(self, name: str, source: str, kind: str = "modules") -> None:
        """Change a custom module on the master alone: the minion has it after a sync."""
        (self.root / "srv" / f"_{kind}" / f"{name}.py").write_text(source)

    # -- jobs

    @property
    def client(self) -> salt.client.LocalClient:
        if self._client is None:
            raise RigError("Salt is not running")
        return self._client

    def run(self, fun: str, *arg: Any, timeout: float = JOB_SECONDS, **kwarg: Any) -> Return:
        """One job, and how it ended."""
        return self.run_many([Call(fun, arg, kwarg)], in_flight=1, timeout=timeout)[0]

    def run_many(
        self,
        calls: Iterable[Call],
        in_flight: int = 16,
        timeout: float = JOB_SECONDS,
        on_return: Callable[[Return], None] | None = None,
    ) -> list[Return]:
        """Publish the calls, `in_flight` unanswered at a time; one without a return in `timeout` seconds is lost."""
        waiting = iter(calls)
        pending: dict[str, tuple[Call, float]] = {}
        done: list[Return] = []
        exhausted = False

        def finish(jid: str, data: dict[str, Any] | None) -> None:
            call, began = pending.pop(jid)
            done.append(Return(call, jid, time.perf_counter() - began, data))
            if on_return is not None:
                on_return(done[-1])

        while True:
            while not exhausted and len(pending) < in_flight:
                call = next(waiting, None)
                if call is None:
                    exhausted = True
                    break
                jid = salt.utils.jid.gen_jid(self.client.opts)
                while jid in pending:
                    jid = salt.utils.jid.gen_jid(self.client.opts)
                pending[jid] = (call, time.perf_counter())
                self._publish(jid, call)
            if not pending:
                return done
            event = self.client.event.get_event(wait=1, tag="salt/job/", full=True)
            if event is not None:
                jid = event["data"].get("jid", "")
                if "/ret/" in event["tag"] and jid in pending:
                    finish(jid, event["data"])
            now = time.perf_counter()
            for jid in [jid for jid, (_, began) in pending.items() if now - began > timeout]:
                finish(jid, None)

    def _publish(self, jid: str, call: Call) -> None:
        arg = list(call.arg)
        if call.kwarg:
            arg.append({"__kwarg__": True, **call.kwarg})
        self.client.pub(self.minion_id, call.fun, arg, tgt_type="list", jid=jid, timeout=JOB_SECONDS)


ONE_AT_A_TIME = {
    "test.ping": Call("test.ping"),
    "grains.get": Call("grains.get", ("os",)),
    "cmd.run": Call("cmd.run", ("true",)),
    "state.single": Call("state.single", ("test.nop", "nothing")),
    "state.apply": Call("state.apply", ("rig",)),
}

__all__ = [
    "ONE_AT_A_TIME",
    "Call",
    "RealSalt",
    "Return",
    "RigError",
    "Sizes",
    "ended_by_sigterm",
    "retcode_jobs",
]
