"""Threads that are started inside a job, whether or not Python lets a thread inherit the context it is started in."""

import contextvars
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from saltctx import current_job, job_scope
from saltctx.hooks import deep, threads

pytestmark = pytest.mark.thread_unsafe(reason="what it tests is put into threading.Thread")

variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(autouse=True)
def hooked():
    before = deep.places()
    threads.install()
    yield
    if not before:
        deep.remove()


def run(target, **options):
    """What a thread returns, and the thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(target()), **options)
    thread.start()
    thread.join(20)
    return results[0], thread


def test_a_thread_runs_in_the_job_that_started_it():
    with job_scope() as job:
        token = variable.set("set")
        assert run(lambda: (current_job(), variable.get()))[0] == (job, "set")
        variable.reset(token)
    assert run(current_job)[0] is None


def test_a_thread_that_has_run_keeps_nothing_of_its_job():
    with job_scope() as job:
        gone, (_, thread) = weakref.ref(job), run(lambda: None)
    del job
    gc.collect()
    assert gone() is None and not thread.is_alive()


def test_the_worker_of_a_pool_keeps_no_job():
    with ThreadPoolExecutor(1) as pool:
        with job_scope() as first:
            assert pool.submit(current_job).result(20) is first
        assert pool.submit(current_job).result(20) is None
        with job_scope() as second:
            assert pool.submit(current_job).result(20) is second
        gone = weakref.ref(first), weakref.ref(second)
        del first, second
        pool.submit(gc.collect).result(20)
        gc.collect()
        assert [ref() for ref in gone] == [None, None]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="a thread takes a context since 3.14")
def test_a_context_of_the_makers_choice():
    with job_scope() as job:
        assert run(current_job, context=contextvars.Context())[0] is None
        assert run(current_job, context=contextvars.copy_context())[0] is job
