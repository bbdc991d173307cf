"""Nothing of the C types leaks: each scenario of leaks.py in a process of its own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="processes that are weighed")

SCRIPT = Path(__file__).with_name("leaks.py")
NAMES = [
    node.name
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(getattr(each, "id", "") == "scenario" for each in node.decorator_list)
]


@pytest.mark.parametrize("name", NAMES)
def test_scenario(c_core, name):
    # The package may be had from the folder that the tests run in alone.
    root = Path(c_core.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name], env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds" in done.stdout


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="CPython itself crashes on failing allocations since 3.12")
def test_failing_allocations(c_core):
    root = Path(c_core.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(SCRIPT.with_name("nomemory.py"))],
        env=env, capture_output=True, text=True, timeout=110, check=False,
    )
    if done.returncode == 77:
        pytest.skip("the interpreter has no _testcapi")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "dunder_errors" in done.stdout


def test_there_are_scenarios_for_every_type():
    assert {"job", "context", "loader", "loaded", "dunder", "stamps", "watch", "objects"} <= set(NAMES)
