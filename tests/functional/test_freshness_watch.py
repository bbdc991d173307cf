"""``freshness: watch``, and ``stat`` beside it: what is on disk when a job starts is what it runs, wherever it lies."""

import functools
import os
import shutil
import sys
import threading
import time

import pytest

EACH = pytest.mark.parametrize("freshness", ["stat", "watch"])
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def run(sides, scenario, freshness, *arguments, **opts):
    return sides.saltctx(scenario, *arguments, opts={"saltctx": {"freshness": freshness}, **opts})


def source(number):
    return f"def go():\n    return {number}\n"


def found(minion, fun="it.go"):
    """What a job gets from the module; "none" where there is none."""
    ret = minion.job(fun)
    if not ret:
        return "LOST"
    return ret["return"] if isinstance(ret["return"], int) else "none"


def touch_back(path, second=1_400_000_000):
    os.utime(path, (second, second))


def changes(minion):
    minion.start()
    path = minion.root / "ext/modules/it.py"
    seen = [found(minion)]
    minion.write("ext/modules/it.py", source(1))
    seen.append(found(minion))
    # An edit in place of the same size, with the time set back.
    before = path.stat()
    path.write_text(source(2))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    seen.append(found(minion))
    # As saltutil.sync_modules does: a copy over the file, an older time.
    cached = minion.write("cache/files/it.py", source(3))
    touch_back(cached)
    shutil.copyfile(cached, path)
    seen.append(found(minion))
    new = minion.write("new.py", source(4))
    touch_back(new)
    new.replace(path)
    seen.append(found(minion))
    path.unlink()
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    seen.append(found(minion))
    minion.write("ext/modules/it/__init__.py", source(6))
    seen.append(found(minion))
    shutil.rmtree(path.parent)
    seen.append(found(minion))
    minion.write("ext/modules/it.py", source(8))
    seen.append(found(minion))
    minion.write("elsewhere/modules/it.py", source(9))
    (minion.root / "ext").rename(minion.root / "old")
    (minion.root / "elsewhere").rename(minion.root / "ext")
    seen.append(found(minion))
    return seen


@EACH
def test_changes(sides, freshness):
    assert run(sides, changes, freshness) == ["none", 1, 2, 3, 4, "none", 6, "none", 8, 9]


def quiet(minion):
    minion.module("it", source(1))
    minion.module("other", source(2))
    minion.start()
    minion.values("it.go", "other.go")
    time.sleep(0.06)
    minion.values("it.go", "other.go")
    before = minion.counts()
    for number in range(20):
        minion.write(f"ext/file{number}", "beside the module directories")
        minion.write("cache/noise", str(number))
        minion.job("it.go")
    after = minion.counts()
    return {name: after[name] - before[name] for name in before}


@EACH
def test_nothing_is_rebuilt_in_vain(sides, freshness):
    assert run(sides, quiet, freshness) == {"adopted": 20, "rebuilt": 0, "partial": 0, "reloaded": 0, "fallback": 0}


def unwritable(minion):
    minion.module("it", source(1))
    minion.start()
    seen = [found(minion)]
    directory = minion.root / "ext/modules"
    shutil.rmtree(directory / "__pycache__", ignore_errors=True)
    (directory / "it.py").chmod(0o444)
    directory.chmod(0o555)
    seen.append(found(minion))
    directory.chmod(0o755)
    minion.module("it", source(2))
    directory.chmod(0o555)
    seen.append(found(minion))
    directory.chmod(0)
    seen.append(found(minion) in (2, "none"))
    directory.chmod(0o755)
    seen.append(found(minion))
    return seen


@EACH
def test_an_unwritable_directory(sides, freshness):
    assert run(sides, unwritable, freshness) == [1, 1, 2, True, 2]


def vanishing(minion):
    minion.module("it", source(0))
    minion.start()
    seen, stop = [], threading.Event()

    def come_and_go():
        while not stop.is_set():
            shutil.rmtree(minion.root / "ext/utils", ignore_errors=True)
            minion.module("util", "x = 1\n", kind="utils")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for number in range(1, 6):
            shutil.rmtree(minion.root / "ext/modules")
            seen.append(found(minion))
            minion.module("it", source(number))
            seen.append(found(minion))
    finally:
        stop.set()
        thread.join()
    return [seen, minion.counts()["fallback"]]


@EACH
def test_vanishing_directories(sides, freshness):
    seen, fallback = run(sides, vanishing, freshness)
    assert seen == ["none", 1, "none", 2, "none", 3, "none", 4, "none", 5]
    assert fallback == 0


def huge(minion):
    minion.start()
    minion.job("test.ping")
    directory = minion.root / "ext/modules"
    directory.mkdir(parents=True)
    for number in range(10_000):
        (directory / f"it{number}.py").write_text(source(number))
    seen = [found(minion, "it77.go"), found(minion, "it9999.go")]
    (directory / "it77.py").write_text(source(1))
    seen.append(found(minion, "it77.go"))
    (directory / "it5000.py").unlink()
    (directory / "more.py").write_text(source(2))
    seen += [found(minion, "more.go"), found(minion, "it9999.go")]
    return seen


@EACH
def test_a_huge_directory(sides, freshness):
    assert run(sides, huge, freshness) == [77, 9999, 1, 2, 9999]


def links(minion):
    """Directories that contain themselves, and a module directory that is a link which is turned."""
    minion.write("first/modules/it.py", source(1))
    minion.write("second/modules/it.py", source(2))
    for name in ("first", "second"):
        (minion.root / name / "modules/loop").symlink_to(".")
        (minion.root / name / "modules/around").symlink_to("../modules/around")
    shutil.rmtree(minion.root / "ext")
    (minion.root / "ext").symlink_to("first")
    minion.start()
    seen = [found(minion)]
    (minion.root / "turned").symlink_to("second")
    (minion.root / "turned").replace(minion.root / "ext")
    seen.append(found(minion))
    minion.write("second/modules/it.py", source(3))
    seen.append(found(minion))
    generation = minion.value("saltctx.status")["generation"]
    return [seen, generation["polled"], generation["polled_why"], minion.logged("stat instead of watching")]


@EACH
def test_links(sides, freshness):
    seen, polled, why, logged = run(sides, links, freshness)
    assert seen == [1, 2, 3]
    assert polled > 0
    if freshness == "watch" and sys.platform == "linux":
        assert "symbolic link" in why
        assert len(logged) == 1
        assert why in logged[0]
    else:
        assert why is None or sys.platform != "linux"


def clock_set_back(minion):
    """Every file of the minion comes from tomorrow; an edit leaves time and size as they were."""
    tomorrow = int(time.time()) + 86_400
    path = minion.module("it", source(1))
    os.utime(path, (tomorrow, tomorrow))
    os.utime(path.parent, (tomorrow, tomorrow))
    minion.start()
    seen = [found(minion), found(minion)]
    for number in (2, 3):
        path.write_text(source(number))
        os.utime(path, (tomorrow, tomorrow))
        seen.append(found(minion))
    new = minion.write("new.py", source(4))
    os.utime(new, (tomorrow, tomorrow))
    new.replace(path)
    os.utime(path.parent, (tomorrow, tomorrow))
    seen += [found(minion), found(minion)]
    rebuilt = minion.counts()["rebuilt"]
    found(minion)
    return [seen, minion.counts()["rebuilt"] - rebuilt]


@EACH
def test_a_clock_set_back(sides, freshness):
    assert run(sides, clock_set_back, freshness) == [[1, 1, 2, 3, 4, 4], 0]


def full_queue(minion):
    path, noisy = minion.module("it", source(1)), minion.module("noisy", source(1))
    minion.start()
    seen = [found(minion), found(minion, "noisy.go")]
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        limit = min(int(file.read()), 50_000)
    for number in range(limit // 2 + 100):
        os.utime(noisy, (number, number))
        os.truncate(noisy, 200)
    noisy.write_text(source(5))
    path.write_text(source(2))
    seen += [found(minion), found(minion, "noisy.go")]
    path.write_text(source(3))
    return [*seen, found(minion)]


@EACH
@linux
def test_a_full_queue(sides, freshness):
    assert run(sides, full_queue, freshness) == [1, 1, 2, 5, 3]


def watch_limit(minion, limit):
    from saltctx.core import FileWatch

    minion.module("it", source(1))
    minion.start()
    minion.job("test.ping")
    generations = minion.jobs().generations
    if minion.jobs().freshness == "watch":
        generations.stamps = functools.partial(FileWatch, max_watches=limit)
    minion.job("saltctx.flush")
    seen = [found(minion)]
    for number in range(2, 5):
        minion.module("it", source(number))
        seen.append(found(minion))
    minion.remove(minion.root / "ext/modules/it.py")
    seen.append(found(minion))
    minion.write("ext/modules/it/__init__.py", source(5))
    seen.append(found(minion))
    generation = minion.value("saltctx.status")["generation"]
    return [seen, generation, minion.logged("stat instead of watching"), minion.counts()["fallback"]]


@EACH
@pytest.mark.parametrize("limit", [0, 12])
def test_an_exhausted_watch_limit(sides, freshness, limit):
    """What cannot be watched is looked at; it is logged once, with the setting to raise."""
    seen, generation, logged, fallback = run(sides, watch_limit, freshness, limit)
    assert seen == [1, 2, 3, 4, "none", 5]
    assert fallback == 0
    if freshness == "watch":
        assert 0 < generation["polled"] <= generation["paths"]
        assert sys.platform != "linux" or "fs.inotify.max_user_watches" in generation["polled_why"]
        assert len(logged) == 1
        assert generation["polled_why"] in logged[0]
    else:
        assert generation["polled"] == generation["paths"]
        assert (generation["polled_why"], logged) == (None, [])


FORKS = """
import os
def child():
    '''What a job does in a child of its own: it looks at the evidence, and may run modules.'''
    from saltctx import status
    jobs = status._minions[__opts__["id"]]
    pid = os.fork()
    if pid == 0:
        try:
            changed = jobs.generations.current.files.changed()
            os._exit(0 if changed and "it.py" in changed else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def forks(minion):
    minion.module("forks", FORKS)
    minion.module("it", source(1))
    minion.start()
    seen = [minion.value("it.go"), minion.value("forks.child")]
    minion.module("edits", """
        def go(root, text):
            with open(root + "/ext/modules/it.py", "w") as file:
                file.write(text)
            return __salt__["forks.child"]()
    """)
    seen.append(minion.value("it.go"))
    # The edit comes while the job runs, its child sees it, and so does the next job.
    seen.append(minion.value("edits.go", str(minion.root), source(2)))
    return [*seen, minion.value("it.go")]


@EACH
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_takes_no_events(sides, freshness):
    assert run(sides, forks, freshness) == [1, 1, 1, 0, 2]


def concurrent(minion):
    """Jobs in many threads while a module is edited: none that starts after an edit runs what was before."""
    path = minion.module("it", source(0))
    minion.start()
    found(minion)
    stale, lost, done = [], [], []
    current, stop = [0], threading.Event()

    def jobs():
        while not stop.is_set():
            least = current[0]
            seen = found(minion)
            done.append(seen)
            if not isinstance(seen, int):
                lost.append(seen)
            elif seen < least:
                stale.append((least, seen))

    threads = [threading.Thread(target=jobs, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(1, 11):
        until = len(done) + 24
        new = minion.write("new.py", source(number))
        new.replace(path)
        current[0] = number
        while len(done) < until:
            time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    return [number > 3, stale, lost, minion.counts()["fallback"]]


@EACH
def test_jobs_side_by_side(sides, freshness):
    assert run(sides, concurrent, freshness) == [True, [], [], 0]


def status(minion):
    minion.module("it", source(1))
    minion.start()
    seen = [minion.value("saltctx.status")]
    minion.minion.opts["saltctx"] = {"freshness": "stat"}
    minion.job("saltctx.flush")
    minion.job("test.ping")
    return [*seen, minion.value("saltctx.status"), minion.logged("stat instead of watching")]


@linux
def test_status(sides):
    """How it looks, at how many paths, and why; a change of the config counts."""
    watched, by_stat, logged = run(sides, status, "watch")
    assert watched["freshness"] == "watch"
    assert (watched["generation"]["polled"], watched["generation"]["polled_why"]) == (0, None)
    assert watched["generation"]["paths"] > 10
    assert by_stat["freshness"] == "stat"
    assert by_stat["generation"]["polled"] == by_stat["generation"]["paths"]
    assert by_stat["generation"]["polled_why"] is None
    assert logged == []


def without_the_extension(minion):
    minion.module("it", source(1))
    minion.start()
    seen = [found(minion)]
    minion.module("it", source(2))
    seen.append(found(minion))
    generation = minion.value("saltctx.status")["generation"]
    return [seen, generation["polled"] == generation["paths"], generation["polled_why"], minion.logged("stat instead")]


def test_without_the_extension(sides):
    seen, all_of_them, why, logged = sides.saltctx(
        without_the_extension, environment={"SALTCTX_PURE": "1"}, opts={"saltctx": {"freshness": "watch"}}
    )
    assert (seen, all_of_them) == ([1, 2], True)
    assert why == "the implementation in Python does not watch"
    assert len(logged) == 1


def many_rebuilds(minion):
    minion.module("it", source(1))
    minion.start()

    def descriptors():
        return [
            target for target in (os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                                  if os.path.lexists(f"/proc/self/fd/{fd}"))
            if "inotify" in target or "mountinfo" in target
        ]

    found(minion)
    before = descriptors()
    for _ in range(15):
        minion.job("sys.reload_modules")
    return [before, descriptors()]


@linux
def test_the_process_has_one_descriptor(sides):
    before, after = run(sides, many_rebuilds, "watch")
    assert len(before) == 2
    assert after == before
