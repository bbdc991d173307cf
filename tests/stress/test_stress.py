"""Each stress script in a process of its own, for a short while. Run one by hand for longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(path.name for path in HERE.glob("stress_*.py"))
SKIP = 77

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script):
    env = {"SALTCTX_STRESS_SECONDS": "1", "SALTCTX_STRESS_THREADS": "8", **os.environ}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / script)],
        env=env, capture_output=True, text=True, timeout=110, check=False,
    )
    if done.returncode == SKIP:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    assert "turns" in done.stdout


def test_there_are_scripts():
    assert len(SCRIPTS) >= 8
