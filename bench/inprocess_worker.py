"""One side of bench/inprocess.py: a minion in this process that does what it is told, a JSON line at a time."""

import argparse
import contextlib
import json
import statistics
import sys
import time
import timeit

import inprocess_minion
import realistic

PROBE = '''
def inside(rounds):
    """Nanoseconds of ``__context__["k"]`` inside a module, less the empty loop."""
    import timeit
    __context__["k"] = 1
    loop = min(timeit.repeat("pass", number=rounds, repeat=7))
    read = min(timeit.repeat('c["k"]', globals={"c": __context__}, number=rounds, repeat=7))
    return (read - loop) / rounds * 1e9
def call(rounds):
    """Nanoseconds that looking up and calling a loaded function takes above the plain call."""
    import timeit
    plain = min(timeit.repeat("f()", globals={"f": nothing}, number=rounds, repeat=7))
    loaded = min(timeit.repeat('s["probe.nothing"]()', globals={"s": __salt__}, number=rounds, repeat=7))
    return (loaded - plain) / rounds * 1e9
def nothing():
    return None
'''
TWENTY = "".join(f"n{number}:\n  test.nop: []\n" for number in range(20))


class TimedStamps:
    """FileStamps with the time spent in ``suspects``, in nanoseconds."""

    def __init__(self, suspects):
        self._suspects = suspects
        self.ns = 0

    def suspects(self):
        start = time.perf_counter_ns()
        found = self._suspects()
        self.ns += time.perf_counter_ns() - start
        return found

    def overhead(self):
        """Microseconds of a call that are none of its own time: the price of timing it."""
        self.ns = 0
        return timeit.timeit(self.suspects, number=1000) * 1e3 - self.ns / 1e6


class Worker:
    """What can be asked for; each method answers something that JSON can hold."""

    def __init__(self, minion):
        self.rig = minion

    def job(self, fun, /, *args, rounds=1, **kwargs):
        """Milliseconds of each of ``rounds`` jobs, one at a time."""
        times = []
        for _ in range(rounds):
            load = self.rig.load(fun, *args, **kwargs)
            took, ret = inprocess_minion.seconds(self.rig.run, load)
            if ret.get("retcode") != 0:
                raise RuntimeError(f"{fun}: {ret}")
            times.append(took * 1000)
        return times

    def realistic(self):
        """Milliseconds of the state runs of realistic.py, together."""
        return sum(self.job("state.apply", sls, **kwargs)[0] for sls, kwargs in realistic.JOBS)

    def value(self, fun, *args):
        """The return of one job."""
        return self.rig.run(self.rig.load(fun, *args))["return"]

    def concurrent(self, count, in_flight, reload_every=0.0):
        """Jobs with a retcode of their own: {"wrong", "lost", "per_second"}; optionally beside sys.reload_modules."""
        loads = inprocess_minion.own_retcode_loads(self.rig, count)
        with contextlib.ExitStack() as stack:
            if reload_every:
                stack.enter_context(self.rig.repeating(reload_every, self.rig.reload_modules))
            took, returns = inprocess_minion.seconds(
                self.rig.run_many, [load for load, _ in loads], in_flight
            )
        lost = sum(not ret for ret in returns)
        wrong = sum(
            not inprocess_minion.is_right(ret, code) for ret, (_, code) in zip(returns, loads) if ret
        )
        return {"wrong": wrong, "lost": lost, "per_second": count / took}

    def growth(self, settle, count):
        """What ``count`` jobs after the first ``settle`` leave behind: KiB of RSS, descriptors, threads, Jobs."""
        def run(many):
            for _ in range(many):
                self.rig.run(self.rig.load("test.ping"))

        run(settle)
        before = inprocess_minion.footprint()
        run(count)
        after = inprocess_minion.footprint()
        return {what: after[what] - before[what] for what in ("rss_kib", "fds", "threads")} | {"jobs": after["jobs"]}

    def gen_modules(self, rounds):
        """Milliseconds of gen_modules() outside any job."""
        return [inprocess_minion.seconds(self.rig.minion.gen_modules)[0] * 1000 for _ in range(rounds)]

    def entry(self, rounds):
        """
        Microseconds of a job's entry, evidence and exit; of the same without a path to look at; and of what is
        not the look at the paths, timed in place, where it finds the caches as the kernel left them: medians.
        """
        from saltctx.hooks.minion import jobs_of

        minion = self.rig.minion
        jobs = jobs_of(minion)
        load = self.rig.load("test.ping")

        def adopt(cls, minion, opts, data):
            minion.gen_modules()

        def whole():
            jobs.run(adopt, type(minion), minion, minion.opts, load)

        files = jobs.generations.current.files
        stamps = files._stamps
        timed = TimedStamps(stamps.suspects)
        price = TimedStamps(lambda: None).overhead()
        for _ in range(50):
            whole()
        rebuilt = jobs.report.counts().get("rebuilt", 0)
        no_stamps = type(stamps)()
        wholes, withouts, others = [], [], []
        for _ in range(100 * rounds):
            wholes.append(timeit.timeit(whole, number=10) * 1e5)
            files._suspects = no_stamps.suspects
            withouts.append(timeit.timeit(whole, number=10) * 1e5)
            files._suspects, timed.ns = timed.suspects, 0
            others.append(timeit.timeit(whole, number=10) * 1e5 - timed.ns / 1e4 - price)
            files._suspects = stamps.suspects
        if jobs.report.counts().get("rebuilt", 0) != rebuilt:
            raise RuntimeError("the minion was not unchanged while it was measured")
        return {
            "entry_us": statistics.median(wholes), "other_us": statistics.median(others),
            "no_path_us": statistics.median(withouts),
            "paths": len(stamps),
        }

    def edited(self, rounds):
        """
        Milliseconds that a job takes above one after no edit: {"partial": [after an edit of the custom module
        that it runs], "whole": [after a flush, which lets all loaders be built anew]}.
        """
        from saltctx.hooks.minion import jobs_of

        jobs = jobs_of(self.rig.minion)
        more = {"partial": [], "whole": []}
        for number in range(rounds):
            self.rig.write("ext/modules/edited.py", f"def go():\n    return {number}\n")
            # From the second round on the file is edited, not added.
            self._above("edited.go", more["partial"] if number else [], number)
            jobs.generations.forget()
            self._above("edited.go", more["whole"], number)
        return more

    def _above(self, fun, more, expected):
        seconds, ret = inprocess_minion.seconds(self.rig.run, self.rig.load(fun))
        if ret.get("return") != expected:
            raise RuntimeError(f"not what was written just now: {ret}")
        # Until a further edit would leave its trace in the times of the file.
        time.sleep(0.06)
        self.job(fun, rounds=2)
        more.append(seconds * 1000 - statistics.median(self.job(fun, rounds=5)))

    def subscript(self, rounds):
        """Nanoseconds of a subscript in a job: of a plain dict, of a JobContext."""
        from saltctx import JobContext, job_scope

        context = JobContext()
        with job_scope():
            context["k"] = 1
            loop = min(timeit.repeat("pass", number=rounds, repeat=9))
            plain = min(timeit.repeat('c["k"]', globals={"c": {"k": 1}}, number=rounds, repeat=9))
            job = min(timeit.repeat('c["k"]', globals={"c": context}, number=rounds, repeat=9))
        return {"dict_ns": (plain - loop) / rounds * 1e9, "jobcontext_ns": (job - loop) / rounds * 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freshness", choices=("stat", "watch"), help="switch saltctx on, with this freshness")
    parser.add_argument("--realistic", action="store_true", help="lay down realistic.py's states and pillar")
    options = parser.parse_args()
    inprocess_minion.quiet()
    asked = {"freshness": options.freshness} if options.freshness else None
    # What a module prints must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    with inprocess_minion.InProcessMinion(asked) as rig:
        rig.write("ext/modules/own.py", inprocess_minion.OWN_RETCODE)
        rig.write("ext/modules/probe.py", PROBE)
        rig.write("srv/twenty.sls", TWENTY)
        if options.realistic:
            realistic.write(rig)
        time.sleep(0.1)
        worker = Worker(rig.start())
        for line in sys.stdin:
            name, args, kwargs = json.loads(line)
            print(json.dumps(getattr(worker, name)(*args, **kwargs)), file=answers, flush=True)


if __name__ == "__main__":
    main()
