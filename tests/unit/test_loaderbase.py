"""LoaderBase: lookup, iteration, and calls in a loader's context."""

import contextvars
import functools
import gc
import inspect
import types
import weakref
from collections.abc import MutableMapping

import pytest

one_host = pytest.mark.thread_unsafe(reason="all threads have the one host of the fixture, and bind or read what it noted")

FIELDS = ["_dict", "loaded", "pack", "pack_self", "inject_globals", "module_opts"]


def ping(*args, **kwargs):
    return args, kwargs


async def coroutine():
    return "awaited"


# ---- fields ----


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_was_not_set(core, name):
    class Loader(core.LoaderBase):
        pass

    loader = Loader()
    with pytest.raises(AttributeError, match=name):
        getattr(loader, name)
    value = object()
    setattr(loader, name, value)
    assert getattr(loader, name) is value
    setattr(loader, name, None)
    assert getattr(loader, name) is None
    delattr(loader, name)
    with pytest.raises(AttributeError, match=name):
        getattr(loader, name)


def test_shared_is_false_by_default(core):
    class Loader(core.LoaderBase):
        pass

    loader = Loader()
    assert loader.shared is False
    loader.shared = True
    assert loader.shared is True
    del loader.shared
    assert loader.shared is False


def test_fields_are_not_in_the_instance_dict(c_core):
    class Loader(c_core.LoaderBase):
        def __init__(self):
            self.pack = {}
            self.other = 1

    assert vars(Loader()) == {"other": 1}


def test_new_alone(core):
    class Loader(core.LoaderBase):
        def __init__(self):
            raise AssertionError

    loader = Loader.__new__(Loader)
    for call in (
        lambda: loader["k"], lambda: "k" in loader, lambda: list(loader), lambda: loader.get("k"),
    ):
        with pytest.raises(AttributeError):
            call()
    assert loader.run(ping, 1) == ((1,), {})
    assert loader.parent_loader is None


def test_new_of_the_type_itself(c_core):
    loader = c_core.LoaderBase.__new__(c_core.LoaderBase, 1, other=2)
    loader._dict, loader.loaded = {}, True
    assert list(loader) == [] and "k" not in loader and loader.get("k") is None
    with pytest.raises(KeyError):
        loader["k"]


def test_it_goes_with_a_python_mapping(core, host):
    class Lazy(MutableMapping):
        """What Salt's LazyDict is, as far as types go."""

        def __init__(self):
            self.clear()

        def clear(self):
            self._dict = {}
            self.loaded = False

        def __getitem__(self, key):
            raise AssertionError("hidden by LoaderBase")

        def __setitem__(self, key, value):
            self._dict[key] = value

        def __delitem__(self, key):
            del self._dict[key]

        def __len__(self):
            return len(self._dict)

        def __iter__(self):
            raise AssertionError("hidden by LoaderBase")

        def __getattr__(self, name):
            raise AttributeError(f"asked for {name}")

    class Loader(core.LoaderBase, Lazy):
        def _load_missing(self, key):
            raise KeyError(key)

    loader = Loader()
    loader["test.ping"] = ping
    assert loader["test.ping"].func is ping
    assert loader._dict == {"test.ping": ping} and len(loader) == 1
    assert "test.pong" not in loader
    with pytest.raises(AttributeError, match="asked for nothing"):
        loader.nothing
    assert isinstance(loader, MutableMapping) and vars(loader) is not None
    ref = weakref.ref(loader)
    loader.pack = {"me": loader}
    del loader
    gc.collect()
    assert ref() is None


# ---- lookup ----


def test_lookup(host):
    loader = host.Loader({"test.ping": ping})
    loaded = loader["test.ping"]
    assert type(loaded) is host.Function
    assert (loaded.name, loaded.loader, loaded.func) == ("test.ping", loader, ping)
    assert loader.get("test.ping").func is ping
    assert "test.ping" in loader
    assert loader["test.ping"] is not loaded


def test_a_miss(host):
    loader = host.Loader({"test.ping": ping}, missing={"test.pong": ping})
    for key in ("test.none", ("a", "b"), None):
        with pytest.raises(KeyError) as caught:
            loader[key]
        assert caught.value.args == (key,)
        assert loader.get(key) is None and loader.get(key, default=3) == 3
        assert key not in loader
    assert loader.log.count("test.none") == 4
    loader.loaded = True
    loader.log.clear()
    assert "test.none" not in loader and loader.get("test.none", 1) == 1 and loader.log == []
    with pytest.raises(KeyError):
        loader["test.pong"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_miss_while_another_thread_loads_all(host, shared):
    """A shared loader that has all by the time it is asked whether it has: the miss was before that."""
    loader = host.Loader(missing={"test.ping": ping}, shared=shared)

    class Key(str):
        def __hash__(self):
            if not loader.loaded:
                loader.loaded = True
                loader._dict = {"test.ping": ping}
            return super().__hash__()

        __eq__ = str.__eq__

    assert (Key("test.ping") in loader) is shared


def test_loading_what_is_missing(host):
    loader = host.Loader(missing={"test.ping": ping})
    assert loader["test.ping"]() == ((), {})
    assert loader["test.ping"].func is ping
    assert loader.log == ["test.ping"]
    other = host.Loader(missing={"test.ping": ping})
    assert "test.ping" in other and other.log == ["test.ping"]


@pytest.mark.parametrize("error", [ValueError("load"), KeyboardInterrupt(), AttributeError("name")])
def test_errors_of_loading_get_through(host, error):
    class Loader(host.Loader):
        def _load_missing(self, key):
            raise error

        _load_all = _load_missing

    loader = Loader(missing={"k": ping})
    for call in (lambda: loader["k"], lambda: "k" in loader, lambda: loader.get("k")):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_a_subclass_without_the_methods(core, host):
    class Loader(core.LoaderBase):
        pass

    loader = Loader()
    loader._dict, loader.loaded = {}, False
    with pytest.raises(AttributeError, match="_load_missing"):
        loader["k"]
    with pytest.raises(AttributeError, match="_load_all"):
        iter(loader)
    loader.shared = True
    with pytest.raises(AttributeError, match="_first_use"):
        core.Job().run(lambda: loader["k"])


def test_unhashable_and_wrong_arguments(host):
    loader = host.Loader()
    with pytest.raises(TypeError, match="unhashable"):
        loader[[]]
    with pytest.raises(TypeError, match="unhashable"):
        [] in loader
    for call in (loader.get, loader.run, lambda: loader.get(1, 2, 3)):
        with pytest.raises(TypeError):
            call()


def test_get_asks_an_overridden_lookup(host):
    class Loader(host.Loader):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

    assert Loader({"test.ping": ping}).get("TEST.PING").func is ping


def test_a_dict_of_another_kind(host):
    class Functions(dict):
        def __getitem__(self, key):
            return super().__getitem__(key)

    loader = host.Loader()
    loader._dict = types.MappingProxyType({"a": ping})
    assert loader["a"]() == ((), {}) and "b" not in loader and list(loader) == ["a"]
    loader._dict = Functions(a=ping)
    assert loader["a"]() == ((), {}) and "b" not in loader and list(loader) == ["a"]


@one_host
def test_which_functions_are_coroutines(host):
    partial = functools.partial(coroutine)
    loader = host.Loader({"plain": ping, "coroutine": coroutine, "partial": partial, "builtin": len})
    kinds = {key: type(loader[key]) for key in loader}
    assert kinds == {
        "plain": host.Function, "coroutine": host.Coroutine, "partial": host.Coroutine, "builtin": host.Function,
    }
    assert [each[1] for each in host.asked] == [partial, len]


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="Python 3.12 marks coroutine functions")
def test_a_marked_function_is_a_coroutine(host):
    @inspect.markcoroutinefunction
    def marked():
        return coroutine()

    assert type(host.Loader({"k": marked})["k"]) is host.Coroutine


def test_errors_of_the_hosts_answer_get_through(make_host):
    def fail(func):
        raise ValueError("no answer")

    host = make_host(is_coroutine=fail)
    loader = host.Loader({"k": len, "plain": ping})
    with pytest.raises(ValueError, match="no answer"):
        loader["k"]
    assert loader["plain"].func is ping


# ---- a shared loader and a job's own functions ----


def test_a_job_is_asked_once_for_each_key(core, host):
    def mine():
        return "mine"

    loader = host.Loader({"a": ping, "b": ping}, missing={"c": ping}, shared=True)
    loader.own["a"] = mine
    job, other = core.Job("1"), core.Job("2")
    assert job.run(lambda: loader["a"]()) == "mine"
    assert job.run(lambda: loader["a"].func) is mine
    assert job.run(lambda: loader["b"].func) is ping
    assert job.run(lambda: ("c" in loader, "d" in loader)) == (True, False)
    assert loader.log == [("first", "a"), ("first", "b"), ("first", "c"), "c", ("first", "d"), "d"]
    assert job.uses == {id(loader): (loader, {"a": mine, "b": None, "c": None, "d": None})}
    assert loader["a"].func is ping
    del loader.own["a"]
    assert job.run(lambda: loader["a"].func) is mine
    assert other.run(lambda: loader["a"].func) is ping


def test_the_jobs_use_is_noted_before_the_subclass_is_asked(core, host):
    class Loader(host.Loader):
        def _first_use(self, key):
            _, used = core.current_job().uses[id(self)]
            used["note"] = key
            return ping

    loader = Loader(shared=True)
    job = core.Job()
    assert job.run(lambda: loader["k"]()) == ((), {})
    assert job.uses[id(loader)][1] == {"note": "k", "k": ping}


def test_errors_of_the_first_use_get_through(core, host):
    class Loader(host.Loader):
        def _first_use(self, key):
            raise ZeroDivisionError

    loader = Loader({"k": ping}, shared=True)
    job = core.Job()
    for call in (lambda: loader["k"], lambda: "k" in loader):
        with pytest.raises(ZeroDivisionError):
            job.run(call)
    assert job.uses == {id(loader): (loader, {})}
    assert loader["k"].func is ping
    job.uses[id(loader)] = "spoilt"
    with pytest.raises((TypeError, ValueError)):
        job.run(lambda: loader["k"])


def test_no_job_or_not_shared(core, host):
    shared, private = host.Loader({"k": ping}, shared=True), host.Loader({"k": ping})
    assert shared["k"].func is ping
    assert core.Job().run(lambda: private["k"].func) is ping
    assert shared.log == private.log == []


# ---- iteration ----


def test_iteration(host):
    loader = host.Loader({"a": ping}, missing={"b": ping})
    assert list(loader) == ["a", "b"] and loader.log == ["all"]
    assert list(loader) == ["a", "b"] and loader.log == ["all"]


def test_iteration_over_a_snapshot(host):
    loader = host.Loader({"a": ping, "b": ping})
    seen = []
    for key in loader:
        seen.append(key)
        loader._dict[key + key] = ping
        loader._dict = dict(loader._dict)
    assert seen == ["a", "b"]


# ---- run ----


@one_host
def test_run(host):
    loader = host.Loader()
    assert host.loader_var.get(None) is None
    assert loader.run(lambda: host.loader_var.get()) is loader
    assert loader.run(ping, 1, key=2, self=3, _func_or_method=4) == (
        (1,), {"key": 2, "self": 3, "_func_or_method": 4}
    )
    assert host.loader_var.get(None) is None
    assert host.asked == []


def test_run_does_not_change_the_callers_context(host):
    variable = contextvars.ContextVar("v", default=0)
    loader = host.Loader()

    def body():
        found = variable.get()
        variable.set(found + 1)
        return found

    variable.set(5)
    assert loader.run(body) == 5 and loader.run(body) == 5
    assert variable.get() == 5


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("stop"), GeneratorExit()])
def test_errors_get_through(host, error):
    def fail():
        raise error

    loader = host.Loader({"fail": fail})
    for call in (lambda: loader.run(fail), loader["fail"]):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
    assert host.loader_var.get(None) is None


def test_the_traceback_and_the_chain_are_kept(host):
    def fail():
        try:
            raise ValueError("first")
        except ValueError as exc:
            raise KeyError("second") from exc

    with pytest.raises(KeyError) as caught:
        host.Loader().run(fail)
    assert [entry.name for entry in caught.traceback][-1] == "fail"
    assert str(caught.value.__cause__) == "first"


def test_a_dunder_comes_back_as_its_value(host):
    loader = host.Loader(pack={"__context__": {"k": 1}})
    dunder = host.dunder("__context__")
    assert loader.run(lambda: dunder) == {"k": 1}
    assert type(loader.run(lambda: dunder)) is dict
    assert type(loader.run(lambda: [dunder])[0]) is host.Dunder


def test_a_generator_is_kept_by_the_host(host):
    def generate():
        yield host.loader_var.get()

    loader = host.Loader({"k": generate})
    for make in (lambda: loader.run(generate), loader["k"]):
        ((context, found),) = make()
        assert isinstance(context, contextvars.Context)
        assert context.run(host.loader_var.get) is loader
        assert found is loader

    async def agen():
        yield 1

    assert inspect.isasyncgen(loader.run(agen))


# ---- parent_loader ----


def test_parent_loader(host):
    inner, middle, outer = host.Loader(), host.Loader(), host.Loader()

    def look():
        return inner.parent_loader, middle.parent_loader, outer.parent_loader

    assert look() == (None, None, None)
    assert inner.run(look) == (None, None, None)
    assert outer.run(middle.run, look) == (None, outer, None)
    assert outer.run(middle.run, inner.run, look) == (middle, outer, None)
    assert outer.run(outer.run, look) == (None, None, None)
    assert look() == (None, None, None)


def test_parent_loader_of_a_loader_that_is_called_again(host):
    first, second = host.Loader(), host.Loader()

    def look():
        return first.parent_loader, second.parent_loader

    assert first.run(second.run, first.run, look) == (second, first)


def test_parent_loader_of_a_loader_that_was_set_by_hand(host):
    by_hand, called = host.Loader(), host.Loader()
    assert host.in_loader(by_hand, called.run, lambda: called.parent_loader) is by_hand
    assert host.in_loader(by_hand, by_hand.run, lambda: by_hand.parent_loader) is None
    assert host.in_loader(None, called.run, lambda: called.parent_loader) is None

    def reset():
        host.loader_var.set(None)
        return called.run(lambda: (called.parent_loader, by_hand.parent_loader))

    assert by_hand.run(called.run, reset) == (None, None)


def test_only_none_can_be_assigned_to_parent_loader(host):
    loader = host.Loader()
    loader.parent_loader = None
    with pytest.raises(AttributeError, match="parent_loader"):
        loader.parent_loader = loader
    with pytest.raises(AttributeError):
        del loader.parent_loader


def test_a_long_chain(host):
    loaders = [host.Loader() for _ in range(100)]

    def descend(rest):
        return rest[0].run(descend, rest[1:]) if rest else [each.parent_loader for each in loaders]

    assert descend(loaders) == [None, *loaders[:-1]]


def test_no_end_is_an_error(host):
    loader = host.Loader()

    def forever():
        return loader.run(forever)

    with pytest.raises(RecursionError):
        forever()


# ---- bind ----


@one_host
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loader_var", None), ("loaded_function", dict), ("loaded_function", None), ("loaded_coroutine", int),
        ("named_context", None), ("named_context", 1),
        ("variables", {"__x__": 1}), ("variables", 1), ("views", 1),
    ],
)
def test_bind_refuses(host, name, value):
    loader = host.Loader({"k": ping})
    with pytest.raises((TypeError, AttributeError)):
        host.core.bind(**{**host.bound, name: value})
    assert type(loader["k"]) is host.Function and loader["k"]() == ((), {})


@one_host
def test_bind_takes_keywords_and_all_of_them(host):
    with pytest.raises(TypeError):
        host.core.bind(*host.bound.values())
    for name in host.bound:
        with pytest.raises(TypeError):
            host.core.bind(**{each: value for each, value in host.bound.items() if each != name})
    with pytest.raises(TypeError):
        host.core.bind(**host.bound, more=1)


@one_host
def test_a_named_context_of_the_host_is_not_handed_out(core, host):
    """Of whatever class the host says; the loader is still the running one when it is asked."""
    class Earlier:
        def value(self):
            return ["the value", host.loader_var.get()]

    loader = host.Loader({"earlier": Earlier, "other": object})
    assert isinstance(loader["earlier"](), Earlier)
    host.bind(named_context=Earlier)
    loader = host.Loader({"earlier": Earlier, "other": object})
    assert loader["earlier"]() == ["the value", loader]
    assert type(loader["other"]()) is object


def test_the_last_bind_counts(host, make_host):
    loader = host.Loader({"k": ping})
    other = make_host()
    assert type(loader["k"]) is other.Function
    host.bind()
    assert type(loader["k"]) is host.Function


@one_host
def test_a_loaded_class_with_an_init_of_its_own(core, host):
    class Function(core.LoadedFunction):
        def __init__(self, *args):
            super().__init__(*args)
            self.made = len(args)

    host.core.bind(**{**host.bound, "loaded_function": Function})
    loaded = host.Loader({"k": ping})["k"]
    assert type(loaded) is Function and loaded.made == 4 and loaded() == ((), {})


# ---- threads ----


def test_lookups_and_calls_while_the_fields_change(core, host, threads):
    loader = host.Loader({"k": ping}, shared=True)
    context = core.JobContext()
    loader.pack = {"__context__": context}

    def change():
        for number in range(400):
            loader._dict = {"k": ping, str(number): ping}
            loader.inject_globals = {}
            loader.pack = {"__context__": context}
            loader.module_opts = {}
            loader.loaded = True

    def use():
        def body():
            for number in range(200):
                assert loader["k"](number) == ((number,), {})
                assert "k" in loader and "k" in list(loader)
                assert loader.pack["__context__"] is context

        core.Job().run(body)

    threads(change, change, use, use, use)
    assert loader.parent_loader is None


def test_each_thread_has_its_own_parent(host, threads):
    inner = host.Loader()

    def work():
        outer = host.Loader()
        for _ in range(200):
            assert outer.run(inner.run, lambda: inner.parent_loader) is outer

    threads(*[work] * 6)
    assert inner.parent_loader is None


def test_a_job_shared_by_threads_has_one_own_function(core, host, threads):
    class Loader(host.Loader):
        def _first_use(self, key):
            return lambda: object()

    loader = Loader(shared=True)
    job = core.Job()
    found = []

    def work():
        for number in range(100):
            found.append((number, job.run(lambda number=number: loader[str(number)].func)))

    threads(*[work] * 6)
    assert len(set(found)) == 100
