"""NamedContext: a dunder that resolves through the running loader and job at each use."""

import contextvars
import copy
import gc
import weakref
from collections.abc import MutableMapping

import pytest

one_host = pytest.mark.thread_unsafe(reason="all threads have the one host of the fixture, and bind or read what it noted")

# ---- where the value comes from ----


@one_host
def test_no_loader(core, host, loader_context):
    assert host.dunder("__opts__").value() is None
    default = {"k": 1}
    dunder = host.dunder("__opts__", default)
    assert dunder.value() is default and dunder["k"] == 1 and dunder.loader() is None
    by_name = core.NamedContext(name="__opts__", loader_context=loader_context(host.loader_var), default=default)
    assert by_name.value() is default


def test_the_running_loader(host):
    dunder = host.dunder("__opts__", {"k": "default"})
    first, second = host.Loader(pack={"__opts__": {"k": 1}}), host.Loader(pack={"__opts__": {"k": 2}})
    assert first.run(lambda: (dunder["k"], dunder.loader())) == (1, first)
    assert second.run(lambda: (dunder["k"], dunder.loader())) == (2, second)
    assert first.run(lambda: (second.run(lambda: dunder["k"]), dunder["k"])) == (2, 1)
    assert dunder["k"] == "default"
    first.pack = {"__opts__": {"k": 3}}
    assert first.run(lambda: dunder["k"]) == 3


def test_the_loader_itself(host):
    loader = host.Loader(pack={"__salt__": {}})
    loader.pack_self = "__salt__"
    dunder = host.dunder("".join(["__sa", "lt__"]))
    assert host.in_loader(loader, dunder.value) is loader
    assert host.in_loader(loader, host.dunder("__opts__", 1).loader) is loader
    loader.pack_self = None
    assert host.in_loader(loader, dunder.value) == {}


def test_a_name_that_is_not_packed(host, make_host):
    dunder = host.dunder("__nothing__", {"k": 1})
    loader = host.Loader(pack={})
    for call in (dunder.value, lambda: dunder["k"], lambda: "k" in dunder, lambda: len(dunder), lambda: dunder.get(1)):
        with pytest.raises(LookupError, match="not packed: __nothing__"):
            host.in_loader(loader, call)
    other = make_host(no_value=lambda name: {"made for": name})
    assert host.in_loader(loader, dunder.value) == {"made for": "__nothing__"}
    assert other.bound["no_value"]("x") == {"made for": "x"}


def test_a_none_that_is_packed(host):
    assert host.in_loader(host.Loader(pack={"__x__": None}), host.dunder("__x__", 1).value) is None


def test_variables_of_the_host(make_host):
    variable, empty = contextvars.ContextVar("resource", default={"id": 1}), contextvars.ContextVar("empty")
    host = make_host(variables={"__resource__": variable, "__empty__": empty})
    dunder = host.dunder("__resource__", "default")
    loader = host.Loader(pack={"__resource__": "packed"})
    assert dunder.value() == host.in_loader(loader, dunder.value) == {"id": 1}
    variable.set({"id": 2})
    assert dunder["id"] == 2
    with pytest.raises(LookupError):
        host.dunder("__empty__").value()


def test_a_module_of_its_own(host):
    loader = host.Loader(pack={"__opts__": {"of": "loader"}})
    loader.module_opts = {"salt.loaded.int.module.test": {"of": "module"}}
    dunder = host.dunder("__opts__")
    assert dunder.owner is None
    assert host.in_loader(loader, lambda: dunder["of"]) == "loader"
    dunder.owner = "salt.loaded.int.module.test"
    assert host.in_loader(loader, lambda: dunder["of"]) == "module"
    dunder.owner = "salt.loaded.int.module.cmd"
    assert host.in_loader(loader, lambda: dunder["of"]) == "loader"
    del loader.module_opts
    with pytest.raises(AttributeError, match="module_opts"):
        host.in_loader(loader, dunder.value)


# ---- a job's view ----


@pytest.fixture
def viewing(make_host):
    made = []

    def view(loader, value):
        made.append((loader, value))
        return dict(value)

    host = make_host(views={"__opts__": view})
    host.made = made
    return host


@one_host
def test_a_job_has_its_own_view_of_a_shared_loader(core, viewing):
    value = {"test": False}
    loader = viewing.Loader(pack={"__opts__": value, "__grains__": value}, shared=True)
    opts, grains = viewing.dunder("__opts__"), viewing.dunder("__grains__")
    first, second = core.Job("1"), core.Job("2")

    def look():
        return opts.value(), opts.value(), grains.value()

    mine, again, shared = first.run(loader.run, look)
    assert mine == value and mine is not value and again is mine and shared is value
    other = second.run(loader.run, look)[0]
    assert other == value and other is not mine
    assert viewing.made == [(loader, value), (loader, value)]
    assert first.views == {id(loader): (loader, {("__opts__", None): mine})}
    first.run(loader.run, opts.__setitem__, "test", True)
    assert (mine, other, value) == ({"test": True}, {"test": False}, {"test": False})


@one_host
def test_views_of_owners_and_loaders_are_apart(core, viewing):
    loaders = [viewing.Loader(pack={"__opts__": {"n": n}}, shared=True) for n in range(2)]
    for loader in loaders:
        loader.module_opts = {"m": {"n": "m"}}
    opts, owned = viewing.dunder("__opts__"), viewing.dunder("__opts__")
    owned.owner = "m"
    job = core.Job()
    found = [job.run(loader.run, lambda: (opts.value(), owned.value())) for loader in loaders]
    assert found == [({"n": 0}, {"n": "m"}), ({"n": 1}, {"n": "m"})]
    assert set(job.views) == {id(loader) for loader in loaders}
    assert set(job.views[id(loaders[0])][1]) == {("__opts__", None), ("__opts__", "m")}


def test_no_view_without_a_job_or_a_shared_loader(core, viewing):
    value = {"test": False}
    opts = viewing.dunder("__opts__")
    shared, private = (viewing.Loader(pack={"__opts__": value}, shared=flag) for flag in (True, False))
    assert shared.run(opts.value) is value
    assert core.Job().run(private.run, opts.value) is value
    assert viewing.made == []


def test_errors_of_a_view_get_through(core, make_host):
    def view(loader, value):
        raise ValueError("no view")

    host = make_host(views={"__opts__": view})
    loader = host.Loader(pack={"__opts__": {}}, shared=True)
    job = core.Job()
    dunder = host.dunder("__opts__")
    with pytest.raises(ValueError, match="no view"):
        job.run(loader.run, dunder.value)
    assert job.views == {id(loader): (loader, {})}
    job.views[id(loader)] = "spoilt"
    with pytest.raises((TypeError, ValueError)):
        job.run(loader.run, dunder.value)


def test_a_view_that_asks_for_itself(core, make_host):
    host = make_host(views={"__opts__": lambda loader, value: dunder.value()})
    dunder = host.dunder("__opts__")
    loader = host.Loader(pack={"__opts__": {}}, shared=True)
    with pytest.raises(RecursionError):
        core.Job().run(loader.run, dunder.value)


def test_a_loader_is_kept_alive_by_the_jobs_view(core, viewing):
    job = core.Job()
    loader = viewing.Loader(pack={"__opts__": {}}, shared=True)
    dunder = viewing.dunder("__opts__")
    job.run(loader.run, dunder.value)
    viewing.made.clear()
    ref = weakref.ref(loader)
    del loader
    gc.collect()
    assert ref() is not None
    del job
    gc.collect()
    assert ref() is None


# ---- loaders and loader contexts of other kinds ----


class StockLoader:
    pack_self = "__salt__"

    def __init__(self, **pack):
        self.pack = pack


def test_a_loader_of_another_kind(core, viewing):
    loader = StockLoader(__opts__={"k": 1})
    opts = viewing.dunder("__opts__")
    opts.owner = "ignored"
    assert viewing.in_loader(loader, lambda: opts["k"]) == 1
    assert core.Job().run(viewing.in_loader, loader, opts.value) is loader.pack["__opts__"]
    assert viewing.in_loader(loader, viewing.dunder("__salt__").value) is loader
    with pytest.raises(LookupError, match="not packed"):
        viewing.in_loader(loader, viewing.dunder("__x__").value)
    del loader.pack
    with pytest.raises(AttributeError, match="pack"):
        viewing.in_loader(loader, opts.value)


def test_a_pack_of_another_kind(host):
    class Pack(MutableMapping):
        def __getitem__(self, key):
            return [key]

        def __contains__(self, key):
            return key == "__x__"

        __setitem__ = __delitem__ = __len__ = __iter__ = None

    loader = host.Loader()
    loader.pack = Pack()
    assert host.in_loader(loader, host.dunder("__x__").value) == ["__x__"]
    with pytest.raises(LookupError, match="not packed"):
        host.in_loader(loader, host.dunder("__y__").value)


def test_a_loader_without_fields(core, host):
    class Loader(core.LoaderBase):
        pass

    with pytest.raises(AttributeError, match="pack"):
        host.in_loader(Loader(), host.dunder("__x__").value)


def test_another_variable(host, loader_context):
    other = contextvars.ContextVar("other")
    loader = host.Loader(pack={"__x__": {"k": 1}})
    dunder = host.Dunder("__x__", loader_context(other), {"k": "default"})
    assert host.in_loader(loader, lambda: dunder["k"]) == "default"
    other.set(loader)
    assert dunder["k"] == 1 and dunder.loader() is loader
    dunder.loader_context = loader_context(host.loader_var)
    assert dunder["k"] == "default"
    assert host.in_loader(loader, lambda: dunder["k"]) == 1
    dunder.loader_context.loader_ctxvar = other
    del dunder.loader_context.loader_ctxvar


def test_a_loader_context_of_another_kind(host):
    class Variable:
        def get(self, default):
            return loader

    class Context:
        loader_ctxvar = Variable()

    class Failing:
        @property
        def loader_ctxvar(self):
            raise ValueError("no variable")

    loader = host.Loader(pack={"__x__": {"k": 1}})
    assert host.Dunder("__x__", Context())["k"] == 1
    assert host.Dunder("__x__", object(), "default").value() == "default"
    Context.loader_ctxvar = None
    assert host.Dunder("__x__", Context(), "default").value() == "default"
    with pytest.raises(ValueError, match="no variable"):
        host.Dunder("__x__", Failing()).value()


# ---- operations ----


@pytest.fixture
def packed(core, host):
    """A dunder over a value, and a function that runs another in its loader."""

    def pack(value):
        loader = host.Loader(pack={"__x__": value})
        return host.dunder("__x__"), lambda func, *args: host.in_loader(loader, func, *args)

    return pack


@pytest.mark.parametrize("kind", [dict, "context"])
def test_operations(core, packed, kind):
    value = core.JobContext() if kind == "context" else kind()
    dunder, run = packed(value)

    def body():
        dunder["a"] = 1
        dunder["b"] = 2
        assert dunder["a"] == 1 and "a" in dunder and "c" not in dunder
        assert len(dunder) == 2 and bool(dunder) and list(dunder) == ["a", "b"]
        assert dunder.get("a") == 1 and dunder.get("c") is None and dunder.get("c", 3) == 3
        assert dunder.get(key="a", default=2) == 1 and dunder.get("c", default=4) == 4
        del dunder["a"]
        with pytest.raises(KeyError):
            dunder["a"]
        with pytest.raises(KeyError):
            del dunder["a"]
        dunder.setdefault("c", []).append(1)
        assert dict(dunder.items()) == {"b": 2, "c": [1]}
        dunder.clear()
        assert not dunder and len(dunder) == 0

    run(body)
    core.Job().run(run, body)


def test_operations_that_the_value_cannot_do(packed):
    for value in (None, 1, object()):
        dunder, run = packed(value)
        for call in (lambda: dunder["k"], lambda: "k" in dunder, lambda: len(dunder), lambda: iter(dunder)):
            with pytest.raises(TypeError):
                run(call)
        with pytest.raises((TypeError, AttributeError)):
            run(dunder.__setitem__, "k", 1)
        with pytest.raises(AttributeError):
            run(lambda: dunder.get("k"))
        assert run(bool, dunder) is bool(value)


def test_wrong_arguments(core, host, packed):
    dunder, run = packed({})
    for call in (
        dunder.get, lambda: dunder.get(1, 2, 3), lambda: dunder.get(1, key=2), lambda: dunder.get(1, other=2),
        lambda: dunder.get(default=1), lambda: dunder.value(1), lambda: core.NamedContext(),
        lambda: core.NamedContext(1), lambda: core.NamedContext(1, 2, 3, 4), lambda: core.NamedContext(1, 2, other=3),
    ):
        with pytest.raises(TypeError):
            run(call)


def test_attributes_are_the_values(packed, core, host, loader_context):
    class Value:
        kind = "value"

        def method(self):
            return self

    value = Value()
    dunder, run = packed(value)
    plain = core.NamedContext("__x__", loader_context(host.loader_var), value)
    assert run(lambda: (dunder.kind, dunder.method())) == ("value", value)
    assert (plain.kind, plain.method()) == ("value", value)
    for each in (dunder, plain):
        with pytest.raises(AttributeError, match="missing"):
            run(lambda each=each: each.missing)
        assert each.__getattr__ is not None and run(each.__getattr__, "kind") == "value"
        with pytest.raises(AttributeError):
            run(each.__getattr__, "name")
        with pytest.raises(TypeError):
            run(each.__getattr__, 1)


def test_errors_of_an_attribute_get_through(packed):
    class Value:
        @property
        def broken(self):
            raise ValueError("broken")

    dunder, run = packed(Value())
    with pytest.raises(ValueError, match="broken"):
        run(lambda: dunder.broken)


def test_fields(host, loader_context):
    context = loader_context(host.loader_var)
    dunder = host.Dunder("__x__", context, 1)
    assert (dunder.name, dunder.loader_context, dunder.default, dunder.owner) == ("__x__", context, 1, None)
    dunder.name, dunder.default, dunder.owner = "__y__", 2, "m"
    assert (dunder.name, dunder.value(), dunder.owner) == ("__y__", 2, "m")
    dunder.__init__("__z__", context)
    assert (dunder.name, dunder.value(), dunder.owner) == ("__z__", None, "m")
    dunder.extra = 1
    assert dunder.extra == 1
    del dunder.default
    with pytest.raises(AttributeError):
        dunder.value()


def test_new_alone(core):
    for type_ in (core.NamedContext, type("Derived", (core.NamedContext,), {})):
        blank = type_.__new__(type_)
        for call in (
            blank.value, lambda: blank["k"], lambda: "k" in blank, lambda: len(blank), lambda: iter(blank),
            lambda: bool(blank), lambda: blank.get(1), lambda: blank.name, lambda: blank.default,
            lambda: blank.loader_context, lambda: blank.anything, lambda: blank.__setitem__(1, 2),
            lambda: blank.__delitem__(1), blank.loader,
        ):
            with pytest.raises(AttributeError):
                call()
        assert blank.owner is None


def test_a_dunder_that_stands_for_itself(host):
    loader = host.Loader()
    dunder = host.dunder("__x__")
    loader.pack = {"__x__": dunder}
    for call in (
        lambda: dunder["k"], lambda: "k" in dunder, lambda: len(dunder), lambda: iter(dunder), lambda: bool(dunder),
        lambda: dunder.get("k"), lambda: dunder.other, lambda: dunder.__setitem__(1, 2), lambda: dunder.__delitem__(1),
    ):
        with pytest.raises(RecursionError):
            host.in_loader(loader, call)
    assert host.in_loader(loader, dunder.value) is dunder


class SaltNamedContext(MutableMapping):
    """The shape of Salt's own class."""

    def __init__(self, name, loader_context, default=None):
        raise AssertionError("hidden by NamedContext")

    def value(self):
        raise AssertionError("hidden by NamedContext")

    def __getitem__(self, item):
        raise AssertionError("hidden by NamedContext")

    __setitem__ = __delitem__ = __len__ = __iter__ = __getitem__

    def __eq__(self, other):
        if isinstance(other, self.__class__):
            return self.loader_context == other.loader_context and self.name == other.name
        return self.value() == other

    def __getstate__(self):
        return {"name": self.name, "loader_context": self.loader_context, "default": None}

    def __setstate__(self, state):
        self.name = state["name"]
        self.loader_context = state["loader_context"]
        self.default = state["default"]

    def __getattr__(self, name):
        raise AssertionError("hidden by NamedContext")


def test_it_goes_with_salts_own_class(core, host, loader_context):
    class Dunder(core.NamedContext, SaltNamedContext):
        pass

    context = loader_context(host.loader_var)
    dunder, other = Dunder("__x__", context, {"k": 1}), Dunder("__y__", context, {"k": 1})
    assert isinstance(dunder, MutableMapping)
    assert dunder["k"] == 1 and dict(dunder.items()) == {"k": 1} and dunder == {"k": 1}
    assert dunder != other and dunder == Dunder("__x__", context)
    assert dunder.pop("k") == 1 and not dunder
    made = copy.copy(dunder)
    assert type(made) is Dunder and made.name == "__x__" and made.loader_context is context
    assert made.value() is None
    loader = host.Loader(pack={"__x__": {"k": 2}})
    assert loader.run(lambda: made["k"]) == 2
    with pytest.raises(TypeError):
        hash(dunder)
    with pytest.raises(AttributeError):
        dunder.missing
    assert type(loader.run(lambda: dunder)) is dict


# ---- lifetime ----


def test_weakref_and_cycles(host):
    for name in ("name", "default", "owner", "loader_context", "me"):
        dunder = host.dunder("__x__")
        setattr(dunder, name, [dunder])
        ref = weakref.ref(dunder)
        del dunder
        gc.collect()
        assert ref() is None


def test_the_value_is_dropped_under_way(host):
    class Value:
        def __getitem__(self, key):
            loader.pack = {}
            dunder.name = dunder.default = dunder.loader_context = None
            gc.collect()
            return key

        __contains__ = __getitem__

    dunder = host.dunder("__x__")
    loader = host.Loader(pack={"__x__": Value()})
    assert host.in_loader(loader, lambda: dunder["k"]) == "k"


def test_finalizers_that_use_the_dunder(host):
    found = []

    class Finalizer:
        def __del__(self):
            found.append((dunder.name, dunder.value()))
            dunder.default = len(found)

    dunder = host.dunder("__x__")
    for name in ("default", "owner", "name"):
        setattr(dunder, name, Finalizer())
        setattr(dunder, name, None)
        gc.collect()
    assert [value for _, value in found] == [None, 1, 2]


# ---- threads ----


def test_threads_use_one(core, host, threads):
    context = core.JobContext()
    context.base["shared"] = [1]
    dunder = host.dunder("__context__")
    loader = host.Loader(pack={"__context__": context}, shared=True)

    def work(name):
        def body():
            for number in range(300):
                dunder["k"] = (name, number)
                assert dunder["k"] == dunder.get("k") == (name, number)
                assert "k" in dunder and len(dunder) == 2 and dunder["shared"] == [1]
                assert dunder.loader() is loader

        return lambda: core.Job(name).run(loader.run, body)

    threads(*[work(str(number)) for number in range(6)])
    assert dict(context) == {"shared": [1]}


def test_threads_change_one(host, loader_context, threads):
    dunder = host.dunder("__x__", 1)

    def change():
        for number in range(300):
            dunder.name = f"__{number}__"
            dunder.owner = str(number)
            dunder.default = number
            dunder.loader_context = loader_context(host.loader_var)

    def use():
        for _ in range(300):
            assert isinstance(dunder.value(), int) and dunder.loader() is None
            assert bool(dunder) in (True, False)

    threads(change, change, use, use)
    assert dunder.default == 299


def test_threads_make_one_view(core, make_host, threads):
    host = make_host(views={"__opts__": lambda loader, value: [value]})
    loader = host.Loader(pack={"__opts__": 1}, shared=True)
    dunder = host.dunder("__opts__")
    for _ in range(50):
        job = core.Job()
        found = []
        threads(*[lambda job=job, found=found: found.append(job.run(loader.run, dunder.value))] * 4)
        assert len({id(each) for each in found}) == 1
