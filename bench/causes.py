"""Where the time of a state.single goes on a real master and minion, from publish to return event, by cause.

    python bench/causes.py [--rounds 40] [--master]

The daemons note when they enter and leave a few functions of Salt's; what lies between two notes is one cause. A
stock and a saltctx minion, each with a master of its own, run a job in turn.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import realsalt
import report
from realsalt import Call, RealSalt

# Runs in the daemons, before Salt does.
NOTES = '''
import functools, inspect, os, time

file = open(os.environ["SALTCTX_NOTES"], "a", buffering=1)

def note(text):
    file.write(f"{time.time():.6f} {text}\\n")

def noted(owner, name):
    kept = vars(owner)[name]
    original = getattr(kept, "__func__", kept)
    text = f"{owner.__name__}.{name}"
    if inspect.iscoroutinefunction(original):
        async def call(*args, **kwargs):
            note("> " + text)
            try:
                return await original(*args, **kwargs)
            finally:
                note("< " + text)
    else:
        def call(*args, **kwargs):
            note("> " + text)
            try:
                return original(*args, **kwargs)
            finally:
                note("< " + text)
    call = functools.wraps(original)(call)
    setattr(owner, name, classmethod(call) if isinstance(kept, classmethod) else call)

if "minion" == "KIND":
    import salt.minion, salt.pillar
    for name in ("_handle_decoded_payload", "_target", "_execute_job_function"):
        noted(salt.minion.Minion, name)
    noted(salt.pillar.RemotePillar, "compile_pillar")
else:
    import salt.master
    noted(salt.master.MWorker, "_handle_payload")
    noted(salt.master.ClearFuncs, "publish")
'''
# (the note that ends a cause, the cause, whose it is)
STEPS = (
    ("> ClearFuncs.publish", "caller to master", "master"),
    ("> Minion._handle_decoded_payload", "master publishes", "master"),
    ("> Minion._execute_job_function", "job entry: thread, loaders", "minion"),
    ("> RemotePillar.compile_pillar", "state run, until it asks for the pillar", "minion"),
    ("> MWorker._handle_payload", "request on its way", "wire"),
    ("< MWorker._handle_payload", "master compiles the pillar", "master"),
    ("< RemotePillar.compile_pillar", "answer on its way", "wire"),
    ("< Minion._execute_job_function", "state run, after it has the pillar", "minion"),
    ("> MWorker._handle_payload", "return on its way", "wire"),
    ("END", "master to the caller's event bus", "master"),
)


def steps_of(lines: list[str]) -> list[float] | None:
    """Milliseconds of each step of one job; None if a note is missing."""
    notes = sorted((float(at), text) for at, _, text in (line.partition(" ") for line in lines))
    last, taken = next(at for at, text in notes if text == "START"), []
    for wanted, _, _ in STEPS:
        at = next((at for at, text in notes if text == wanted and at >= last), None)
        if at is None:
            return None
        taken.append(1000 * (at - last))
        last = at
    return taken


def one_job(rig: RealSalt, notes: Path, call: Call) -> list[float] | None:
    before = notes.stat().st_size
    lines = [f"{time.time():.6f} START"]
    if any(one.lost for one in rig.run_many([call], in_flight=1)):
        raise realsalt.RigError(f"{rig.name}: no return")
    lines.append(f"{time.time():.6f} END")
    time.sleep(0.05)  # the notes of what comes after the return
    with notes.open() as file:
        file.seek(before)
        return steps_of(lines + file.read().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="jobs a side (default: %(default)s)")
    parser.add_argument("--master", action="store_true", help="`saltctx: true` in the master's config, too")
    report.add_arguments(parser, "bench-causes.json")
    options = parser.parse_args()
    outcome = report.Report("state.single test.nop, by cause", "Real master and minion on loopback, jobs in turn.")
    call = Call("state.single", ("test.nop",), {"name": "x"})
    with tempfile.TemporaryDirectory(prefix="saltctx-causes-") as folder, ExitStack() as stack:
        code = Path(folder, "notes.py")
        code.write_text(NOTES)
        start = f"exec(open({str(code)!r}).read().replace('KIND', '{{0}}'))\n"
        realsalt.DAEMON = start + realsalt.DAEMON
        sides = {}
        for name, flag in (("stock", False), ("saltctx", True)):
            master = {"saltctx": flag and options.master}
            notes = Path(folder, name)
            notes.touch()
            environ = {**os.environ, "SALTCTX_NOTES": str(notes)}
            sides[name] = stack.enter_context(RealSalt(saltctx=flag, master_opts=master, environ=environ)), notes
            sides[name][0].run_many([call] * 8, in_flight=1)
        taken: dict[str, list[list[float]]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, (rig, notes) in sides.items():
                steps = one_job(rig, notes, call)
                if steps is not None:
                    taken[name].append(steps)
    for number, (_, cause, whose) in enumerate(STEPS):
        outcome.add(f"{whose}: {cause}", *[[each[number] for each in taken[side]] for side in sides], "ms")
    for owner in ("master", "wire", "minion"):
        own = [number for number, step in enumerate(STEPS) if step[2] == owner]
        sums = [[sum(each[number] for number in own) for each in taken[side]] for side in sides]
        outcome.add(f"all of the {owner}'s", *sums, "ms")
    outcome.add("publish to return", *[[sum(each) for each in taken[side]] for side in sides], "ms")
    return outcome.finish(options)


if __name__ == "__main__":
    sys.exit(main())
