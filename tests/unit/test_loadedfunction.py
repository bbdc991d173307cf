"""LoadedFunction: a function that is found in its loader at each call, and looks like the function."""

import asyncio
import contextvars
import copy
import functools
import gc
import inspect
import threading
import types
import weakref

import pytest

one_host = pytest.mark.thread_unsafe(reason="all threads have the one host of the fixture, and bind or read what it noted")


def ping(a, b=2, *, c: int = 3):
    """Say something."""
    return a, b, c


ping.__outputter__ = "nested"


@pytest.fixture
def loader(host):
    return host.Loader({"test.ping": ping, "test.echo": lambda *args, **kwargs: (args, kwargs)})


@pytest.fixture
def loaded(loader):
    return loader["test.ping"]


# ---- what it looks like ----


def test_repr_and_fields(host, loader, loaded):
    assert repr(loaded) == "<Function name='test.ping'>"
    assert (loaded.name, loaded.loader, loaded.func) == ("test.ping", loader, ping)
    assert isinstance(loaded, host.core.LoadedFunction) and callable(loaded)


@pytest.mark.parametrize("filled", [False, True])
def test_attributes_are_the_functions(loader, loaded, filled):
    if filled:
        vars(loaded)
    assert loaded.__name__ == "ping"
    assert loaded.__qualname__ == "ping"
    assert loaded.__module__ == ping.__module__
    assert loaded.__doc__ == "Say something."
    assert loaded.__annotations__ == {"c": int}
    assert loaded.__wrapped__ is ping
    assert loaded.__outputter__ == "nested"
    assert loaded.__globals__ is ping.__globals__
    assert loaded.__code__ is ping.__code__
    assert loaded.__defaults__ == (2,)
    assert str(inspect.signature(loaded)) == "(a, b=2, *, c: int = 3)"
    assert not hasattr(loaded, "missing")
    with pytest.raises(AttributeError, match="missing"):
        loaded.missing
    assert getattr(loaded, "missing", 1) == 1


def test_the_instance_dict(loader, loaded):
    expected = functools.update_wrapper(types.SimpleNamespace(), ping)
    assert vars(loaded) == {"name": "test.ping", "loader": loader, **vars(expected)}
    assert vars(loaded) is loaded.__dict__


def test_wraps(loaded):
    @functools.wraps(loaded)
    def wrapper():
        pass

    assert (wrapper.__name__, wrapper.__doc__, wrapper.__outputter__) == ("ping", "Say something.", "nested")
    assert wrapper.__wrapped__ is loaded
    assert str(inspect.signature(wrapper)) == "(a, b=2, *, c: int = 3)"


def test_a_job_is_not_handed_on_by_wraps(core, loader):
    job = core.Job()
    loaded = job.run(lambda: loader["test.ping"])

    @functools.wraps(loaded)
    def wrapper():
        pass

    del wrapper.__wrapped__
    ref = weakref.ref(job)
    del job, loaded
    gc.collect()
    assert ref() is None


@one_host
def test_attributes_that_are_set(loader, loaded):
    loaded.mark = 1
    loaded.__doc__ = "Mine."
    assert (loaded.mark, loaded.__doc__, loaded.__name__) == (1, "Mine.", "ping")
    assert vars(loaded)["mark"] == 1
    assert (ping.__doc__, hasattr(ping, "mark")) == ("Say something.", False)
    assert not hasattr(loader["test.ping"], "mark")
    del loaded.mark
    with pytest.raises(AttributeError):
        loaded.mark
    with pytest.raises(AttributeError):
        del loaded.mark


def test_name_and_loader_cannot_be_assigned(c_core):
    class Loader(c_core.LoaderBase):
        pass

    loader = Loader()
    loader._dict = {"k": ping}
    loaded = c_core.LoadedFunction("k", loader)
    for name in ("name", "loader", "func", "__dict__"):
        with pytest.raises(AttributeError):
            setattr(loaded, name, {})
    assert loaded.name == "k"


def test_there_is_no_dict_before_it_is_needed(c_core):
    class Loader(c_core.LoaderBase):
        pass

    loader = Loader()
    loader._dict = {"k": ping}
    loaded = c_core.LoadedFunction("k", loader)
    for name in ("__name__", "__doc__", "__globals__", "__wrapped__", "func", "loader", "__class__"):
        getattr(loaded, name)
    held = [each for each in gc.get_referents(loaded) if type(each) is dict]
    assert held == []
    vars(loaded)
    assert [each for each in gc.get_referents(loaded) if type(each) is dict] == [vars(loaded)]


def test_an_attribute_of_the_function_that_the_class_has_too(host, core):
    def func():
        pass

    func.__reduce__ = "odd"
    func.note = 1
    loaded = host.Loader({"k": func})["k"]
    assert loaded.__reduce__ == "odd" and loaded.note == 1


def test_functions_of_any_kind(host):
    class Callable:
        """A callable."""

        def __call__(self, x=1):
            return x

        def method(self, x):
            return x

    functions = {
        "object": Callable(), "method": Callable().method, "partial": functools.partial(ping, 1), "builtin": len,
        "class": dict,
    }
    loader = host.Loader(functions)
    assert loader["object"]() == 1 and loader["object"].__doc__ == "A callable."
    assert loader["method"](3) == 3 and loader["method"].__name__ == "method"
    assert loader["partial"](5) == (1, 5, 3) and loader["partial"].args == (1,)
    assert loader["builtin"]([1]) == 1 and loader["builtin"].__name__ == "len"
    assert loader["class"](a=1) == {"a": 1} and loader["class"].__name__ == "dict"
    for key, func in functions.items():
        assert loader[key].__wrapped__ is func and vars(loader[key])["__wrapped__"] is func


def test_copies(host, loader, loaded):
    loaded.mark = [1]
    made = copy.copy(loaded)
    assert type(made) is host.Function and made is not loaded
    assert (made.name, made.loader, made.func, made.mark) == ("test.ping", loader, ping, [1])
    assert made(1) == (1, 2, 3)
    assert copy.copy(loader["test.ping"])(1) == (1, 2, 3)


def test_class_attributes_of_a_subclass(core, host):
    class Function(core.LoadedFunction):
        kind = "mine"

        @property
        def upper(self):
            return self.name.upper()

        def method(self):
            return self.kind

    loaded = Function("test.ping", host.Loader({"test.ping": ping}))
    assert (loaded.kind, loaded.upper, loaded.method()) == ("mine", "TEST.PING", "mine")
    assert loaded.__doc__ == "Say something." and loaded.__module__ == ping.__module__


class SaltLoadedFunc:
    """The shape of Salt's own class."""

    def __init__(self, name, loader):
        raise AssertionError("hidden by LoadedFunction")

    @property
    def func(self):
        raise AssertionError("hidden by LoadedFunction")

    def __getattr__(self, name):
        return getattr(self.func, name)

    def __call__(self, *args, **kwargs):
        raise AssertionError("hidden by LoadedFunction")

    def __repr__(self):
        raise AssertionError("hidden by LoadedFunction")


@one_host
def test_it_goes_with_salts_own_class(core, host):
    class Function(core.LoadedFunction, SaltLoadedFunc):
        pass

    core.bind(**{**host.bound, "loaded_function": Function})
    loaded = host.Loader({"test.ping": ping})["test.ping"]
    assert type(loaded) is Function and isinstance(loaded, SaltLoadedFunc)
    assert loaded(1) == (1, 2, 3) and loaded.__doc__ == "Say something."
    assert repr(loaded) == "<Function name='test.ping'>"
    with pytest.raises(AttributeError, match="missing"):
        loaded.missing
    assert loaded.__outputter__ == "nested"


# ---- making one ----


def test_made_by_hand(core, host, loader):
    loaded = core.LoadedFunction("test.ping", loader=loader)
    assert loaded.func is ping and loaded(1) == (1, 2, 3)
    assert core.LoadedFunction("other", loader, func=len).func is len
    with pytest.raises(KeyError) as caught:
        core.LoadedFunction("none", loader)
    assert caught.value.args == ("none",)
    for args in ((), ("test.ping",), ("test.ping", loader, None, False, 1)):
        with pytest.raises(TypeError):
            core.LoadedFunction(*args)
    with pytest.raises(AttributeError):
        core.LoadedFunction("k", object())


def test_new_alone(core, is_c):
    blank = core.LoadedFunction.__new__(core.LoadedFunction)
    for name in ("name", "loader", "func", "missing", "__wrapped__"):
        with pytest.raises(AttributeError):
            getattr(blank, name)
    for call in (blank, lambda: repr(blank), lambda: copy.copy(blank)):
        with pytest.raises(AttributeError):
            call()
    assert not hasattr(blank, "missing")
    if is_c:
        for call in (lambda: vars(blank), lambda: setattr(blank, "x", 1), lambda: delattr(blank, "x")):
            with pytest.raises((AttributeError, TypeError)):
                call()
    assert isinstance(weakref.ref(blank)(), core.LoadedFunction)


def test_init_fills_a_blank_one_once(c_core):
    class Loader(c_core.LoaderBase):
        pass

    loader = Loader()
    loader._dict = {"k": ping}
    blank = c_core.LoadedFunction.__new__(c_core.LoadedFunction)
    with pytest.raises(KeyError):
        blank.__init__("none", loader)
    blank.__init__("k", loader)
    assert blank.name == "k"
    with pytest.raises(RuntimeError, match="once"):
        blank.__init__("k", loader)
    assert blank.name == "k"


@one_host
def test_a_loader_of_another_kind(core, host):
    class Loader:
        _dict = {"k": lambda: host.loader_var.get()}
        inject_globals = {}
        shared = False

    loader = Loader()
    loaded = core.LoadedFunction("k", loader)
    assert loaded() is loader
    assert [each[0] for each in host.asked] == ["before", "after"]
    loader.inject_globals = {"x": 1}
    assert loaded() == ("k", ["x"], loader)
    del Loader.shared
    with pytest.raises(AttributeError, match="shared"):
        loaded()


# ---- the call ----


def test_arguments(loader):
    echo = loader["test.echo"]
    assert echo() == ((), {})
    assert echo(1, 2, *[3]) == ((1, 2, 3), {})
    assert echo(1, a=2, self=3, **{"name": 4, "loader": 5}) == (
        (1,), {"a": 2, "self": 3, "name": 4, "loader": 5}
    )
    assert echo.__call__(1, b=2) == ((1,), {"b": 2})
    assert functools.partial(echo, 1, a=2)(3, b=4) == ((1, 3), {"a": 2, "b": 4})
    assert list(map(echo, [1])) == [((1,), {})]
    with pytest.raises(TypeError, match="ping"):
        loader["test.ping"]()


@one_host
def test_late_binding(loader, loaded):
    loader._dict["test.ping"] = lambda: "new"
    assert loaded() == "new"
    assert loaded.__wrapped__ is ping
    loader._dict = {"test.ping": lambda: "newer"}
    assert loaded() == "newer"
    loader._dict = {}
    assert loaded(1) == (1, 2, 3) and loaded.func is ping


@one_host
def test_a_jobs_own_function(core, loader):
    loaded = core.LoadedFunction("test.ping", loader, lambda: "own", True)
    assert loaded() == loaded.func() == "own"
    loader._dict["test.ping"] = lambda: "new"
    assert loaded() == "own"


def test_it_runs_in_the_loaders_context(core, host):
    inner = host.Loader()
    outer = host.Loader({"inner": lambda: inner["look"]()})
    inner._dict["look"] = lambda: (host.loader_var.get(), inner.parent_loader)
    assert inner["look"]() == (inner, None)
    assert outer["inner"]() == (inner, outer)
    assert host.loader_var.get(None) is None


@one_host
def test_inject_globals(host, loader, loaded):
    loader.inject_globals = {"__b__": 1, "__a__": 2}
    assert loaded(1) == (loaded.name, ["__a__", "__b__"], (1, 2, 3))
    loader.inject_globals = None
    assert loaded(1) == (1, 2, 3)
    del loader.inject_globals
    with pytest.raises(AttributeError, match="inject_globals"):
        loaded(1)


@one_host
def test_the_host_is_asked_around_a_call(core, host, loader, loaded):
    loaded(1)
    assert host.asked == [("before", loader, ping), ("after", loader, ping)]
    host.asked.clear()
    loader._dict["fail"] = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        loader["fail"]()
    assert [each[0] for each in host.asked] == ["before"]


@one_host
def test_the_host_is_not_asked_for_a_shared_loader_without_views(core, host, loader, loaded):
    loader.shared = True
    job = core.Job()
    job.run(loaded, 1)
    assert host.asked == []
    loaded(1)
    job.views["any"] = 1
    job.run(loaded, 1)
    assert [each[0] for each in host.asked] == ["before", "after"] * 2
    host.asked.clear()
    job.views.clear()
    loader._dict["view"] = lambda: job.views.setdefault("any", 1)
    job.run(lambda: loader["view"]())
    assert [each[0] for each in host.asked] == ["after"]


@pytest.mark.parametrize("name", ["before_call", "after_call"])
def test_errors_of_the_host_get_through(make_host, name):
    def fail(loader, func):
        raise ValueError(name)

    host = make_host(**{name: fail})
    with pytest.raises(ValueError, match=name):
        host.Loader({"k": ping})["k"](1)
    assert host.loader_var.get(None) is None


def test_errors_of_inject_get_through(make_host):
    def fail(loaded, inject_globals, func):
        raise ValueError("inject")

    host = make_host(inject=fail)
    loader = host.Loader({"k": ping})
    assert loader["k"](1) == (1, 2, 3)
    loader.inject_globals = {"x": 1}
    with pytest.raises(ValueError, match="inject"):
        loader["k"](1)


def test_a_generator_keeps_the_context_of_its_call(core, host):
    job = core.Job()

    def generate():
        yield core.current_job(), host.loader_var.get()

    loader = host.Loader({"k": generate})
    ((context, found),) = job.run(lambda: loader["k"]())
    assert found == (job, loader)
    assert context.run(core.current_job) is job
    assert context.run(host.loader_var.get) is loader
    assert core.current_job() is None


def test_a_coroutine_function(host):
    async def func(x):
        return x

    assert asyncio.run(host.Loader({"k": func})["k"](4)) == 4


def test_a_function_that_is_itself(host):
    loader = host.Loader()
    loader._dict["k"] = ping
    loader._dict["k"] = loader["k"]
    with pytest.raises(RecursionError):
        loader._dict["k"](1)
    with pytest.raises(RecursionError):
        loader._dict["k"].missing
    loader._dict.clear()


# ---- the job it carries ----


@one_host
def test_it_carries_its_job_to_where_there_is_none(core, loader):
    job, other = core.Job("1"), core.Job("2")
    loader._dict["k"] = core.current_job
    loaded = job.run(lambda: loader["k"])
    assert loaded() is job
    assert other.run(loaded) is other
    assert core.loading(loaded) is None
    assert core.current_job() is None
    assert loader["k"]() is None


@one_host
def test_it_carries_its_job_into_a_thread(core, host, loader):
    job = core.Job("1")
    context = core.JobContext()
    loader._dict["k"] = lambda: (core.current_job(), context.setdefault("thread", host.loader_var.get()))
    loaded = job.run(lambda: loader["k"])
    found = []

    def target():
        found.extend(contextvars.Context().run(loaded))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert found == [job, loader]
    assert job.layer == {"thread": loader} and len(context) == 0


@one_host
def test_made_while_loading_it_carries_the_job_around(core, loader):
    job = core.Job("1")
    loader._dict["k"] = core.current_job
    loaded = job.run(core.loading, lambda: loader["k"])
    assert loaded() is job


# ---- lifetime ----


def test_weakref_and_cycles(host):
    loader = host.Loader({"k": ping})
    loaded = loader["k"]
    loaded.me = loaded
    loader.kept = loaded
    refs = [weakref.ref(loaded), weakref.ref(loader)]
    del loader, loaded
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_weakref_outlives_the_last_reference(host):
    gone = []
    loaded = host.Loader({"k": ping})["k"]
    ref = weakref.ref(loaded, gone.append)
    del loaded
    gc.collect()
    assert gone == [ref] and ref() is None


@one_host
def test_the_function_is_dropped_under_way(host):
    loader = host.Loader()
    host.asked = None  # it would keep the function
    host.bind(before_call=lambda *_: None, after_call=lambda *_: None)

    def func():
        loader._dict.clear()
        loader._dict = {}
        gc.collect()
        return "done"

    loader._dict["k"] = func
    loaded = loader["k"]
    ref = weakref.ref(func)
    del func
    assert loaded() == "done"
    del loaded
    gc.collect()
    assert ref() is None


# ---- threads ----


def test_threads_call_one(core, host, threads):
    context = core.JobContext()

    def func(name):
        context["name"] = name
        return context["name"], core.current_job(), host.loader_var.get()

    loader = host.Loader({"k": func}, shared=True)
    loaded = loader["k"]

    def work(name):
        job = core.Job(name)

        def body():
            for _ in range(200):
                assert loaded(name) == (name, job, loader)

        return lambda: job.run(body)

    threads(*[work(str(number)) for number in range(6)])
    assert dict(context) == {}


def test_threads_fill_the_dict_of_one(host, threads):
    for _ in range(50):
        loaded = host.Loader({"k": ping})["k"]
        found = []

        def work(loaded=loaded, found=found):
            assert loaded.__name__ == "ping"
            found.append(vars(loaded))
            assert loaded.__outputter__ == "nested"
            loaded.mark = 1

        threads(*[work] * 4)
        assert all(each is found[0] for each in found) and found[0]["mark"] == 1
