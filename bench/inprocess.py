"""What saltctx must show without a master: a stock and a saltctx minion in processes of their own, asked in turn.

    python bench/inprocess.py [--quick] [--jobs 20000] [--check]

A side that is not asked waits. The figures are medians of interleaved runs; counts are of all runs.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import report

SIDES = ("stock", "saltctx")
ARGUMENTS = {"stock": [], "saltctx": ["--freshness", "stat"], "watch": ["--freshness", "watch"]}


class Side:
    """A worker process."""

    def __init__(self, name: str, *more: str) -> None:
        self.name = name
        command = [sys.executable, str(Path(__file__).with_name("inprocess_worker.py"))]
        self._process = subprocess.Popen(
            [*command, *ARGUMENTS[name], *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def ask(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, args, kwargs]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {self.name} worker ended while it was asked for {name}")
        return json.loads(line)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.wait()


def main() -> int:
    options = parse()
    outcome = report.Report("saltctx in process", "No master: the minion alone, jobs as it runs them.")
    with ExitStack() as stack:
        sides = {name: stack.enter_context(Side(name)) for name in SIDES}
        for side in sides.values():
            side.ask("job", "test.ping", rounds=3)
            side.ask("job", "state.single", "test.nop", name="x", rounds=1)
        one_at_a_time(sides, options, outcome)
        realistic({name: stack.enter_context(Side(name, "--realistic")) for name in SIDES}, options, outcome)
        concurrent(sides, options, outcome)
        small(sides, options, outcome)
        freshness(sides["saltctx"], stack.enter_context(Side("watch")), options, outcome)
        growth(sides["saltctx"], options, outcome)
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: a look, not a measurement")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of the long run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=40, help="single jobs of each kind (default: %(default)s)")
    report.add_arguments(parser, "bench-inprocess.json")
    options = parser.parse_args()
    options.share = 10 if options.quick else 1
    return options


def one_at_a_time(sides: dict[str, Side], options: argparse.Namespace, outcome: report.Report) -> None:
    kinds = (
        ("job test.ping", ("test.ping",), {}, "ratio >= 20"),
        ("job state.single test.nop", ("state.single", "test.nop"), {"name": "x"}, "ratio >= 15"),
        ("job state.apply, 20 states", ("state.apply", "twenty"), {}, "ratio >= 9"),
    )
    times: dict[str, dict[str, list[float]]] = {kind[0]: {name: [] for name in SIDES} for kind in kinds}
    rebuilds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(max(2, options.rounds // options.share)):
        for name, side in sides.items():
            for kind, args, kwargs, _target in kinds:
                # More than one: the first finds the caches of the machine full of the other side's work.
                times[kind][name] += side.ask("job", *args, rounds=3, **kwargs)
            rebuilds[name] += side.ask("gen_modules", 1)
            # The first job after a rebuild loads what it uses: not what is measured above.
            side.ask("job", "test.ping", rounds=2)
    for kind, _args, _kwargs, target in kinds:
        outcome.add(kind, times[kind]["stock"], times[kind]["saltctx"], "ms", target=target)
    outcome.add("gen_modules() asked for", rebuilds["stock"], rebuilds["saltctx"], "ms")


def realistic(sides: dict[str, Side], options: argparse.Namespace, outcome: report.Report) -> None:
    """States as administrators have them, which start programs, too: see realistic.py."""
    for side in sides.values():
        side.ask("realistic")
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(max(2, options.rounds // 2 // options.share)):
        for name, side in sides.items():
            times[name].append(side.ask("realistic"))
    outcome.add("job state.apply, 30 realistic states", times["stock"], times["saltctx"], "ms", target="ratio >= 2")


def concurrent(sides: dict[str, Side], options: argparse.Namespace, outcome: report.Report) -> None:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    reloads: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    batches, jobs = 4, 400 // options.share
    for _ in range(batches):
        for name, side in sides.items():
            runs[name].append(side.ask("concurrent", jobs, 16))
            reloads[name].append(side.ask("concurrent", jobs, 16, reload_every=0.05))
    for title, found in ((f"{batches * jobs:,} jobs, 16 threads", runs), ("the same, reload every 50 ms", reloads)):
        for what in ("wrong", "lost"):
            sums = {name: sum(run[what] for run in found[name]) for name in SIDES}
            outcome.add(f"{title}: {what}", sums["stock"], sums["saltctx"], "jobs", "zero", "saltctx <= 0")
    rates = {name: [run["per_second"] for run in runs[name]] for name in SIDES}
    outcome.add("throughput, 16 threads", rates["stock"], rates["saltctx"], "jobs/s", "more", "ratio >= 25")
    long = sides["saltctx"].ask("concurrent", options.jobs // options.share, 16)
    for what in ("wrong", "lost"):
        title = f"{options.jobs // options.share:,} jobs, 16 threads: {what}"
        outcome.add(title, None, long[what], "jobs", "zero", "saltctx <= 0")


def small(sides: dict[str, Side], options: argparse.Namespace, outcome: report.Report) -> None:
    rounds = 5
    number = 200_000 // options.share
    subscripts = [sides["saltctx"].ask("subscript", number) for _ in range(rounds)]
    outcome.add(
        "JobContext subscript / a dict's", None,
        [one["jobcontext_ns"] / one["dict_ns"] for one in subscripts], "times", target="saltctx <= 2",
    )
    inside: dict[str, list[float]] = {name: [] for name in SIDES}
    calls: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, side in sides.items():
            inside[name].append(side.ask("value", "probe.inside", number // 4))
            calls[name].append(side.ask("value", "probe.call", number // 10))
    outcome.add('__context__["k"] in a module', inside["stock"], inside["saltctx"], "ns", target="ratio >= 5")
    outcome.add(
        "look up and call, above the plain call", calls["stock"], calls["saltctx"], "ns",
        target="saltctx <= 1000",
    )


def freshness(stat: Side, watch: Side, options: argparse.Namespace, outcome: report.Report) -> None:
    watch.ask("job", "test.ping", rounds=3)
    entries: dict[str, list[dict[str, float]]] = {"stat": [], "watch": []}
    edited: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for _ in range(5):
        for name, side in (("stat", stat), ("watch", watch)):
            for rebuild, more in side.ask("edited", max(3, 10 // options.share)).items():
                edited[name, rebuild] += more
            entries[name].append(side.ask("entry", 5))
    for name, limit in (("stat", 80), ("watch", 15)):
        outcome.add(
            f"job entry, evidence ({name}, {entries[name][0]['paths']} paths), exit", None,
            [entry["entry_us"] for entry in entries[name]], "us", target=f"saltctx <= {limit}",
        )
    for title, key, target in (
        ("the same without a path to look at", "no_path_us", "saltctx <= 3"),
        ("not the look at the paths, timed in place", "other_us", ""),
    ):
        outcome.add(title, None, [entry[key] for entry in entries["stat"]], "us", target=target)
    titles = {
        "partial": ("a job after one edited custom module, above an unchanged one", "saltctx <= 3"),
        "whole": ("the same, all loaders built anew", ""),
    }
    for (name, rebuild), more in edited.items():
        title, target = titles[rebuild]
        outcome.add(f"{title} ({name})", None, more, "ms", target=target)


def growth(side: Side, options: argparse.Namespace, outcome: report.Report) -> None:
    first, more = 1_000 // options.share, 9_000 // options.share
    left, title = side.ask("growth", first, more), f"{first + more:,} jobs"
    outcome.add(f"{title}: RSS after the first {first:,}", None, left["rss_kib"], "KiB", target="saltctx <= 1024")
    for what, found in (("more descriptors", "fds"), ("more threads", "threads"), ("Jobs alive", "jobs")):
        outcome.add(f"{title}: {what}", None, left[found], "", "zero", "saltctx <= 0")


if __name__ == "__main__":
    sys.exit(main())
