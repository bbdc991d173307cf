"""
Runs a scenario on a minion that is stock Salt and on one with saltctx, each in a fresh process of its own.

saltctx hooks a whole process, so the two can never be compared within one. A scenario is a function of a test
file, ``scenario(minion)``: it is handed a :class:`ScenarioMinion` that is not started yet and returns what JSON
can hold (a tuple comes back as a list). The processes are forked off a server that has only imported Salt.

``SALTCTX_TEST_FRESHNESS=watch`` runs all scenarios that name no ``saltctx:`` block of their own with that freshness.
"""

import faulthandler
import importlib.util
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback

from inprocess_minion import InProcessMinion

STOCK, SALTCTX = "stock", "saltctx"
SECONDS = 60
# The shipped execution modules of a scenario's minion: a lookup that misses loads every file there is.
SHIPPED = {
    "cmdmod", "config", "data", "environ", "event", "file", "grains", "match", "mine", "pillar", "saltutil", "state",
    "sysmod", "test",
}


class ScenarioFailed(AssertionError):
    """A scenario raised, or its process died; the text has its traceback and what it wrote."""


class Sides:
    """The server that scenarios are forked off. Use as a context manager, in one thread."""

    def __init__(self):
        here = pathlib.Path(__file__).parent
        paths = [str(here), str(here.parent.parent / "bench")]
        environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith("SALTCTX_") or name.startswith("SALTCTX_TEST_")
        }
        environment["PYTHONPATH"] = os.pathsep.join([*paths, environment.get("PYTHONPATH", "")])
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._server = subprocess.Popen(
            [sys.executable, "-c", "import sides; sides.serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=here,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._server.stdin.close()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()

    def run(self, scenario, *arguments, sides=(STOCK, SALTCTX), environment=None, seconds=SECONDS, opts=None):
        """
        {side: what ``scenario(minion, *arguments)`` returned there}.

        environment: {str: str}. opts: dict, over those of the minion's config; both sides run at once.

        Raises ScenarioFailed if the scenario raises, dies or takes longer than ``seconds`` on any side.
        """
        requests = [
            {
                "path": scenario.__code__.co_filename, "scenario": scenario.__qualname__, "side": side,
                "arguments": arguments, "environment": environment or {}, "seconds": seconds, "opts": opts or {},
            }
            for side in sides
        ]
        self._server.stdin.write(json.dumps(requests) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise ScenarioFailed("the server of the scenarios has ended")
        answers = json.loads(line)
        for side, answer in zip(sides, answers):
            if "result" not in answer:
                raise ScenarioFailed(f"{scenario.__qualname__} on {side}:\n{answer['failure']}\n{answer['output']}")
        return {side: answer["result"] for side, answer in zip(sides, answers)}

    def both(self, scenario, *arguments, **kwargs):
        """What ``scenario`` returned, which must be the same on both sides."""
        results = self.run(scenario, *arguments, **kwargs)
        difference = "\n".join(_differences("", results[STOCK], results[SALTCTX]))
        assert results[SALTCTX] == results[STOCK], f"stock, then saltctx:\n{difference}"
        return results[SALTCTX]

    def saltctx(self, scenario, *arguments, **kwargs):
        """What ``scenario`` returned with saltctx."""
        return self.run(scenario, *arguments, sides=(SALTCTX,), **kwargs)[SALTCTX]

    def stock(self, scenario, *arguments, **kwargs):
        """What ``scenario`` returned on stock Salt, with the package installed and not switched on."""
        return self.run(scenario, *arguments, sides=(STOCK,), **kwargs)[STOCK]


def _differences(where, stock, saltctx):
    if isinstance(stock, dict) and isinstance(saltctx, dict) and stock.keys() == saltctx.keys():
        for key in stock:
            yield from _differences(f"{where}[{key!r}]", stock[key], saltctx[key])
    elif stock != saltctx:
        yield f"{where}: {stock!r}, {saltctx!r}"


class ScenarioMinion(InProcessMinion):
    """
    An InProcessMinion with what scenarios do to one.

    log: [(logger, message, traceback of the cause or "")] of what was logged at WARNING and above.
    """

    def __init__(self, side, **opts):
        freshness = os.environ.get("SALTCTX_TEST_FRESHNESS")
        switched_on = {"freshness": freshness} if freshness else True
        opts.setdefault("saltctx", switched_on if side == SALTCTX else None)
        opts.setdefault("disable_modules", _other_modules())
        super().__init__(**opts)
        self.side = side
        self.log = []
        self._second = int(time.time()) - 100_000

    def __enter__(self):
        return self

    def start(self):
        """As InProcessMinion.start."""
        import salt.utils.error

        # It waits a second for a bus that is not there, in each job that raises.
        salt.utils.error.fire_exception = lambda *_args, **_kwargs: None
        return super().start()

    def value(self, fun, *args, **kwargs):
        """What one job returned; the text of an error if it failed."""
        return self.job(fun, *args, **kwargs).get("return", "LOST")

    def values(self, *funs):
        """What one job of each function, without arguments, returned."""
        return [self.value(fun) for fun in funs]

    def retcode(self, fun, *args, **kwargs):
        """The retcode of one job; None if it was lost."""
        return self.job(fun, *args, **kwargs).get("retcode")

    def module(self, name, source, kind="modules", below="ext"):
        """
        Write ``below/kind/name.py`` as an editor does, with a whole-second time of its own.

        So Python's own check of a ``.pyc`` (whole seconds and size) is not what a comparison measures.
        """
        path = self.write(f"{below}/{kind}/{name}.py", textwrap.dedent(source))
        self._second += 10
        os.utime(path, (self._second, self._second))
        return path

    def remove(self, path):
        """Remove a module file and what Python left of it, as saltutil.sync_* does."""
        path.unlink()
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            cached.unlink()

    def sls(self, name, text, below="srv"):
        """Write a state or pillar file."""
        return self.write(f"{below}/{name}.sls", textwrap.dedent(text))

    def jobs(self):
        """The MinionJobs that saltctx keeps of this minion; None where stock Salt runs it."""
        from saltctx.hooks.minion import jobs_of

        return jobs_of(self.minion)

    def counts(self):
        """saltctx's counters: {"adopted", "rebuilt", "partial", "reloaded", "fallback"}."""
        return self.jobs().report.counts()

    def reasons(self):
        """The reasons saltctx recorded, oldest first; none where stock Salt runs the minion."""
        jobs = self.jobs()
        return [] if jobs is None else [entry["reason"] for entry in jobs.report.reasons()]

    def logged(self, word="saltctx"):
        """The messages of the log that have ``word`` in them or in their logger's name."""
        return [message for name, message, _ in self.log if word in message or word in name]


def _other_modules():
    import salt.modules

    found = pathlib.Path(salt.modules.__file__).parent.iterdir()
    return sorted({path.name.partition(".")[0] for path in found if path.name[0] != "_"} - SHIPPED)


class _Keep(logging.Handler):
    def __init__(self, kept):
        super().__init__(logging.WARNING)
        self._kept = kept

    def emit(self, record):
        cause = traceback.format_exception(*record.exc_info) if record.exc_info else []
        self._kept.append((record.name, record.getMessage(), "".join(cause)))


def serve():
    """Fork a process for each request that comes in on standard input, answer when all of a line have ended."""
    import pytest  # noqa: F401 (the test files want it)
    import salt.config
    import salt.loader
    import salt.minion
    import salt.pillar
    import salt.state
    import salt.utils.jinja
    import salt.utils.schedule  # noqa: F401

    sys.dont_write_bytecode = False
    for line in sys.stdin:
        running = [_fork(request) for request in json.loads(line)]
        answers = [_answer(*one) for one in running]
        print(json.dumps(answers), flush=True)


def _fork(request):
    result, output = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.close(0)
            sys.stdin = None
            faulthandler.dump_traceback_later(request["seconds"], exit=True)
            signal.alarm(request["seconds"] + 10)
            result.write(json.dumps(_in_child(request), default=repr).encode())
            result.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    return pid, result, output


def _in_child(request):
    os.environ.update(request["environment"])
    try:
        scenario = _load(request["path"], request["scenario"])
        with ScenarioMinion(request["side"], **request["opts"]) as minion:
            # Salt's own keep every record, with all that its traceback holds, until logging is set up.
            logging.getLogger().handlers[:] = [_Keep(minion.log)]
            return {"result": scenario(minion, *request["arguments"])}
    except BaseException:
        return {"failure": traceback.format_exc()}


def _load(path, name):
    spec = importlib.util.spec_from_file_location("scenarios_of_" + pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def _answer(pid, result, output):
    _, status = os.waitpid(pid, 0)
    with result, output:
        result.seek(0)
        output.seek(0)
        text = output.read().decode(errors="replace")[-6000:]
        found = result.read()
        answer = json.loads(found) if found else {"failure": f"the process ended with wait status {status}"}
    answer.setdefault("output", text)
    return answer
