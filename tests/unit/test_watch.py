"""FileWatch: what FileStamps would answer, without looking at each path. The events are real file operations."""

import ctypes
import gc
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="all threads would change the same files")

OLD = 1_600_000_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")


@pytest.fixture
def watches(is_c):
    """Whether paths are watched here, and not polled."""
    return is_c and sys.platform == "linux"


class Checked:
    """A FileWatch beside a FileStamps of the same paths, which must answer the same."""

    def __init__(self, core):
        self.watch = core.FileWatch(0, 0)
        self.stamps = core.FileStamps(0, 0)

    def add(self, *paths):
        for path in paths:
            assert self.watch.add(str(path)) == self.stamps.add(str(path))

    def suspects(self):
        """Asked twice, since the first answer must not use up the event."""
        found = self.stamps.suspects()
        assert self.watch.suspects() == found
        assert self.watch.suspects() == found
        return found

    def settle(self):
        """The paths that changed, names only; nothing is suspect any more once they are stamped anew."""
        found = self.suspects() or []
        for path in found:
            assert self.watch.restamp(path) == self.stamps.restamp(path)
        assert self.suspects() is None
        return [os.path.basename(path) for path in found]


@pytest.fixture
def checked(core):
    return Checked(core)


@pytest.fixture
def write(tmp_path):
    def write(name, text="x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def end_child(core, status):
    """End a forked child. A build that counts the lines which run notes them down at exit only: tell it to."""
    note_down = getattr(ctypes.PyDLL(core.__file__), "__gcov_dump", None) if core.__file__.endswith(".so") else None
    if note_down is not None:
        note_down()
    os._exit(status)


def inotify_descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:inotify":
                found.add(fd)
        except OSError:
            pass
    return found


# ---- the interface of FileStamps ----


def test_empty(core):
    watch = core.FileWatch()
    assert watch.suspects() is None
    assert watch.paths() == [] and len(watch) == 0 and "x" not in watch
    assert watch.polled == 0 and watch.reason is None


def test_without_init(core, write):
    watch = core.FileWatch.__new__(core.FileWatch)
    if hasattr(core.FileStamps, "_take"):
        watch.__init__()
    assert watch.suspects() is None and len(watch) == 0
    watch.add(str(write("a")))
    assert len(watch) == 1


def test_paths(core, write):
    watch = core.FileWatch(0, 0)
    paths = [str(write(name)) for name in "cab"]
    assert [watch.add(path) for path in paths + paths] == [False] * 6
    assert watch.paths() == paths and len(watch) == 3
    assert paths[1] in watch and "x" not in watch


@pytest.mark.parametrize("path", [b"bytes", 1, None, ("a",)])
def test_only_str(core, path):
    watch = core.FileWatch()
    for call in (watch.add, watch.restamp, watch.__contains__):
        with pytest.raises(TypeError):
            call(path)
    assert len(watch) == 0


def test_wrong_arguments(core, is_c):
    for call in (lambda: core.FileWatch(1, 2, 3, 4), lambda: core.FileWatch(other=1)):
        with pytest.raises(TypeError):
            call()
    if is_c:
        for wrong in ("1", 1.5, []):
            with pytest.raises(TypeError):
                core.FileWatch(max_watches=wrong)
        with pytest.raises(OverflowError):
            core.FileWatch(max_watches=2**80)
    with pytest.raises(AttributeError):
        core.FileWatch().polled = 1


def test_a_young_stamp_is_a_suspect(core, write):
    path = str(write("a"))
    watch = core.FileWatch(3_600 * 10**9, 3_600 * 10**9)
    assert watch.add(path) is True
    assert watch.suspects() == [path]
    assert watch.restamp(path) is True
    assert watch.suspects() == [path]


def test_a_stamp_grows_old(core, write):
    path = str(write("a"))
    watch = core.FileWatch(50_000_000, 50_000_000)
    deadline = time.monotonic() + 20
    while watch.restamp(path):
        assert watch.suspects() == [path]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert watch.suspects() is None


def test_restamping_a_path_that_is_not_there(core, write):
    watch = core.FileWatch(0, 0)
    path = write("a")
    watch.restamp(str(path))
    assert watch.paths() == [str(path)] and watch.suspects() is None
    path.unlink()
    assert watch.suspects() == [str(path)]


# ---- one file ----


def change_in_place(path):
    with open(path, "r+") as file:
        file.write("y")


def replace(path):
    new = path.with_name("new~")
    new.write_text("z")
    os.utime(new, (OLD, OLD))
    new.replace(path)


def exchange_by_link(path):
    path.unlink()
    other = path.with_name("other~")
    other.write_text("longer")
    os.link(other, path)
    other.unlink()


def write_and_restore_time(path):
    before = path.stat()
    change_in_place(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def through_another_name(path):
    os.link(path, path.with_name("other~"))
    change_in_place(path.with_name("other~"))


CHANGES = {
    "in place": change_in_place,
    "appended": lambda path: os.system(f"echo more >> '{path}'"),
    "truncated": lambda path: os.truncate(path, 0),
    "replaced": replace,
    "linked": exchange_by_link,
    "mode": lambda path: path.chmod(0o700),
    "time set back": lambda path: os.utime(path, (OLD, OLD)),
    "time restored": write_and_restore_time,
    "hard link": through_another_name,
    "deleted": lambda path: path.unlink(),
    "moved away": lambda path: path.rename(path.with_name("elsewhere~")),
    "became a directory": lambda path: (path.unlink(), path.mkdir()),
    "became a link": lambda path: (path.rename(path.with_name("o~")), path.symlink_to("o~")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file(checked, write, change, watches):
    path, other = write("d/it"), write("d/other")
    checked.add(path, other)
    assert checked.suspects() is None
    assert checked.watch.polled == (0 if watches else 2)
    CHANGES[change](path)
    assert checked.settle() == ["it"]
    # ... and what comes after is seen as well.
    if path.is_dir():
        path.rmdir()
    elif path.exists() or path.is_symlink():
        path.unlink()
    if change not in ("deleted", "moved away"):
        assert checked.settle() == ["it"]
    write("d/it", "once more")
    assert checked.settle() == ["it"]
    change_in_place(path)
    os.utime(path, (OLD, OLD))
    assert checked.settle() == ["it"]
    assert checked.watch.polled <= (1 if watches else 2)


def test_a_file_watched_before_the_first_answer(core, write):
    """Between its stamp and the first question, too."""
    path = write("a")
    watch = core.FileWatch(0, 0)
    watch.add(str(path))
    change_in_place(path)
    os.truncate(path, 5)
    assert watch.suspects() == [str(path)]


def test_a_file_that_was_touched_is_found_equal(core, write):
    """An event without a change is looked at once."""
    path = write("a")
    watch = core.FileWatch(0, 0)
    watch.add(str(path))
    assert watch.suspects() is None
    with open(path, "a"):
        pass
    assert watch.suspects() is None


@linux
def test_unchanged_paths_are_not_looked_at(c_core, write):
    """A memory mapping changes a file behind inotify's back, until it goes."""
    path = write("a", "x" * 4096)
    os.utime(path, (OLD, OLD))
    watch, stamps = c_core.FileWatch(0, 0), c_core.FileStamps(0, 0)
    for each in (watch, stamps):
        each.add(str(path))
    assert watch.suspects() is None
    with open(path, "r+b") as file:
        mapping = mmap.mmap(file.fileno(), 4096)
    mapping[0] = 1
    mapping.flush()
    assert stamps.suspects() == [str(path)]
    assert watch.suspects() is None
    mapping.close()
    assert watch.suspects() == [str(path)]


# ---- directories ----


def test_a_directory(checked, write, tmp_path, watches):
    write("d/a")
    checked.add(tmp_path / "d")
    assert checked.suspects() is None
    write("d/b")
    assert checked.settle() == ["d"]
    os.unlink(tmp_path / "d/a")
    assert checked.settle() == ["d"]
    (tmp_path / "d/b").rename(tmp_path / "d/c")
    assert checked.settle() == ["d"]
    (tmp_path / "d/c").rename(tmp_path / "away")
    assert checked.settle() == ["d"]
    (tmp_path / "d").chmod(0o711)
    assert checked.settle() == ["d"]
    (tmp_path / "d/sub").mkdir()
    assert checked.settle() == ["d"]
    write("d/sub/deeper")
    assert checked.suspects() is None
    assert checked.watch.polled == (0 if watches else 1)


def test_a_directory_and_files_in_it(checked, write, tmp_path):
    paths = [write(f"d/{name}") for name in "abc"]
    checked.add(tmp_path / "d", *paths)
    assert checked.suspects() is None
    change_in_place(paths[1])
    os.utime(paths[1], (OLD, OLD))
    assert checked.settle() == ["b"]
    paths[2].unlink()
    assert checked.settle() == ["d", "c"]
    replace(paths[0])
    assert checked.settle() == ["d", "a"]


def test_a_directory_removed_and_made_again(checked, write, tmp_path):
    path = write("d/sub/it")
    checked.add(tmp_path / "d", path, tmp_path / "d/sub")
    assert checked.suspects() is None
    for _ in range(3):
        shutil.rmtree(tmp_path / "d")
        assert checked.settle() == ["d", "it", "sub"]
        write("d/sub/it")
        assert checked.settle() == ["d", "it", "sub"]
    change_in_place(path)
    os.truncate(path, 7)
    assert checked.settle() == ["it"]


def test_removed_and_made_again_between_two_questions(checked, write, tmp_path):
    path = write("d/it", "one")
    checked.add(path)
    assert checked.suspects() is None
    shutil.rmtree(tmp_path / "d")
    write("d/it", "other")
    assert checked.settle() == ["it"]
    write("d/it", "third one")
    assert checked.settle() == ["it"]


def test_what_appears_later(checked, write, tmp_path, watches):
    checked.add(tmp_path / "a/b/c/it", tmp_path / "a/b", tmp_path / "a/b/c/other")
    assert checked.suspects() is None
    assert checked.watch.polled == (0 if watches else 3)
    (tmp_path / "a").mkdir()
    assert checked.suspects() is None
    (tmp_path / "elsewhere/c").mkdir(parents=True)
    write("elsewhere/c/it")
    (tmp_path / "elsewhere").rename(tmp_path / "a/b")
    assert checked.settle() == ["it", "b"]
    write("a/b/c/other")
    assert checked.settle() == ["other"]
    shutil.rmtree(tmp_path / "a")
    assert checked.settle() == ["it", "b", "other"]
    write("a/b/c/it")
    assert checked.settle() == ["it", "b"]


def test_an_ancestor_in_the_place_of_another(checked, write, tmp_path):
    path = write("a/b/c/it", "of the first")
    write("new/b/c/it", "of another")
    checked.add(path, tmp_path / "a/b/c")
    assert checked.suspects() is None
    (tmp_path / "a").rename(tmp_path / "old")
    assert checked.settle() == ["it", "c"]
    (tmp_path / "new").rename(tmp_path / "a")
    assert checked.settle() == ["it", "c"]
    write("old/b/c/it", "what happens there does not count")
    assert checked.suspects() is None
    write("a/b/c/it", "what happens here does")
    assert checked.settle() == ["it"]


def test_an_ancestor_exchanged_between_two_questions(checked, write, tmp_path):
    write("a/b/it", "x")
    write("new/b/it", "xx")
    checked.add(tmp_path / "a/b/it")
    assert checked.suspects() is None
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "a")
    assert checked.settle() == ["it"]
    os.truncate(tmp_path / "a/b/it", 9)
    assert checked.settle() == ["it"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may enter all directories")
def test_an_ancestor_that_may_not_be_entered(checked, write, tmp_path):
    path = write("a/b/it")
    checked.add(path)
    assert checked.suspects() is None
    (tmp_path / "a").chmod(0)
    try:
        assert checked.settle() == ["it"]
    finally:
        (tmp_path / "a").chmod(0o700)
    assert checked.settle() == ["it"]


def test_a_file_where_a_directory_is_expected(checked, write, tmp_path):
    write("a")
    checked.add(tmp_path / "a/it")
    assert checked.suspects() is None
    (tmp_path / "a").unlink()
    write("a/it")
    assert checked.settle() == ["it"]


# ---- what is polled ----


def test_symbolic_links(checked, write, tmp_path, watches):
    target = write("real/it")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/alias").symlink_to("it")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("not/there")
    paths = [tmp_path / name for name in ("link/it", "link", "real/alias", "loop/it", "nowhere")]
    checked.add(target, *paths)
    assert checked.watch.polled == (5 if watches else 6)
    assert checked.watch.reason == (
        f"a symbolic link in the path: {paths[0]}" if watches else "the implementation in Python does not watch"
    )
    assert checked.suspects() is None
    os.truncate(target, 9)
    assert checked.settle() == ["it", "it", "alias"]
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("real2")
    assert checked.settle() == ["it", "link"]
    write("not/there")
    assert checked.settle() == ["nowhere"]


def test_a_directory_that_becomes_a_link(checked, write, tmp_path, watches):
    path = write("a/b/it")
    checked.add(path)
    assert checked.suspects() is None
    (tmp_path / "a").rename(tmp_path / "old")
    write("new/b/it", "another")
    (tmp_path / "a").symlink_to("new")
    assert checked.settle() == ["it"]
    assert checked.watch.polled == 1
    assert not watches or "symbolic link" in checked.watch.reason
    write("new/b/it", "seen through the link")
    assert checked.settle() == ["it"]


def test_relative_paths(core, write, tmp_path, monkeypatch):
    write("it")
    monkeypatch.chdir(tmp_path)
    watch = core.FileWatch(0, 0)
    watch.add("it")
    assert watch.polled == 1 and watch.suspects() is None
    monkeypatch.chdir("/")
    assert watch.suspects() == ["it"]


def test_odd_paths(core):
    odd = ["", "a\0b", "/\0", "\ud800", "/\ud800", "/x" * 5000, "/" + "y" * 300, "/a" * 300]
    watch = core.FileWatch(0, 0)
    for path in odd:
        assert watch.add(path) is False
        assert watch.restamp(path) is False
    assert watch.paths() == odd
    assert watch.suspects() is None


def test_paths_written_in_another_way(checked, write, tmp_path):
    write("d/e/it")
    names = ["/d//e/it", "/d/./e/it", "/d/e/../e/it", "/d/e/", "//d/e/it/"]
    checked.add("/", *[f"{tmp_path}{name}" for name in names])
    assert checked.suspects() is None
    os.truncate(tmp_path / "d/e/it", 9)
    assert len(checked.suspects()) == 3
    shutil.rmtree(tmp_path / "d")
    assert len(checked.suspects()) == 4


@linux
@pytest.mark.parametrize("name", [b"\xff\xfe", "\u4e2d\u6587".encode(), b"with space\n"])
def test_names(checked, tmp_path, name):
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    checked.add(path)
    assert checked.suspects() is None
    with open(path, "w"):
        pass
    assert len(checked.settle()) == 1
    os.truncate(path, 3)
    assert len(checked.settle()) == 1


@linux
def test_another_file_system(c_core):
    """Nothing tells of what happens in /proc: it is looked at."""
    watch = c_core.FileWatch(0, 0)
    watch.add("/proc/self/status")
    watch.add("/proc/version")
    assert watch.polled == 2
    assert watch.reason == "a symbolic link in the path: /proc/self/status" or "file system" in watch.reason


@linux
@root
def test_a_mount_over_a_directory(checked, write, tmp_path):
    """No event comes for it from the directory."""
    path = write("a/it")
    checked.add(path)
    assert checked.suspects() is None
    if subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "a"], check=False, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        assert checked.settle() == ["it"]
        write("a/it", "on the mounted one")
        assert checked.settle() == ["it"]
    finally:
        subprocess.run(["umount", "-l", tmp_path / "a"], check=True)
    assert checked.settle() == ["it"]


@linux
@root
def test_a_mounted_file_system_that_is_unknown(c_core, tmp_path):
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    command = ["mount", "-t", "overlay", "overlay", "-o", options, tmp_path / "merged"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("may not mount an overlay")
    try:
        watch = c_core.FileWatch(0, 0)
        path = tmp_path / "merged/it"
        watch.add(str(path))
        assert watch.polled == 1
        assert watch.reason == f"a file system that does not tell of every change: {path}"
        path.write_text("x")
        assert watch.suspects() == [str(path)]
    finally:
        subprocess.run(["umount", "-l", tmp_path / "merged"], check=True)


# ---- limits ----


@pytest.mark.parametrize("limit", [0, 1, 8])
def test_a_watch_limit(core, write, limit, watches):
    paths = [write(f"d/{number}") for number in range(20)]
    watch = core.FileWatch(0, 0, max_watches=limit)
    for path in paths:
        watch.add(str(path))
    if watches:
        assert watch.reason == "the watch limit is reached (fs.inotify.max_user_watches)"
        assert watch.polled >= 20 - limit
    else:
        assert watch.polled == 20
    assert watch.suspects() is None
    for path in paths[::3]:
        os.truncate(path, 9)
    assert watch.suspects() == [str(path) for path in paths[::3]]


@linux
def test_the_limits_of_the_system(c_core, write):
    """No descriptor is left: everything is polled, and the next object tries again."""
    import resource

    path = str(write("a"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
    spare = []
    try:
        try:
            while True:
                spare.append(os.open("/", os.O_RDONLY))
        except OSError:
            pass
        watch = c_core.FileWatch(0, 0, max_watches=100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    watch.add(path)
    assert watch.polled == 1
    assert watch.reason == "no inotify descriptor is left (fs.inotify.max_user_instances, or open files)"
    assert watch.suspects() is None
    os.truncate(path, 9)
    assert watch.suspects() == [path]
    assert c_core.FileWatch(0, 0, max_watches=100).polled == 0


@linux
def test_somebody_else_closes_the_descriptor(c_core, write):
    path, later = str(write("d/it")), str(write("d/later"))
    before = inotify_descriptors()
    watch = c_core.FileWatch(0, 0, max_watches=100)
    (descriptor,) = inotify_descriptors() - before
    watch.add(path)
    assert watch.polled == 0 and watch.suspects() is None
    os.close(int(descriptor))
    os.truncate(path, 9)
    assert watch.suspects() == [path]
    watch.add(later)
    assert watch.polled == 2 and watch.reason == "the inotify descriptor was closed by somebody else"
    watch.restamp(path)
    assert watch.suspects() is None
    os.truncate(later, 9)
    assert watch.suspects() == [later]
    # What is opened next may have the number that the object closes with it.
    fresh = os.open(os.devnull, os.O_RDONLY)
    del watch
    gc.collect()
    os.fstat(fresh)
    os.close(fresh)


@linux
def test_a_full_queue(checked, write):
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        limit = int(file.read())
    if limit > 100_000:
        pytest.skip("the queue is too long to fill it here")
    path, noisy, late = write("d/it"), write("e/noisy"), write("f/late")
    checked.add(path, noisy, late)
    assert checked.suspects() is None
    for number in range(limit // 2 + 100):
        os.truncate(noisy, number % 7)
        os.utime(noisy, (number, number))  # two kinds of event, or they would be merged
    os.truncate(late, 9)
    assert checked.settle() == ["noisy", "late"]
    os.truncate(path, 9)
    assert checked.settle() == ["it"]


def test_many_files(checked, write, tmp_path):
    paths = [write(f"d{number % 7}/{number}") for number in range(2000)]
    checked.add(tmp_path / "d0", *paths)
    assert checked.suspects() is None
    for path in paths[::100]:
        os.truncate(path, 9)
    assert checked.settle() == [path.name for path in paths[::100]]
    shutil.rmtree(tmp_path / "d3")
    assert checked.settle() == [str(number) for number in range(2000) if number % 7 == 3]
    shutil.rmtree(tmp_path / "d0")
    assert len(checked.settle()) == 1 + len(range(0, 2000, 7))


# ---- several objects, threads, processes ----


def test_several_objects(core, write, tmp_path):
    """What one is told, the others of the process know; one that goes leaves the others their watches."""
    path, own = write("d/it"), write("d/own")
    first, second = core.FileWatch(0, 0), core.FileWatch(0, 0)
    for each in (first, second):
        each.add(str(path))
    first.add(str(own))
    assert first.suspects() is None and second.suspects() is None
    os.truncate(path, 9)
    assert first.suspects() == [str(path)]
    assert second.suspects() == [str(path)]
    first.restamp(str(path))
    assert first.suspects() is None
    assert second.suspects() == [str(path)]
    second.restamp(str(path))
    assert second.suspects() is None
    del first
    gc.collect()
    os.truncate(own, 9)
    assert second.suspects() is None
    os.truncate(path, 3)
    assert second.suspects() == [str(path)]
    third = core.FileWatch(0, 0)
    third.add(str(own))
    assert third.suspects() is None
    os.truncate(own, 2)
    assert third.suspects() == [str(own)]


def test_two_names_of_one_file_in_several_objects(core, write):
    """They have one watch, which stays until the last of them goes."""
    path = write("d/it")
    name = path.with_name("name")
    os.link(path, name)
    first, second = core.FileWatch(0, 0), core.FileWatch(0, 0)
    first.add(str(path))
    second.add(str(name))
    assert first.suspects() is None and second.suspects() is None
    del first
    gc.collect()
    os.truncate(path, 9)
    assert second.suspects() == [str(name)]


@linux
def test_the_process_has_one_descriptor(c_core, write):
    path = str(write("d/it"))
    c_core.FileWatch().add(path)
    before = len(os.listdir("/proc/self/fd"))
    many = [c_core.FileWatch() for _ in range(200)]
    for each in many:
        each.add(path)
    assert len(os.listdir("/proc/self/fd")) == before
    own = c_core.FileWatch(max_watches=9)
    own.add(path)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    del own
    assert len(os.listdir("/proc/self/fd")) == before


@linux
def test_watches_go_with_their_object(c_core, write, tmp_path):
    def count(descriptor):
        with open(f"/proc/self/fdinfo/{descriptor}") as file:
            return file.read().count("inotify wd:")

    before = inotify_descriptors()
    keeper = c_core.FileWatch(0, 0, max_watches=10_000)
    (descriptor,) = inotify_descriptors() - before
    assert count(descriptor) == 0
    keeper.add(str(write("d/it")))
    kept = count(descriptor)
    assert kept == len((tmp_path / "d/it").parts)
    for number in range(50):
        replace(tmp_path / "d/it")
        keeper.suspects()
        keeper.restamp(str(tmp_path / "d/it"))
        keeper.suspects()
    assert count(descriptor) == kept
    shutil.rmtree(tmp_path / "d")
    keeper.suspects()
    assert count(descriptor) == kept - 2
    del keeper
    assert inotify_descriptors() == before


def test_weakref(core, write):
    watch = core.FileWatch()
    watch.add(str(write("a")))
    ref = weakref.ref(watch)
    del watch
    gc.collect()
    assert ref() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(core, write, watches):
    """A child does not take its parent's events, nor its watches; and sees changes itself."""
    path, other = write("d/it"), write("d/other")
    watch, spare = core.FileWatch(0, 0), core.FileWatch(0, 0)
    for each in (str(path), str(other)):
        watch.add(each)
        spare.add(each)
    assert watch.suspects() is None
    os.truncate(path, 9)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            assert watch.suspects() == [str(path)]
            assert watch.polled == 2
            assert watch.reason == (
                "a forked child does not watch" if watches else "the implementation in Python does not watch"
            )
            watch.restamp(str(path))
            assert watch.suspects() is None
            watch.add(str(path) + "2")
            del spare
            gc.collect()
            own = core.FileWatch(0, 0)
            own.add(str(other))
            assert own.polled == (0 if watches else 1)
            assert own.suspects() is None
            os.truncate(other, 9)
            assert watch.suspects() == [str(other)]
            assert own.suspects() == [str(other)]
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            end_child(core, status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watch.suspects() == [str(path), str(other)]
    for each in watch.suspects():
        watch.restamp(each)
    assert watch.suspects() is None
    assert watch.polled == (0 if watches else 2)
    os.truncate(path, 3)
    assert watch.suspects() == [str(path)]


@linux
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_put_another_file_in_the_descriptors_place(c_core, write):
    watch = c_core.FileWatch(0, 0, max_watches=100)
    watch.add(str(write("a")))
    child = os.fork()
    if child == 0:
        fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
        fresh = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            if fd > 2 and fd != fresh:
                try:
                    os.dup2(fresh, fd)
                except OSError:
                    pass
        watch.suspects()
        del watch
        gc.collect()
        try:
            end_child(c_core, 0 if all(os.fstat(fd) for fd in fds if fd > 2 and fd != fresh) else 1)
        except OSError:
            end_child(c_core, 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watch.polled == 0


def test_threads(core, write, tmp_path, threads):
    stable = [str(write(f"s/{number}")) for number in range(20)]
    changing = str(tmp_path / "c/changing")
    watch = core.FileWatch(0, 0)
    for path in stable:
        watch.add(path)

    def add(name):
        def work():
            for number in range(150):
                watch.add(str(tmp_path / f"{name}{number % 5}/{number}"))
                watch.restamp(stable[number % 20])

        return work

    def change():
        for number in range(100):
            watch.restamp(changing)
            write("c/changing", "x" * (number % 9))
            if number % 10 == 0:
                shutil.rmtree(tmp_path / "c")

    def ask():
        for _ in range(100):
            assert set(watch.suspects() or ()) <= {changing}
            paths = watch.paths()
            assert paths[:20] == stable and len(set(paths)) == len(paths) <= len(watch)
            assert watch.polled >= 0 and stable[3] in watch

    threads(add("a"), add("b"), add("a"), change, ask, ask)
    assert len(watch) == 20 + 300 + 1
    watch.restamp(changing)
    assert watch.suspects() is None
    os.truncate(stable[5], 9)
    assert watch.suspects() == [stable[5]]


def test_no_thread_answers_too_early(core, write, threads):
    """A change that was made before the question is seen, whichever thread took the event."""
    path = write("d/it")
    watch = core.FileWatch(0, 0)
    watch.add(str(path))
    assert watch.suspects() is None
    done = []

    def look():
        while not done:
            watch.suspects()

    def change():
        try:
            for number in range(1, 400):
                os.truncate(path, number)
                assert watch.suspects() == [str(path)], number
                watch.restamp(str(path))
        finally:
            done.append(1)

    threads(change, look, look)


def test_no_thread_answers_too_early_for_what_comes_and_goes(core, write, tmp_path, threads):
    path = tmp_path / "d/e/it"
    watch = core.FileWatch(0, 0)
    watch.add(str(path))
    assert watch.suspects() is None
    done = []

    def look():
        while not done:
            watch.suspects()

    def change():
        try:
            for number in range(150):
                write("d/e/it")
                assert watch.suspects() == [str(path)], number
                watch.restamp(str(path))
                shutil.rmtree(tmp_path / "d") if number % 2 else os.rename(tmp_path / "d", tmp_path / f"o{number}")
                assert watch.suspects() == [str(path)], number
                watch.restamp(str(path))
        finally:
            done.append(1)

    threads(change, look, look)
