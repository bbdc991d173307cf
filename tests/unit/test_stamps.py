"""FileStamps: has anything changed since it was stamped?"""

import contextlib
import gc
import os
import sys
import time
import weakref

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="all threads would change the same files")

OLD = 1_600_000_000


@pytest.fixture
def old(tmp_path):
    """Make a file whose times are long past; ctime is not to be set, so each FileStamps here has no ticks."""

    def make(name, text="x"):
        path = tmp_path / name
        path.write_text(text)
        os.utime(path, (OLD, OLD))
        return str(path)

    return make


@pytest.fixture
def stamps(core):
    return core.FileStamps(0, 0)


def test_empty(core, stamps):
    assert stamps.suspects() is None
    assert stamps.paths() == [] and len(stamps) == 0 and "x" not in stamps
    assert not core.FileStamps.__new__(core.FileStamps, 0, 0) is stamps


def test_nothing_changed(stamps, old):
    paths = [old(name) for name in "cab"]
    assert [stamps.add(path) for path in paths] == [False] * 3
    assert stamps.paths() == paths and len(stamps) == 3
    assert all(path in stamps for path in paths)
    assert stamps.suspects() is None
    assert stamps.suspects() is None


@pytest.mark.parametrize("change", ["content", "size", "time", "mode", "removed", "replaced", "directory", "link"])
def test_changes(stamps, old, tmp_path, change):
    path, other = old("a"), old("b")
    stamps.add(path)
    stamps.add(other)
    if change == "content":
        with open(path, "r+") as file:
            file.write("y")
        os.utime(path, (OLD, OLD))  # the same size and mtime: ctime tells
    elif change == "size":
        old("a", "longer")
    elif change == "time":
        os.utime(path, ns=(OLD * 10**9, OLD * 10**9 + 1))
    elif change == "mode":
        os.chmod(path, 0o700)
    else:
        os.unlink(path)
        if change == "replaced":
            os.rename(old("c"), path)
        elif change == "directory":
            os.mkdir(path)
        elif change == "link":
            os.symlink(other, path)
    assert stamps.suspects() == [path]
    assert stamps.suspects() == [path]
    assert stamps.restamp(path) is False
    assert stamps.suspects() is None


def test_what_is_not_there(stamps, old, tmp_path):
    path = str(tmp_path / "later")
    assert stamps.add(path) is False
    assert stamps.suspects() is None
    old("later")
    assert stamps.suspects() == [path]
    stamps.restamp(path)
    assert stamps.suspects() is None
    os.unlink(path)
    assert stamps.suspects() == [path]


def test_a_file_in_a_directory(stamps, old, tmp_path):
    stamps.add(str(tmp_path))
    assert stamps.suspects() is None
    old("new")
    assert stamps.suspects() == [str(tmp_path)]


def test_a_link_stands_for_its_target(stamps, old, tmp_path):
    target, link = old("target"), str(tmp_path / "link")
    os.symlink(target, link)
    stamps.add(link)
    assert stamps.suspects() is None
    old("target", "changed")
    assert stamps.suspects() == [link]
    stamps.restamp(link)
    os.unlink(target)
    assert stamps.suspects() == [link]


def test_the_first_stamp_stays(stamps, old):
    path = old("a")
    stamps.add(path)
    old("a", "changed")
    assert stamps.add(path) is False
    assert stamps.suspects() == [path]
    assert stamps.paths() == [path]


def test_suspects_are_in_order(stamps, old):
    paths = [old(name) for name in "zay"]
    for path in paths:
        stamps.add(path)
    for path in reversed(paths):
        os.unlink(path)
    assert stamps.suspects() == paths


# ---- young stamps ----


def test_a_young_stamp_is_a_suspect(core, old):
    path = old("a")
    hour = 3_600 * 10**9
    stamps = core.FileStamps(tick_ns=hour, coarse_ns=hour)
    assert stamps.add(path) is True
    assert stamps.add(path) is True
    assert stamps.suspects() == [path]
    assert stamps.suspects() == [path]
    assert stamps.restamp(path) is True
    assert core.FileStamps(hour).add(path + "/nothing") is False


def test_a_stamp_grows_old(core, old):
    path = old("a")
    stamps = core.FileStamps(tick_ns=50_000_000)
    # The file's ctime has a fraction of a second, so this waits for one tick.
    assert os.stat(path).st_ctime_ns % 10**9
    deadline = time.monotonic() + 20
    while stamps.restamp(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert time.time_ns() - os.stat(path).st_ctime_ns >= 50_000_000
    assert stamps.suspects() is None


def test_times_in_the_future(core, old):
    path = old("a")
    for seconds in (4_000_000_000, 2**33):
        try:
            os.utime(path, (seconds, seconds))
        except (OSError, OverflowError):
            continue  # the file system has no such times
        stamps = core.FileStamps(0, 0)
        assert stamps.add(path) is (os.stat(path).st_mtime_ns > time.time_ns())
    os.utime(path, (-1000, -1000))
    assert core.FileStamps(0, 0).add(path) is False


@pytest.mark.parametrize("seconds", [11_500_000_000, -8_000_000_000])
def test_times_whose_nanoseconds_overflow(core, old, seconds):
    path = old("a")
    with contextlib.suppress(OSError, OverflowError):
        os.utime(path, (seconds, seconds))
    if os.stat(path).st_mtime != seconds:
        pytest.skip("the file system has no such times")
    assert core.FileStamps(0, 0).add(path) is (seconds > 0)


@pytest.mark.parametrize(("tick", "young"), [(0, False), (-(10**18), False), (2**63 - 1, True), (10**18 * 5, True)])
def test_ticks(core, old, tick, young):
    assert core.FileStamps(tick, tick).add(old("a")) is young


def test_wrong_arguments(core, is_c):
    for call in (lambda: core.FileStamps(1, 2, 3), lambda: core.FileStamps(other=1)):
        with pytest.raises(TypeError):
            call()
    if is_c:
        with pytest.raises(TypeError):
            core.FileStamps("1")
        with pytest.raises(OverflowError):
            core.FileStamps(2**63)
    assert len(core.FileStamps(tick_ns=1, coarse_ns=2)) == 0


# ---- odd paths ----


@pytest.mark.parametrize("path", [b"bytes", 1, None, os.path, ("a",), []])
def test_only_str(stamps, path):
    for call in (stamps.add, stamps.restamp, stamps.__contains__):
        with pytest.raises(TypeError):
            call(path)
    assert len(stamps) == 0


def test_paths_that_no_file_can_have(stamps):
    odd = ["", "a\0b", "\0", "\ud800", "x" * 5000, "/" + "y" * 300]
    for path in odd:
        assert stamps.add(path) is False
        assert stamps.restamp(path) is False
        assert path in stamps
    assert stamps.paths() == odd
    assert stamps.suspects() is None


def test_an_embedded_nul_does_not_name_the_part_before(stamps, old):
    path = old("a")
    stamps.add(path + "\0b")
    os.unlink(path)
    assert stamps.suspects() is None


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text here")
def test_a_name_in_no_encoding(stamps, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe")
    with open(path, "w"):
        pass
    name = os.fsdecode(path)
    stamps.add(name)
    assert stamps.suspects() is None
    os.unlink(path)
    assert stamps.suspects() == [name]


@pytest.mark.parametrize("name", ["ascii", "l\u00e4tin", "\u4e2d\u6587", "\U0001f600"])
def test_names_of_every_width(stamps, old, name):
    path = old(name)
    stamps.add(path)
    assert path in stamps and name not in stamps and stamps.paths() == [path]
    assert stamps.suspects() is None
    os.unlink(path)
    assert stamps.suspects() == [path]


class Path(str):
    """A str whose own hash and eq are not to be asked while stamps are looked up."""

    __slots__ = ()


def test_a_subclass_of_str(stamps, old):
    path = old("a")
    stamps.add(Path(path))
    assert path in stamps and Path(path) in stamps and len(stamps) == 1
    assert stamps.suspects() is None


def test_nothing_of_a_subclass_is_asked(c_core, old):
    class Biting(str):
        __slots__ = ()

        def __hash__(self):
            raise AssertionError

        def __eq__(self, other):
            raise AssertionError

    path = old("a")
    stamps = c_core.FileStamps(0, 0)
    stamps.add(Biting(path))
    stamps.restamp(Biting(path))
    assert Biting(path) in stamps
    assert stamps.paths() == [path] and type(stamps.paths()[0]) is str


def test_a_relative_path(stamps, old, tmp_path, monkeypatch):
    old("a")
    monkeypatch.chdir(tmp_path)
    stamps.add("a")
    assert stamps.suspects() is None
    os.unlink("a")
    assert stamps.suspects() == ["a"]


def test_many_paths(stamps, tmp_path):
    paths = [str(tmp_path / f"{number:04}") for number in range(3000)]
    for path in paths:
        stamps.add(path)
    for path in paths[::7]:
        stamps.add(path)
    assert stamps.paths() == paths and len(stamps) == 3000
    assert all(path in stamps for path in paths) and str(tmp_path) not in stamps
    assert stamps.suspects() is None
    open(paths[1234], "w").close()
    assert stamps.suspects() == [paths[1234]]


# ---- lifetime and threads ----


def test_weakref(core, old):
    stamps = core.FileStamps()
    stamps.add(old("a"))
    ref = weakref.ref(stamps)
    del stamps
    gc.collect()
    assert ref() is None


def test_threads(stamps, old, tmp_path, threads):
    stable = [old(f"s{number}") for number in range(20)]
    changing = str(tmp_path / "changing")
    for path in stable:
        stamps.add(path)

    def add(name):
        def work():
            for number in range(200):
                stamps.add(str(tmp_path / f"{name}{number}"))
                stamps.restamp(stable[number % 20])

        return work

    def change():
        for _ in range(100):
            stamps.restamp(changing)
            with open(changing, "w") as file:
                file.write("x")
            os.unlink(changing)

    def ask():
        for _ in range(60):
            assert set(stamps.suspects() or ()) <= {changing}
            paths = stamps.paths()
            assert paths[:20] == stable and len(set(paths)) == len(paths) <= len(stamps)
            assert stable[3] in stamps

    threads(add("a"), add("b"), add("a"), change, ask, ask)
    assert len(stamps) == 20 + 400 + 1
    stamps.restamp(changing)
    assert stamps.suspects() is None


def test_threads_ask_side_by_side(core, threads, old):
    stamps = core.FileStamps(0, 0)
    for number in range(500):
        stamps.add(old(f"f{number}"))
    done = []

    def ask():
        for _ in range(50):
            assert stamps.suspects() is None
        done.append(1)

    def count():
        number = 0
        while len(done) < 2:
            number += 1
            time.sleep(0.001)  # or each of their looks waits for the interpreter to switch threads
        assert number > 0

    threads(ask, ask, count)
    assert len(done) == 2
