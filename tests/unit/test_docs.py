"""The documentation names tests and files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/thread-safety.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the tests")


def test_tests_of_the_thread_safety_page():
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if f"def {name}(" not in code] == []


def test_files_of_the_thread_safety_page():
    named = set(re.findall(r"`([\w/]+\.(?:c|py))`", PAGE.read_text()))
    places = [ROOT, ROOT / "saltctx", ROOT / "tests/stress", ROOT / "tests/functional"]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []
