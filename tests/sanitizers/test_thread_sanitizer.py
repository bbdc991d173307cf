"""
The stress scripts on a CPython without the GIL that was built with ThreadSanitizer, as the extension was.

Environment: SALTCTX_TSAN_PYTHON, that interpreter; SALTCTX_TSAN_BUILD and SALTCTX_TSAN_BROKEN, folders that hold
saltctx, the latter without the lock of shared_load(). `nox -s thread_sanitizer` sets them.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import races

STRESS = Path(__file__).parents[1] / "stress"
SCRIPTS = sorted(path.name for path in STRESS.glob("stress_*.py"))

pytestmark = pytest.mark.skipif("SALTCTX_TSAN_PYTHON" not in os.environ, reason="nox -s thread_sanitizer runs this")


def without_random_addresses():
    """A prefix for a command: ThreadSanitizer cannot place its memory where a kernel shuffles addresses widely."""
    prefix = ["setarch", "-R"]
    usable = shutil.which("setarch") and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0
    return prefix if usable else []


def run(script, build, tmp_path):
    """The reports, and what the script said."""
    env = {
        **os.environ,
        "PYTHONPATH": os.environ[build],
        "SALTCTX_STRESS_SECONDS": "3",
        "SALTCTX_STRESS_THREADS": "4",
        # The longest memory of what was done before: a race is told with both its stacks.
        "TSAN_OPTIONS": f"exitcode=0 history_size=7 log_path={tmp_path / 'report'}",
    }
    done = subprocess.run(
        [*without_random_addresses(), os.environ["SALTCTX_TSAN_PYTHON"], STRESS / script],
        env=env, capture_output=True, text=True, timeout=110, check=False,
    )
    logs = [path.read_text() for path in tmp_path.glob("report.*")]
    return [report for text in logs for report in races.parse(text)], done


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script, tmp_path):
    reports, done = run(script, "SALTCTX_TSAN_BUILD", tmp_path)
    assert done.returncode in (0, 77), done.stdout + done.stderr
    assert "turns" in done.stdout or done.returncode == 77
    print(f"{len(reports)} reports, all of CPython's own")
    unknown = [report.text for report in reports if not report.is_known]
    assert not unknown, "\n".join(unknown)


def test_a_lock_that_is_not_there(tmp_path):
    reports, _ = run("stress_fields.py", "SALTCTX_TSAN_BROKEN", tmp_path)
    ours = [report for report in reports if report.is_ours]
    assert any("shared_load" in frames[0].function for report in ours for frames in report.accesses if frames)
    assert not any(report.is_known for report in ours)
