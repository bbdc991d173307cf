"""Many jobs in process, everything that can disturb them at once, and each job's answer looked at.

    python bench/soak.py [--jobs 20000] [--minutes 60] [--json soak.json]

Sixteen threads run jobs, each with a retcode and a ``__context__`` of its own and with nested calls that read and
write it, while the modules are reloaded ten times a second, a custom module is edited every second, and the pillar,
the grains and the modules are refreshed now and then. A job that begins after an edit or a refresh is over must not
see what was before. The exit code is 1 if anything is wrong, stale or lost, if anything grew, or if --minutes were
over first. CPython 3.13 without the GIL frees no class, module or top-level function: there, what an edit or a refresh
makes Salt and Jinja define stays, and memory is only reported.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import itertools
import logging
import random
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import inprocess_minion
import psutil
import report

THREADS = 16
DEADLOCK = 300
"""Seconds without a word after which the process gives up, with the stacks of all threads."""
KEPT = 20

EDITED = """
NUMBER = {0}
def work(own):
    foreign = [key for key in __context__ if key != "retcode"]
    __context__["work"] = own
    deeper = __salt__["beside.nested"](own)
    __context__["retcode"] = own
    return {{
        "foreign": foreign, "context": [__context__[key] for key in ("work", "nested", "deeper")],
        "code": [[{0}, NUMBER], deeper], "pillar": __pillar__["number"], "grains": __grains__["number"],
    }}
def deeper(own):
    __context__["deeper"] = __context__["nested"]
    return [{0}, NUMBER]
"""
BESIDE = """
def nested(own):
    __context__["nested"] = __context__["work"]
    return __salt__["edited.deeper"](own)
"""


@dataclass(frozen=True)
class Job:
    """One job: its number, which is its retcode, too; the edits and refreshes that were over when it began."""

    number: int
    code: int
    pillar: int
    grains: int


class Soak:
    """
    A minion and what disturbs it.

    done: int, jobs that ended. faults: Counter of {what was wrong: jobs}. samples: the first of them, list of str.
    """

    def __init__(self, rig: inprocess_minion.InProcessMinion, until: float) -> None:
        self.rig = rig
        self.until = until
        self.done = 0
        self.faults: collections.Counter[str] = collections.Counter()
        self.samples: list[str] = []
        self.disturbed: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._over = {"edit": 0, "pillar": 0, "grains": 0}
        self.rig.write("ext/modules/beside.py", BESIDE)
        self.rig.write("ext/modules/edited.py", EDITED.format(0))
        self.rig.pillar(number=0)
        self.rig.write("grains", '{"number": 0}')
        self.rig.start()
        self.rig.refresh_pillar()

    def run(self, count: int) -> None:
        """Run ``count`` more jobs, fewer if the time is over, with everything else beside them."""
        with contextlib.ExitStack() as stack:
            for every, disturb in ((0.1, self._reload), (1.0, self._edit), (4.0, self._refresh)):
                stack.enter_context(self.rig.repeating(every, disturb))
            self.rig.run_each(self._loads(count), self._look, THREADS)

    def _loads(self, count: int) -> Iterator[tuple[Job, dict[str, Any]]]:
        for number in itertools.islice(self._numbers, count):
            if time.monotonic() > self.until:
                return
            over = self._over
            yield Job(number, over["edit"], over["pillar"], over["grains"]), self.rig.load("edited.work", number)

    def _look(self, job: Job, ret: dict[str, Any]) -> None:
        faults = list(_faults(job, ret))
        with self._lock:
            self.done += 1
            self.faults.update(faults)
            if faults and len(self.samples) < KEPT:
                self.samples.append(f"{', '.join(faults)}: {job}: {ret}"[:4000])

    def _reload(self) -> None:
        if self.rig.reload_modules().get("retcode") != 0:
            self.faults["reload failed"] += 1
        self.disturbed["reloads"] += 1

    def _edit(self) -> None:
        number = self._over["edit"] + 1
        self.rig.write("ext/modules/edited.py", EDITED.format(number))
        self._over["edit"] = number
        self.disturbed["edits"] += 1

    def _refresh(self) -> None:
        what = random.choice(("pillar", "grains", "modules"))
        number = self._over.get(what, 0) + 1
        if what == "pillar":
            self.rig.pillar(number=number)
            self.rig.refresh_pillar()
        elif what == "grains":
            self.rig.refresh_grains(number=number)
        else:
            self.rig.minion.module_refresh()
        self._over[what] = number
        self.disturbed[f"refreshes of {what}"] += 1


def _faults(job: Job, ret: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the return of a job, in a word each."""
    if not ret:
        yield "lost"
        return
    found = ret.get("return")
    if not isinstance(found, dict):
        yield "failed"
        return
    if ret.get("retcode") != job.number:
        yield "wrong retcode"
    if found["foreign"]:
        yield "another's context"
    if found["context"] != [job.number] * 3:
        yield "wrong context"
    (constant, in_global), deeper = found["code"]
    if constant != in_global or deeper[0] != deeper[1]:
        yield "code and globals of two versions"
    for what, seen, least in (
        ("code", min(constant, deeper[0]), job.code), ("pillar", found["pillar"], job.pillar),
        ("grains", found["grains"], job.grains),
    ):
        if seen < least:
            yield f"stale {what}"


def main() -> int:
    options = parse()
    logging.disable(logging.WARNING)
    with inprocess_minion.InProcessMinion({"freshness": options.freshness}) as rig:
        logging.getLogger().handlers[:] = [logging.StreamHandler()]
        soak = Soak(rig, time.monotonic() + 60 * options.minutes)
        began = time.perf_counter()
        with rig.repeating(options.every, tell, soak, began):
            # What a process allocates once, and what threads keep, is there after this.
            soak.run(max(1_000, options.jobs // 10))
            before = inprocess_minion.footprint()
            soak.run(options.jobs - soak.done)
            after = inprocess_minion.footprint()
        took = time.perf_counter() - began
        outcome = table(soak, options, took, before, after)
    faulthandler.cancel_dump_traceback_later()
    if sysconfig.get_config_var("Py_GIL_DISABLED") and sys._is_gil_enabled():
        raise RuntimeError("an import took the GIL")
    for sample in soak.samples:
        print(sample, file=sys.stderr)
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=60, help="give up after (default: %(default)s)")
    parser.add_argument("--freshness", choices=("stat", "watch"), default="stat", help="default: %(default)s")
    parser.add_argument("--every", type=float, default=10, help="seconds between lines of progress")
    report.add_arguments(parser, "soak.json")
    options = parser.parse_args()
    options.check = True
    return options


def tell(soak: Soak, began: float) -> None:
    """A line of progress; a process that cannot say one any more ends, and says where it is."""
    if soak.done != getattr(tell, "last", None):
        faulthandler.dump_traceback_later(DEADLOCK, exit=True)
        tell.last = soak.done
    rate = soak.done / (time.perf_counter() - began)
    rss = psutil.Process().memory_info().rss >> 20
    print(
        f"{soak.done:,} jobs, {rate:.0f}/s, {rss} MiB, {dict(soak.disturbed)}, faults: {dict(soak.faults)}", flush=True
    )


def table(
    soak: Soak, options: argparse.Namespace, took: float, before: dict[str, float], after: dict[str, float]
) -> report.Report:
    from saltctx.hooks.immortal import KEEPS_CLASSES
    from saltctx.hooks.minion import jobs_of

    disturbed = ", ".join(f"{count:,} {what}" for what, count in sorted(soak.disturbed.items()))
    outcome = report.Report(f"{soak.done:,} jobs, {THREADS} threads", f"In process, beside {disturbed}.")
    faults = soak.faults
    counts = jobs_of(soak.rig.minion).report.counts()
    stale = sum(count for what, count in faults.items() if what.startswith("stale"))
    for what, count in (
        ("jobs not run", options.jobs - soak.done),
        ("jobs lost", faults["lost"]),
        ("stale: what was before an edit or a refresh", stale),
        ("other faults", faults.total() - stale - faults["lost"]),
        ("jobs that ran Salt's own code after an error", counts.get("fallback", 0)),
        ("more descriptors", after["fds"] - before["fds"]),
        ("more threads", after["threads"] - before["threads"]),
        ("Jobs alive", after["jobs"]),
    ):
        outcome.add(what, None, count, better="zero", target="saltctx <= 0")
    for what, key, unit, most in (("more loaders", "loaders", "", 0), ("more memory", "rss_kib", "KiB", 16 * 1024)):
        target = "" if KEEPS_CLASSES else f"saltctx <= {most}"
        outcome.add(what, None, after[key] - before[key], unit, target=target)
    outcome.add("jobs adopted", None, counts.get("adopted", 0), better="more")
    outcome.add("rate", None, soak.done / took, "jobs/s", better="more")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
