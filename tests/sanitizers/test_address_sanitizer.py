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


# The field holds an instance of a plain class: a dict or a tuple Python keeps for later, and the sanitizer sees it live.
READ_TWICE = """
from harness import dunder
state = dunder("__context__", {"k": 1})
assert state.loader_context.loader_ctxvar is state.loader_context.loader_ctxvar
"""


def test_a_reference_that_is_not_taken(tmp_path):
    program = tmp_path / "read_twice.py"
    program.write_text(READ_TWICE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["SALTCTX_ASAN_BROKEN"], str(STRESS)])}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode != 0
    assert "ERROR: AddressSanitizer: heap-use-after-free" in done.stderr, done.stdout + done.stderr[-3000:]
