"""Generations of loaders: adopted while the evidence holds, rebuilt by one thread, kept when a build fails."""

import pathlib
import threading
import time

import pytest

from saltctx.generation import PARTIAL_REBUILDS, Generations
from saltctx.report import KEPT_REASONS, Report

pytestmark = pytest.mark.thread_unsafe(reason="all threads have the one minion of the fixture, and count its builds")

SECONDS = 20


class Objects:
    """What an ObjectEvidence tells: the builder's reason, for all but its last generation another."""

    def __init__(self, builder, generation):
        self.builder, self.generation = builder, generation

    def changed(self):
        return self.builder.reason if self.generation is self.builder.built[-1] else "an older one"


class Builder:
    """Builds generations that are right until :attr:`reason` says why the last one is not."""

    def __init__(self):
        self.report = Report()
        self.generations = Generations(self.build, self.renew, dict, self.report)
        self.reason = None
        self.built = []
        self.renewable, self.renewed = set(), []
        self.error = None
        self.wait = None

    def build(self, generation):
        if self.wait is not None:
            self.wait()
        if self.error is not None:
            raise self.error
        self.built.append(generation)
        self.reason = None
        generation.objects = Objects(self, generation)

    def renew(self, old, generation, path):
        """Make do with what changed, if that is in :attr:`renewable`."""
        if path not in self.renewable:
            return False
        self.renewed.append((old, path))
        self.build(generation)
        return True

    def counts(self):
        counts = self.report.counts()
        return [counts.get(name, 0) for name in ("adopted", "rebuilt", "reloaded")]

    def reasons(self):
        return [entry["reason"] for entry in self.report.reasons()]


@pytest.fixture
def builder():
    return Builder()


def test_first_job_builds(builder):
    generation = builder.generations.adopt_or_rebuild()
    assert builder.built == [generation]
    assert builder.generations.current is generation
    assert generation.number == 1
    assert generation.reason == "first job of this minion"
    assert abs(generation.built - time.time()) < SECONDS
    assert builder.counts() == [0, 1, 0]


def test_adopted_while_it_holds(builder):
    first = builder.generations.adopt_or_rebuild()
    assert [builder.generations.adopt_or_rebuild() for _ in range(5)] == [first] * 5
    assert len(builder.built) == 1
    assert builder.counts() == [5, 1, 0]
    assert builder.reasons() == ["first job of this minion"]


def test_adopt(builder):
    assert builder.generations.adopt() is False
    builder.generations.adopt_or_rebuild()
    assert builder.generations.adopt() is True
    builder.reason = "the pillar was replaced"
    assert builder.generations.adopt() is False
    assert builder.counts() == [1, 1, 0]


def test_an_error_is_not_adopted(builder):
    """It is met again, and told, where loaders are built."""
    builder.generations.adopt_or_rebuild()
    builder.generations.current.files = None
    assert builder.generations.adopt() is False
    with pytest.raises(AttributeError):
        builder.generations.adopt_or_rebuild()
    assert builder.counts() == [0, 1, 0]


def test_rebuilt_when_it_does_not_hold(builder):
    first = builder.generations.adopt_or_rebuild()
    builder.reason = "the pillar was replaced"
    second = builder.generations.adopt_or_rebuild()
    assert second is not first
    assert (second.number, second.reason) == (2, "the pillar was replaced")
    assert second.context is not first.context
    assert builder.generations.adopt_or_rebuild() is second
    assert builder.counts() == [1, 2, 0]
    assert builder.reasons() == ["first job of this minion", "the pillar was replaced"]
    assert [entry["generation"] for entry in builder.report.reasons()] == [1, 2]


def test_rebuilt_when_a_file_changed(builder, tmp_path):
    path = tmp_path / "one.py"
    path.write_text("1")
    builder.generations.adopt_or_rebuild().files.add_file(str(path))
    assert builder.generations.adopt_or_rebuild().number == 1
    path.write_text("2")
    second = builder.generations.adopt_or_rebuild()
    assert second.reason == f"module file changed: {path}"
    assert len(second.files) == 0
    assert builder.generations.adopt_or_rebuild() is second


def changed_files(builder, tmp_path, count):
    """Paths of files that changed since the first generation, as one counts them."""
    paths = [str(tmp_path / f"{number}.py") for number in range(count)]
    for path in paths:
        pathlib.Path(path).write_text("1")
    first = builder.generations.adopt_or_rebuild()
    for path in paths:
        first.files.add_file(path)
    for path in paths:
        pathlib.Path(path).write_text("2")
    return paths


def test_partial(builder, tmp_path):
    """Where one file changed, the rest is taken over: loaders, evidence, but a context of its own."""
    (path,) = changed_files(builder, tmp_path, 1)
    first = builder.generations.current
    other = tmp_path / "other.py"
    other.write_text("1")
    first.files.add_file(str(other))
    builder.renewable.add(path)
    second = builder.generations.adopt_or_rebuild()
    assert builder.renewed == [(first, path)]
    assert (second.number, second.reason) == (2, f"module file changed: {path}")
    assert second.context is not first.context and second.files is not first.files
    assert builder.generations.adopt_or_rebuild() is second
    assert builder.report.counts()["partial"] == 1 and builder.counts() == [1, 2, 0]
    other.write_text("2")
    third = builder.generations.adopt_or_rebuild()
    assert third.reason == f"module file changed: {other}"
    assert builder.report.counts()["partial"] == 1 and builder.counts() == [1, 3, 0]


def test_partial_for_each_file(builder, tmp_path):
    """Files that changed at once are taken one after the other, before the job starts."""
    paths = changed_files(builder, tmp_path, 3)
    builder.renewable.update(paths)
    generation = builder.generations.adopt_or_rebuild()
    assert sorted(path for _, path in builder.renewed) == paths
    assert generation.stale() is None
    assert builder.report.counts()["partial"] == 3 and builder.counts() == [0, 2, 0]


def test_too_many_for_partial(builder, tmp_path):
    paths = changed_files(builder, tmp_path, PARTIAL_REBUILDS + 1)
    builder.renewable.update(paths)
    generation = builder.generations.adopt_or_rebuild()
    assert len(builder.renewed) == PARTIAL_REBUILDS
    assert generation.stale() is None and len(generation.files) == 0


def test_partial_is_not_enough(builder, tmp_path):
    """One of two files cannot be taken alone: all is built anew."""
    paths = changed_files(builder, tmp_path, 2)
    builder.renewable.add(paths[0])
    generation = builder.generations.adopt_or_rebuild()
    assert len(generation.files) == 0 and generation.stale() is None
    assert builder.counts() == [0, 2, 0]


def test_no_partial_for_objects_or_directories(builder, tmp_path):
    (path,) = changed_files(builder, tmp_path, 1)
    builder.renewable.add(path)
    builder.reason = "the pillar was replaced"
    builder.generations.adopt_or_rebuild()
    builder.generations.current.files.add_directory(str(tmp_path))
    (tmp_path / "more.py").write_text("")
    builder.generations.adopt_or_rebuild()
    assert builder.renewed == []
    assert builder.counts() == [0, 3, 0]


def test_no_partial_when_always(builder, tmp_path):
    (path,) = changed_files(builder, tmp_path, 1)
    builder.renewable.add(path)
    builder.generations.adopt_or_rebuild(always=True)
    assert builder.renewed == []


def test_rebuilt_long_after_a_file_was_added(builder, tmp_path):
    """The second look, behind the lock, comes to what the first one came to."""
    builder.generations.adopt_or_rebuild().files.add_directory(str(tmp_path))
    time.sleep(0.1)
    builder.generations.adopt_or_rebuild()
    (tmp_path / "one.py").write_text("1")
    time.sleep(0.1)
    assert builder.generations.adopt_or_rebuild().number == 2


def test_objects_come_before_files(builder, tmp_path):
    generation = builder.generations.adopt_or_rebuild()
    generation.files.add_directory(str(tmp_path))
    (tmp_path / "one.py").write_text("")
    builder.reason = "the grains were replaced"
    assert generation.stale() == "the grains were replaced"


def test_always(builder):
    """Every job rebuilds, whatever the evidence says."""
    numbers = [builder.generations.adopt_or_rebuild(always=True).number for _ in range(3)]
    assert numbers == [1, 2, 3]
    assert builder.counts() == [0, 3, 0]
    assert builder.reasons() == ["freshness is always"] * 3


def test_rebuild_that_was_asked_for(builder):
    builder.generations.adopt_or_rebuild()
    second = builder.generations.rebuild("modules reloaded")
    assert builder.generations.adopt_or_rebuild() is second
    assert builder.counts() == [1, 1, 1]
    assert builder.reasons()[-1] == "modules reloaded"


def test_forget(builder):
    assert builder.generations.forget() is False
    builder.generations.adopt_or_rebuild()
    assert builder.generations.forget() is True
    assert builder.generations.current is None
    second = builder.generations.adopt_or_rebuild()
    assert (second.number, second.reason) == (2, "flushed (saltctx.flush)")


def test_forgetting_nothing_is_no_reason(builder):
    builder.generations.forget()
    assert builder.generations.adopt_or_rebuild().reason == "first job of this minion"


def test_apart(builder):
    """A generation for a refresh: with the same volatile modules, never adopted, and not counted."""
    first = builder.generations.adopt_or_rebuild()
    apart = builder.generations.apart()
    assert apart.volatile is first.volatile is builder.generations.volatile
    assert apart.context is not first.context
    assert builder.generations.adopt_or_rebuild() is first
    assert builder.counts() == [1, 1, 0]


def test_volatile_modules_outlive_a_generation(builder):
    builder.generations.adopt_or_rebuild().volatile.add("/srv/one.py")
    builder.reason = "changed"
    assert builder.generations.adopt_or_rebuild().volatile == {"/srv/one.py"}


# -------------------------------------------------------------------------------- builds that fail
def test_failed_first_build(builder):
    builder.error = RuntimeError("no loaders today")
    with pytest.raises(RuntimeError, match="no loaders today"):
        builder.generations.adopt_or_rebuild()
    assert builder.generations.current is None
    assert builder.counts() == [0, 0, 0]
    assert builder.reasons() == []
    builder.error = None
    assert builder.generations.adopt_or_rebuild().reason == "first job of this minion"


def test_failed_build_keeps_the_last_one_as_it_is(builder):
    """It is stale still, so the next job tries again."""
    first = builder.generations.adopt_or_rebuild()
    builder.reason = "changed"
    builder.error = RuntimeError("no loaders today")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            builder.generations.adopt_or_rebuild()
    assert builder.generations.current is first
    builder.error = None
    assert builder.generations.adopt_or_rebuild().reason == "changed"


def test_failed_build_lets_the_waiting_ones_try(builder):
    builder.generations.adopt_or_rebuild()
    builder.reason = "changed"
    failures = []

    def fail_twice():
        if len(failures) < 2:
            failures.append(1)
            raise RuntimeError("not yet")

    builder.wait = fail_twice
    outcomes = run_at_once(6, builder.generations.adopt_or_rebuild)
    assert sum(isinstance(outcome, RuntimeError) for outcome in outcomes) == 2
    numbers = {outcome.number for outcome in outcomes if not isinstance(outcome, RuntimeError)}
    assert len(numbers) == 1


# -------------------------------------------------------------------------------- threads
def run_at_once(count, function):
    """What ``function`` returned or raised in each of ``count`` threads that start at the same moment."""
    barrier, outcomes = threading.Barrier(count), []

    def run():
        barrier.wait(SECONDS)
        try:
            outcomes.append(function())
        except Exception as exc:
            outcomes.append(exc)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(outcomes) == count
    return outcomes


def test_one_thread_builds_for_all(builder):
    """Those that come meanwhile wait for its result, and adopt it."""
    builder.wait = lambda: time.sleep(0.1)
    generations = run_at_once(12, builder.generations.adopt_or_rebuild)
    assert len(set(map(id, generations))) == 1
    assert len(builder.built) == 1
    assert builder.counts() == [11, 1, 0]


def test_a_change_is_built_once(builder):
    builder.generations.adopt_or_rebuild()
    builder.reason = "changed"
    builder.wait = lambda: time.sleep(0.05)
    generations = run_at_once(8, builder.generations.adopt_or_rebuild)
    assert {generation.number for generation in generations} == {2}
    assert builder.counts() == [7, 2, 0]


def test_reloads_beside_jobs(builder):
    """Each reload builds; no job gets a generation that was not built to the end."""
    builder.generations.adopt_or_rebuild()
    stop = threading.Event()

    def reload_modules():
        while not stop.wait(0.001):
            builder.generations.rebuild("asked for")

    thread = threading.Thread(target=reload_modules, daemon=True)
    thread.start()
    try:
        outcomes = [
            outcome for _ in range(20) for outcome in run_at_once(4, builder.generations.adopt_or_rebuild)
        ]
    finally:
        stop.set()
        thread.join(SECONDS)
    assert all(outcome.built is not None for outcome in outcomes)
    assert len({generation.number for generation in builder.built}) == len(builder.built)


def test_build_that_rebuilds(builder):
    """What is built may ask for a rebuild itself, as a resource's init() that reloads modules does."""
    inner = []

    def build_again():
        if not inner:
            inner.append(1)
            inner.append(builder.generations.rebuild("from inside"))

    builder.wait = build_again
    outer = builder.generations.adopt_or_rebuild()
    assert inner[1].number != outer.number
    assert builder.generations.current is outer


# -------------------------------------------------------------------------------- the report
def test_report_is_bounded():
    report = Report()
    for number in range(3 * KEPT_REASONS):
        report.reason(str(number), number)
    reasons = report.reasons()
    assert len(reasons) == KEPT_REASONS
    assert reasons[-1]["reason"] == str(3 * KEPT_REASONS - 1)
    assert reasons[0]["generation"] == 2 * KEPT_REASONS


def test_report_says_a_thing_once():
    report = Report()
    assert [report.once("a"), report.once("a"), report.once("b")] == [True, False, True]


def test_report_counts_in_threads():
    report = Report()
    run_at_once(8, lambda: [report.counters["adopted"].add() for _ in range(500)])
    assert report.counts() == {"adopted": 4000, "rebuilt": 0, "partial": 0, "reloaded": 0, "fallback": 0}


def test_report_gives_copies():
    report = Report()
    report.counters["adopted"].add()
    report.counts()["adopted"] = 9
    report.reasons().append(1)
    assert report.counts()["adopted"] == 1
    assert report.reasons() == []
