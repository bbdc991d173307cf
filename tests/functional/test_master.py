"""A master that asks for saltctx compiles the same pillars as Salt's own."""

import asyncio
import getpass
import pathlib

import pytest

EXT_PILLAR = """
    SEEN = []
    WORD = "one"

    def ext_pillar(minion_id, pillar, *args, **kwargs):
        SEEN.append(minion_id)
        __context__["seen"] = __context__.get("seen", 0) + 1
        return {
            "ext": {
                "word": WORD, "seen": list(SEEN), "context": __context__["seen"], "args": args,
                "minion_id": __opts__["minion_id"], "grain": __grains__["role"], "so_far": sorted(pillar),
                "echo": __salt__["test.echo"](minion_id), "own": __salt__["own.name"](),
            },
        }
"""
EXECUTION_MODULE = """
    CALLS = []

    def name():
        CALLS.append(1)
        return [__opts__["id"], __grains__["id"], __opts__.get("test"), len(CALLS), sorted(__pillar__)]
"""
TOP = """
    base:
      '*':
        - common
      'role:web':
        - match: grain
        - web.{{ grains['id'] }}
"""
COMMON = """
    id: {{ grains['id'] }}
    env: {{ saltenv }}
    own: {{ salt['own.name']() | json }}
    word: first
"""
# (minion id, what else its request for a pillar says)
REQUESTS = (
    ("m1", {}),
    ("m2", {"pillar_override": {"word": "override"}}),
    ("m1", {"pillar_override": {"other": {"a": 1}}, "saltenv": "dev"}),
    ("m3", {"extra_minion_data": {"x": 1}}),
    ("m2", {"pillarenv": "dev"}),
    ("m3", {"ext": {"unasked": []}}),
    ("no such id/..", {}),
    ("m2", {}),
)


def master_of(minion, **opts):
    """The AESFuncs of a master whose pillar files are those of the scenario."""
    import salt.config
    import salt.master
    import salt.utils.yaml

    root = pathlib.Path(minion.root, "master")
    minion.module("own_pillar", EXT_PILLAR, kind="pillar", below="master/ext")
    minion.module("own", EXECUTION_MODULE, below="master/ext")
    minion.sls("top", TOP, below="master/pillar")
    minion.sls("common", COMMON, below="master/pillar")
    for name in ("m1", "m2"):
        minion.sls(f"web/{name}", f"web: {{{{ grains['role'] }}}} {name}\n", below="master/pillar")
    minion.sls("top", "dev:\n  '*':\n    - only\n", below="master/dev")
    minion.sls("only", "only: dev\n", below="master/dev")
    config = {
        "user": getpass.getuser(), "root_dir": str(root), "interface": "127.0.0.1", "extension_modules": str(root / "ext"),
        "pillar_roots": {"base": [str(root / "pillar")], "dev": [str(root / "dev")]},
        "ext_pillar": [{"own_pillar": ["given"]}], "saltctx": minion.side == "saltctx", **opts,
    }
    conf_file = minion.write("master/conf/master", salt.utils.yaml.safe_dump(config))
    opts = salt.config.master_config(str(conf_file))
    for name in ("pki_dir", "cachedir", "sock_dir"):
        pathlib.Path(opts[name]).mkdir(parents=True, exist_ok=True)
    return salt.master.AESFuncs(opts)


def load_of(minion_id, **said):
    grains = {"id": minion_id, "role": "db" if minion_id == "m3" else "web"}
    return {"cmd": "_pillar", "id": minion_id, "grains": grains, "saltenv": None, **said}


def pillar_of(master, minion_id, **said):
    answer = master.run_func("_pillar", load_of(minion_id, **said))
    return answer[0] if isinstance(answer, tuple) else asyncio.run(answer)[0]


def requests(minion):
    master = master_of(minion)
    return [pillar_of(master, minion_id, **said) for minion_id, said in REQUESTS]


def test_pillars_are_the_same(sides):
    found = sides.both(requests)
    assert [pillar["ext"]["minion_id"] for pillar in found if pillar] == ["m1", "m2", "m1", "m3", "m2", "m3", "m2"]
    # Each compile starts over with the modules' globals and context, as a loader of its own did.
    assert {(*pillar["ext"]["seen"], pillar["ext"]["context"]) for pillar in found if pillar} == {
        ("m1", 1), ("m2", 1), ("m3", 1),
    }
    assert found[1]["word"] == "override"
    assert found[2]["other"] == {"a": 1}
    assert found[4]["only"] == "dev"
    assert found[6] is False


def requests_at_once(minion):
    master = master_of(minion, master_async_mworker=True)

    async def all_at_once():
        loads = [load_of(minion_id, **said) for minion_id, said in REQUESTS * 3]
        return await asyncio.gather(*(master._pillar(load) for load in loads))

    return asyncio.run(all_at_once())


def test_requests_in_one_event_loop(sides):
    """With ``master_async_mworker`` a worker answers as many requests as come."""
    found = sides.both(requests_at_once)
    assert found[: len(REQUESTS)] == found[len(REQUESTS) : 2 * len(REQUESTS)] == sides.saltctx(requests)


def edited(minion):
    """What each pillar says after each of a series of changes on the master."""
    master = master_of(minion)
    found = []

    def note(what):
        pillar = pillar_of(master, "m1")
        found.append([
            what, pillar.get("word"), pillar.get("own"), pillar.get("web"), pillar.get("ext", {}).get("word"),
            pillar.get("added"), pillar.get("_errors"),
        ])

    note("as it was")
    minion.sls("common", COMMON.replace("first", "secnd"), below="master/pillar")
    note("a pillar file was edited")
    module = minion.module("own_pillar", EXT_PILLAR.replace('"one"', '"two"'), kind="pillar", below="master/ext")
    note("the module of an external pillar was edited")
    minion.module("own", EXECUTION_MODULE.replace("len(CALLS)", "-1"), below="master/ext")
    note("an execution module was edited")
    minion.module("added", "def ext_pillar(*_): return {'added': 1}", kind="pillar", below="master/ext")
    master.opts["ext_pillar"] = [*master.opts["ext_pillar"], {"added": []}]
    note("the module of another was added")
    minion.sls("top", "base:\n  'm1':\n    - web.m1\n", below="master/pillar")
    note("the top file was edited")
    minion.remove(module)
    note("the first module was removed")
    minion.sls("web/m1", "web: {{ 1 / 0 }}\n", below="master/pillar")
    note("a pillar file fails")
    minion.sls("web/m1", "web: mended\n", below="master/pillar")
    note("and is mended")
    return found


def test_what_changes_on_the_master_counts(sides):
    found = {what: said for what, *said in sides.both(edited)}
    assert found["a pillar file was edited"][0] == "secnd"
    assert found["the module of an external pillar was edited"][3] == "two"
    assert found["an execution module was edited"][1][3] == -1
    assert found["the module of another was added"][4] == 1
    assert found["the first module was removed"][3] is None
    assert found["a pillar file fails"][5]
    assert found["and is mended"][2] == "mended"


LOOKS = """
    import salt.loader.context

    def name():
        return type(salt.loader.context.loader_ctxvar.get()).__module__
"""


def loaders(minion, opts):
    """Where the classes of two pillars' loaders, and of the worker's own, are from, and what was said of saltctx."""
    import salt.loader

    from saltctx.hooks import deep, passthroughs

    minion.module("looks", LOOKS, below="master/ext")
    minion.sls("looks", "loader: {{ salt['looks.name']() | json }}\n", below="master/pillar")
    master = master_of(minion, **opts)
    minion.sls("top", "base:\n  '*':\n    - looks\n", below="master/pillar")
    pillars = [pillar_of(master, "m1") for _ in range(2)]
    return {
        "pillar": [pillar["loader"] for pillar in pillars],
        "own": [type(make(master.opts)).__module__ for make in (salt.loader.minion_mods, salt.loader.runner)],
        "passthroughs": passthroughs.places(), "deep": deep.places() != [], "logged": minion.logged(),
    }


PASSTHROUGHS = ["salt.master.AESFuncs._pillar", "salt.master.AESFuncs._sync_pillar"]
STOCK = ["salt.loader.lazy"] * 2
OURS = ["saltctx.hooks.loader"] * 2


@pytest.mark.parametrize("opts", [
    {"saltctx": True}, {"saltctx": {"freshness": "watch"}}, {"saltctx": True, "multiprocessing": False},
])
def test_only_pillars_run_on_saltctx(sides, opts):
    """What else the worker loads (wheel modules, its own minion) is Salt's."""
    found = sides.saltctx(loaders, opts)
    assert found["pillar"] == OURS
    assert found["own"] == STOCK
    assert found["deep"]
    assert set(PASSTHROUGHS) < set(found["passthroughs"])
    assert found["logged"] == []


@pytest.mark.parametrize("value", [False, None, {"enabled": False}])
def test_switched_off(sides, value):
    found = sides.saltctx(loaders, {"saltctx": value})
    assert found["pillar"] == STOCK
    assert not found["deep"]
    assert found["logged"] == []


def test_wrong_config(sides):
    """Said once, with the key and the file; the minions have their pillars."""
    found = sides.saltctx(loaders, {"saltctx": {"frehsness": "stat"}})
    assert found["pillar"] == STOCK
    (line,) = found["logged"]
    for word in ("master", "'frehsness'", "did you mean freshness?", "/master/conf/master"):
        assert word in line


def other_master(minion):
    """A master whose way to a pillar is not the one that saltctx knows."""
    import salt.master

    original = salt.master.AESFuncs._sync_pillar
    salt.master.AESFuncs._sync_pillar = lambda self, load, more=None: original(self, load)
    return loaders(minion, {})


def test_unknown_master(sides):
    found = sides.saltctx(other_master)
    assert found["pillar"] == STOCK
    assert found["passthroughs"] == []
    (line,) = found["logged"]
    assert "salt.master.AESFuncs._sync_pillar(self, load)" in line
    assert "found (self, load, more)" in line
