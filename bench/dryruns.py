"""Dry runs stay dry: pairs of ``test=True`` and real state runs side by side, on stock Salt and with saltctx.

    python bench/dryruns.py [--pairs 1000] [--stock-pairs 100] [--real] [--check]

State runs that may overlap (``concurrent=True``), eight in flight, each with a pillar override and a saltenv of its
own: ``state.single``, ``state.apply``, and both kinds of nesting, a custom module that runs a state and
``module.run`` of that. Each state notes in a file whether it acted and what it read. With --real on a real master and
minion, else on a minion in process. Stock is slow and soon wrong: --stock-pairs of them are enough to show it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IN_FLIGHT = 8
KINDS = ("state.single", "state.apply", "a module's state.single", "module.run of it")

# It looks late, and again, whether it is a dry run, as states that compare first do.
STATE = '''
"""A state that notes what it does."""
import json
import time


def there(name, log, delay=0.005, **kwargs):
    """Act unless this is a dry run; a line in the file ``log`` says so, and what was read meanwhile."""
    before = __opts__["test"]
    time.sleep(delay)
    test = __opts__["test"]
    line = {
        "name": name, "acted": not test, "test": [before, test, __salt__["dryrun.test"]()],
        "who": [str(__pillar__.get("who")), str(__salt__["pillar.get"]("who", unmask=True))],
        "saltenv": __opts__.get("saltenv"),
    }
    with open(log, "a") as file:
        file.write(json.dumps(line) + "\\n")
    return {"name": name, "result": None if test else True, "comment": "", "changes": {} if test else {"did": name}}
'''
MODULE = '''
"""What the state asks, and a function that runs a state."""


def test():
    """Whether this is a dry run."""
    return __opts__["test"]


def nested(run, log, dry, who, env):
    """A state run of its own inside a job; what the job itself reads in ``__opts__`` before and after."""
    before = __opts__.get("test")
    __salt__["state.single"](
        "dryrun.there", name=run, log=log, test=dry, pillar={"who": who}, saltenv=env, concurrent=True
    )
    return [before, __opts__.get("test")]
'''
SLS = "{{ pillar['name'] }}:\n  dryrun.there:\n    - log: {{ pillar['log'] }}\n    - read: {{ pillar['who'] }}\n"


@dataclass(frozen=True)
class Run:
    """One job, and what its state must have noted; ``acts`` None: nothing, it must not have run."""

    name: str
    fun: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    acts: bool | None
    saltenv: str

    def wrong(self, lines: list[dict[str, Any]], returned: Any) -> str | None:
        """What this run did that it should not have, None if all is well."""
        if returned is None:
            return "lost"
        if any(line["acted"] for line in lines) and not self.acts:
            return "dry runs that acted"
        if self.acts and not any(line["acted"] for line in lines):
            return "real runs that stayed dry"
        dry = not self.acts
        expected = {
            "name": self.name, "acted": not dry, "test": [dry] * 3, "who": [f"of {self.name}"] * 2,
            "saltenv": self.saltenv,
        }
        if lines != ([] if self.acts is None else [expected]):
            return "runs that read another's value"
        if self.fun == "dryrun.nested" and returned != [False, False]:
            return "runs that read another's value"
        return None


def runs(pairs: int, log: str) -> Iterator[Run]:
    """A dry run and a real one of each kind in turn."""
    for number in range(2 * pairs):
        dry, kind = number % 2 == 0, KINDS[number // 2 % len(KINDS)]
        name, saltenv = f"n{number}", ("base", "dev")[number // 8 % 2]
        told = {"test": True} if dry else {}
        pillar = {"who": f"of {name}", "name": name, "log": log}
        own = {"concurrent": True, "pillar": pillar, "saltenv": saltenv}
        inner = {"run": name, "log": log, "dry": dry, "who": f"of {name}", "env": saltenv}
        if kind == "state.single":
            yield Run(name, kind, ("dryrun.there",), {"name": name, "log": log, **own, **told}, not dry, saltenv)
        elif kind == "state.apply":
            yield Run(name, kind, ("act",), {**own, **told}, not dry, saltenv)
        elif kind == KINDS[2]:
            yield Run(name, "dryrun.nested", (), inner, not dry, saltenv)
        else:
            # Every other dry one is dry outside: the function must not be called at all.
            outside = dry and number % 16 < 8
            told = {"test": True} if outside else {}
            module = {"name": "dryrun.nested", **inner}
            acts = None if outside else not dry
            yield Run(name, "state.single", ("module.run",), {**module, "concurrent": True, **told}, acts, saltenv)


def judge(done: list[tuple[Run, Any]], log: Path) -> dict[str, Any]:
    """How many runs of which kind went wrong in which way: {"pairs", "wrong": {way: count}, "kinds": {kind: count}}."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in log.read_text().splitlines():
        one = json.loads(line)
        lines.setdefault(one["name"], []).append(one)
    ways: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    example = ""
    for number, (run, returned) in enumerate(done):
        wrong = run.wrong(lines.get(run.name, []), returned)
        if wrong is not None:
            ways[wrong] += 1
            kinds[KINDS[number // 2 % len(KINDS)]] += 1
            example = example or f"{wrong}: {run}: {lines.get(run.name)}: {returned}"
    return {"pairs": len(done) // 2, "wrong": dict(ways), "kinds": dict(kinds), "example": example}


def in_process(saltctx: bool, pairs: int) -> dict[str, Any]:
    """The pairs on a minion in this process, which runs nothing else."""
    import inprocess_minion

    inprocess_minion.quiet()
    with inprocess_minion.InProcessMinion(True if saltctx else None) as rig:
        rig.write("ext/states/dryrun.py", STATE)
        rig.write("ext/modules/dryrun.py", MODULE)
        for below in ("srv", "dev"):
            rig.write(f"{below}/act.sls", SLS)
        log = rig.write("noted", "")
        rig.start()
        todo = list(runs(pairs, str(log)))
        returns = rig.run_many([rig.load(run.fun, *run.args, **run.kwargs) for run in todo], IN_FLIGHT)
        return judge([(run, ret.get("return")) for run, ret in zip(todo, returns)], log)


def on_real_minion(saltctx: bool, pairs: int) -> dict[str, Any]:
    """The pairs on a real master and minion."""
    from realsalt import Call, RealSalt

    with tempfile.TemporaryDirectory(prefix="saltctx-dryruns-") as folder:
        for saltenv in ("base", "dev"):
            Path(folder, saltenv).mkdir()
            Path(folder, saltenv, "act.sls").write_text(SLS)
        log = Path(folder, "noted")
        log.touch()
        roots = {saltenv: [str(Path(folder, saltenv))] for saltenv in ("base", "dev")}
        with RealSalt(saltctx=saltctx, master_opts={"file_roots": roots}, modules={"dryrun": MODULE}) as rig:
            rig.write_module("dryrun", STATE, kind="states")
            order = list(runs(pairs, str(log)))
            calls = [Call(run.fun, run.args, run.kwargs) for run in order]
            by_call = {id(call): run for call, run in zip(calls, order)}
            back = {by_call[id(one.call)].name: one.value for one in rig.run_many(calls, IN_FLIGHT)}
            return judge([(run, back.get(run.name)) for run in order], log)


def main() -> int:
    options = parse()
    if options.worker:
        answer = (on_real_minion if options.real else in_process)(options.worker == "saltctx", options.pairs)
        print(json.dumps(answer))
        return 0
    import report  # what the worker, and a test that uses this, has no use for

    where = "a real master and minion" if options.real else "a minion in process"
    outcome = report.Report(
        "Dry runs beside real ones", f"On {where}, {IN_FLIGHT} in flight, pillar overrides, two saltenvs, nested runs."
    )
    found = {name: ask(name, pairs, options) for name, pairs in (
        ("stock", options.stock_pairs), ("saltctx", options.pairs),
    )}  # fmt: skip
    stock, saltctx = found["stock"], found["saltctx"]
    outcome.add("pairs of a dry run and a real one", stock["pairs"], saltctx["pairs"], better="zero")
    for way in ("dry runs that acted", "real runs that stayed dry", "runs that read another's value", "lost"):
        counts = [side["wrong"].get(way, 0) for side in (stock, saltctx)]
        outcome.add(way, *counts, better="zero", target="saltctx <= 0")
    for kind in KINDS:
        counts = [side["kinds"].get(kind, 0) for side in (stock, saltctx)]
        outcome.add(f"wrong in any way: {kind}", *counts, better="zero", target="saltctx <= 0")
    if saltctx["example"]:
        print(saltctx["example"], file=sys.stderr)
    return outcome.finish(options)


def ask(side: str, pairs: int, options: argparse.Namespace) -> dict[str, Any]:
    """A side's answer, from a process of its own: saltctx hooks a whole process."""
    command = [sys.executable, __file__, "--worker", side, "--pairs", str(pairs), *["--real"] * options.real]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def parse() -> argparse.Namespace:
    import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000, help="with saltctx (default: %(default)s)")
    parser.add_argument("--stock-pairs", type=int, default=100, help="on stock Salt (default: %(default)s)")
    parser.add_argument("--real", action="store_true", help="on a real master and minion")
    parser.add_argument("--worker", choices=("stock", "saltctx"), help=argparse.SUPPRESS)
    report.add_arguments(parser, "bench-dryruns.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
