"""Faults in the middle of a job: the next job is right, nothing is kept, nothing hangs."""

import ast
import ctypes
import functools
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

OWN = """
NUMBER = {0}
def go(own):
    keys = [key for key in __context__ if key != "retcode"]
    __context__["own"] = own
    __context__["retcode"] = own
    return [NUMBER, keys, __salt__["test.echo"](own), __context__["own"]]
"""
# Without the GIL each sys.settrace() stops all threads and goes through all code.
POINTS = 1000 if getattr(sys, "_is_gil_enabled", lambda: True)() else 40
ERRORS = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}


def is_right(minion, own, number=0):
    return what_is_wrong(minion, own, number) is None


def what_is_wrong(minion, own, number=0):
    """The return of a job if it is not what it should be, else None."""
    ret = minion.job("own.go", own)
    return None if ret.get("retcode") == own and ret.get("return") == [number, [], own, own] else ret or "lost"


def left_behind(minion):
    """What is there of jobs when none runs: a dict of counts."""
    from saltctx import current_job

    gc.collect()
    jobs = minion.jobs()
    return {
        "jobs": sum(type(thing).__name__ == "Job" for thing in gc.get_objects()),
        "current": current_job() is not None, "fallback": minion.counts()["fallback"],
        "locked": not jobs.generations._lock.acquire(blocking=False) or jobs.generations._lock.release(),
    }


NOTHING = {"jobs": 0, "current": False, "fallback": 0, "locked": None}


# -------------------------------------------------------------------------------- interrupted anywhere
@functools.cache
def never_interrupted(path):
    """
    The lines of a file at which only a trace function can raise.

    An exception from outside comes after a call or at a jump: not between the body of a ``with`` and its exit,
    which is traced as its first line, nor at ``try`` or ``pass``, nor between a body and its ``finally``.
    """
    lines = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, (ast.With, ast.Try, ast.Pass)):
            lines.add(node.lineno)
        if isinstance(node, ast.Try) and node.finalbody:
            lines.add(node.finalbody[0].lineno)
    return lines


class Interrupt:
    """A trace function that raises ``error`` at the ``at``-th line of saltctx that a thread runs; 0 for never."""

    def __init__(self, at=0, error=None):
        import saltctx

        self.at, self.error, self.lines, self.where = at, error, 0, None
        self._ours = str(Path(saltctx.__file__).parent)

    def __call__(self, frame, event, arg):
        return self._line if frame.f_code.co_filename.startswith(self._ours) else None

    def _line(self, frame, event, arg):
        if event == "line" and frame.f_lineno not in never_interrupted(frame.f_code.co_filename):
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                raise self.error
        return self._line

    def run(self, minion, load):
        """Run a job in a traced thread; whether it ended."""

        def work():
            sys.settrace(self)
            try:
                minion.run(load)
            except BaseException:
                pass
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(30)
        return not thread.is_alive()


def interrupted(minion, error, changed, points):
    """A job interrupted at each of so many places, and what the job after each was like."""
    minion.module("own", OWN.format(0))
    minion.start()
    wrong, number = [], 0
    for _ in range(3):
        if not is_right(minion, 1):
            wrong.append("before any fault")

    def edit():
        nonlocal number
        if changed:
            number += 1
            minion.module("own", OWN.format(number))
        if changed == "directory":
            minion.module(f"more{number}", "def go():\n    return 1\n")

    edit()
    all_lines = Interrupt()
    all_lines.run(minion, minion.load("own.go", 1))
    step = max(1, all_lines.lines // points)
    for at in range(1, all_lines.lines + 1, step):
        edit()
        interrupt = Interrupt(at, ERRORS[error])
        if not interrupt.run(minion, minion.load("own.go", 2)):
            wrong.append(f"{interrupt.where}: it hangs")
        after = what_is_wrong(minion, at % 200 + 1, number)
        if after is not None:
            wrong.append(f"{interrupt.where}: the job after it: {after}")
    return [wrong + minion.logged("saltctx"), all_lines.lines >= 10, left_behind(minion)]


@pytest.mark.parametrize("error", ERRORS)
def test_interrupted_at_each_line_of_a_job(sides, error):
    """Of a job that adopts: entry, lookups, exit."""
    assert sides.saltctx(interrupted, error, None, POINTS, seconds=100) == [[], True, NOTHING]


@pytest.mark.parametrize("changed", ["file", "directory"])
def test_interrupted_within_a_rebuild(sides, changed):
    """Of a job that loads one module anew, or all: at some eighty places, from the evidence to the last load."""
    assert sides.saltctx(interrupted, "KeyboardInterrupt", changed, min(80, POINTS), seconds=100) == [[], True, NOTHING]


def interrupted_from_outside(minion, rounds):
    """Jobs that get an exception from another thread, wherever they are, in C or in Python."""
    minion.module("own", OWN.format(0))
    minion.start()
    is_right(minion, 1)
    wrong = 0
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    for number in range(rounds):
        ended = threading.Event()

        def work():
            try:
                for _ in range(20):
                    minion.run(minion.load("own.go", 3))
            except BaseException:
                pass
            ended.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        time.sleep(number % 10 / 2000)
        set_exception(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
        thread.join(30)
        wrong += thread.is_alive() or not is_right(minion, number % 200 + 1)
    return [wrong, left_behind(minion)]


def test_interrupted_from_outside(sides):
    assert sides.saltctx(interrupted_from_outside, 60) == [0, NOTHING]


# -------------------------------------------------------------------------------- modules that raise
RAISING = """
def {0}(*args):
    raise {1}("on purpose")
def go():
    return "there"
"""


def raising_modules(minion, where):
    """What jobs of modules that raise while they are loaded return, and the jobs after them."""
    for error in ("ValueError", "CommandExecutionError", "ImportError"):
        minion.module(
            "raises_" + error.lower(),
            "from salt.exceptions import CommandExecutionError\n" + RAISING.format(where, error),
        )
    minion.module("own", OWN.format(0))
    minion.start()
    seen = []
    for error in ("ValueError", "CommandExecutionError", "ImportError"):
        ret = minion.job(f"raises_{error.lower()}.go")
        seen.append([ret.get("return") == "there", ret.get("retcode"), is_right(minion, 5), is_right(minion, 6)])
    return seen


@pytest.mark.parametrize("where", ["__init__", "__virtual__"])
def test_modules_that_raise_when_loaded(sides, where):
    found = sides.both(raising_modules, where)
    assert [right for *_, first, second in found for right in (first, second)] == [True] * 6


def leaving_modules(minion, where):
    """Modules whose load asks the process to end."""
    minion.module("own", OWN.format(0))
    minion.start()
    is_right(minion, 1)
    for error in ERRORS:
        minion.module("leaves_" + error.lower(), RAISING.format(where, error))
    seen = []
    for error in ERRORS:
        thread = threading.Thread(target=lambda: minion.job(f"leaves_{error.lower()}.go"), daemon=True)
        thread.start()
        thread.join(30)
        seen.append([thread.is_alive(), is_right(minion, 5), is_right(minion, 6)])
    return [seen, left_behind(minion) if minion.jobs() else None]


@pytest.mark.parametrize("where", ["__init__", "__virtual__"])
def test_modules_that_leave_when_loaded(sides, where):
    """SystemExit, KeyboardInterrupt: the job is lost, as on stock, and nothing else is."""
    assert sides.saltctx(leaving_modules, where) == [[[False, True, True]] * 2, NOTHING]


def raising_finalizers(minion):
    """Objects in the context, the opts and the module whose finalizers raise, call functions, write to the context."""
    minion.module("dies", """
        import threading
        class Dies:
            def __del__(self):
                __context__["from the finalizer"] = 1
                __context__["retcode"] = 99
                __salt__["test.ping"]()
                raise ValueError("on purpose")
        kept = []
        def go():
            __context__["dies"] = Dies()
            __opts__["dies"] = Dies()
            kept[:] = [Dies()]
            __context__["again"] = Dies()
            __context__["again"] = 1
            return True
    """)
    minion.module("own", OWN.format(0))
    minion.start()
    sys.unraisablehook = lambda *_: None
    seen = []
    for number in range(1, 6):
        seen += [minion.value("dies.go"), is_right(minion, number)]
        gc.collect()
        seen.append(is_right(minion, number))
    return seen


def test_finalizers_that_raise(sides):
    assert sides.saltctx(raising_finalizers) == [True] * 15


# -------------------------------------------------------------------------------- killed, outlived, forked
def signalled(minion):
    """``saltutil.signal_job`` to a job that waits for a program: what kill_job does, with a signal a process survives."""
    import salt.utils.minion

    minion.module("own", OWN.format(0))
    minion.module("waits", """
        import subprocess, sys
        def go():
            __context__["left"] = 1
            __context__["retcode"] = 77
            program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            with open(__opts__["root_dir"] + "/started", "w"):
                pass
            return program.wait()
    """)
    minion.start()
    salt.utils.minion._check_cmdline = lambda data: True
    got = []
    signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
    load, results = minion.load("waits.go"), []
    thread = threading.Thread(target=lambda: results.append(minion.run(load)), name=load["jid"])
    thread.start()
    while thread.is_alive() and not (minion.root / "started").exists():
        time.sleep(0.005)
    beside = is_right(minion, 4)
    said = minion.value("saltutil.signal_job", load["jid"], int(signal.SIGUSR2))
    thread.join(30)
    return [
        beside, said.partition(" sent")[0], bool(results and results[0]["return"] == -signal.SIGUSR2),
        results[0]["retcode"], is_right(minion, 5), len(os.listdir(minion.minion.proc_dir)),
    ]


def test_a_job_that_is_killed(sides):
    """By signal_job, as kill_job does it: the program it waits for ends, and only that job is told."""
    assert sides.both(signalled) == [True, f"Signal {int(signal.SIGUSR2)}", True, 77, True, 0]


def outlived(minion):
    """A thread that goes on after its job has ended: what it reads, and what jobs after it do."""
    minion.module("own", OWN.format(0))
    minion.module("starts", """
        import builtins, threading
        def go():
            __context__["mine"] = 1
            end, seen = threading.Event(), []
            def work():
                end.wait(30)
                __context__["later"] = 2
                __context__["retcode"] = 50
                seen.append(sorted(key for key in __context__ if key != "retcode"))
                seen.append(__salt__["test.echo"](3))
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            builtins.outlived = [thread, end, seen]
    """)
    minion.start()
    import builtins

    minion.job("starts.go")
    thread, end, seen = builtins.outlived
    right = [is_right(minion, 5)]
    minion.job("sys.reload_modules")
    end.set()
    thread.join(30)
    right += [is_right(minion, 6), thread.is_alive()]
    del builtins.outlived, thread, end
    return [seen, right, left_behind(minion)]


def test_a_thread_that_outlives_its_job(sides):
    """It keeps its job's context, across a reload, and gives it back when it ends."""
    assert sides.saltctx(outlived) == [[["later", "mine"], 3], [True, True, False], NOTHING]


def forked_within_a_rebuild(minion):
    """A process forked while another thread builds loaders: a job in the child, and one in the parent."""
    import salt.loader

    minion.module("own", OWN.format(0))
    minion.start()
    is_right(minion, 1)
    inside, go_on, serializers = threading.Event(), threading.Event(), salt.loader.serializers

    def slow(*args, **kwargs):
        if threading.current_thread() is thread:
            inside.set()
            go_on.wait(30)
        return serializers(*args, **kwargs)

    salt.loader.serializers = slow
    thread = threading.Thread(target=minion.run, args=(minion.load("own.go", 2),), daemon=True)
    minion.module("own", OWN.format(1))
    minion.module("another", "def go():\n    return 1\n")
    thread.start()
    inside.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        ret = minion.run(minion.load("own.go", 7))
        os._exit(0 if ret.get("return") == [1, [], 7, 7] and ret.get("retcode") == 7 else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    go_on.set()
    thread.join(30)
    return [inside.is_set(), status, thread.is_alive(), is_right(minion, 8, 1), left_behind(minion)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_within_a_rebuild(sides):
    """No lock of ours stays taken in the child."""
    assert sides.saltctx(forked_within_a_rebuild) == [True, 0, False, True, NOTHING]


# -------------------------------------------------------------------------------- shutdown
SHUTDOWN = """
    import sys, threading, time
    sys.path.insert(0, {bench!r})
    import inprocess_minion
    inprocess_minion.quiet()
    rig = inprocess_minion.InProcessMinion({{"freshness": {freshness!r}}})
    rig.write("ext/modules/own.py", {own!r})
    rig.start()
    done = [0]
    def work():
        while True:
            rig.run(rig.load("own.go", 1))
            done[0] += 1
            if done[0] % 20 == 0:
                rig.reload_modules()
    for _ in range(6):
        threading.Thread(target=work, daemon=True).start()
    def last():
        time.sleep(0.2)
        print(rig.run(rig.load("own.go", 9))["retcode"])
    while done[0] < 20:
        time.sleep(0.01)
    threading.Thread(target=last).start()
"""


@pytest.mark.parametrize("freshness", ["stat", "watch"])
def test_shutdown_with_jobs_running(freshness, tmp_path):
    """The interpreter ends while threads run jobs and reload: no crash, no hang, the last job right."""
    bench = Path(__file__).parents[2] / "bench"
    script = tmp_path / "shutdown.py"
    script.write_text(textwrap.dedent(SHUTDOWN.format(bench=str(bench), own=OWN.format(0), freshness=freshness)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SALTCTX_")}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script)], capture_output=True, text=True, timeout=100,
        env={**environment, "TMPDIR": str(tmp_path)}, check=False,
    )
    assert (done.returncode, done.stdout) == (0, "9\n"), done.stderr
    assert "Fatal" not in done.stderr
