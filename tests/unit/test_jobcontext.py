"""JobContext: which layer a read finds, which one a write reaches, and everything a dict can do."""

import collections
import contextvars
import copy
import gc
import json
import pickle
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

one_context = pytest.mark.thread_unsafe(reason="all threads have the one context of the fixture")


@pytest.fixture
def context(core):
    return core.JobContext()


@pytest.fixture
def job(core):
    return core.Job("1")


# ---- layers ----


def test_a_job_has_its_own_layer(core, context):
    first, second = core.Job("1"), core.Job("2")
    context["k"] = "outside"
    first.run(context.__setitem__, "k", "first")
    second.run(context.__setitem__, "k", "second")
    assert context["k"] == "outside"
    assert first.run(context.__getitem__, "k") == "first"
    assert second.run(context.__getitem__, "k") == "second"
    assert (first.layer, second.layer) == ({"k": "first"}, {"k": "second"})
    assert (context.outside, context.base) == ({"k": "outside"}, {})


def test_what_is_outside_is_not_seen_in_a_job(context, job):
    context["k"] = 1
    assert job.run(context.get, "k") is None
    assert not job.run(context.__contains__, "k")
    assert job.run(len, context) == 0


@one_context
def test_loading_writes_to_the_base_layer(core, context, job):
    core.loading(context.__setitem__, "a", 1)
    job.run(core.loading, context.__setitem__, "b", 2)
    assert context.base == {"a": 1, "b": 2}
    assert dict(context) == job.run(dict, context) == {"a": 1, "b": 2}
    assert (context.outside, job.layer) == ({}, {})
    job.run(context.__setitem__, "a", 3)
    assert job.run(core.loading, context.__getitem__, "a") == 1
    assert job.run(context.__getitem__, "a") == 3


@one_context
def test_a_delete_hides_a_base_key_from_this_job(core, context, job):
    context.base["k"] = 1
    job.run(context.__delitem__, "k")
    assert "k" in context and context["k"] == 1
    assert job.run(context.__contains__, "k") is False
    assert job.run(context.get, "k", "none") == "none"
    assert job.run(list, context) == []
    assert job.run(len, context) == 0
    with pytest.raises(KeyError):
        job.run(context.__delitem__, "k")
    job.run(context.__setitem__, "k", 2)
    assert job.run(dict, context) == {"k": 2}
    assert context.base == {"k": 1}
    core.loading(context.__delitem__, "k")
    assert context.base == {}


def test_all_contexts_share_one_jobs_layer(core, context, job):
    other = core.JobContext()
    job.run(context.__setitem__, "k", 1)
    assert job.run(other.__getitem__, "k") == 1
    assert "k" not in other


@one_context
@pytest.mark.parametrize("value", [{"n": [1]}, [[1]], {1, 2}])
def test_a_job_gets_its_own_copy_of_a_plain_container(context, job, value):
    context.base["k"] = value
    assert context["k"] is value
    mine = job.run(context.__getitem__, "k")
    assert mine == value and mine is not value
    assert job.run(context.__getitem__, "k") is mine
    assert job.layer == {"k": mine}
    mine.clear()
    assert value


@one_context
@pytest.mark.parametrize("read", ["get", "pop", "setdefault", "items", "values", "popitem", "copy"])
def test_every_read_gives_the_jobs_own_copy(context, job, read):
    value = context.base["k"] = [1]
    args = ("k",) if read in ("get", "pop", "setdefault") else ()
    found = job.run(getattr(context, read), *args)
    if read in ("items", "copy"):
        found = dict(found)["k"]
    elif read in ("values", "popitem"):
        found = list(found)[-1]
    assert found == [1] and found is not value
    found.append(2)
    assert context.base == {"k": [1]}


def test_containment_and_length_copy_nothing(context, job):
    context.base["k"] = [1]
    assert job.run(context.__contains__, "k")
    assert job.run(len, context) == 1
    assert job.layer == {}


class Mine(dict):
    pass


@pytest.mark.parametrize("value", [1, "text", (1, [2]), Mine(a=1), collections.OrderedDict(a=1), object(), None])
def test_anything_else_is_shared(context, job, value):
    context.base["k"] = value
    assert job.run(context.__getitem__, "k") is value
    assert job.layer == {}


@one_context
def test_what_cannot_be_copied_is_shared(context, job):
    value = context.base["k"] = [threading.Lock()]
    assert job.run(context.__getitem__, "k") is value
    assert job.run(dict, context) == {"k": value}
    assert job.layer == {}


class Stop(BaseException):
    pass


class Uncopyable:
    def __init__(self, error):
        self.error = error

    def __deepcopy__(self, memo):
        raise self.error


@one_context
def test_only_an_exception_of_the_copy_is_forgiven(context, job):
    context.base["k"] = [Uncopyable(ValueError())]
    assert job.run(context.get, "k") is context.base["k"]
    context.base["k"] = [Uncopyable(Stop())]
    for read in (context.__getitem__, context.get, context.pop, context.__delitem__):
        with pytest.raises(Stop):
            job.run(read, "k")
    for read in (dict, list, context.items, repr):
        with pytest.raises(Stop):
            job.run(read, context) if read in (dict, list, repr) else job.run(read)
    assert job.layer == {}


@one_context
def test_share_base(core, job):
    context = core.JobContext(share_base=True)
    value = context.base["k"] = {"connection": object()}
    assert job.run(context.__getitem__, "k") is value
    assert job.run(dict, context)["k"] is value
    assert job.layer == {}
    job.run(context.__delitem__, "k")
    assert job.run(len, context) == 0


def test_nested_jobs(core, context):
    outer, inner = core.Job("outer"), core.Job("inner")

    def body():
        context["k"] = "outer"
        inner.run(context.__setitem__, "k", "inner")
        return context["k"], inner.run(context.__getitem__, "k")

    assert outer.run(body) == ("outer", "inner")
    assert len(context) == 0


def test_a_context_outlives_the_frame(core, context, job):
    inside = job.run(contextvars.copy_context)
    inside.run(context.__setitem__, "k", 1)
    assert job.layer == {"k": 1}
    assert "k" not in context


# ---- a dict like any other ----


@pytest.fixture(params=["outside", "job", "loading"])
def inside(request, core):
    """Run a function in each of the three scopes."""
    if request.param == "job":
        return core.Job("1").run
    return core.loading if request.param == "loading" else lambda func, *args: func(*args)


@one_context
def test_dict_methods(context, inside):
    def body():
        context["a"] = 1
        context.update({"b": 2}, c=3)
        context.update([("d", 4)])
        assert context == {"a": 1, "b": 2, "c": 3, "d": 4}
        assert {"a": 1, "b": 2, "c": 3, "d": 4} == context
        assert context != {"a": 1}
        assert list(context) == list(context.keys()) == ["a", "b", "c", "d"]
        assert list(reversed(context)) == ["d", "c", "b", "a"]
        assert list(context.values()) == [1, 2, 3, 4]
        assert list(context.items()) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
        assert len(context) == 4 and bool(context)
        assert context.get("x") is None and context.get("x", 5) == 5 and context.get("a", 5) == 1
        assert context.setdefault("a", 9) == 1
        assert context.setdefault("e", 5) == 5
        assert context.setdefault("f") is None
        assert context.pop("e") == 5
        assert context.pop("e", "gone") == "gone"
        assert context.popitem() == ("f", None)
        del context["d"]
        assert "d" not in context and "a" in context
        assert repr(context) == str(context) == "{'a': 1, 'b': 2, 'c': 3}"
        context.clear()
        assert not context and len(context) == 0 and context == {}
        with pytest.raises(KeyError, match="popitem"):
            context.popitem()

    inside(body)


def test_key_errors(context, inside):
    def body():
        for read in (context.__getitem__, context.__delitem__, context.pop):
            for key in ("missing", (1, 2), ()):
                with pytest.raises(KeyError) as caught:
                    read(key)
                assert caught.value.args == (key,)

    inside(body)


def test_unhashable_keys(context, inside):
    def body():
        for call in (
            context.__getitem__, context.__delitem__, context.__contains__, context.get, context.pop,
            context.setdefault, lambda key: context.__setitem__(key, 1),
        ):
            with pytest.raises(TypeError, match="unhashable"):
                call([])
        with pytest.raises(TypeError):
            hash(context)

    inside(body)


def test_wrong_arguments(context, core):
    for name, args in (
        ("get", ()), ("get", (1, 2, 3)), ("pop", ()), ("pop", (1, 2, 3)), ("setdefault", ()),
        ("setdefault", (1, 2, 3)), ("update", (1, 2)), ("update", (1,)), ("update", ([(1,)],)), ("keys", (1,)),
    ):
        with pytest.raises((TypeError, ValueError)):
            getattr(context, name)(*args)
    with pytest.raises(TypeError):
        core.JobContext(1, 2)
    with pytest.raises(TypeError):
        core.JobContext(other=1)
    assert dict(context) == {}


def test_a_malformed_update_writes_nothing(context):
    with pytest.raises(ValueError):
        context.update([("a", 1), ("b",)])
    assert dict(context) == {}


@one_context
def test_copies_are_plain_dicts(context, inside):
    def body():
        context["k"] = [1]
        for make in (dict, context.copy, copy.copy, lambda c: {**c}, lambda c: dict(**c)):
            made = make() if make == context.copy else make(context)
            assert type(made) is dict and made == {"k": [1]}
            assert made["k"] is context["k"]
        for made in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
            assert type(made) is dict and made == {"k": [1]}
            assert made["k"] is not context["k"]
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(context, protocol)) == {"k": [1]}
        (lambda **kwargs: kwargs)(**context)["k"].append(2)
        assert context["k"] == [1, 2]

    inside(body)


@one_context
def test_deepcopy_keeps_the_memo(context):
    shared = context["k"] = [1]
    made = copy.deepcopy([shared, context])
    assert made[0] is made[1]["k"] and made[0] is not shared


@one_context
@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"sort_keys": True}])
def test_json(context, inside, options):
    def body():
        assert json.loads(json.dumps(context, **options)) == {}
        context["k"] = {"n": [1, None]}
        assert json.loads(json.dumps(context, **options)) == {"k": {"n": [1, None]}}
        assert json.loads(json.dumps([context], **options)) == [{"k": {"n": [1, None]}}]

    inside(body)


@one_context
def test_union(context, core, inside):
    def body():
        context["a"] = 1
        assert context | {"b": 2} == {"a": 1, "b": 2}
        assert {"b": 2, "a": 0} | context == {"b": 2, "a": 1}
        assert type(context | {}) is dict and type({} | context) is dict
        assert type(context | core.JobContext()) is dict
        assert (collections.OrderedDict(b=2) | context) == {"b": 2, "a": 1}
        same = context
        same |= {"c": 3}
        assert same is context and dict(context) == {"a": 1, "c": 3}
        same |= [("d", 4)]
        assert context["d"] == 4
        for bad in (1, None, [("a", 1)]):
            with pytest.raises(TypeError):
                context | bad
            with pytest.raises(TypeError):
                bad | context

    inside(body)


def test_comparison(context, core, inside):
    other = core.JobContext()

    def body():
        context["a"] = 1
        other["a"] = 1
        assert context == context and context == other and not context != other
        other.base["b"] = 2
        assert context != other and not context == other
        assert context != [("a", 1)] and not context == 1
        with pytest.raises(TypeError):
            context < other

    inside(body)


def test_it_is_a_dict(context):
    assert isinstance(context, dict)
    assert issubclass(type(context), collections.abc.MutableMapping)
    context["k"] = 1
    match context:
        case {"k": value}:
            assert value == 1
        case _:
            pytest.fail("no match")


def test_a_context_in_itself(context):
    context["me"] = context
    assert repr(context) == "{'me': {...}}"
    assert context["me"] is context
    made = copy.deepcopy(context)
    assert type(made) is dict and made["me"] is made
    pair = copy.deepcopy([context, context])
    assert pair[0] is pair[1]


@one_context
def test_views_and_iterators_walk_a_snapshot(context):
    context.update(a=1, b=2)
    keys, items, iterator = context.keys(), context.items(), iter(context)
    context["c"] = 3
    del context["a"]
    assert list(keys) == ["a", "b"] and ("a", 1) in items and list(iterator) == ["a", "b"]
    for key in context:
        context[key + key] = context.pop(key)
    assert dict(context) == {"bb": 2, "cc": 3}


def test_init_twice_and_new_alone(core):
    context = core.JobContext()
    context["k"] = 1
    context.base["b"] = 2
    context.__init__()
    context.__init__(share_base=True)
    assert dict(context) == {"k": 1, "b": 2}
    bare = core.JobContext.__new__(core.JobContext)
    bare["k"] = 1
    assert dict(bare) == {"k": 1} and len(bare) == 1


def test_attributes(context):
    for name in ("base", "outside", "other"):
        with pytest.raises(AttributeError):
            setattr(context, name, {})
    assert type(context.base) is type(context.outside) is dict


def test_storage_holds_one_marker(context, job):
    job.run(context.update, a=1, b=2)
    context["c"] = 3
    assert dict.__len__(context) == 1
    (marker,) = dict.keys(context)
    assert dict.__getitem__(context, marker) is marker


def test_weakref_and_cycles(core):
    for build in (
        lambda c: c.__setitem__("me", c),
        lambda c: c.base.__setitem__("me", c),
        lambda c: core.Job().run(c.__setitem__, "me", c),
    ):
        context = core.JobContext()
        build(context)
        ref = weakref.ref(context)
        del context
        gc.collect()
        assert ref() is None


# ---- against a model ----

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2), st.just({"n": 1}))
SCOPES = st.sampled_from(["outside", "job1", "job2", "loading", "job1 loading"])
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("setdefault"), KEYS, VALUES),
    st.tuples(st.sampled_from(["get", "del", "pop", "in", "getitem"]), KEYS, st.none()),
    st.tuples(st.sampled_from(["len", "list", "items", "popitem", "clear", "copy", "repr", "append"]), KEYS, st.none()),
    st.tuples(st.just("update"), KEYS, VALUES),
)


class Model:
    """Every layer as a dict of what a reader sees; what a job sees of the base is worked out at each step."""

    def __init__(self):
        self.base = {}
        self.layers = {"outside": {}, "job1": {}, "job2": {}}
        self.hidden = {name: set() for name in self.layers}

    def seen(self, scope):
        if scope.endswith("loading"):
            return dict(self.base)
        layer, hidden = self.layers[scope], self.hidden[scope]
        merged = {key: value for key, value in self.base.items() if key not in hidden}
        return {**merged, **layer}

    def own(self, scope, key):
        """What the read of a base container leaves in a job's layer."""
        if scope.startswith("job") and not scope.endswith("loading") and key in self.seen(scope):
            value = self.seen(scope)[key]
            if key not in self.layers[scope] and isinstance(value, (list, dict)):
                self.layers[scope][key] = copy.deepcopy(value)

    def set(self, scope, key, value):
        if scope.endswith("loading"):
            self.base[key] = value
        else:
            self.layers[scope][key] = value
            self.hidden[scope].discard(key)

    def delete(self, scope, key):
        if scope.endswith("loading"):
            self.base.pop(key, None)
            return
        self.layers[scope].pop(key, None)
        if key in self.base:
            self.hidden[scope].add(key)


def apply(context, operation, key, value):
    """The operation on a mapping: what it returns, or the exception's type."""
    try:
        if operation == "set":
            context[key] = value
        elif operation == "del":
            del context[key]
        elif operation == "update":
            context.update({key: value, "c": value})
        elif operation == "setdefault":
            return copy.deepcopy(context.setdefault(key, value))
        elif operation == "append":
            found = context.get(key)
            if isinstance(found, list):
                found.append(9)
        elif operation == "in":
            return key in context
        elif operation == "getitem":
            return copy.deepcopy(context[key])
        elif operation in ("get", "pop"):
            return copy.deepcopy(getattr(context, operation)(key))
        elif operation in ("len", "repr"):
            return {"len": len, "repr": lambda c: sorted(map(repr, c.items()))}[operation](context)
        elif operation == "list":
            return sorted(context)
        elif operation == "items":
            return copy.deepcopy(sorted(context.items(), key=repr))
        elif operation == "popitem":
            return context.popitem()[0] in "abc"
        else:
            return copy.deepcopy(getattr(context, operation)())
    except KeyError:
        return KeyError
    return None


def apply_to_model(model, scope, operation, key, value):
    seen = model.seen(scope)
    reads = {"get", "getitem", "pop", "del", "append", "setdefault"}
    if operation in reads:
        model.own(scope, key)
    elif operation in ("items", "copy", "list", "popitem", "clear", "repr"):
        for each in seen:
            model.own(scope, each)
    before = copy.deepcopy(model.seen(scope))
    result = apply(model.seen(scope), operation, key, value) if operation != "popitem" else None
    if operation == "set":
        model.set(scope, key, value)
    elif operation == "update":
        model.set(scope, key, value)
        model.set(scope, "c", value)
    elif operation == "setdefault" and key not in before:
        model.set(scope, key, value)
    elif operation in ("del", "pop") and key in before:
        model.delete(scope, key)
    elif operation == "clear":
        for each in before:
            model.delete(scope, each)
    return result


@given(steps=st.lists(st.tuples(SCOPES, OPERATIONS), max_size=25))
@settings(deadline=None, max_examples=150)
def test_against_a_model(core, steps):
    context = core.JobContext()
    jobs = {"job1": core.Job("1"), "job2": core.Job("2")}
    runs = {
        "outside": lambda func, *args: func(*args),
        "job1": jobs["job1"].run,
        "job2": jobs["job2"].run,
        "loading": core.loading,
        "job1 loading": lambda func, *args: jobs["job1"].run(core.loading, func, *args),
    }
    model = Model()
    for scope, (operation, key, value) in steps:
        if operation == "popitem":
            # Which key is last is not the model's to say: one goes, whichever it is.
            before = set(model.seen(scope))
            for each in before:
                model.own(scope, each)
            result = runs[scope](apply, context, operation, key, value)
            assert result is (True if before else KeyError)
            (gone,) = (before - set(runs[scope](list, context))) or {None}
            if before:
                model.delete(scope, gone)
        else:
            result = runs[scope](apply, context, operation, key, copy.deepcopy(value))
            assert result == apply_to_model(model, scope, operation, key, copy.deepcopy(value))
        assert context.base == model.base
        for name, run in runs.items():
            assert run(len, context) == len(model.seen(name))
            assert {each: run(context.__contains__, each) for each in "abc"} == {
                each: each in model.seen(name) for each in "abc"
            }
        assert {key: value for key, value in context.outside.items() if repr(value) != "<deleted>"} == (
            model.layers["outside"]
        )
        assert dict.__len__(context) == 1


# ---- keys that bite ----


class Biting:
    """
    A key that runs ``bite`` from its hash or eq; equal to ``same``.

    A few times only: a dict looks again for as long as a key's eq changes it.
    """

    def __init__(self, bite, same="k", where="eq"):
        self.bite, self.same, self.where = bite, same, where
        self.left = 3

    def __hash__(self):
        if self.where == "hash":
            self._run()
        return hash(self.same)

    def __eq__(self, other):
        if self.where == "eq":
            self._run()
        return other == self.same if not isinstance(other, Biting) else other.same == self.same

    def _run(self):
        if self.left:
            self.left -= 1
            self.bite()


OPERATE = {
    "getitem": lambda c, k: c.get(k),
    "contains": lambda c, k: k in c,
    "setitem": lambda c, k: c.__setitem__(k, [2]),
    "setdefault": lambda c, k: c.setdefault(k, [2]),
    "pop": lambda c, k: c.pop(k, None),
    "update": lambda c, k: c.update({k: 1}),
    "items": lambda c, k: (c.__setitem__(k, 1), list(c.items())),
    "len": lambda c, k: (c.__setitem__(k, 1), len(c)),
    "clear": lambda c, k: (c.__setitem__(k, 1), c.clear()),
    "popitem": lambda c, k: (c.__setitem__(k, 1), c.popitem()),
    "or": lambda c, k: c | {k: 1},
    "eq": lambda c, k: c == {k: 1},
}


@pytest.mark.parametrize("where", ["eq", "hash"])
@pytest.mark.parametrize("operation", sorted(OPERATE))
def test_keys_that_change_the_context_under_way(core, operation, where):
    context = core.JobContext()
    job = core.Job("1")

    def bite():
        context.base.clear()
        context.outside.clear()
        job.layer.clear()
        context.base["k"] = [1]
        context["other"] = object()
        gc.collect()

    def body():
        try:
            OPERATE[operation](context, Biting(bite, where=where))
        except (KeyError, RuntimeError):
            pass  # what a dict says that changed under way

    for run in (job.run, core.loading, lambda func: func()):
        context.base["k"] = [0]
        run(body)
        run(body)
        run(context.clear)
        assert run(lambda: "other" in context) is False
    assert dict.__len__(context) == 1


class Bomb(Exception):
    pass


@pytest.mark.parametrize("operation", sorted(set(OPERATE) - {"eq"}))
def test_errors_of_keys_get_through(core, operation):
    context = core.JobContext()
    context.base["k"] = 1

    def bite():
        raise Bomb

    for run in (core.Job().run, core.loading, lambda func: func()):
        with pytest.raises(Bomb):
            run(lambda: OPERATE[operation](context, Biting(bite, where="hash")))
        with pytest.raises(Bomb):
            run(lambda: context[Biting(bite, where="eq")])


class Finalizer:
    def __init__(self, action):
        self.action = action

    def __del__(self):
        self.action()


def test_finalizers_that_use_the_context(core):
    context = core.JobContext()
    job = core.Job("1")
    ran = []

    def action():
        ran.append(sorted(context))
        context["late"] = len(ran)

    def body():
        for change in (
            lambda: context.__setitem__("k", None),
            lambda: context.pop("k") and None,
            lambda: context.__delitem__("k"),
            lambda: context.clear(),
            lambda: context.update(k=None),
        ):
            context["k"] = Finalizer(action)
            change()

    for run in (job.run, core.loading, lambda func, *args: func(*args)):
        ran.clear()
        run(body)
        assert len(ran) == 5
        assert run(context.__getitem__, "late") == 5
        run(context.clear)


# ---- threads ----


def test_threads_on_one_layer(core, threads):
    context = core.JobContext()
    job = core.Job("1")
    context.base.update(shared=[0], plain=1)
    copies = []

    def work(name):
        def body():
            for number in range(300):
                context[name] = number
                assert context[name] == number
                copies.append(context["shared"])
                assert context["plain"] == 1
                assert {name, "plain", "shared"} <= set(context)
                assert context.pop(name) == number
                assert name not in context
                len(context), context.items(), context.copy()

        return lambda: job.run(body)

    threads(*[work(f"t{number}") for number in range(6)])
    assert len({id(each) for each in copies}) == 1
    assert context.base == {"shared": [0], "plain": 1}
    assert set(job.layer) == {"shared"}


def test_threads_in_jobs_of_their_own(core, threads):
    context = core.JobContext()
    context.base["retcode"] = 0

    def work(number):
        def body():
            for turn in range(300):
                context["retcode"] = (number, turn)
                assert context["retcode"] == (number, turn)
                assert list(context.items()) == [("retcode", (number, turn))]
                del context["retcode"]
                assert not context

        return lambda: core.Job(str(number)).run(body)

    threads(*[work(number) for number in range(6)])
    assert dict(context) == {"retcode": 0}


def test_threads_that_load(core, threads):
    context = core.JobContext()

    def load(name):
        for number in range(200):
            core.loading(context.__setitem__, f"{name}{number}", number)

    def read():
        for _ in range(50):
            assert all(value >= 0 for value in context.values())
            assert len(context) <= 600

    threads(*[lambda name=name: load(name) for name in "abc"], read, read)
    assert len(context.base) == 600


# ---- the collector ----


class Leaver:
    """Garbage that takes a key out of the base layer of a context when it is collected."""

    def __init__(self, core, context, key):
        self.core, self.context, self.key, self.itself = core, context, key, self

    def __del__(self):
        self.core.loading(self.context.pop, self.key, None)


@pytest.mark.thread_unsafe(reason="it sets when the collector of the process runs")
@pytest.mark.parametrize("copying", [lambda context: context.copy(), copy.copy, lambda context: context | {}])
def test_a_copy_that_the_collector_interrupts(core, context, copying):
    """Wherever within the copy it runs: the copy has as many items as it says."""
    threshold, was_enabled, held = gc.get_threshold(), gc.isenabled(), []
    try:
        for after in range(1, 40):
            gc.disable()
            gc.collect()
            core.loading(context.update, dict.fromkeys("abcdefgh"))
            Leaver(core, context, "a")
            held += [{} for _ in range(100)]  # or the copy is one that Python keeps for its next dict
            gc.set_threshold(gc.get_count()[0] + after)
            gc.enable()
            copied = copying(context)
            gc.disable()
            assert len(copied) == len(list(copied)), after
            assert {*"bcdefgh"} <= set(copied)
    finally:
        gc.set_threshold(*threshold)
        if was_enabled:
            gc.enable()
