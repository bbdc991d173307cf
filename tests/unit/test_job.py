"""Job, current_job and loading."""

import contextvars
import ctypes
import gc
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

one_host = pytest.mark.thread_unsafe(reason="all threads have the one host of the fixture, and bind or read what it noted")


class Text(str):
    pass


def test_fields(core):
    before = time.time_ns()
    job = core.Job("20260101", fun="test.ping", minion_id="web1")
    assert (job.jid, job.fun, job.minion_id) == ("20260101", "test.ping", "web1")
    assert before <= job.start_ns <= time.time_ns()
    assert (job.layer, job.views, job.uses) == ({}, {}, {})
    assert len({id(job.layer), id(job.views), id(job.uses)}) == 3
    assert job.layer is job.layer
    assert repr(job) == "<Job jid='20260101' fun='test.ping' minion_id='web1'>"


def test_defaults(core):
    for job in (core.Job(), core.Job(fun="")):
        assert (job.jid, job.fun, job.minion_id) == ("", "", "")
        assert repr(job) == "<Job jid='' fun='' minion_id=''>"
        assert job.run(core.current_job) is job


def test_new_alone(c_core):
    job = c_core.Job.__new__(c_core.Job)
    assert repr(job) == "<Job jid='' fun='' minion_id=''>"
    assert job.run(c_core.current_job) is job
    job.__init__("other")
    assert job.jid == ""


def test_a_subclass_of_str_is_kept(core):
    jid = Text("1")
    assert core.Job(jid).jid is jid


@pytest.mark.parametrize("name", ["jid", "fun", "minion_id"])
@pytest.mark.parametrize("value", [1, None, b"1"])
def test_only_str(core, name, value):
    with pytest.raises(TypeError):
        core.Job(**{name: value})


def test_wrong_arguments(core):
    with pytest.raises(TypeError):
        core.Job("", "", "", "")
    with pytest.raises(TypeError):
        core.Job(name="x")
    job = core.Job()
    for call in (job.run, core.loading, job.exit):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        job.exit("token")


@pytest.mark.parametrize("name", ["jid", "fun", "minion_id", "start_ns", "layer", "views", "uses", "other"])
def test_nothing_can_be_assigned(core, name):
    job = core.Job("1")
    with pytest.raises(AttributeError):
        setattr(job, name, "2")
    assert job.jid == "1"


def test_run(core):
    job, outer = core.Job("1"), core.Job("2")

    def func(*args, **kwargs):
        return core.current_job(), args, kwargs

    assert core.current_job() is None
    assert job.run(func, 1, 2, key=3) == (job, (1, 2), {"key": 3})
    assert outer.run(job.run, func) == (job, (), {})
    assert outer.run(lambda: (job.run(func)[0], core.current_job())) == (job, outer)
    assert core.current_job() is None


def test_run_takes_any_keyword(core):
    job = core.Job()
    assert job.run(dict, func=1, self=2) == {"func": 1, "self": 2}
    assert core.loading(dict, func=1, module=2) == {"func": 1, "module": 2}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("stop"), SystemExit(3)])
def test_run_gives_the_outer_job_back_whatever_happens(core, error):
    def fail():
        raise error

    outer = core.Job("outer")
    token = outer.enter()
    try:
        with pytest.raises(type(error)) as caught:
            core.Job("inner").run(fail)
        assert caught.value is error
        with pytest.raises(type(error)):
            core.loading(fail)
        assert core.current_job() is outer
    finally:
        outer.exit(token)
    assert core.current_job() is None


def test_enter_and_exit(core):
    job = core.Job("1")
    token = job.enter()
    assert core.current_job() is job
    inner = job.enter()
    assert core.current_job() is job
    job.exit(inner)
    assert core.current_job() is job
    job.exit(token)
    assert core.current_job() is None
    with pytest.raises(RuntimeError):
        job.exit(token)


def test_exit_in_another_context(core):
    job = core.Job("1")
    token = contextvars.copy_context().run(job.enter)
    with pytest.raises(ValueError, match="different Context"):
        job.exit(token)
    foreign = contextvars.ContextVar("foreign")
    with pytest.raises(ValueError, match="different ContextVar"):
        job.exit(foreign.set(1))


def test_loading_keeps_the_job(core):
    job = core.Job("1")
    assert core.loading(core.current_job) is None
    assert job.run(core.loading, core.current_job) is job
    assert job.run(core.loading, core.loading, core.current_job) is job
    assert core.loading(job.run, core.current_job) is job


def test_a_job_is_in_the_context(core):
    job = core.Job("1")
    inside = job.run(contextvars.copy_context)
    assert inside.run(core.current_job) is job
    assert core.current_job() is None


def test_a_thread_has_no_job_unless_it_is_given_the_context(core):
    found = []
    job = core.Job("1")

    def start(target):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    def body():
        context = contextvars.copy_context()
        start(lambda: found.append(context.run(core.current_job)))
        # An empty context, whatever the interpreter lets a thread inherit.
        start(lambda: found.append(contextvars.Context().run(core.current_job)))

    job.run(body)
    assert found == [job, None]


def test_many_threads_enter_one_job(core, threads):
    job = core.Job("1")

    def work():
        for _ in range(500):
            assert job.run(core.current_job) is job
            assert core.current_job() is None

    threads(*[work] * 8)
    assert core.current_job() is None


def test_each_thread_has_its_own_job(core, threads):
    def work():
        for number in range(500):
            job = core.Job(str(number))
            assert job.run(lambda job=job: core.current_job() is job)

    threads(*[work] * 8)
    assert core.current_job() is None


def test_weakref_and_cycles(core):
    job = core.Job("1")
    ref = weakref.ref(job)
    del job
    gc.collect()
    assert ref() is None
    job = core.Job("2")
    job.layer["job"] = job
    job.views[1] = job
    ref = weakref.ref(job)
    del job
    gc.collect()
    assert ref() is None


def test_nothing_keeps_a_job_that_ended(core):
    job = core.Job("1")
    ref = weakref.ref(job)
    with pytest.raises(ZeroDivisionError):
        job.run(lambda: 1 / 0)
    job.exit(job.enter())
    del job
    gc.collect()
    assert ref() is None


@one_host
def test_something_else_in_the_variable(c_host):
    c_core = c_host.core
    c_host.bind(views={"__opts__": lambda loader, value: value})
    loader = c_host.Loader({"k": print}, {"__opts__": {}}, shared=True)
    loaded, dunder = loader["k"], c_host.dunder("__opts__")
    context = c_core.Job().run(contextvars.copy_context)
    (variable,) = [name for name in context if name.name == "saltctx_job" and name not in contextvars.copy_context()]
    token = variable.set("no job")
    try:
        mapping = c_core.JobContext()
        mapping.base["k"] = 1
        for call in (
            c_core.current_job,
            lambda: c_core.loading(int),
            lambda: mapping["k"],
            lambda: mapping.__setitem__("k", 1),
            lambda: mapping.pop("k"),
            lambda: "k" in mapping,
            lambda: len(mapping),
            lambda: list(mapping),
            lambda: mapping == {},
            lambda: mapping | {},
            lambda: mapping.update(a=1),
            lambda: c_core.LoadedFunction("k", None, print),
            loaded,
            lambda: loader["k"],
            lambda: loader.run(dunder.value),
        ):
            with pytest.raises(TypeError, match="a Job was expected in the context, not str"):
                call()
    finally:
        variable.reset(token)
    assert c_core.current_job() is None


def test_types_are_documented(core):
    for name in core.__all__:
        assert getattr(core, name).__doc__, name
    assert set(core.__all__) <= set(dir(core))


def test_types_that_are_not_for_use(c_core):
    inside = c_core.loading(contextvars.copy_context)
    scopes = [value for name, value in inside.items() if name.name == "saltctx_job"]
    (marker,) = dict.keys(c_core.JobContext())
    assert repr(marker) == "<deleted>"
    for value in (*scopes, marker):
        with pytest.raises(TypeError, match="cannot create"):
            type(value)()
    for name in ("Job", "JobContext", "FileStamps"):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Derived", (getattr(c_core, name),), {})


def test_each_module_has_its_own_state(c_core, core):
    job = c_core.Job("1")
    assert job.run(core.current_job) is (None if core is not c_core else job)


def test_an_interpreter_of_its_own(c_core):
    interpreters = pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    script = f"""
import sys
sys.path.insert(0, {str(Path(c_core.__file__).parents[1])!r})
import saltctx._core as core
context = core.JobContext()
job = core.Job("1")
job.run(context.__setitem__, "k", 1)
assert job.layer == {{"k": 1}} and len(context) == 0
assert core.NamedContext("__x__", object(), 5).value() == 5
job.layer["job"] = job
"""
    for _ in range(3):
        interpreter = interpreters.create()
        try:
            assert not interpreters.run_string(interpreter, script)
        finally:
            interpreters.destroy(interpreter)
    assert c_core.current_job() is None


# ---- a context that a call left behind ----


@pytest.fixture
def stray():
    """Enter a context and leave it entered, which only C code can; undone after the test."""
    entered = []

    def enter():
        context = contextvars.copy_context()
        assert ctypes.pythonapi.PyContext_Enter(ctypes.py_object(context)) == 0
        entered.append(context)

    yield enter
    for context in reversed(entered):
        ctypes.pythonapi.PyContext_Exit(ctypes.py_object(context))


@pytest.mark.parametrize("fails", [False, True])
def test_the_calls_own_exception_is_never_lost(c_core, stray, monkeypatch, fails):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: reported.append(each.exc_value))

    def func():
        stray()
        if fails:
            raise KeyError("the call's own")

    with pytest.raises(KeyError if fails else ValueError) as caught:
        c_core.Job().run(func)
    assert ("own" in str(caught.value)) == fails
    assert [type(each) for each in reported] == ([ValueError] if fails else [])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fails", [False, True])
def test_the_exception_of_a_call_in_a_loader_is_never_lost(c_core, monkeypatch, fails):
    reported, entered = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: reported.append(each.exc_value))

    class Loader(c_core.LoaderBase):
        pass

    def func():
        entered.extend([contextvars.copy_context(), contextvars.copy_context()])
        for context in entered:
            assert ctypes.pythonapi.PyContext_Enter(ctypes.py_object(context)) == 0
        if fails:
            raise KeyError("the call's own")

    def body():
        with pytest.raises(KeyError if fails else RuntimeError):
            Loader().run(func)

    # In a thread of its own: the contexts stay entered there.
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert len(entered) == 2
    assert [type(each) for each in reported] == ([RuntimeError] if fails else [])
