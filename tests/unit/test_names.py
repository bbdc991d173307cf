"""What saltctx knows of the names that a module file may have; needs Salt."""

import os
import time
import types

import pytest

pytest.importorskip("salt.loader")

from saltctx.hooks.names import Names, names_of


def own(source):
    module = types.ModuleType("own")
    exec(source, vars(module))
    return module


@pytest.mark.parametrize(("source", "names"), [
    ("", {"file"}),
    ("__virtual_aliases__ = ('one', 'two')", {"file", "one", "two"}),
    ("__virtualname__ = 'v'\ndef __virtual__(): return True", {"file", "v"}),
    ("__virtualname__ = 'v'\ndef __virtual__(): return __virtualname__", {"file", "v"}),
    ("def __virtual__(): return 'r'", {"file", "r"}),
    ("def __virtual__(): return ('r' if X else False, 'why not')", {"file", "r", "why not"}),
    ("NAME = 'n'\ndef __virtual__(): return NAME", {"file", "n"}),
    ("def other(): return 'o'\ndef __virtual__(): return other()", {"file", "o"}),
    ("def __virtual__(): return (lambda: 'l')()", {"file", "l"}),
    ("def __virtual__(): return __virtual__() or 'again'", {"file", "again"}),
    ("__virtual_aliases__ = aliases = iter(())", None),
    ("__virtual__ = 'no function'", None),
])
def test_names(source, names):
    found = names_of("file", vars(own(source)))
    assert found == names if names is None else names <= found


def settled(path, text):
    path.write_text(text)
    os.utime(path, (1_000_000, 1_000_000))
    # The change itself must be old enough to tell from one that follows.
    time.sleep(0.06)
    return str(path)


def test_they_are_known_while_the_file_is_as_it_was(tmp_path):
    names = Names()
    path = settled(tmp_path / "file.py", "")
    names.note(path, names.expect(path), "file", own(""))
    assert names.known() == names.known() == {path: {"file"}}
    settled(tmp_path / "file.py", "__virtualname__ = 'v'")
    assert names.known() == {}
    names.note(path, names.expect(path), "file", own("__virtualname__ = 'v'\ndef __virtual__(): return True"))
    assert names.known() == {path: {"file", "v"}}
    os.unlink(path)
    assert names.known() == {}


def test_a_change_while_it_is_loaded(tmp_path):
    """What was read before another thread saw the change is not noted after it."""
    names = Names()
    path = settled(tmp_path / "file.py", "")
    expected = names.expect(path)
    settled(tmp_path / "file.py", "__virtualname__ = 'v'")
    assert names.known() == {}
    names.note(path, expected, "file", own(""))
    assert names.known() == {}
