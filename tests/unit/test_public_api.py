"""What a custom module or a script imports from saltctx: it works outside Salt, and brings nothing of Salt with it."""

import asyncio
import concurrent.futures
import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import saltctx
from saltctx import context, current_job, job_scope, propagate


def in_thread(function, *args):
    """What ``function`` returned in a new thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(20)


def alone(source, **environment):
    """What a program prints in a Python of its own."""
    root = pathlib.Path(saltctx.__file__).resolve().parent.parent
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], text=True, capture_output=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
    ).stdout.split()


# -------------------------------------------------------------------------------- importing
def test_importing_imports_nothing_of_salt():
    """Only ``.pth`` files of the environment may have put something there before."""
    assert alone("""
        import sys
        before = set(sys.modules)
        import saltctx
        new = set(sys.modules) - before
        print(sorted(name for name in new if name.partition(".")[0] == "salt") or "nothing")
    """) == ["nothing"]


def test_importing_changes_nothing_in_salt():
    assert alone("""
        import salt.loader.lazy, salt.minion, threading
        kept = dict(vars(salt.minion.Minion)), dict(vars(salt.loader.lazy.LazyLoader)), threading.Thread.start
        import saltctx
        with saltctx.job_scope():
            saltctx.context["a"] = 1
        now = dict(vars(salt.minion.Minion)), dict(vars(salt.loader.lazy.LazyLoader)), threading.Thread.start
        print(kept == now)
    """) == ["True"]


def test_importing_without_the_extension():
    assert alone("""
        import sys
        import saltctx, saltctx.core
        with saltctx.job_scope("1") as job:
            saltctx.context["a"] = 1
            print(dict(saltctx.context) == {"a": 1}, job is saltctx.current_job(), "saltctx._core" in sys.modules)
            print(saltctx.core.reason.split()[0])
    """, SALTCTX_PURE="1") == ["True", "True", "False", "SALTCTX_PURE"]


def test_names():
    assert sorted(saltctx.__all__) == [
        "Job", "__version__", "context", "current_job", "job_scope", "propagate",
    ]
    for name in saltctx.__all__:
        assert hasattr(saltctx, name)
    assert saltctx.__version__[0].isdigit()


# -------------------------------------------------------------------------------- job_scope, current_job
def test_no_job():
    assert current_job() is None


def test_scope():
    before = time.time_ns()
    with job_scope("20260101", "own.go", "web1") as job:
        assert current_job() is job
        assert isinstance(job, saltctx.Job)
        assert (job.jid, job.fun, job.minion_id) == ("20260101", "own.go", "web1")
        assert before <= job.start_ns <= time.time_ns()
    assert current_job() is None


def test_scope_without_names():
    with job_scope() as job:
        assert (job.jid, job.fun, job.minion_id) == ("", "", "")


def test_nested_scopes():
    with job_scope("outer") as outer:
        context["a"] = "outer"
        with job_scope("inner") as inner:
            assert current_job() is inner
            assert "a" not in context
            context["a"] = "inner"
        assert current_job() is outer
        assert context["a"] == "outer"


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_scope_that_raises(error):
    """The outer job is back, whatever it was left by."""
    with job_scope("outer") as outer:
        with pytest.raises(error), job_scope("inner"):
            context["a"] = 1
            raise error
        assert current_job() is outer
        assert "a" not in context
    assert current_job() is None


def test_scope_of_a_coroutine():
    """Each task has its own."""

    async def work(number):
        with job_scope(str(number)) as job:
            context["number"] = number
            await asyncio.sleep(0.001)
            assert current_job() is job
            return context["number"], len(context)

    async def gather():
        return await asyncio.gather(*(work(number) for number in range(20)))

    assert asyncio.run(gather()) == [(number, 1) for number in range(20)]


def test_wrong_names():
    with pytest.raises(TypeError, match="must be (a )?str, not int"), job_scope(5):
        pass
    assert current_job() is None


# -------------------------------------------------------------------------------- context
def test_context_is_a_dict():
    with job_scope():
        context.update({"a": 1}, b=[2])
        assert isinstance(context, dict)
        assert context == {"a": 1, "b": [2]}
        assert {**context} == dict(context) == context.copy() == {"a": 1, "b": [2]}
        assert json.dumps(context) == '{"a": 1, "b": [2]}'
        assert pickle.loads(pickle.dumps(context)) == {"a": 1, "b": [2]}
        assert copy.deepcopy(context)["b"] is not context["b"]
        assert (context.pop("a"), context.setdefault("c", 3), context.get("zz", 0)) == (1, 3, 0)
        assert sorted(context) == ["b", "c"]
        del context["b"]
        with pytest.raises(KeyError):
            context["b"]
        context.clear()
        assert not context


def test_each_scope_starts_empty():
    for _ in range(3):
        with job_scope():
            assert len(context) == 0
            context["a"] = 1


@pytest.mark.thread_unsafe(reason="what is outside any job is there for all threads")
def test_context_outside_any_job():
    """A layer of its own, which no job sees."""
    context["outside"] = 1
    try:
        assert context["outside"] == 1
        with job_scope():
            assert "outside" not in context
            context["inside"] = 1
        assert "inside" not in context
    finally:
        del context["outside"]


# -------------------------------------------------------------------------------- propagate
def test_thread_has_no_job_of_its_own():
    with job_scope():
        context["a"] = 1
        inherits = getattr(sys.flags, "thread_inherit_context", 0)
        assert (in_thread(current_job) is not None) == bool(inherits)


def test_propagate_into_a_thread():
    with job_scope() as job:
        context["a"] = 1

        def work():
            context["b"] = 2
            return current_job() is job, context["a"]

        assert in_thread(propagate(work)) == (True, 1)
        assert context["b"] == 2
    assert current_job() is None


def test_propagate_into_a_pool():
    """One callable, run many times and at once."""
    with job_scope() as job:
        barrier = threading.Barrier(4)

        def work(number):
            barrier.wait(20)
            context[number] = number
            return current_job() is job

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(propagate(work), range(8))) == [True] * 8
        assert sorted(context) == list(range(8))


def test_propagate_passes_arguments_results_and_errors():
    def work(*args, **kwargs):
        if kwargs.get("fail"):
            raise ValueError("as told")
        return args, kwargs

    carried = propagate(work)
    assert in_thread(carried, 1, 2) == ((1, 2), {})
    assert carried(3, key=4) == ((3,), {"key": 4})
    with pytest.raises(ValueError, match="as told"):
        carried(fail=True)


def test_propagate_keeps_name_and_documentation():
    def work():
        """What it does."""

    carried = propagate(work)
    assert (carried.__name__, carried.__doc__, carried.__wrapped__) == ("work", "What it does.", work)
    assert propagate(len)([1, 2]) == 2


def test_propagate_outlives_the_scope():
    """What is called after the job has ended still runs in it, and the caller's own job stays what it is."""
    with job_scope("first") as first:
        context["a"] = "first"
        carried = propagate(lambda: (current_job(), context.get("a")))
    assert carried() == (first, "first")
    with job_scope("second") as second:
        assert carried() == (first, "first")
        assert current_job() is second
        assert "a" not in context


def test_propagate_where_no_job_runs():
    carried = propagate(current_job)
    with job_scope():
        assert carried() is None


def test_propagate_does_not_leak_what_it_sets():
    """What the function enters and leaves behind is gone after the call."""
    with job_scope() as job:
        carried = propagate(lambda: saltctx.Job("inner").enter())
        carried()
        assert current_job() is job


def test_propagated_coroutine_function():
    with job_scope() as job:

        async def work():
            await asyncio.sleep(0)
            return current_job()

        async def main():
            # The caller awaits it in a task of its own, made where the job runs.
            return await asyncio.create_task(work())

        assert propagate(asyncio.run)(main()) is job


def test_recursion():
    with job_scope() as job:

        def work(depth):
            return current_job() if depth == 0 else propagate(work)(depth - 1)

        assert propagate(work)(10) is job
