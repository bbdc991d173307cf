"""
AddressSanitizer sees a reference that is not taken.

Environment: SALTCTX_ASAN_BROKEN, a folder that holds a saltctx without the reference of shared_load(). `nox -s sanitizers`
sets it, and runs this under AddressSanitizer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parents[1] / "stress"

pytestmark = pytest.mark.skipif("SALTCTX_ASAN_BROKEN" not in os.environ, reason="nox -s sanitizers runs this")


def test_a_reference_that_is_not_taken():
    env = {**os.environ, "PYTHONPATH": os.environ["SALTCTX_ASAN_BROKEN"], "SALTCTX_STRESS_SECONDS": "10"}
    done = subprocess.run(
        [sys.executable, STRESS / "stress_fields.py"], env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode not in (0, 77)
    assert "ERROR: AddressSanitizer: heap-use-after-free" in done.stderr, done.stdout + done.stderr[-3000:]
