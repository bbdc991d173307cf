"""FileEvidence on FileWatch and on FileStamps: several threads, and what is kept of long directories."""

import os
import threading
import time

import pytest

from saltctx import core, evidence

pytestmark = pytest.mark.thread_unsafe(reason="all threads would change the same files")

STAMPS = pytest.mark.parametrize("stamps", [core.FileStamps, core.FileWatch], ids=["stat", "watch"])
OLD = 1_600_000_000


@STAMPS
def test_changes(stamps, tmp_path):
    files = evidence.FileEvidence(stamps)
    path = tmp_path / "d" / "it.py"
    path.parent.mkdir()
    path.write_text("1")
    files.add_directory(str(path.parent))
    files.add_file(str(path))
    assert files.changed() is None
    (path.parent / "__pycache__").mkdir()
    assert files.changed() is None
    path.write_text("2")
    assert files.changed() == f"module file changed: {path}"


@STAMPS
def test_what_is_polled(stamps, tmp_path):
    files = evidence.FileEvidence(stamps)
    (tmp_path / "link").symlink_to(tmp_path)
    files.add_directory(str(tmp_path / "link"))
    assert (files.polled, len(files)) == (1, 1)
    if stamps is core.FileStamps:
        assert files.reason is None
    else:
        assert files.reason


@STAMPS
def test_no_thread_adopts_while_another_makes_out_what_changed(stamps, tmp_path, monkeypatch):
    """The second look takes a new stamp: who finds that nothing is suspect any more waits for its outcome."""
    files = evidence.FileEvidence(lambda: stamps(0, 0))
    files.add_directory(str(tmp_path))
    (tmp_path / "it.py").write_text("1")
    looking, go_on = threading.Event(), threading.Event()
    listing = evidence._listing

    def slow(path):
        looking.set()
        assert go_on.wait(20)
        return listing(path)

    monkeypatch.setattr(evidence, "_listing", slow)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(files.changed())) for _ in range(2)]
    threads[0].start()
    assert looking.wait(20)
    time.sleep(0.1)
    threads[1].start()
    threads[1].join(0.2)
    assert answers == []
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert answers == [f"module directory changed: {tmp_path}: it.py added"] * 2


@pytest.fixture
def listed(monkeypatch):
    """The directories that were listed."""
    monkeypatch.setattr(evidence, "_known_listings", {})
    names, listdir = [], os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: names.append(path) or listdir(path))
    return names


def test_an_old_directory_is_listed_once(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(evidence, "SETTLED_NS", -(10**15))
    path = str(tmp_path)
    for _ in range(3):
        evidence.FileEvidence().add_directory(path)
    assert listed == [path]
    (tmp_path / "it.py").write_text("1")
    assert evidence._listing(path) == (True, ("it.py",))
    os.utime(path, (OLD, OLD))
    assert evidence._listing(path) == (True, ("it.py",))
    assert listed == [path] * 3


def test_a_directory_that_changed_just_now_is_listed_again(tmp_path, listed):
    path = str(tmp_path)
    for _ in range(3):
        evidence.FileEvidence().add_directory(path)
    assert listed == [path] * 3


def test_few_listings_are_kept(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(evidence, "SETTLED_NS", -(10**15))
    monkeypatch.setattr(evidence, "KEPT_LISTINGS", 3)
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        evidence._listing(str(tmp_path / str(number)))
    assert len(evidence._known_listings) <= 3


class Name(str):
    """Counts how often one is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def test_what_changed_in_a_long_directory_is_told_at_once(monkeypatch):
    """Each name is compared with few others, not with all."""
    monkeypatch.setattr(Name, "compared", 0)
    count = 2_000
    before = (True, tuple(Name(number) for number in range(count)))
    after = (True, (*(Name(number) for number in range(1, count)), "more"))
    assert evidence._difference(before, after) == "more added, 0 removed"
    assert Name.compared < 10 * count
