"""What saltctx costs where it can win nothing: the first job of a minion, and salt-call, stock and saltctx in turn.

    python bench/firsts.py [--rounds 15] [--check]

Each figure is of a process of its own. With ``salt-call --local`` the flag is in the config that it reads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report

SIDES = ("stock", "saltctx")
SALT_CALL = "import sys; from salt.scripts import salt_call; sys.argv[0] = 'salt-call'; salt_call()"


def first_jobs(side: str) -> None:
    """In a process of its own: milliseconds of the first job, of its second, and of a state run after that."""
    import inprocess_minion

    inprocess_minion.quiet()
    with inprocess_minion.InProcessMinion(True if side == "saltctx" else None) as rig:
        rig.start()
        times = []
        for fun, args in (("test.ping", ()), ("test.ping", ()), ("state.single", ("test.nop", "name=x"))):
            load = rig.load(fun, *args)
            took, ret = inprocess_minion.seconds(rig.run, load)
            if ret.get("retcode") != 0:
                raise RuntimeError(f"{fun}: {ret}")
            times.append(took * 1000)
    print(json.dumps(times))


def salt_call(folder: Path, side: str) -> float:
    """Milliseconds of a salt-call --local state run."""
    config = folder / side
    if not config.exists():
        config.mkdir()
        lines = [f"root_dir: {config}", "file_client: local", "id: m1", "multiprocessing: False"]
        lines += [f"file_roots: {{base: [{config}]}}", "enable_fqdns_grains: False", f"log_file: {config}/log"]
        lines += ["saltctx: true"] * (side == "saltctx")
        (config / "minion").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-W", "ignore", "-c", SALT_CALL, "--local", "-c", str(config), "--out=json"]
    began = time.perf_counter()
    subprocess.run([*command, "state.single", "test.nop", "name=x"], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return (time.perf_counter() - began) * 1000


def main() -> int:
    options = parse()
    if options.side:
        first_jobs(options.side)
        return 0
    outcome = report.Report("Firsts", "Each figure is of a process of its own, the two sides in turn.")
    firsts: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    calls: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="saltctx-firsts-") as folder:
        for side in SIDES:
            salt_call(Path(folder), side)  # fills the caches of bytecode, config and grains
        for _ in range(options.rounds):
            for side in SIDES:
                command = [sys.executable, "-W", "ignore", __file__, "--side", side]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
                firsts[side].append(json.loads(done.stdout.splitlines()[-1]))
                calls[side].append(salt_call(Path(folder), side))
    for number, name in enumerate(("first job of a minion: test.ping", "its second", "then its first state run")):
        times = [[each[number] for each in firsts[side]] for side in SIDES]
        outcome.add(name, *times, "ms", target="ratio >= 1")
    outcome.add("salt-call --local state.single", *[calls[side] for side in SIDES], "ms", target="ratio >= 0.97")
    return outcome.finish(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="processes of each kind (default: %(default)s)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    report.add_arguments(parser, "bench-firsts.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
