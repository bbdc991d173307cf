"""LayeredLookup: a method that reads a dict which is laid over others."""

import functools
import threading
import time

import pytest

DELETED = object()


class Layered(dict):
    """The smallest host: what it hands out of a dict or list below is ``("wrapped", value)``."""

    def __init__(self, parent=None, base=None, **local):
        super().__init__()
        self._parent, self._base, self._local, self._proxy_cache = parent, {} if base is None else base, local, {}
        self.wrapped = []

    def wrap(self, key, value):
        self.wrapped.append(key)
        return "wrapped", value


@pytest.fixture
def make(core):
    """A class of layered dicts whose lookups are those of ``core``."""

    class Opts(Layered):
        pass

    for kind in ("__getitem__", "__contains__", "get"):
        setattr(Opts, kind, core.LayeredLookup(kind, DELETED, Opts.wrap, Opts))
    return Opts


def test_the_nearest_value_counts(make):
    root = make(base={"a": 1, "b": 1, "c": 1}, b=2, d=2)
    child = make(root, c=3)
    grandchild = make(child, d=4)
    assert [grandchild[key] for key in "abcd"] == [1, 2, 3, 4]
    assert [root[key] for key in "abcd" if key in root] == [1, 2, 1, 2]


def test_a_base_counts_only_at_the_root(make):
    child = make(make(a=1), base={"b": 2})
    assert "b" not in child
    assert child.get("b") is None


def test_what_is_not_there(make):
    opts = make(make(base={"a": 1}), a=DELETED)
    for key in ("a", "b", ("a", "tuple")):
        assert key not in opts
        assert opts.get(key) is None
        assert opts.get(key, 5) == 5
        with pytest.raises(KeyError) as caught:
            opts[key]
        assert caught.value.args == (key,)


def test_deleted_below_counts(make):
    assert "a" not in make(make(make(a=1), a=DELETED))
    assert make(make(make(a=1), a=DELETED), a=2)["a"] == 2


def test_what_is_handed_out_of_a_layer_below(make):
    inner = make()
    child = make(make(base={"d": {}, "l": [], "t": (), "s": set(), "o": inner}))
    assert child["d"] == ("wrapped", {})
    assert child.get("l") == ("wrapped", [])
    assert child["t"] == ()
    assert child["s"] == set()
    assert child["o"] is inner
    assert child.wrapped == ["d", "l"]


def test_what_is_its_own_is_handed_out_as_it_is(make):
    own = {}
    assert make(a=own)["a"] is own
    assert make(base={"a": own})["a"] == ("wrapped", {}), "a base is not the object's own"


def test_a_proxy_that_is_kept(make):
    value, proxy = {}, object()
    child = make(make(a=value))
    child._proxy_cache["a"] = (proxy, id(value))
    assert child["a"] is proxy
    child._parent._local["a"] = {1: 1}
    assert child["a"] == ("wrapped", {1: 1}), "kept for another value"


@pytest.mark.parametrize("entry", [(), (1, 2, 3), (1, "x"), (1, -1)])
def test_an_odd_entry_of_the_cache(make, is_c, entry):
    child = make(make(a={}))
    child._proxy_cache["a"] = entry
    if is_c:
        assert child["a"] == ("wrapped", {})


def test_get_takes_names(make):
    opts = make(a=1)
    assert opts.get(key="a") == 1
    assert opts.get("b", default=2) == 2
    assert opts.get(default=3, key="b") == 3
    for wrong in (lambda: opts.get(), lambda: opts.get("a", 1, 2), lambda: opts.get("a", key="a"),
                  lambda: opts.get("a", other=1), lambda: opts.get("a", 1, default=1)):
        with pytest.raises(TypeError):
            wrong()


def test_get_follows_a_subclass(make):
    class Shouting(make):
        def __getitem__(self, key):
            if key == "fails":
                raise ValueError("told to")
            return super().__getitem__(key).upper()

    opts = Shouting(a="a")
    assert opts.get("a") == "A"
    assert opts.get("b", 1) == 1
    with pytest.raises(ValueError, match="told to"):
        opts.get("fails")


def test_a_base_that_is_no_plain_dict(make):
    class Odd(dict):
        def __contains__(self, key):
            return key == "a"

        def __getitem__(self, key):
            return f"odd {key}"

    opts = make(base=Odd())
    assert opts["a"] == "odd a"
    assert "b" not in opts


class Unhashable:
    def __hash__(self):
        raise ValueError("no hash")


def test_errors_are_passed_on(core, make):
    opts = make(make(a=1))
    for fails in (lambda: opts[Unhashable()], lambda: Unhashable() in opts, lambda: opts.get(Unhashable())):
        with pytest.raises(ValueError, match="no hash"):
            fails()
    for name in ("_parent", "_local"):
        broken = make(make(base={"a": 1}))
        delattr(broken, name)
        with pytest.raises(AttributeError):
            broken["a"]

    def fail(opts, key, value):
        raise KeyError("of the wrap")

    make.__getitem__ = core.LayeredLookup("__getitem__", DELETED, fail, make)
    with pytest.raises(KeyError, match="of the wrap"):
        make(make(a={}))["a"]


@pytest.fixture
def snapshot(core):
    """A class of layered dicts that hold what they hand out themselves, and a subclass of it."""

    class Snapshot(Layered):
        pass

    class Below(Snapshot):
        pass

    for kind in ("__getitem__", "__contains__", "get"):
        setattr(Snapshot, kind, core.LayeredLookup(kind, DELETED, Snapshot.wrap, Snapshot, Snapshot))
    return Snapshot, Below


def test_a_snapshot_answers_itself(snapshot):
    opts = snapshot[0](a=1, b=2, d={}, gone=DELETED)
    dict.update(opts, a="held", d={"held": 1}, l=["held"], none=None)
    assert [opts["a"], opts.get("a"), opts.get(key="a", default=5), "a" in opts] == ["held", "held", "held", True]
    assert [opts["none"], opts.get("none", 5), "none" in opts] == [None, None, True]
    assert [opts["b"], opts.get("b"), "b" in opts] == [2, 2, True], "what it does not hold is in the layers"
    assert opts["d"] is opts._local["d"], "a dict or list is handed out by its layer"
    assert [opts.get("l"), "l" in opts, opts.get("gone", 5), "gone" in opts] == [None, False, 5, False]
    with pytest.raises(KeyError):
        opts["l"]


def test_only_the_very_class_is_a_snapshot(snapshot):
    opts = snapshot[0](a=1)
    dict.update(opts, a="held")
    assert snapshot[0](opts)["a"] == 1, "what lies below is asked by its layers"
    opts.__class__ = snapshot[1]
    assert [opts["a"], opts.get("a")] == [1, 1]
    opts.__class__ = snapshot[0]
    assert opts.get("a") == "held"


def test_a_snapshot_passes_errors_on(snapshot):
    opts = snapshot[0](a=1)
    for fails in (lambda: opts[Unhashable()], lambda: Unhashable() in opts, lambda: opts.get(Unhashable())):
        with pytest.raises(ValueError, match="no hash"):
            fails()


def test_arguments(core):
    with pytest.raises(ValueError, match="pop"):
        core.LayeredLookup("pop", DELETED, print, dict)
    with pytest.raises(TypeError, match="snapshot must be a class or None"):
        core.LayeredLookup("get", DELETED, print, dict, "dict")
    assert core.LayeredLookup("__getitem__", DELETED, print, dict, snapshot=None)(Layered(a=1), "a") == 1
    with pytest.raises(TypeError):
        core.LayeredLookup("get", DELETED, print, "dict")
    with pytest.raises(TypeError):
        core.LayeredLookup("get")
    lookup = core.LayeredLookup("__getitem__", DELETED, print, dict)
    for wrong in (lambda: lookup(), lambda: lookup(Layered()), lambda: lookup(Layered(), 1, 2)):
        with pytest.raises(TypeError):
            wrong()


def test_it_is_a_method(make):
    opts = make(a=1)
    assert make.get(opts, "a") == 1
    assert opts.__getitem__("a") == 1
    assert opts.get.__self__ is opts
    assert [*map(opts.get, "ab")] == [1, None]


def test_it_takes_the_place_of_a_function(make):
    def original(self, key):
        """Its text."""

    lookup = functools.wraps(original)(make.__dict__["__getitem__"])
    assert lookup.__wrapped__ is original
    assert (lookup.__name__, lookup.__doc__) == ("original", "Its text.")


def test_written_from_another_thread(make):
    """Reading takes no lock: what is read is whole, and one of the values that were there."""
    root = make(base={})
    child = make(make(root))
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            child._parent._local = {"a": number}
            root._local["b"] = number
            root._local.pop("b", None)
            time.sleep(0.0001)  # or each read waits for its turn at the dict's own lock, without the GIL

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5000):
            assert isinstance(child.get("a", 0), int)
            assert isinstance(child.get("b", 0), int)
            "b" in child
    finally:
        stop.set()
        writer.join(30)
