"""How much more two threads do than one, without the GIL: a loop of plain Python, and jobs on saltctx.

    python3.13t bench/scaling.py [--rounds 15] [--check]

Both in turn, in the same run: what the loop gains is what the machine has to give. Where something else runs beside it
that is little, and the CPU time of one job, alone and beside another, says more.
"""

from __future__ import annotations

import argparse
import contextvars
import statistics
import sys
import sysconfig
import threading
import time
from collections.abc import Callable

import inprocess_minion
import report


def main() -> int:
    options = parse()
    if not sysconfig.get_config_var("Py_GIL_DISABLED") or sys._is_gil_enabled():
        print("this Python has a GIL: nothing to measure")
        return 0
    inprocess_minion.quiet()
    with inprocess_minion.InProcessMinion(True) as rig:
        kinds = {"plain loop": loop, "job test.ping": jobs(rig.start())}
        gains: dict[str, list[float]] = {kind: [] for kind in kinds}
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        costs: dict[str, list[float]] = {kind: [] for kind in kinds}
        for work in kinds.values():
            together(work, 2, 0.5)
        for _ in range(options.rounds):
            for kind, work in kinds.items():
                one, cost = together(work, 1, options.seconds)
                two, cost_of_two = together(work, 2, options.seconds)
                gains[kind].append(two / one)
                rates[kind].append(one)
                costs[kind].append(cost_of_two / cost)
    outcome = report.Report("Two threads against one", "Without the GIL; a loop of plain Python in the same run.")
    outcome.add("job test.ping, one thread", None, rates["job test.ping"], "jobs/s", better="more")
    for kind, found in gains.items():
        outcome.add(f"{kind}, two threads", None, found, "times one", better="more")
        outcome.add(f"{kind}, CPU time beside another", None, costs[kind], "times alone")
    loops, of_jobs = (statistics.median(gains[kind]) for kind in kinds)
    outcome.add("jobs' gain / the loop's", None, of_jobs / loops, better="more", target="saltctx >= 0.9")
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement (default: %(default)s)")
    report.add_arguments(parser, "bench-scaling.json")
    return parser.parse_args()


def together(work: Callable[[], None], threads: int, seconds: float) -> tuple[float, float]:
    """How often a second ``work`` was done by so many threads, and the CPU seconds of one."""
    start = threading.Barrier(threads)
    rates: list[float] = []
    counts: list[int] = []

    def run() -> None:
        start.wait()
        done, began = 0, time.perf_counter()
        while True:
            work()
            done += 1
            took = time.perf_counter() - began
            if took >= seconds:
                rates.append(done / took)
                counts.append(done)
                return

    running = [threading.Thread(target=run) for _ in range(threads)]
    began = time.process_time()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(rates), (time.process_time() - began) / sum(counts)


def loop() -> None:
    total = 0
    for number in range(10_000):
        total += number * number % 7


def jobs(rig: inprocess_minion.InProcessMinion) -> Callable[[], None]:
    def job() -> None:
        if contextvars.Context().run(rig.run, rig.load("test.ping")).get("retcode") != 0:
            raise RuntimeError("a job failed")

    job()
    return job


if __name__ == "__main__":
    sys.exit(main())
