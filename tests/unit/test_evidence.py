"""Evidence of files and directories: what counts as a change, what does not, and what is said of it."""

import functools
import os
import shutil
import threading
import time

import pytest

from saltctx.core import FileStamps
from saltctx.evidence import FileEvidence

pytestmark = pytest.mark.thread_unsafe(reason="all threads would change the same files")

YOUNG = 0.06
"""Seconds after which a stamp is not young any more."""
LONG_AGO = 1_400_000_000
ALWAYS_YOUNG = functools.partial(FileStamps, tick_ns=3_600 * 10**9, coarse_ns=3_600 * 10**9)
"""Stamps that are young however long the machine took to come to them."""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "one.py").write_text("1")
    return tmp_path


def evidence(*, files=(), directories=(), settled=True, stamps=FileStamps):
    found = FileEvidence(stamps)
    for path in directories:
        found.add_directory(str(path))
    for path in files:
        found.add_file(str(path))
    if settled:
        time.sleep(YOUNG)
        assert found.changed() is None
    return found


def replaced(path, text):
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


# -------------------------------------------------------------------------------- files
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("change", [
    lambda path: path.write_text("2"),
    lambda path: path.write_text("longer"),
    lambda path: path.write_text(""),
    lambda path: replaced(path, "2"),
    lambda path: path.unlink(),
    lambda path: (path.unlink(), path.mkdir()),
    lambda path: (replaced(path, "2"), os.utime(path, (LONG_AGO, LONG_AGO))),
])
def test_changed_file(directory, change, settled):
    """However it changed, whether or not its stamp was young when it was taken; the reason names it."""
    path = directory / "one.py"
    found = evidence(files=[path], settled=settled)
    change(path)
    assert found.changed() == f"module file changed: {path}"


def test_edit_of_the_same_size_and_time(directory):
    """The times of the file set back as they were: the time of its inode tells."""
    path = directory / "one.py"
    stat = path.stat()
    found = evidence(files=[path])
    path.write_text("2")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert found.changed() == f"module file changed: {path}"


def test_edits_one_right_after_the_other(directory):
    """A stamp that is too young to tell one edit from the next: the bytes tell."""
    path = directory / "one.py"
    for number in range(200):
        path.write_text(str(number % 10))
        found = evidence(files=[path], settled=False)
        assert found.changed() is None
        path.write_text(str((number + 1) % 10))
        assert found.changed() == f"module file changed: {path}"


def test_young_file_that_does_not_change(directory):
    """Looked at again and again it stays as it was, young and then not young any more."""
    path = directory / "one.py"
    path.write_text("2")
    found = evidence(files=[path], settled=False)
    end = time.monotonic() + 2 * YOUNG
    while time.monotonic() < end:
        assert found.changed() is None
    path.write_text("3")
    assert found.changed() == f"module file changed: {path}"


def test_young_file_touched(directory):
    """Written anew with the bytes it had, while its stamp was young: no change."""
    path = directory / "one.py"
    found = evidence(files=[path], settled=False, stamps=ALWAYS_YOUNG)
    for _ in range(200):
        path.write_text("1")
        assert found.changed() is None
    path.write_text("2")
    assert found.changed() == f"module file changed: {path}"


def test_file_that_appears(directory):
    path = directory / "later.py"
    found = evidence(files=[path])
    path.write_text("1")
    assert found.changed() == f"module file changed: {path}"


def test_reading_a_file_is_no_change(directory):
    path = directory / "one.py"
    found = evidence(files=[path])
    path.read_text()
    assert found.changed() is None


def test_symbolic_link_that_is_swapped(directory):
    (directory / "two.py").write_text("2")
    link = directory / "link.py"
    link.symlink_to(directory / "one.py")
    found = evidence(files=[link])
    link.unlink()
    link.symlink_to(directory / "two.py")
    assert found.changed() == f"module file changed: {link}"


# -------------------------------------------------------------------------------- directories
def test_added_file(directory):
    found = evidence(directories=[directory])
    (directory / "two.py").write_text("")
    assert found.changed() == f"module directory changed: {directory}: two.py added"


def test_removed_file(directory):
    found = evidence(directories=[directory])
    (directory / "one.py").unlink()
    assert found.changed() == f"module directory changed: {directory}: one.py removed"


def test_renamed_file(directory):
    found = evidence(directories=[directory])
    (directory / "one.py").rename(directory / "two.py")
    assert found.changed() == f"module directory changed: {directory}: two.py added, one.py removed"


def test_many_added_files(directory):
    """The reason stays short."""
    found = evidence(directories=[directory])
    for number in range(100):
        (directory / f"more{number}.py").write_text("")
    assert found.changed().count(" added") == 5


def test_directory_that_appears(tmp_path):
    path = tmp_path / "later"
    found = evidence(directories=[path])
    path.mkdir()
    assert found.changed() == f"module directory changed: {path}: appeared"


def test_directory_that_disappears(directory):
    found = evidence(directories=[directory])
    shutil.rmtree(directory)
    assert found.changed() == f"module directory changed: {directory}: disappeared"


def test_directory_behind_a_link_that_is_swapped(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text("")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "first")
    found = evidence(directories=[link])
    link.unlink()
    link.symlink_to(tmp_path / "second")
    assert found.changed() == f"module directory changed: {link}: second.py added, first.py removed"


def test_package_that_gets_its_init_file(directory):
    found = evidence(directories=[directory])
    (directory / "__init__.py").write_text("")
    assert found.changed() == f"module directory changed: {directory}: __init__.py added"


@pytest.mark.parametrize("name", ["__pycache__", ".one.py.swp", "one.py~", "_private", ".hidden"])
def test_names_that_are_no_modules(directory, name):
    """What Python and editors leave beside modules."""
    found = evidence(directories=[directory])
    (directory / name).write_text("")
    assert found.changed() is None
    (directory / name).unlink()
    assert found.changed() is None


def test_edit_inside_a_directory_is_for_the_file_to_tell(directory):
    found = evidence(directories=[directory])
    (directory / "one.py").write_text("2")
    assert found.changed() is None


def test_file_added_and_removed_again(directory):
    """Nobody looked in between: the directory lists what it listed."""
    found = evidence(directories=[directory])
    (directory / "two.py").write_text("")
    (directory / "two.py").unlink()
    assert found.changed() is None


def test_file_added_right_after_the_listing(directory):
    """While the stamp of the directory is young."""
    for number in range(100):
        found = evidence(directories=[directory], settled=False)
        (directory / f"more{number}.py").write_text("")
        assert found.changed() == f"module directory changed: {directory}: more{number}.py added"


# -------------------------------------------------------------------------------- all of it
def test_nothing():
    assert FileEvidence().changed() is None
    assert len(FileEvidence()) == 0


def test_length(directory):
    assert len(evidence(files=[directory / "one.py"], directories=[directory], settled=False)) == 2


def test_adding_twice_keeps_the_first(directory):
    """What is added again after a change counts as it was when it was added first."""
    path = directory / "one.py"
    found = evidence(files=[path], directories=[directory])
    path.write_text("2")
    (directory / "two.py").write_text("")
    found.add_file(str(path))
    found.add_directory(str(directory))
    assert found.changed() is not None


@pytest.mark.parametrize("settle", [0, 2 * YOUNG])
def test_changed_stays_changed(directory, settle):
    """Two jobs that ask one after the other hear the same, also long after the change."""
    path = directory / "one.py"
    found = evidence(files=[path], directories=[directory])
    (directory / "two.py").write_text("")
    path.write_text("2")
    time.sleep(settle)
    first = found.changed()
    assert first is not None
    assert [found.changed() for _ in range(5)] == [first] * 5


def test_changed_stays_changed_when_it_is_taken_back(directory):
    found = evidence(directories=[directory])
    (directory / "two.py").write_text("")
    first = found.changed()
    (directory / "two.py").unlink()
    time.sleep(YOUNG)
    assert found.changed() == first


def test_every_thread_hears_of_it(directory):
    """Of threads that ask at the same time, each after the change, none is told that all is as it was."""
    for number in range(30):
        found = evidence(directories=[directory], settled=False)
        time.sleep(YOUNG if number < 5 else 0)
        found.changed()
        (directory / f"more{number}.py").write_text("")
        answers, barrier = [], threading.Barrier(4)

        def ask(found=found, answers=answers, barrier=barrier):
            barrier.wait(20)
            answers.append(found.changed())

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert answers == [f"module directory changed: {directory}: more{number}.py added"] * 4


def test_unreadable_directory(directory, monkeypatch):
    """One that cannot be listed is as one that is not there."""

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    found = evidence(directories=[directory], settled=False, stamps=ALWAYS_YOUNG)
    assert found.changed() is None
    monkeypatch.undo()
    assert found.changed() == f"module directory changed: {directory}: appeared"


def test_loop_of_links(tmp_path):
    link = tmp_path / "loop"
    link.symlink_to(link)
    found = evidence(files=[link], directories=[link])
    assert found.changed() is None


# -------------------------------------------------------------------------------- after a change that was taken in
def test_after(directory):
    """The changed file counts as it is now, all else as it was."""
    one, two = directory / "one.py", directory / "two.py"
    two.write_text("1")
    before = evidence(files=[one, two], directories=[directory])
    one.write_text("2")
    assert before.changed() == f"module file changed: {one}"
    assert before.changed_file == str(one)
    after = before.after(str(one))
    assert (after.changed(), after.changed_file) == (None, None)
    assert before.changed() == f"module file changed: {one}"
    two.write_text("2")
    assert after.changed() == f"module file changed: {two}"


@pytest.mark.parametrize("wait", [0, YOUNG])
def test_after_and_back(directory, wait):
    """What the file was before is no proof that it is as it is known to be."""
    path = directory / "one.py"
    before = evidence(files=[path], settled=False)
    path.write_text("2")
    assert before.changed() is not None
    time.sleep(wait)
    after = before.after(str(path))
    assert after.changed() is None
    path.write_text("1")
    assert after.changed() == f"module file changed: {path}"


def test_after_one_of_two_changes(directory):
    one, two = directory / "one.py", directory / "two.py"
    two.write_text("1")
    before = evidence(files=[one, two])
    one.write_text("2")
    two.write_text("2")
    assert before.changed() is not None
    after = before.after(before.changed_file)
    assert {before.changed_file, (after.changed(), after.changed_file)[1]} == {str(one), str(two)}
    assert after.after(after.changed_file).changed() is None


def test_a_directory_is_no_changed_file(directory):
    found = evidence(directories=[directory])
    (directory / "two.py").write_text("")
    assert found.changed() is not None
    assert found.changed_file is None
