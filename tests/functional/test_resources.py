"""What jobs leave behind: nothing that grows with their number."""

import gc
import sys
import sysconfig
import threading
import time

import pytest
from inprocess_minion import fds

FREES_NO_CLASS = sys.version_info[:2] == (3, 13) and bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

OWN = """
def go(value):
    __context__["value"] = value
    __opts__["left"] = value
    return __salt__["test.echo"](value)
"""


def look():
    import salt.loader.lazy
    from salt.utils.decorators import Depends

    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    return {
        "fds": fds(), "threads": threading.active_count(),
        "loaders": sum(issubclass(kind, salt.loader.lazy.LazyLoader) for kind in kinds),
        "jobs": sum(kind.__name__ == "Job" for kind in kinds),
        "views": sum(kind.__name__ in ("JobOpts", "JobDict") for kind in kinds),
        "modules": len(sys.modules), "path": list(sys.path),
        "depends": sum(len(dependents) for tag in Depends.dependency_dict.values() for dependents in tag.values()),
        "meta path": len(sys.meta_path), "hooks": len(sys.path_hooks),
    }


def grown(before, after):
    """{what: by how much}; the path is the same or it is not."""
    return {
        name: after[name] - before[name] if isinstance(after[name], int) else after[name] != before[name]
        for name in before
    }


NOTHING = {
    "fds": 0, "threads": 0, "loaders": 0, "jobs": 0, "views": 0, "modules": 0, "path": False, "depends": 0,
    "meta path": 0, "hooks": 0,
}


def after_many_jobs(minion, count):
    minion.module("own", OWN)
    minion.sls("page", "x:\n  test.nop: []\n")
    minion.start()

    def run(many):
        minion.run_many([minion.load("own.go", number) for number in range(many)], 8)
        for number in range(many // 10):
            minion.job("own.go", number)
            minion.job("no.such")
            minion.job("test.exception", "x")

    run(60)
    before = look()
    run(count)
    return grown(before, look())


def test_after_many_jobs(sides):
    """Descriptors, threads, loaders, jobs, views, modules, sys.path and the registry of @depends."""
    assert sides.saltctx(after_many_jobs, 1000) == NOTHING


def after_many_state_runs(minion, count):
    minion.sls("page", "x:\n  test.nop: []\ny:\n  test.succeed_with_changes: []\n")
    minion.start()

    def run(many):
        for _ in range(many):
            minion.job("state.apply", "page")

    run(4)
    before = look()
    run(count)
    return grown(before, look())


@pytest.mark.skipif(FREES_NO_CLASS, reason="each template that Jinja compiles stays")
def test_after_many_state_runs(sides):
    assert sides.saltctx(after_many_state_runs, 20) == NOTHING


def after_many_rebuilds(minion, count):
    minion.module("own", OWN)
    minion.module("needs", """
        from salt.utils.decorators import depends
        HAS = True
        @depends("HAS")
        def go():
            return 1
        @depends("HAS_NOT")
        def gone():
            return 1
    """)
    minion.start()

    def run(many):
        for number in range(many):
            minion.module("edited", f"def go():\n    return {number}\n")
            assert minion.value("edited.go") == number
            minion.job("needs.go")
            minion.job("own.go", number)
            minion.job("sys.reload_modules")
            minion.minion.module_refresh()

    run(4)
    before = look()
    run(count)
    return grown(before, look())


def test_after_many_rebuilds(sides):
    """Edits, reloads and refreshes: the loaders of old generations go."""
    assert sides.saltctx(after_many_rebuilds, 20) == NOTHING


def without_collecting(minion, count):
    """The number of live loaders while jobs run, when nobody calls gc.collect()."""
    import salt.loader.lazy

    minion.module("own", OWN)
    minion.start()
    minion.job("own.go", 1)
    gc.collect()

    def live():
        return sum(isinstance(thing, salt.loader.lazy.LazyLoader) for thing in gc.get_objects())

    first = live()
    counts = []
    for number in range(count):
        minion.job("own.go", number)
        if number % 10 == 0:
            counts.append(live() - first)
    return max(counts)


def test_loaders_do_not_pile_up_without_collecting(sides):
    """A job on an unchanged minion makes none."""
    assert sides.saltctx(without_collecting, 60) == 0


def objects_of_a_job(minion):
    """What a job put into its context, when the job is over and nobody collects garbage."""
    minion.module("holds", """
        import weakref
        class Held:
            pass
        def go():
            held = Held()
            __context__["held"] = held
            __opts__["held"] = held
            __salt__["test.echo"]("x")
            import builtins
            builtins.held_by_the_test = weakref.ref(held)
        def raises():
            go()
            raise ValueError("x")
    """)
    minion.start()
    import builtins

    gc.disable()
    found = []
    for fun in ("holds.go", "holds.raises"):
        for _ in range(2):
            minion.job(fun)
        found.append(builtins.held_by_the_test() is None)
    gc.collect()
    found.append(builtins.held_by_the_test() is None)
    return found


def test_objects_of_a_job_are_let_go(sides):
    """At once, without the collector, when it returns; after the collector when it raised."""
    found = sides.saltctx(objects_of_a_job)
    assert found[0] is True
    assert found[2] is True


def jobs_by_weak_reference(minion):
    import weakref

    from saltctx import current_job

    minion.start()
    seen = []
    functions_of = type(minion.minion)._execute_job_function

    def note(self, *args, **kwargs):
        seen.append(weakref.ref(current_job()))
        return functions_of(self, *args, **kwargs)

    type(minion.minion)._execute_job_function = note
    for _ in range(20):
        minion.job("test.ping")
    minion.run_many([minion.load("test.ping") for _ in range(20)], 4)
    gc.collect()
    return [len(seen), sum(reference() is not None for reference in seen)]


def test_no_job_is_kept(sides):
    assert sides.saltctx(jobs_by_weak_reference) == [40, 0]


def threads_that_load_at_once(minion):
    """sys.path, which Salt's loaders extend and restore for each file, when many load at once."""
    for number in range(20):
        minion.module(f"many{number}", f"""
            try:
                import absent{number}
            except ImportError:
                pass
            def go():
                return {number}
        """)
    for number in range(20):
        sys.path.append(f"{minion.root}/nowhere{number}.zip")
    minion.start()
    before = list(sys.path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        returns = minion.run_many([minion.load(f"many{number % 20}.go") for number in range(160)], 12)
    finally:
        sys.setswitchinterval(interval)
    wrong = [ret for number, ret in enumerate(returns) if ret.get("return") != number % 20]
    return [wrong, sys.path == before]


def test_loading_at_once(sides):
    """No job fails, and sys.path is as it was."""
    assert sides.saltctx(threads_that_load_at_once) == [[], True]


def dependencies_registered_at_once(minion):
    """A module whose ``@depends`` waits for a program, while another thread loads a module with one of its own."""
    depends = "from salt.utils.decorators import depends\n@depends({}){}\n"
    minion.start()
    minion.value("test.ping")
    minion.module("front", "def go():\n    return __salt__['beside.go']()\n")
    minion.module("beside", depends.format("'library'", "\ndef go():\n    return 2\nlibrary = 1"))
    script = f"sh -c 'touch {minion.root}/asked; while [ -e {minion.root}/wait ]; do sleep 0.01; done'"
    minion.module("waits", depends.format(f'"{script}", retcode=0', "\ndef go():\n    return 1\n@depends('absent')\ndef gone():\n    return 3"))
    wait, load, results = minion.write("wait", ""), minion.load("waits.go"), []
    thread = threading.Thread(target=lambda: results.append(minion.run(load)))
    thread.start()
    while thread.is_alive() and not (minion.root / "asked").exists():
        time.sleep(0.005)
    # The front is loaded by the loader of the job, what it calls by another: that of __salt__.
    beside = threading.Thread(target=lambda: minion.minion.functions._dunder_salt["beside.go"])
    beside.start()
    beside.join(30)
    wait.unlink()
    thread.join(30)
    return [beside.is_alive(), results[0].get("return"), minion.value("front.go"), minion.value("waits.gone")]


def test_dependencies_registered_at_once(sides):
    """The registry of ``@depends`` grows while another thread goes through it, and that one is not done yet."""
    assert sides.saltctx(dependencies_registered_at_once) == [False, 1, 2, "'waits.gone' is not available."]


def process_title(minion):
    import salt.utils.process

    titles = []
    salt.utils.process.appendproctitle = titles.append
    minion.start()
    for _ in range(3):
        minion.job("test.ping")
    return titles


def test_process_title(sides):
    """A threaded job appends nothing to it."""
    assert sides.both(process_title) == []


def parallel_states(minion):
    """State runs with ``parallel: True``, which fork, beside threads that run jobs."""
    minion.sls("page", "".join(f"p{number}:\n  test.nop:\n    - parallel: True\n" for number in range(3)))
    minion.module("own", OWN)
    minion.start()
    stop = threading.Event()

    def noise():
        while not stop.is_set():
            minion.run(minion.load("own.go", 1))

    threads = [threading.Thread(target=noise, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        returns = [minion.value("state.apply", "page", concurrent=True) for _ in range(3)]
    finally:
        stop.set()
    for thread in threads:
        thread.join(30)
    return [[chunk.get("result") for chunk in ret.values()] if isinstance(ret, dict) else ret for ret in returns]


def test_parallel_states_beside_jobs(sides):
    """All end, each with its result."""
    assert sides.saltctx(parallel_states) == [[True] * 3] * 3
