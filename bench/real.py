"""What saltctx must show on a real threaded minion, measured against stock Salt in the same run.

    python bench/real.py [--jobs 1600] [--batches 4] [--rounds 60] [--growth 10000] [--master] [--check]

Two masters with a threaded minion each, one stock and one with `saltctx: true`, are up side by side on loopback;
batches and single jobs alternate between them, so that what else the machine does hits both alike. The figures are
medians. Memory is best watched on one side alone: --sides saltctx --jobs 0 --rounds 0 --growth 10000.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import report
from realsalt import ONE_AT_A_TIME, Call, RealSalt, Return, RigError, ended_by_sigterm, retcode_jobs
from rich.console import Console

IN_FLIGHT = 16
WARM_UP = 8
RUN = 20
# Growth counts from here: loaders, caches and pools fill up in the first jobs.
SETTLED = 1_000
MIB = 1024 * 1024

console = Console(stderr=True)


def main() -> int:
    options = parse()
    outcome = report.Report(
        "saltctx on a real threaded minion",
        f"Master and minion on loopback, interleaved runs, {IN_FLIGHT} jobs in flight.",
    )
    with ended_by_sigterm(), ExitStack() as stack:
        rigs = []
        for name, flag in (("stock", False), ("saltctx", True)):
            if name in options.sides:
                master = {"saltctx": flag and options.master}
                console.print(f"starting {name}")
                rigs.append(stack.enter_context(RealSalt(saltctx=flag, master_opts=master)))
        for rig in rigs:
            rig.run_many([Call("test.ping")] * WARM_UP, in_flight=1)
        if options.jobs:
            concurrent(rigs, options, outcome)
        if options.rounds:
            one_at_a_time(rigs, options, outcome)
        if options.growth:
            growth(rigs, options.growth, outcome)
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1600, help="concurrent jobs a side (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="parts those are run in (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="single runs of each job (default: %(default)s)")
    parser.add_argument("--growth", type=int, default=0, help="jobs to watch memory over, e.g. 10000 (default: off)")
    parser.add_argument(
        "--sides", nargs="+", choices=("stock", "saltctx"), default=["stock", "saltctx"], help="default: both"
    )
    parser.add_argument("--master", action="store_true", help="`saltctx: true` in the master's config, too")
    report.add_arguments(parser, "bench-real.json")
    return parser.parse_args()


def concurrent(rigs: list[RealSalt], options: argparse.Namespace, outcome: report.Report) -> None:
    """Many jobs in flight: whose retcode, whose context, how many a second."""
    returns: dict[str, list[Return]] = {rig.name: [] for rig in rigs}
    rates: dict[str, list[float]] = {rig.name: [] for rig in rigs}
    cpu: dict[str, list[float]] = {rig.name: [] for rig in rigs}
    for batch in range(options.batches):
        for rig in rigs:
            calls = list(retcode_jobs(options.jobs // options.batches, seed=batch))
            used, began = rig.minion.cpu_seconds(), time.perf_counter()
            back = rig.run_many(calls, IN_FLIGHT)
            rates[rig.name].append(len(back) / (time.perf_counter() - began))
            cpu[rig.name].append(1000 * (rig.minion.cpu_seconds() - used) / len(back))
            returns[rig.name] += back
            wrong = sum(one.wrong_retcode for one in back)
            console.print(f"{rig.name}: {len(back)} jobs, {rates[rig.name][-1]:.1f} jobs/s, {wrong} wrong retcodes")

    def count(what: Callable[[Return], bool]) -> list[int | None]:
        return [sum(map(what, returns[side])) if side in returns else None for side in ("stock", "saltctx")]

    total = options.jobs // options.batches * options.batches
    for name, what in (
        (f"wrong retcodes of {total:,} jobs", lambda one: one.wrong_retcode),
        ("... a failure that reads as success", lambda one: one.wrong_retcode and one.retcode == 0),
        ("... a success that reads as failure", lambda one: one.wrong_retcode and one.call.retcode == 0),
        ("jobs that saw another job's `__context__`", lambda one: bool(one.foreign_keys)),
        ("jobs that raised or lost their own `__context__`", lambda one: one.failed),
        ("jobs lost", lambda one: one.lost),
    ):
        outcome.add(name, *count(what), better="zero", target="saltctx <= 0")
    outcome.add("throughput", *sides(rates), "jobs/s", better="more", target="ratio >= 6")
    outcome.add("minion CPU a job, under load", *sides(cpu), "ms")


def one_at_a_time(rigs: list[RealSalt], options: argparse.Namespace, outcome: report.Report) -> None:
    """From publish to return event, and the minion's CPU, one job at a time."""
    targets = {"test.ping": ("ratio >= 2", "ratio >= 4"), "state.single": ("ratio >= 4" if options.master else "", "")}
    for name, call in ONE_AT_A_TIME.items():
        taken: dict[str, list[float]] = {rig.name: [] for rig in rigs}
        cpu: dict[str, list[float]] = {rig.name: [] for rig in rigs}
        # CPU clocks tick in 10 ms: a run of jobs is one sample.
        for _ in range(max(1, options.rounds // RUN)):
            for rig in rigs:
                used = rig.minion.cpu_seconds()
                back = rig.run_many([call] * RUN, in_flight=1)
                cpu[rig.name].append(1000 * (rig.minion.cpu_seconds() - used) / len(back))
                if any(one.lost for one in back):
                    raise RigError(f"{rig.name}: {name} gave no return")
                taken[rig.name] += [1000 * one.seconds for one in back]
        latency, used_up = targets.get(name, ("", ""))
        outcome.add(f"`{name}`, publish to return", *sides(taken), "ms", target=latency)
        outcome.add(f"`{name}`, minion CPU", *sides(cpu), "ms", target=used_up)
        console.print(f"{name}: done")


def growth(rigs: list[RealSalt], jobs: int, outcome: report.Report) -> None:
    """What the minion holds after many jobs, against what it held once it had settled."""
    held: dict[str, tuple[float, int, int]] = {}
    for rig in rigs:
        rig.run_many([Call("test.ping")] * SETTLED, IN_FLIGHT)
        # Threads and sockets of the last jobs are still being put away.
        time.sleep(2)
        first = rig.minion.sizes()
        rig.run_many([Call("test.ping")] * (jobs - SETTLED), IN_FLIGHT)
        time.sleep(2)
        last = rig.minion.sizes()
        held[rig.name] = ((last.rss - first.rss) / MIB, last.fds - first.fds, last.threads - first.threads)
        console.print(f"{rig.name}: {first} -> {last} over {jobs - SETTLED} jobs")
    over = f"job {SETTLED:,} to {jobs:,}"
    for at, (what, unit, most) in enumerate((("memory", "MiB", 1), ("open files", "", 0), ("threads", "", 0))):
        values = [held[side][at] if side in held else None for side in ("stock", "saltctx")]
        outcome.add(f"{what} grown from {over}", *values, unit, better="zero", target=f"saltctx <= {most}")


def sides(samples: dict[str, list[float]]) -> list[list[float] | None]:
    return [samples.get("stock"), samples.get("saltctx")]


if __name__ == "__main__":
    sys.exit(main())
