"""Dicts over others are read while their layers are assigned, filled, hidden and emptied."""

from harness import core, run

DELETED = object()


class Layered(dict):
    def __init__(self, parent=None):
        super().__init__()
        self._parent, self._base, self._local, self._proxy_cache = parent, {}, {}, {}

    def wrap(self, key, value):
        proxy = list(value)
        self._proxy_cache[key] = proxy, id(value)
        return proxy


class Snapshot(Layered):
    pass


class Written(Layered):
    """What a snapshot becomes by an assignment of its class."""


for kind in ("__getitem__", "__contains__", "get"):
    setattr(Layered, kind, core.LayeredLookup(kind, DELETED, Layered.wrap, Layered, Snapshot))

snapshot = Snapshot()
snapshot._local["s"] = "s"
root = Layered()
middle = Layered(root)
leaf = Layered(middle)


def assign(rng):
    node, key = rng.choice((root, middle, leaf)), rng.choice("abc")
    kind = rng.randrange(8)
    if kind == 0:
        node._local[key] = [key]
    elif kind == 1:
        node._local.pop(key, None)
    elif kind == 2:
        node._local = {key: DELETED}
    elif kind == 3:
        root._base = {key: [key] for key in "abc"}
    elif kind == 4:
        snapshot.__class__ = rng.choice((Snapshot, Written))
    elif kind == 5:
        if rng.random() < 0.5:
            dict.__setitem__(snapshot, "s", "s")
        else:
            dict.clear(snapshot)
    elif kind == 6:
        node._proxy_cache.clear()
    else:
        leaf._parent = middle if rng.random() < 0.5 else root


def use(rng):
    key = rng.choice("abc")
    assert leaf.get(key, [key]) == [key]
    assert (key in leaf) in (True, False)
    try:
        assert leaf[key] == [key]
    except KeyError:
        pass
    assert snapshot["s"] == snapshot.get("s") == "s"
    assert "s" in snapshot


def check():
    for node in (root, middle, leaf):
        node._local = {}
    root._base = {"a": [1]}
    leaf._proxy_cache.clear()
    assert leaf["a"] == [1]


if __name__ == "__main__":
    run(assign, assign, use, use, check=check)
