"""
Salt's own tests, from the sdist of the Salt under test: once on stock Salt, once with saltctx in every loader.

    python tests/peer/run.py [--more] [--salt VERSION] [--cache DIR] [PATH of a test inside the sdist ...]

Exit code 0 if every test had the same outcome on both sides, 1 if one did not, 2 if a side could not be run. What a
test fails of on stock Salt, on this machine, it may fail of with saltctx; no more and no less. Some of Salt's tests
measure time, or fall over what the garbage collector does meanwhile: where outcomes differ, the whole file runs again
on both sides, and what agrees then is named, but is no failure.

The sdist comes from the package index, by pip. It and the virtual environment are kept below the cache directory, by
the versions of Salt and Python; saltctx is installed there anew each time, from a copy of the checkout.
"""

import argparse
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIFFERENT = Path(__file__).with_name("different.txt")
UNIT, FUNCTIONAL = "tests/pytests/unit", "tests/pytests/functional"

SUITES = [
    f"{UNIT}/loader", f"{FUNCTIONAL}/loader", f"{UNIT}/test_minion.py", f"{UNIT}/test_minion_resources.py",
    f"{UNIT}/state", f"{UNIT}/modules/state", f"{UNIT}/modules/test_state.py", f"{UNIT}/utils/test_state.py",
    f"{UNIT}/utils/requisite", f"{UNIT}/renderers", f"{UNIT}/utils/jinja", f"{UNIT}/utils/templates",
    f"{UNIT}/test_template.py", f"{UNIT}/pillar/test_pillar.py", f"{UNIT}/utils/test_optsdict.py",
    f"{UNIT}/utils/test_args.py", f"{UNIT}/utils/scheduler", f"{UNIT}/utils/test_schedule.py",
    f"{UNIT}/metaproxy", f"{UNIT}/test_proxy_minion.py", f"{UNIT}/executors", f"{UNIT}/matchers",
    f"{UNIT}/fileclient", f"{UNIT}/crypt",
]  # fmt: skip
MORE = [
    f"{FUNCTIONAL}/modules/state", f"{FUNCTIONAL}/state", f"{FUNCTIONAL}/states/file", f"{FUNCTIONAL}/states/cmd",
    f"{FUNCTIONAL}/states/test_file.py", f"{FUNCTIONAL}/states/test_module.py", f"{FUNCTIONAL}/utils/test_jinja.py",
    f"{FUNCTIONAL}/minion", f"{FUNCTIONAL}/masterminion", f"{FUNCTIONAL}/test_fileclient_reuse.py",
]  # fmt: skip
# Each of its tests makes a virtual environment and a Salt of its own, from the network: saltctx is not in there.
IGNORED = [f"{FUNCTIONAL}/loader/test_loader.py"]

SECONDS_TO_INSTALL = 600
SECONDS_A_TEST = 120


def run(*command, seconds, **kwargs):
    """Run a command to its end; whatever it is, it says what was wrong."""
    try:
        subprocess.run([str(word) for word in command], check=True, timeout=seconds, **kwargs)
    except (OSError, subprocess.SubprocessError) as exc:
        print(f"peer: {exc}")
        sys.exit(2)


def pip(python, *words, **kwargs):
    """pip of the environment of ``python``, which takes its index from the machine's configuration."""
    quiet = ("--quiet", "--disable-pip-version-check")
    run(python, "-m", "pip", *words[:1], *quiet, *words[1:], seconds=SECONDS_TO_INSTALL, **kwargs)


def prepare(cache, salt):
    """The environment's Python and the unpacked sdist, made if they are not there."""
    cache.mkdir(parents=True, exist_ok=True)
    venv = cache / f"peer-{salt}-{sys.version_info[0]}.{sys.version_info[1]}"
    python, tree, ready = venv / "bin/python", venv / f"salt-{salt}", venv / "ready"
    if not ready.exists():
        print(f"peer: making {venv}", flush=True)
        run(sys.executable, "-m", "venv", "--clear", venv, seconds=SECONDS_TO_INSTALL)
        archive = cache / f"salt-{salt}.tar.gz"
        if not archive.exists():
            # pip builds the metadata of what it downloads: in the build environment that the sdist asks for.
            with tempfile.TemporaryDirectory(dir=cache) as found:
                pip(python, "download", "--no-deps", "--no-binary", "salt", "--dest", found, f"salt=={salt}")
                os.replace(Path(found) / archive.name, archive)
        with tarfile.open(archive) as packed:
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            packed.extractall(venv, **safe)
        pip(python, "install", f"salt=={salt}", "-r", tree / "requirements/pytest.txt")
        ready.touch()
    return python, tree


def install_saltctx(python):
    """Build and install the checkout; from a copy, for a build leaves things behind."""
    with tempfile.TemporaryDirectory(prefix="saltctx-peer-") as copy:
        source = Path(copy) / "saltctx"
        unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.so", "*.egg-info", "__pycache__", "tests", "bench")
        shutil.copytree(ROOT, source, ignore=unwanted)
        env = {**os.environ, "SALTCTX_REQUIRE_EXTENSION": "1"}
        # The version is the same as that of the last time; the sources may not be.
        words = ("--no-deps", "--no-cache-dir", "--force-reinstall")
        pip(python, "install", *words, source, env=env)


class Side:
    """One run of the suites, in a process and a temporary directory of its own."""

    def __init__(self, name, python, tree, paths, disabled):
        self.name = name
        # Short: Salt's sockets are below it, and their paths must not be longer than 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="sc-"))
        self.results = self.folder / "results.xml"
        self.log = self.folder / "log"
        self.began = time.monotonic()
        self.seconds = None
        env = {
            **os.environ,
            "ONEDIR_TESTRUN": "1",  # the Salt that is installed, not the sdist's
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(ROOT / "tests"),
            "SALTCTX_DISABLE": "1" if disabled else "",
            "NO_COLOR": "1",
        }
        command = [
            str(python), "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "peer.plugin",
            "--core-tests", "--run-slow", "-o", f"timeout={SECONDS_A_TEST}", f"--basetemp={self.folder / 't'}",
            f"--junitxml={self.results}", *(f"--ignore={path}" for path in IGNORED), *paths,
        ]  # fmt: skip
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, deadline):
        """Let it come to its end, or to ``deadline``; nothing that it started stays."""
        if self.seconds is not None:
            return
        try:
            self.process.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"peer: {self.name}: not done in time", flush=True)
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
        self.seconds = time.monotonic() - self.began

    def said(self):
        """The log, str."""
        return self.log.read_text(errors="replace")

    def outcomes(self):
        """{test: its outcomes in order, a test that has subtests has several}; None if the run did not end as one."""
        if self.process.returncode not in (0, 1) or not self.results.exists():
            return None
        found = collections.defaultdict(list)
        for case in ElementTree.parse(self.results).iter("testcase"):
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            # Parameters may be named after objects, by their address.
            name = re.sub(r"0x[0-9a-f]+", "0x", f"{case.get('classname')}::{case.get('name')}")
            found[name].append("+".join(kinds) or "passed")
        return dict(found)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def allowed():
    """Names of tests of which a difference is known, each below a comment that says why."""
    lines = DIFFERENT.read_text().splitlines() if DIFFERENT.exists() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def counted(outcomes):
    count = collections.Counter(outcome for several in outcomes.values() for outcome in several)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in sorted(count))


def differences(stock, active):
    """{test: (outcomes on stock, outcomes with saltctx)} of those that are not the same."""
    both = {name: (stock.get(name, ["absent"]), active.get(name, ["absent"])) for name in stock.keys() | active.keys()}
    return {name: (before, after) for name, (before, after) in sorted(both.items()) if before != after}


def file_of(name, tree):
    """The path in the sdist of the file that a test is in; junit names a test by its module, and by its class if any."""
    words = name.partition("::")[0].split(".")
    for end in range(len(words), 0, -1):
        path = Path(*words[:end]).with_suffix(".py")
        if (tree / path).is_file():
            return str(path)
    return words[0]  # a file that could not be collected, of all tests


def show(word, found):
    for name, (before, after) in found.items():
        print(f"{word}: {name}: stock {'/'.join(before)}, saltctx {'/'.join(after)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--salt", default="3008.4", help="the version of Salt (%(default)s)")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/saltctx", help="(%(default)s)")
    parser.add_argument("--more", action="store_true", help="functional tests of states, too")
    parser.add_argument("--one-by-one", action="store_true", help="the two sides after, not beside, each other")
    parser.add_argument("--seconds", type=int, default=0, help="limit for both sides (900, with --more 3600)")
    parser.add_argument("--keep", action="store_true", help="leave logs and results behind, and say where")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="instead of the suites: files or test ids")
    asked = parser.parse_args()

    python, tree = prepare(asked.cache.expanduser().resolve(), asked.salt)
    install_saltctx(python)
    paths = asked.paths or [path for path in SUITES + MORE * asked.more if (tree / path).exists()]
    deadline = time.monotonic() + (asked.seconds or (3600 if asked.more else 900))

    def round_of(paths):
        return both_sides(python, tree, paths, deadline, one_by_one=asked.one_by_one, keep=asked.keep)

    stock, active, log = round_of(paths)
    made = re.findall(r"^loaders made by saltctx: (\d+)$", log, re.M)
    if not made or not int(made[-1]):
        print("peer: no loader of the tests was saltctx's")
        return 2
    found = differences(stock, active)
    known = {name: found.pop(name) for name in allowed() if name in found}
    show("known", known)
    for name in sorted((allowed() - known.keys()) & stock.keys()):
        print(f"the same by now: {name}: take it out of {DIFFERENT.name}")
    if found:
        show("differs", found)
        stock, active, log_again = round_of(sorted({file_of(name, tree) for name in found}))
        again = differences(stock, active)
        show("unsteady", {name: found[name] for name in found.keys() - again.keys()})
        found = {name: again[name] for name in again.keys() - known.keys()}
        if found:
            print(log_again[-20000:])
        show("DIFFERS", found)
    print(f"loaders made by saltctx: {made[-1]}; the same on both sides: {'NO' if found else 'yes'}")
    summary = re.findall(r"^.*\d+ (?:passed|failed|skipped).* in [\d.]+s.*$", log, re.M)
    print(summary[-1] if summary else "")
    return 1 if found else 0


def both_sides(python, tree, paths, deadline, *, one_by_one, keep):
    """Run the tests on stock Salt and with saltctx: the outcomes of both, and the log of the second."""
    sides = []
    try:
        for name, disabled in (("stock", True), ("saltctx", False)):
            side = Side(name, python, tree, paths, disabled)
            sides.append(side)
            if one_by_one:
                side.wait(deadline)
        outcomes = []
        for side in sides:
            side.wait(deadline)
            outcomes.append(side.outcomes())
            if outcomes[-1]:
                print(f"{side.name}: {counted(outcomes[-1])} in {side.seconds:.0f} s", flush=True)
            else:
                print(f"peer: {side.name}: no results, exit code {side.process.returncode}\n{side.said()[-4000:]}")
        if not all(outcomes):
            sys.exit(2)
        return *outcomes, sides[1].said()
    finally:
        for side in sides:
            side.wait(0)
            if keep:
                print(f"peer: {side.name}: {side.folder}")
            else:
                side.close()


if __name__ == "__main__":
    sys.exit(main())
