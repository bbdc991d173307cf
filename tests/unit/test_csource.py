"""House rules of src/ that a compiler does not check."""

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
FILES = sorted(SRC.glob("*.[ch]"))


def text_of(path):
    """The source without comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def functions(path):
    """(name, body) of each function definition."""
    for found in re.finditer(r"^(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", text_of(path), re.DOTALL | re.MULTILINE):
        yield found.groups()


def test_there_are_files():
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_layout(path):
    lines = path.read_text().splitlines()
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if line != line.rstrip() or "\t" in line]
    assert lines[0].startswith("/*"), "the first words say what the file is"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_one_file_locks(path):
    if path.name != "freethreading.h":
        assert not re.findall(r"CRITICAL_SECTION|PyMutex|_Atomic|atomic_\w+|Py_GIL_DISABLED", text_of(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_leaves_a_locked_block(path):
    for block in re.findall(r"\bLOCK\([^)]*\);(.*?)\bUNLOCK\(\);", text_of(path), re.DOTALL):
        assert not re.findall(r"\b(return|goto|Py_X?DECREF|Py_CLEAR|Py_X?SETREF)\b", block)
    for statement in re.findall(r"\bLOCKED\((.*)\);", text_of(path)):
        assert not re.findall(r"\b(return|goto|Py_X?DECREF|Py_CLEAR|Py_X?SETREF)\b", statement)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_runs_under_a_lock_calls_no_python(path):
    for name, body in functions(path):
        if not name.endswith("_lock_held"):
            continue
        assert not re.findall(r"\bPy(?:Object|Dict|List|Set|Err|Long|Number|Sequence|Mapping|Import)_[A-Z]\w+", body), name
        assert not re.findall(r"\b(Py_X?DECREF|Py_CLEAR|Py_X?SETREF)\b", body), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_entered_is_left(path):
    text = text_of(path)
    for enter, leave in (
        ("Py_EnterRecursiveCall", "Py_LeaveRecursiveCall"), ("Py_ReprEnter", "Py_ReprLeave"),
        ("Py_BEGIN_ALLOW_THREADS", "Py_END_ALLOW_THREADS"), ("PyContext_Enter", "PyContext_Exit"),
    ):
        assert bool(re.findall(enter, text)) == bool(re.findall(leave, text)), enter
    assert len(re.findall(r"\bvalue_enter\(self\)", text)) == len(re.findall(r"\bvalue_leave\(value\)", text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_object_is_static(path):
    assert not re.findall(r"^\s*static\s+(?!inline)[^(=;]*\bPy(Type)?Object\s*\*\s*\w+\s*[=;]", text_of(path), re.MULTILINE)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".c"], ids=lambda path: path.name)
def test_every_file_says_where_foreign_code_can_run(path):
    assert "Where foreign code can run:" in path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_function_fits_a_screen(path):
    for name, body in functions(path):
        assert body.count("\n") <= 60, name
