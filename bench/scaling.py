"""How much more two threads do than one, without the GIL: a loop of plain Python, and jobs on saltctx.

    python3.13t bench/scaling.py [--processes 7] [--check]

All in turn, in the same run: what the loop gains is what the machine has to give. Where something else runs beside it
that is little, and the CPU time of one job, alone and beside another, says more. Jobs of two minions share modules,
types and the kernel, but no loader and no opts: what they gain more than jobs of one is what is shared there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextvars
import multiprocessing
import statistics
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import inprocess_minion
import report


def main() -> int:
    options = parse()
    if not sysconfig.get_config_var("Py_GIL_DISABLED") or sys._is_gil_enabled():
        print("this Python has a GIL: nothing to measure")
        return 0
    # Names that happen to have one place in Python's cache of attributes move the gain of a process by a twentieth.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        given = [options.rounds] * options.processes, [options.seconds] * options.processes
        processes = [median_of_rounds(rounds) for rounds in pool.map(measure, *given)]
    outcome = report.Report("Two threads against one", "Without the GIL; a loop of plain Python in the same run.")
    for kind in ("job test.ping", "job state.single"):
        outcome.add(f"{kind}, one thread", None, [each[kind].rate for each in processes], "jobs/s", better="more")
    for kind in processes[0]:
        gains, costs = ([getattr(each[kind], name) for each in processes] for name in ("gain", "cost"))
        outcome.add(f"{kind}, two threads", None, gains, "times one", better="more")
        outcome.add(f"{kind}, CPU time beside another", None, costs, "times alone")
    of_loops = [each["job test.ping"].gain / each["plain loop"].gain for each in processes]
    outcome.add("jobs' gain / the loop's", None, of_loops, better="more", target="saltctx >= 0.9")
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=7, help="whose median counts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="in each process (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement (default: %(default)s)")
    report.add_arguments(parser, "bench-scaling.json")
    return parser.parse_args()


class Sample(NamedTuple):
    """Of one kind of work: how often a second one thread does it, what two gain, and its CPU time beside another."""

    rate: float
    gain: float
    cost: float


def measure(rounds: int, seconds: float) -> dict[str, list[Sample]]:
    """So many samples of each kind, all kinds in turn."""
    inprocess_minion.quiet()
    minion = inprocess_minion.InProcessMinion
    with minion(True) as rig, minion(True, "m2") as other:
        ping, state = jobs(rig, "test.ping"), jobs(rig, "state.single", "test.nop", "nothing", concurrent=True)
        kinds = {
            "plain loop": (loop, loop),
            "job test.ping": (ping, ping),
            "the same, a minion each": (ping, jobs(other, "test.ping")),
            "job state.single": (state, state),
        }
        for works in kinds.values():
            together(works, 0.5)
        samples: dict[str, list[Sample]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, works in kinds.items():
                one, cost = together(works[:1], seconds)
                two, cost_of_two = together(works, seconds)
                samples[kind].append(Sample(one, two / one, cost_of_two / cost))
    return samples


def median_of_rounds(samples: dict[str, list[Sample]]) -> dict[str, Sample]:
    return {kind: Sample(*map(statistics.median, zip(*rounds, strict=True))) for kind, rounds in samples.items()}


def together(works: Sequence[Callable[[], None]], seconds: float) -> tuple[float, float]:
    """How often a second the works were done, by a thread each, and the CPU seconds of one."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> tuple[int, float]:
        start.wait()
        done, began = 0, time.perf_counter()
        while True:
            work()
            done += 1
            took = time.perf_counter() - began
            if took >= seconds:
                return done, took

    began = time.process_time()
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        done = list(pool.map(run, works))
    return sum(count / took for count, took in done), (time.process_time() - began) / sum(count for count, _ in done)


def loop() -> None:
    total = 0
    for number in range(10_000):
        total += number * number % 7


def jobs(rig: inprocess_minion.InProcessMinion, fun: str, *args: str, **kwargs: bool) -> Callable[[], None]:
    def job() -> None:
        ret = contextvars.Context().run(rig.run, rig.load(fun, *args, **kwargs))
        if ret.get("retcode") != 0:
            raise RuntimeError(f"a job of {fun} failed: {ret}")

    job()
    return job


if __name__ == "__main__":
    sys.exit(main())
