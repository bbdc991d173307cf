"""The checks of saltctx, each in an environment of its own: `nox -l` lists them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "stubtest", "tests-3.11"]

ROOT = Path(__file__).parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
DEFAULT = os.environ.get("SALTCTX_DEFAULT_PYTHON", "3.11")
SALTS = ["3008.4"]

TOOLS = ["pytest", "pytest-timeout", "hypothesis", "psutil", "PyYAML"]
# Without the GIL there is no cryptography: Salt comes without its dependencies, and an in-process minion needs these.
SALT_WITHOUT_GIL = [
    "PyYAML", "certifi", "croniter", "distro", "importlib-metadata", "jinja2", "jmespath", "looseversion", "msgpack",
    "networkx", "opentelemetry-api", "packaging", "python-dateutil", "requests", "rich", "tornado", "xxhash",
]  # fmt: skip
BINARY_ONLY = ["--only-binary=:all:", "hypothesis", "psutil", "pyzmq"]

# One release: what it makes of the same file changes from one to the next.
CLANG_FORMAT = "clang-format==19.1.7"

STRICT_BUILD = {"SALTCTX_WERROR": "1", "SALTCTX_REQUIRE_EXTENSION": "1"}
PYTHON_WITH_TSAN = ("python3.13t-tsan", "--with-thread-sanitizer", "--without-ensurepip")
SANITIZE_THREADS = "-fsanitize=thread -g -O1"
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"


def find_pythons() -> None:
    """Put pyenv's interpreters ahead of its shims, which answer only for the versions that are switched on."""
    found = []
    for python in PYTHONS:
        found += sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python{python}"))[-1:]
    os.environ["PATH"] = os.pathsep.join([*(str(path.parent) for path in found), os.environ["PATH"]])


find_pythons()


def folders(*names: str) -> list[str]:
    return [name for name in names if (ROOT / name).is_dir()]


def sdist(session: nox.Session) -> Path:
    """An sdist of the checkout: the sessions test what would be shipped, and leave no build folder here."""
    session.install("build")
    out = Path(session.create_tmp()) / "sdist"
    shutil.rmtree(out, ignore_errors=True)
    session.run("python", "-m", "build", "--quiet", "--sdist", "--outdir", str(out), str(ROOT))
    (archive,) = out.glob("*.tar.gz")
    return archive


def install_saltctx(session: nox.Session, **env: str) -> None:
    # pip would take a wheel of the same version and path from its cache, whatever the sdist holds now.
    session.install("--no-cache-dir", "--no-deps", str(sdist(session)), env={**STRICT_BUILD, **env})


def install_beside(session: nox.Session, python: str, name: str, **env: str) -> str:
    """Another build of saltctx, in a folder of its own."""
    target = Path(session.create_tmp()).resolve() / name
    shutil.rmtree(target, ignore_errors=True)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps")
    session.run(*pip, "--target", str(target), str(sdist(session)), external=True, env={**STRICT_BUILD, **env})
    return str(target)


def python_without_gil(session: nox.Session, *options: str) -> str:
    """The path of such an interpreter, which is built first if need be."""
    built = session.run(str(ROOT / ".ci/build-python-nogil"), *options, external=True, silent=True)
    return str(built).strip().splitlines()[-1]


@nox.session(python=False)
def interpreters(session: nox.Session) -> None:
    """Build the interpreters that the other sessions need and no package brings; a finished one is kept."""
    python_without_gil(session)
    python_without_gil(session, *PYTHON_WITH_TSAN)


def install(session: nox.Session, salt: str = SALTS[-1], *tools: str) -> None:
    session.install(f"salt=={salt}", *TOOLS, *tools)
    install_saltctx(session)


def copy_of(session: nox.Session, *names: str) -> Path:
    """A folder that holds pyproject.toml and these files and folders of the checkout."""
    copy = Path(session.create_tmp()).resolve() / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    for name in folders(*names):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in {"pyproject.toml", *names} - {*folders(*names)}:
        shutil.copy(ROOT / name, copy)
    return copy


def run_pytest(session: nox.Session, *args: str, pytest: str = "pytest", **env: str) -> None:
    """Run pytest on a copy of the tests that has no saltctx beside it: what is installed is what is tested."""
    copy = copy_of(session, "tests", "bench", "src")
    with session.chdir(copy):
        session.run(pytest, *args, env=env, external=True)


@nox.session(python=PYTHONS)
@nox.parametrize("salt", SALTS, ids=SALTS)
def tests(session: nox.Session, salt: str) -> None:
    """Unit and functional tests."""
    install(session, salt)
    run_pytest(session, *(session.posargs or folders("tests/unit", "tests/functional", "tests/stress")))


def install_nogil(session: nox.Session) -> Path:
    """The bin folder of an environment without the GIL, with Salt and saltctx; the Python is built if need be."""
    python = python_without_gil(session)
    venv = Path(session.create_tmp()).resolve() / "venv"
    session.run(python, "-m", "venv", "--clear", str(venv), external=True)

    def run(*args: str, **env: str) -> None:
        session.run(str(venv / "bin/python"), *args, external=True, env=env)

    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", f"salt=={SALTS[-1]}")
    run(*pip, *SALT_WITHOUT_GIL, "pytest", "pytest-timeout", "build")
    run(*pip, *BINARY_ONLY)
    out = venv.parent / "sdist"
    shutil.rmtree(out, ignore_errors=True)
    run("-m", "build", "--quiet", "--sdist", "--outdir", str(out), str(ROOT))
    (archive,) = out.glob("*.tar.gz")
    run(*pip, "--no-cache-dir", "--no-deps", str(archive), **STRICT_BUILD)
    # -P: the checkout has the same package, without an extension for this Python.
    check = "import sys, saltctx._core, salt.minion; assert not sys._is_gil_enabled(), 'an import took the GIL'"
    run("-P", "-c", check)
    return venv / "bin"


@nox.session(python=False)
def tests_nogil(session: nox.Session) -> None:
    """Unit, functional and stress tests on a Python without the GIL."""
    programs = install_nogil(session)
    which = session.posargs or folders("tests/unit", "tests/functional", "tests/stress")
    run_pytest(session, *which, pytest=str(programs / "pytest"))


@nox.session(python=False)
def tests_parallel(session: nox.Session) -> None:
    """Each unit test in four threads at once, without the GIL, but for those marked thread_unsafe."""
    programs = install_nogil(session)
    session.run(str(programs / "pip"), "install", "--quiet", "pytest-run-parallel", external=True)
    which = session.posargs or ["tests/unit"]
    run_pytest(session, "--parallel-threads=4", "-m", "not thread_unsafe", *which, pytest=str(programs / "pytest"))


@nox.session(python=DEFAULT)
def tests_sid(session: nox.Session) -> None:
    """
    Unit tests on CPython 3.14, in a folder with Debian unstable: with and without threads that inherit a context.

    And the C against the headers of 3.14 without the GIL, of which there is no build to be had.
    """
    command = str(ROOT / ".ci/in-debian-sid")
    root = str(session.run(command, external=True, silent=True)).strip().splitlines()[-1]
    work = Path(root) / "srv/saltctx"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(copy_of(session, "src", "tests", "bench"), work)
    # What is needed is fetched from here: the folder knows nothing of this machine's package index.
    machine = os.uname().machine
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_28")]
    target = ("--only-binary=:all:", "--python-version=3.14", *platforms, "--dest", str(work / "wheels"))
    pip = ("python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    wanted = (*SALT_WITHOUT_GIL, *TOOLS, "pyzmq", "setuptools>=77")
    session.run(*pip, "download", *target, *wanted)
    session.run(*pip, "wheel", "--no-deps", "--wheel-dir", str(work / "wheels"), f"salt=={SALTS[-1]}")
    shutil.copy(sdist(session), work / "saltctx.tar.gz")

    def run(script: str, **env: str) -> None:
        env.update(PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS="wheels", PIP_NO_INDEX="1", HOME="/root")
        session.run(command, "sh", "-euc", f"cd /srv/saltctx; {script}", external=True, env=env)

    run("for file in src/*.c; do gcc -std=c11 -Wall -Wextra -Werror -fsyntax-only -DPy_GIL_DISABLED=1"
        " $(python3.14-config --includes) $file; done")  # fmt: skip
    run("python3.14 -m venv venv; venv/bin/pip install -q --no-deps wheels/*.whl;"
        " venv/bin/pip install -q --no-deps --no-build-isolation saltctx.tar.gz", **STRICT_BUILD)  # fmt: skip
    which = " ".join(session.posargs or ["tests/unit", "tests/functional/test_context.py"])
    for inherit in "10":
        run(f"venv/bin/python -X thread_inherit_context={inherit} -m pytest {which}", SALTCTX_LEAK_ROUNDS="2000")


@nox.session(python=DEFAULT)
def soak(session: nox.Session) -> None:
    """Many jobs in process beside reloads, edits and refreshes: none wrong, none lost."""
    install(session, SALTS[-1], "rich")
    session.run("python", str(ROOT / "bench/soak.py"), "--json", os.devnull, *session.posargs)


@nox.session(python=False)
def soak_nogil(session: nox.Session) -> None:
    """The same without the GIL."""
    python = str(install_nogil(session) / "python")
    session.run(python, str(ROOT / "bench/soak.py"), "--json", os.devnull, *session.posargs, external=True)


@nox.session(python=DEFAULT)
def integration(session: nox.Session) -> None:
    """Tests against a real master and a real minion on loopback."""
    install(session)
    run_pytest(session, "tests/integration", *session.posargs)


@nox.session(python=DEFAULT)
def peer(session: nox.Session) -> None:
    """Salt's own tests, from its sdist, on stock Salt and with saltctx in every loader: the same outcomes."""
    session.run("python", str(ROOT / "tests/peer/run.py"), "--salt", SALTS[-1], *session.posargs)


@nox.session(python=DEFAULT)
def sanitizers(session: nox.Session) -> None:
    """
    Unit and stress tests of a debug build, under the address and undefined-behaviour sanitizers.

    And that they see a fault: one build takes no reference where it must.
    """
    session.install(f"salt=={SALTS[-1]}", *TOOLS)
    flags = {"SALTCTX_DEBUG": "1", "SALTCTX_CFLAGS": SANITIZE, "SALTCTX_LDFLAGS": SANITIZE}
    install_saltctx(session, **flags)
    flags["SALTCTX_CFLAGS"] += " -DSALTCTX_BREAK_INCREF"
    # Without the checks of a debug build, which may stop it before the sanitizer sees anything.
    del flags["SALTCTX_DEBUG"]
    broken = install_beside(session, "python", "broken", **flags)
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    run_pytest(
        session,
        *("-o", "timeout=300", "-o", "faulthandler_timeout=400"),
        # They weigh the process, and the sanitizer holds on to what was freed.
        *("--deselect", "tests/unit/test_leaks.py::test_scenario"),
        *(session.posargs or folders("tests/unit", "tests/stress", "tests/sanitizers")),
        SALTCTX_ASAN_BROKEN=broken,
        LD_PRELOAD=asan.strip(),
        # Python's own allocator would hide what happens inside its arenas.
        PYTHONMALLOC="malloc",
        # Leaks have tests of their own: the interpreter keeps memory until it ends.
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1",
    )


@nox.session(python=DEFAULT)
def thread_sanitizer(session: nox.Session) -> None:
    """
    The stress tests under ThreadSanitizer, on a Python without the GIL that is built with it first if need be.

    And that it sees a fault: one build has no lock where it must.
    """
    builder = python_without_gil(session)
    python = python_without_gil(session, *PYTHON_WITH_TSAN)
    session.install("pytest", "pytest-timeout")
    flags = {"SALTCTX_CFLAGS": SANITIZE_THREADS, "SALTCTX_LDFLAGS": SANITIZE_THREADS}
    built = install_beside(session, builder, "build", **flags)
    flags["SALTCTX_CFLAGS"] += " -DSALTCTX_BREAK_LOCK"
    run_pytest(
        session,
        *(session.posargs or ["tests/sanitizers"]),
        SALTCTX_TSAN_PYTHON=python,
        SALTCTX_TSAN_BUILD=built,
        SALTCTX_TSAN_BROKEN=install_beside(session, builder, "broken", **flags),
    )


@nox.session(python=DEFAULT)
def coverage_c(session: nox.Session) -> None:
    """How much of the C the unit and stress tests run: 95 % of the lines at least; branches are shown."""
    session.install(f"salt=={SALTS[-1]}", *TOOLS, "gcovr", "setuptools>=77")
    copy = copy_of(session, "src", "saltctx", "tests", "bench", "setup.py", "README.md", "LICENSE")
    build = {
        **STRICT_BUILD,
        "SALTCTX_CFLAGS": "--coverage -O0 -fprofile-update=atomic",
        # A forked child ends without the handler that notes down what it ran: its tests call it.
        "SALTCTX_LDFLAGS": "--coverage -Wl,-u,__gcov_dump",
    }
    with session.chdir(copy):
        session.run("python", "setup.py", "-q", "build_ext", "--inplace", env=build)
        # A leak is not looked for here: a few rounds run every line.
        env = {"PYTHONPATH": str(copy), "SALTCTX_LEAK_ROUNDS": "50"}
        session.run("pytest", *(session.posargs or folders("tests/unit", "tests/stress")), env=env)
        session.run("gcovr", "--filter", "src/", "--json", "coverage.json")
        report = ("gcovr", "--add-tracefile", "coverage.json")
        session.run(*report, "--txt-metric", "branch")
        session.run(*report, "--txt-metric", "line", "--print-summary", "--fail-under-line", "95")


@nox.session(python=DEFAULT)
def stubtest(session: nox.Session) -> None:
    """The stubs against the compiled module."""
    session.install("mypy")
    install_saltctx(session)
    session.cd(session.create_tmp())
    session.run("stubtest", "saltctx._core", *session.posargs)


@nox.session(python=DEFAULT)
def wheel(session: nox.Session) -> None:
    """A wheel from the sdist, in an empty environment: it holds what it must and nothing else."""
    archive = sdist(session)
    out = Path(session.create_tmp()).resolve() / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    pip = ("python", "-m", "pip", "wheel", "--no-cache-dir", "--no-deps")
    session.run(*pip, "-w", str(out), str(archive), env=STRICT_BUILD)
    (built,) = out.glob("*.whl")
    session.install("--force-reinstall", "--no-deps", str(built))
    session.run("python", str(ROOT / "tests/check_wheel.py"), str(built))


@nox.session(python=DEFAULT)
def lint(session: nox.Session) -> None:
    """Style of the Python."""
    session.install("ruff")
    session.run("ruff", "check", ".")


@nox.session(python=DEFAULT)
def lint_c(session: nox.Session) -> None:
    """Style of the C; where it differs for good reason, `clang-format off` says so in the file."""
    session.install(CLANG_FORMAT)
    session.run("clang-format", "--dry-run", "--Werror", *sorted(str(path) for path in (ROOT / "src").glob("*.[ch]")))


@nox.session(python=DEFAULT)
def docs(session: nox.Session) -> None:
    """The documentation; a warning is an error."""
    session.install("furo", "myst-parser", "sphinx")
    session.run("sphinx-build", "-q", "-W", "-b", "html", "docs", "docs/_build")


@nox.session(python=DEFAULT)
def demo(session: nox.Session) -> None:
    """The same jobs on a real minion, stock and with saltctx."""
    install(session, SALTS[-1], "rich", "matplotlib")
    session.run("python", "bench/demo.py", *session.posargs)


@nox.session(python=DEFAULT)
def bench(session: nox.Session) -> None:
    """Every measurement there is, stock against saltctx."""
    install(session, SALTS[-1], "rich")
    for script in sorted((ROOT / "bench").glob("*.py")):
        if script.name in ("real.py", "inprocess.py", "dryruns.py", "firsts.py", "causes.py"):
            session.run("python", str(script), *session.posargs)
