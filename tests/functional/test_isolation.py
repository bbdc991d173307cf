"""What a job does to its opts, pillar, grains and module globals stays with it, and so does what a run is told."""

import asyncio
import collections
import sys
import threading
import time

import pytest

# -------------------------------------------------------------------------------- a job's changes
TELL = """
import json
def look():
    def plain(value):
        return json.loads(json.dumps(value, default=str, sort_keys=True))
    return {
        "opts": [__opts__.get(key) for key in ("left", "saltenv", "failhard", "plain", "test")],
        "tree": plain(dict(__opts__["tree"])), "list": plain(list(__opts__["list"])),
        "pillar": plain(dict(__pillar__["tree"])), "pillar keys": sorted(__pillar__),
        "grains": plain(dict(__grains__["tree"])), "grains left": __grains__.get("left"),
        "opts pillar": plain(dict(__opts__["pillar"]["tree"])), "opts grains": plain(dict(__opts__["grains"]["tree"])),
        "pillar.get": plain(__salt__["pillar.get"]("tree")), "config.get": plain(__salt__["config.get"]("tree")),
    }
"""
BY_SUBSCRIPT = {
    "opts top": "__opts__['left'] = 1; __opts__['saltenv'] = 'x'; __opts__['failhard'] = True; __opts__['test'] = True",
    "opts top deleted": "del __opts__['plain']",
    "opts popped": "__opts__.pop('plain')",
    "opts updated": "__opts__.update({'left': 1, 'plain': 2})",
    "opts set by default": "__opts__.setdefault('left', 1)",
    "opts nested": "__opts__['tree']['deep']['left'] = 1",
    "opts nested deleted": "del __opts__['tree']['deep']['a']",
    "opts list": "__opts__['list'].append('left')",
    "opts list in tree": "__opts__['tree']['items'].append('left')",
    "opts pillar": "__opts__['pillar']['tree']['left'] = 1",
    "opts grains": "__opts__['grains']['tree']['left'] = 1",
    "pillar top": "__pillar__['left'] = 1",
    "pillar nested": "__pillar__['tree']['left'] = 1",
    "pillar deep": "__pillar__['tree']['deep']['left'] = 1",
    "grains top": "__grains__['left'] = 1",
    "grains nested": "__grains__['tree']['left'] = 1",
}
BY_GET = {
    "opts": "__opts__.get('tree').get('deep')['left'] = 1",
    "opts list": "__opts__.get('list').append('left')",
    "opts values": "[value for key, value in __opts__.items() if key == 'tree'][0]['left'] = 1",
    "opts list of trees": "[tree for tree in __opts__['trees']][0]['left'] = 1",
    "pillar": "__pillar__.get('tree')['left'] = 1",
    "pillar list": "__pillar__.get('list').append('left')",
    "pillar items": "dict(__pillar__.items())['tree']['left'] = 1",
    "pillar.get": "__salt__['pillar.get']('tree')['left'] = 1",
    "pillar.get deep": "__salt__['pillar.get']('tree:deep')['left'] = 1",
    "grains": "__grains__.get('tree')['left'] = 1",
    "grains.get": "__salt__['grains.get']('tree')['left'] = 1",
    "config.option": "__salt__['config.option']('tree')['left'] = 1",
    "config.get": "__salt__['config.get']('tree')['left'] = 1",
    "config.get of pillar": "__salt__['config.get']('only_pillar')['left'] = 1",
}


def told(minion, changes):
    names = list(changes)
    body = "".join(f"def change{number}():\n    {changes[name]}\n" for number, name in enumerate(names))
    minion.module("tell", TELL + body)
    tree = {"a": 1, "deep": {"a": 1}, "items": ["a"]}
    minion.pillar(tree=tree, list=["a"], only_pillar={"a": 1})
    minion.write("grains", "tree: {a: 1, deep: {a: 1}}\n")
    minion._config.update(tree=tree, list=["a"], trees=[{"a": 1}], plain="plain")
    minion.start()
    return names


def changed_in_the_next_job(minion, changes):
    """The changes after which another job does not see the minion as it was, or which failed."""
    names = told(minion, changes)
    before = minion.value("tell.look")
    failed = []
    for number, name in enumerate(names):
        if minion.retcode(f"tell.change{number}") != 0:
            failed.append(f"{name} failed")
        after = minion.value("tell.look")
        if after != before:
            failed.append([name, after])
            before = after
    return failed


def test_changes_by_subscript_are_gone(sides):
    """Top level, nested, lists, deletions."""
    assert sides.both(changed_in_the_next_job, BY_SUBSCRIPT) == []


def test_changes_by_get_are_gone(sides):
    """Of what ``get``, iteration, config.get, pillar.get and grains.get hand out (stock keeps several of them)."""
    assert sides.saltctx(changed_in_the_next_job, BY_GET) == []


def changes_seen_in_the_job(minion, changes):
    """A job sees what it changed itself, in the same way on both."""
    for name, change in changes.items():
        minion.module(f"own{list(changes).index(name)}", TELL + f"def go():\n    {change}\n    return look()\n")
    told(minion, {})
    return {
        name: minion.value(f"own{number}.go") for number, name in enumerate(changes)
    }


def test_a_job_sees_its_own_changes(sides):
    """Each is there for the rest of the function that made it."""
    seen = sides.both(changes_seen_in_the_job, {
        name: BY_SUBSCRIPT[name] for name in (
            "opts top", "opts top deleted", "opts updated", "opts nested", "opts list", "pillar nested", "grains top",
        )
    })
    assert seen["opts top"]["opts"][:4] == [1, "x", True, "plain"]
    assert seen["opts top deleted"]["opts"][3] is None
    assert seen["opts updated"]["opts"][3] == 2
    assert seen["opts nested"]["tree"]["deep"] == {"a": 1, "left": 1}
    assert seen["opts list"]["list"] == ["a", "left"]
    assert seen["pillar nested"]["pillar"]["left"] == 1
    assert seen["grains top"]["grains left"] == 1


def changes_seen_in_nested_calls(minion, changes):
    """What another module that the job calls sees of them, and one that it calls through a util."""
    minion.module("via", "def look():\n    return __salt__['tell.look']()\n", kind="utils")
    for number, change in enumerate(changes.values()):
        minion.module(f"own{number}", f"""
            def go():
                {change}
                return [__salt__["tell.look"](), __utils__["via.look"]()]
        """)
    told(minion, {})
    seen = {name: minion.value(f"own{number}.go") for number, name in enumerate(changes)}
    for nested in (one for name, pair in seen.items() if name[:4] != "opts" for one in pair):
        # That another module's __opts__ share inner dicts with __pillar__ is an accident of Salt's copies.
        del nested["opts pillar"], nested["opts grains"]
    return seen


def test_nested_calls_see_what_they_see_on_stock(sides):
    """Pillar and grains are the job's; a module's ``__opts__`` are its own but for what Salt hands on."""
    seen = sides.both(changes_seen_in_nested_calls, BY_SUBSCRIPT)
    for nested in seen["pillar top"]:
        assert "left" in nested["pillar keys"]
    for nested in seen["pillar nested"]:
        assert nested["pillar"]["left"] == 1
    for nested in seen["grains top"]:
        assert nested["grains left"] == 1


def changes_beside(minion, changes):
    """The changes that a job sees which runs while another holds its own, after making it."""
    names = told(minion, {name: f"{change}; _hold()" for name, change in changes.items()})
    minion.write("ext/modules/tell.py", (minion.root / "ext/modules/tell.py").read_text() + """
import os, time
def _hold():
    open(os.path.join(__salt__["test.echo"](ROOT), "held"), "w").close()
    end = time.monotonic() + 20
    while not os.path.exists(os.path.join(ROOT, "go on")) and time.monotonic() < end:
        time.sleep(0.002)
ROOT = %r
""" % str(minion.root))
    before = minion.value("tell.look")
    seen = []
    for number, name in enumerate(names):
        for flag in ("held", "go on"):
            (minion.root / flag).unlink(missing_ok=True)
        load, results = minion.load(f"tell.change{number}"), []
        thread = threading.Thread(target=lambda load=load, results=results: results.append(minion.run(load)))
        thread.start()
        end = time.monotonic() + 20
        while not (minion.root / "held").exists() and time.monotonic() < end:
            time.sleep(0.002)
        if minion.value("tell.look") != before:
            seen.append(name)
        (minion.root / "go on").touch()
        thread.join(30)
        if results[0].get("retcode") != 0:
            seen.append([name, results[0]])
    return seen


def test_changes_are_not_seen_beside(sides):
    """A job that runs while another has changed something sees none of it."""
    assert sides.saltctx(changes_beside, {**BY_SUBSCRIPT, **{f"by get: {name}": BY_GET[name] for name in BY_GET}}) == []


def other_loader(minion):
    """A module that makes a loader of its own, with other opts."""
    minion.module("ident", "def go():\n    return [__opts__['id'], __salt__['config.get']('id'), __grains__['id']]\n")
    minion.module("own", """
        import copy
        import salt.loader
        def go():
            opts = copy.deepcopy(dict(__opts__))
            opts["id"] = "another"
            opts["grains"] = dict(opts["grains"], id="another")
            return salt.loader.minion_mods(opts)["ident.go"]()
    """)
    minion.start()
    return [minion.value("ident.go"), minion.value("own.go"), minion.value("ident.go")]


def test_a_loader_that_a_module_makes(sides):
    """It has its own opts; the minion's stay what they are in the next job."""
    assert sides.both(other_loader) == [["m1"] * 3, ["another"] * 3, ["m1"] * 3]


def load_of_a_job(minion):
    minion._config["return"] = "no_such_returner"
    minion.start()
    load = minion.load("test.ping")
    before = dict(load)
    return [minion.run(load)["retcode"], load == before]


def test_the_published_load_stays_as_it_was(sides):
    """Stock writes the minion's own returner into it."""
    assert sides.saltctx(load_of_a_job) == [0, True]


# -------------------------------------------------------------------------------- module globals
GLOBALS = {
    "rebound": """
        N = 0
        def go():
            global N
            N += 1
            return N
    """,
    "by a helper function": """
        N = 0
        def _bump():
            global N
            N += 1
        def go():
            _bump()
            return N
    """,
    "deleted": """
        N = 1
        def go():
            global N
            found = 1 if "N" in globals() else 0
            del N
            return found
    """,
    "list": """
        SEEN = []
        def go():
            SEEN.append(1)
            return len(SEEN)
    """,
    "dict": """
        SEEN = {}
        def go():
            SEEN[len(SEEN)] = 1
            return len(SEEN)
    """,
    "set": """
        SEEN = set()
        def go():
            SEEN.add(len(SEEN))
            return len(SEEN)
    """,
    "nested": """
        SEEN = {"a": {"b": []}}
        def go():
            SEEN["a"]["b"].append(1)
            return len(SEEN["a"]["b"])
    """,
    "counter": """
        import collections
        SEEN = collections.Counter()
        def go():
            SEEN["a"] += 1
            return SEEN["a"]
    """,
    "default dict": """
        import collections
        SEEN = collections.defaultdict(list)
        def go():
            SEEN["a"].append(1)
            return len(SEEN["a"])
    """,
    "attribute of an object": """
        class _Seen:
            def __init__(self):
                self.n = 0
        SEEN = _Seen()
        def go():
            SEEN.n += 1
            return SEEN.n
    """,
    "attribute of a class": """
        class _Seen:
            n = 0
        def go():
            _Seen.n += 1
            return _Seen.n
    """,
    "attribute of a function": """
        def _seen():
            pass
        _seen.n = 0
        def go():
            _seen.n += 1
            return _seen.n
    """,
    "default argument": """
        def _seen(kept=[]):
            kept.append(1)
            return len(kept)
        def go():
            return _seen()
    """,
    "iterator": """
        import itertools
        N = itertools.count(1)
        def go():
            return next(N)
    """,
    "cached function": """
        import functools, itertools
        _N = itertools.count(1)
        @functools.lru_cache(None)
        def _n(x):
            return next(_N)
        def go():
            return _n(0)
    """,
    "closure": """
        def _make():
            n = 0
            def bump():
                nonlocal n
                n += 1
                return n
            return bump
        _bump = _make()
        def go():
            return _bump()
    """,
}


def globals_of_modules(minion):
    for number, source in enumerate(GLOBALS.values()):
        minion.module(f"keeps{number}", source)
    minion.start()
    seen = {name: [] for name in GLOBALS}
    for _ in range(3):
        for number, name in enumerate(GLOBALS):
            seen[name].append(minion.value(f"keeps{number}.go"))
    return seen


def test_module_globals_start_over(sides):
    """In each job they are as the file left them."""
    assert sides.both(globals_of_modules) == {name: [1, 1, 1] for name in GLOBALS}


def globals_within_a_job(minion):
    minion.module("keeps", """
        SEEN = []
        def add():
            SEEN.append(1)
            return len(SEEN)
        def go():
            __salt__["keeps.add"]()
            __salt__["other.go"]()
            return [__salt__["keeps.add"](), len(SEEN)]
    """)
    minion.module("other", "def go():\n    return __salt__['keeps.add']()\n")
    minion.start()
    return [minion.value("keeps.go") for _ in range(4)]


def test_module_globals_within_a_job(sides):
    """Functions of a module that are called through ``__salt__`` and the function that calls them share them."""
    assert sides.both(globals_within_a_job) == [[3, 3]] * 4


def globals_side_by_side(minion):
    minion.module("keeps", """
        import time
        SEEN = {}
        CURRENT = None
        def go(number):
            global CURRENT
            CURRENT = number
            SEEN[number] = number
            time.sleep(0.003)
            return [CURRENT, SEEN]
    """)
    minion.start()
    minion.value("keeps.go", 0)
    loads = [minion.load("keeps.go", number) for number in range(120)]
    returns = [ret.get("return") for ret in minion.run_many(loads, 12)]
    return [ret for number, ret in enumerate(returns) if ret != [number, {number: number}]]


def test_module_globals_side_by_side(sides):
    """No job resets or sees those of a running one (stock executes the file anew in the module they share)."""
    assert sides.saltctx(globals_side_by_side) == []


def loads_at_once(minion):
    """
    Instances of a module that jobs load at once.

    With a while around each look of the loader into sys.modules, and before it notes what it has loaded.
    """
    import salt.loader.lazy

    import saltctx.hooks.load

    class SlowModules(collections.UserDict):
        data = sys.modules

        def __init__(self):
            pass

        def __contains__(self, name):
            time.sleep(0.002)
            found = super().__contains__(name)
            time.sleep(0.002)
            return found

    class SlowSys:
        modules = SlowModules()

        def __getattr__(self, name):
            return getattr(sys, name)

    minion.module("keeps", """
        import time
        SEEN = {}
        def go(number):
            SEEN[number] = number
            time.sleep(0.003)
            return SEEN
    """)
    minion.module("steady", """
        NAMES = ("a",)
        def go():
            return __salt__["steady.names"]()
        def names():
            return NAMES
    """)
    time.sleep(0.1)
    minion.start()
    minion.value("keeps.go", 0)
    minion.value("steady.go")

    def slow_note(name, tag):
        forget_frames(name, tag)
        time.sleep(0.004)

    forget_frames = saltctx.hooks.load.forget_frames
    salt.loader.lazy.sys, saltctx.hooks.load.forget_frames = SlowSys(), slow_note
    wrong = []
    for round_ in range(3):
        loads = [
            minion.load("steady.go") if number % 4 == 0 else minion.load("sys.reload_modules") if number % 31 == 1
            else minion.load("keeps.go", number) for number in range(64)
        ]
        for number, ret in enumerate(minion.run_many(loads, 8)):
            expected = ("a",) if number % 4 == 0 else None if number % 31 == 1 else {number: number}
            if ret.get("return", "LOST") != expected:
                wrong.append([round_, number, ret.get("return", "LOST")])
    return wrong


def test_instances_loaded_at_once(sides):
    """Each job has its own instance, and modules that jobs share are whole."""
    assert sides.saltctx(loads_at_once) == []


def taken_back_once_loaded(minion):
    """What a job is told whose module another job takes back as soon as it is loaded."""
    minion.module("cold", "def go():\n    return 1\n")
    minion.start()
    minion.value("test.ping")
    functions = minion.minion.functions
    load = functions._load

    def load_and_take_back(key):
        found = load(key)
        del functions._load
        taking = threading.Thread(target=_unload, args=(functions, "cold"))
        taking.start()
        # It may have to wait until the key was read.
        taking.join(0.3)
        return found

    functions._load = load_and_take_back
    return [minion.value("cold.go"), minion.value("cold.go")]


def _unload(functions, name):
    for known in list(functions._modules.values()):
        if known.name == name:
            functions.unload(known)


def test_a_module_taken_back_as_soon_as_it_is_loaded(sides):
    assert sides.saltctx(taken_back_once_loaded) == [1, 1]


def looked_up_while_taken_back(minion):
    """Whether a function is there for a thread that asks within the moment in which its module is taken back."""
    minion.module("cold", "def go():\n    return 1\n")
    minion.start()
    minion.value("cold.go")
    functions = minion.minion.functions
    unsettle, found = functions._unsettle, []
    looking = threading.Thread(target=lambda: found.append("cold.go" in functions))

    def look():
        del functions._unsettle
        looking.start()
        looking.join(0.3)
        unsettle()

    # As when somebody has listed all functions.
    functions.loaded = True
    functions._unsettle = look
    _unload(functions, "cold")
    looking.join(30)
    return found


def test_a_function_looked_up_while_its_module_is_taken_back(sides):
    assert sides.saltctx(looked_up_while_taken_back) == [True]


def globals_of_a_running_job(minion):
    """A job's globals when a reload and other jobs come in between."""
    minion.module("keeps", """
        import os, time
        SEEN = []
        def go(flag):
            SEEN.append("mine")
            while not os.path.exists(flag):
                time.sleep(0.002)
            return SEEN
        def add():
            SEEN.append("other")
            return SEEN
    """)
    minion.start()
    minion.value("keeps.add")
    load, flag, results = minion.load("keeps.go", str(minion.root / "flag")), minion.root / "flag", []
    thread = threading.Thread(target=lambda: results.append(minion.run(load)))
    thread.start()
    time.sleep(0.3)
    others = [minion.value("keeps.add")]
    minion.job("sys.reload_modules")
    minion.minion.module_refresh()
    others.append(minion.value("keeps.add"))
    flag.touch()
    thread.join(30)
    return [results[0]["return"], others]


def test_globals_of_a_running_job(sides):
    assert sides.saltctx(globals_of_a_running_job) == [["mine"], [["other"], ["other"]]]


def reported(minion):
    minion.module("keeps", "SEEN = []\ndef go():\n    SEEN.append(1)\n    return len(SEEN)\n")
    minion.start()
    for _ in range(3):
        minion.job("keeps.go")
    return [reason.replace(str(minion.root), "ROOT") for reason in minion.reasons()]


def test_a_module_that_changes_its_globals_is_reported(sides):
    assert sides.saltctx(reported) == [
        "first job of this minion",
        "module ROOT/ext/modules/keeps.py changes its global SEEN: each job has an instance of its own",
    ]


def class_that_grows(minion):
    """A class of the module gets another attribute while it is looked at, as a thread of the module's may give it one."""
    minion.module("grows", """
        class Registry:
            pass
        class Entry:
            @property
            def __class__(self):  # isinstance() asks for it
                setattr(Registry, f"entry{len(vars(Registry))}", Entry())
                return object
        Registry.first = Entry()
        def go():
            return hasattr(Registry, "first")
    """)
    minion.start()
    return [minion.value("grows.go"), minion.value("grows.go")]


def test_a_class_that_grows_while_it_is_looked_at(sides):
    assert sides.both(class_that_grows) == [True, True]


def proxy_of_nothing(minion):
    """A module whose global cannot be looked at, as Flask's ``current_app`` outside a request, and another that counts."""
    minion.module("proxies", """
        class Proxy:
            def __getattribute__(self, name):
                raise RuntimeError("there is nothing behind this proxy")
        _current = Proxy()  # public ones Salt looks at, too
        seen = 0
        def go():
            global seen
            seen += 1
            return seen
    """)
    minion.start()
    return [minion.value("proxies.go"), minion.value("proxies.go")]


def test_a_global_that_cannot_be_looked_at(sides):
    assert sides.both(proxy_of_nothing) == [1, 1]


def module_that_cannot_be_made(minion):
    """sys.modules has a module that is made when it is first asked for something, and cannot be."""
    minion.module("lazy", """
        import sys
        class Late:
            def __getattr__(self, name):
                raise ImportError("what it stands for is not installed")
        sys.modules["saltctx_late"] = Late()
        def go():
            return "saltctx_late" in sys.modules
    """)
    minion.start()
    return [minion.value("lazy.go"), minion.value("lazy.go")]


def test_an_imported_module_that_cannot_be_made(sides):
    assert sides.both(module_that_cannot_be_made) == [True, True]


# -------------------------------------------------------------------------------- refreshes count from the next job
EVERYWHERE = """
def go():
    return {
        "dunder": [__pillar__.get("who"), __grains__.get("role"), __opts__.get("added")],
        "opts": [__opts__["pillar"].get("who"), __opts__["grains"].get("role")],
        "get": [
            __salt__["pillar.get"]("who", unmask=True), __salt__["grains.get"]("role"),
            __salt__["config.get"]("added", None),
        ],
        "util": __utils__["all.go"](),
    }
"""
IN_LOADER = "[__pillar__.get('who'), __grains__.get('role'), __opts__.get('added')]"


def everywhere(minion):
    minion.module("all", EVERYWHERE)
    minion.module("all", f"def go():\n    return {IN_LOADER}\n", kind="utils")
    minion.module("all", f"def execute(opts, data, func, args, kwargs):\n    return {IN_LOADER}\n", kind="executors")
    minion.module("all", f"""
        import json
        def returner(ret):
            with open(__opts__["root_dir"] + "/returned", "w") as file:
                json.dump({IN_LOADER}, file)
    """, kind="returners")
    minion.module("all", f"""
        def go(name):
            return {{"name": name, "result": True, "changes": {{}}, "comment": str({IN_LOADER})}}
    """, kind="states")
    minion.pillar(who="one")
    minion.write("grains", "role: web\n")
    minion.start()

    def look():
        seen = minion.value("all.go")
        seen["executor"] = minion.value("test.ping", _load={"module_executors": ["all"]})
        minion.job("test.ping", _load={"ret": "all"})
        seen["returner"] = (minion.root / "returned").read_text()
        seen["state"] = next(iter(minion.value("state.single", "all.go", name="x").values()))["comment"]
        return seen

    seen = [look()]
    minion.pillar(who="two")
    minion.refresh_pillar()
    seen.append(look())
    minion.refresh_grains(role="db")
    seen.append(look())
    minion.minion.opts["added"] = "yes"
    seen.append(look())
    minion.minion.opts.pop("added")
    seen.append(look())
    return seen


def expected_everywhere(who, role, added):
    three = [who, role, added]
    text = str(three).replace("'", '"').replace("None", "null")
    return {
        "dunder": three, "opts": [who, role], "get": three, "util": three, "executor": three, "returner": text,
        "state": str(three),
    }


def test_refreshes_count_everywhere(sides):
    """Pillar, grains and opts of the next job, in modules, utils, executors, returners and states, by every way."""
    assert sides.both(everywhere) == [
        expected_everywhere("one", "web", None), expected_everywhere("two", "web", None),
        expected_everywhere("two", "db", None), expected_everywhere("two", "db", "yes"),
        expected_everywhere("two", "db", None),
    ]


def refreshed_under_a_job(minion, look_at_opts=False):
    """What a running job reads before and after its minion's pillar, grains and opts are others."""
    minion.module("slow", """
        import os, time
        def _look():
            return [
                __pillar__.get("who"), __grains__.get("role"), __salt__["pillar.get"]("who", unmask=True),
                __salt__["grains.get"]("role"),
            ] + ([__opts__["pillar"].get("who"), __opts__["grains"].get("role")] if flag_of_opts() else [])
        def flag_of_opts():
            return os.path.exists(__opts__["root_dir"] + "/look at opts")
        def go(flag=None):
            before = _look()
            while flag and not os.path.exists(flag):
                time.sleep(0.002)
            return [before, _look()]
    """)
    minion.pillar(who="one")
    minion.write("grains", "role: web\n")
    if look_at_opts:
        minion.write("look at opts", "")
    minion.start()
    minion.value("slow.go")
    load, flag, results = minion.load("slow.go", str(minion.root / "flag")), minion.root / "flag", []
    thread = threading.Thread(target=lambda: results.append(minion.run(load)))
    thread.start()
    time.sleep(0.3)
    minion.pillar(who="two")
    minion.refresh_pillar()
    minion.refresh_grains(role="db")
    after = minion.value("slow.go")
    flag.touch()
    thread.join(30)
    return [results[0]["return"], after]


def test_a_running_job_keeps_what_it_reads(sides):
    """A refresh in the middle of a job changes neither its pillar nor its grains."""
    (before, after), following = sides.both(refreshed_under_a_job)
    assert before == after == ["one", "web", "one", "web"]
    assert following == [["two", "db", "two", "db"]] * 2


def test_a_running_job_keeps_what_it_reads_in_opts(sides):
    """Neither does it change ``__opts__["pillar"]``, which on stock Salt is the refreshed one at once."""
    (before, after), following = sides.saltctx(refreshed_under_a_job, True)
    assert before == after == ["one", "web"] * 3
    assert following == [["two", "db"] * 3] * 2


def grains_before_each_job(minion):
    """``grains_refresh_pre_exec``, as the minion does it when a job is published."""
    minion.write("grains", "role: web\n")
    minion.start()
    seen = []
    for role in ("web", "db", "cache"):
        minion.write("grains", f"role: {role}\n")
        load = minion.load("grains.get", "role")
        before = set(threading.enumerate())
        asyncio.run(minion.minion._handle_decoded_payload(load))
        for thread in set(threading.enumerate()) - before:
            thread.join(30)
        seen.append(minion.returns.pop(load["jid"], {}).get("return"))
    return seen


def test_grains_refresh_pre_exec(sides):
    assert sides.both(grains_before_each_job, opts={"grains_refresh_pre_exec": True}) == ["web", "db", "cache"]


# -------------------------------------------------------------------------------- what a state run is told
ACT = """
import time
def done(name, delay=0.005, **kwargs):
    before = __opts__["test"]
    time.sleep(delay)
    test = __opts__["test"]
    seen = [before, test, __salt__["acts.test"]()]
    return {
        "name": name, "result": None if test else True, "comment": str(seen),
        "changes": {} if test else {"acted": name},
    }
"""


def acting(minion):
    minion.module("acts", ACT, kind="states")
    minion.module("acts", """
        def test():
            return __opts__["test"]
        def nested(name, **kwargs):
            found = __salt__["state.single"]("acts.done", name=name, concurrent=True, **kwargs)
            return [chunk["result"] for chunk in found.values()] + [__opts__.get("test")]
    """)
    minion.sls("act", "acted:\n  acts.done: []\n")
    return minion.start()


def dry_and_real_runs(minion, kind):
    """Of 40 pairs of a dry and a real run, eight at a time: those that were not as told."""
    acting(minion)
    loads, dry = [], []
    for number in range(80):
        kwargs = {"concurrent": True, "test": True} if number % 2 else {"concurrent": True}
        dry.append(bool(number % 2))
        if kind == "state.single":
            loads.append(minion.load("state.single", "acts.done", f"name=n{number}", **kwargs))
        else:
            loads.append(minion.load("state.apply", "act", **kwargs))
    wrong = []
    for ret, is_dry in zip(minion.run_many(loads, 8), dry):
        chunks = list(ret["return"].values()) if isinstance(ret.get("return"), dict) else []
        as_told = len(chunks) == 1 and (
            chunks[0]["result"] is (None if is_dry else True)
            and bool(chunks[0]["changes"]) is not is_dry
            and chunks[0]["comment"] == str([is_dry] * 3)
        )
        if not as_told:
            wrong.append([is_dry, chunks or ret])
    return wrong


@pytest.mark.parametrize("kind", ["state.single", "state.apply"])
def test_no_dry_run_acts(sides, kind):
    """test=True runs and real ones side by side: a dry one never acts, a real one always (stock: some do otherwise)."""
    assert sides.saltctx(dry_and_real_runs, kind) == []


def nested_dry_and_real_runs(minion):
    acting(minion)
    loads = [
        minion.load("acts.nested", f"n{number}", **({"test": True} if number % 2 else {})) for number in range(40)
    ]
    found = [ret.get("return") for ret in minion.run_many(loads, 8)]
    return [
        one for number, one in enumerate(found) if one != [None if number % 2 else True, False]
    ]


def test_no_dry_run_acts_when_nested(sides):
    """State runs that an execution module starts: the caller's own ``__opts__["test"]`` stays what it was."""
    assert sides.saltctx(nested_dry_and_real_runs) == []


def dry_and_real_runs_of_all_kinds(minion):
    import dryruns

    minion.module("dryrun", dryruns.STATE, kind="states")
    minion.module("dryrun", dryruns.MODULE)
    for below in ("srv", "dev"):
        minion.sls("act", dryruns.SLS, below=below)
    log = minion.write("noted", "")
    minion.start()
    runs = list(dryruns.runs(32, str(log)))
    returns = minion.run_many([minion.load(run.fun, *run.args, **run.kwargs) for run in runs], 8)
    found = dryruns.judge([(run, ret.get("return")) for run, ret in zip(runs, returns)], log)
    return [found["pairs"], found["wrong"], found["example"]]


def test_no_dry_run_acts_with_overrides_saltenvs_and_nesting(sides):
    """As bench/dryruns.py, which runs many more."""
    assert sides.saltctx(dry_and_real_runs_of_all_kinds) == [32, {}, ""]


def dry_run_once(minion):
    acting(minion)
    found = []
    for kwargs in ({"test": True}, {}, {"test": True}, {"test": False}, {}):
        chunk = next(iter(minion.value("state.single", "acts.done", name="x", **kwargs).values()))
        found.append([chunk["result"], bool(chunk["changes"]), minion.value("acts.test")])
    return found


def test_a_dry_run_counts_once(sides):
    """One after the other: neither a dry run nor a real one is left in what the next job reads."""
    dry, real = [None, False, False], [True, True, False]
    assert sides.both(dry_run_once) == [dry, real, dry, real, real]


def option_of_the_minion(minion):
    acting(minion)
    minion.module("reads", """
        def by_subscript():
            return __opts__["test"]
        def by_get():
            return __opts__.get("test")
        def by_config():
            return __salt__["config.get"]("test")
        def sets_true():
            __opts__["test"] = True
            return [__opts__["test"], __salt__["reads.by_subscript"](), __salt__["reads.by_get"]()]
        def sets_text():
            __opts__["test"] = "text"
            return __opts__["test"]
    """)
    funs = ("by_subscript", "by_get", "by_config", "sets_true", "by_subscript", "sets_text", "by_get")
    found = [minion.value(f"reads.{fun}") for fun in funs]
    for kwargs in ({}, {"test": True}, {"test": False}):
        found.append(next(iter(minion.value("state.single", "acts.done", name="x", **kwargs).values()))["result"])
    return found


@pytest.mark.parametrize(("value", "first", "states"), [
    (False, False, [True, None, True]), (True, True, [None, None, True]), ("text", True, [None, None, True]),
])
def test_the_test_option(sides, value, first, states):
    """``test`` of the minion config, as each function that reads it sees it: Salt hands modules a bool."""
    found = sides.both(option_of_the_minion, opts={"test": value})
    assert found[0] == found[1] == found[4] == found[6] == first
    assert found[3][0] is True
    assert found[5] == "text"
    assert found[7:] == states


def runs_of_their_own(minion):
    """Runs with pillar overrides and saltenvs of their own, and plain jobs, eight at a time."""
    minion.module("reads", """
        import time
        def pillar(key):
            return __pillar__.get(key)
        def opts_pillar(key):
            time.sleep(0.004)
            return (__opts__.get("pillar") or {}).get(key)
        def saltenv():
            time.sleep(0.004)
            return __opts__.get("saltenv")
    """)
    read = (
        "pillar.get('n')", "salt['pillar.get']('n')", "salt['reads.pillar']('n')", "salt['reads.opts_pillar']('n')",
        "salt['reads.saltenv']()", "saltenv",
    )
    name = "|".join(f"{{{{ {one} }}}}" for one in read)
    for below in ("srv", "dev"):
        minion.sls("run", f"x:\n  test.nop:\n    - name: {below}|{name}\n", below=below)
    minion.start()
    loads, expected = [], []
    for number in range(48):
        kind = number % 4
        if kind == 0:
            loads.append(minion.load("state.apply", "run", pillar={"n": f"p{number}"}, concurrent=True))
            expected.append("|".join(["srv", *[f"p{number}"] * 4, "base", "base"]))
        elif kind == 1:
            loads.append(minion.load("state.apply", "run", pillar={"n": f"p{number}"}, saltenv="dev", concurrent=True))
            expected.append("|".join(["dev", *[f"p{number}"] * 4, "dev", "dev"]))
        else:
            loads.append(minion.load("reads.saltenv") if kind == 2 else minion.load("reads.opts_pillar", "n"))
            expected.append(None)
    wrong = []
    for ret, value in zip(minion.run_many(loads, 8), expected):
        found = ret.get("return", "LOST")
        if isinstance(found, dict):
            found = [chunk.get("name") for chunk in found.values()][0]
        if found != value:
            wrong.append([value, found])
    return wrong


def test_pillar_overrides_and_saltenvs_side_by_side(sides):
    """Each run reads its own, by every way; a plain job beside them reads the minion's."""
    assert sides.saltctx(runs_of_their_own) == []


def overrides_once(minion):
    minion.module("reads", """
        def go():
            return [__pillar__.get("n"), (__opts__.get("pillar") or {}).get("n"), __opts__.get("saltenv")]
    """)
    minion.sls("run", "x:\n  test.nop:\n    - name: \"{{ salt['reads.go']() }}\"\n")
    minion.pillar(n="own")
    minion.start()

    def run(**kwargs):
        return next(iter(minion.value("state.apply", "run", **kwargs).values()))["name"]

    return [run(pillar={"n": "given"}), minion.value("reads.go"), run(), minion.value("reads.go")]


def test_a_pillar_override_counts_once(sides):
    given, plain, again, last = sides.both(overrides_once)
    assert given.startswith("['given', 'given'")
    assert again.startswith("['own', 'own'")
    assert plain == last == ["own", "own", None]


# -------------------------------------------------------------------------------- two minions
def two_minions(minion):
    from sides import ScenarioMinion

    source = """
        import time
        def go(delay=0.003):
            before = [__opts__["id"], __grains__["id"]]
            __context__[__opts__["id"]] = 1
            time.sleep(delay)
            return before + [__opts__["id"], __grains__["id"], __salt__["config.get"]("id"), len(__context__)]
    """
    other = ScenarioMinion(minion.side, minion_id="m2")
    wrong = []
    try:
        for one in (minion, other):
            one.module("ident", source)
            one._config["loaded_base_name"] = f"salt.loaded.of_{one._config['id']}"
            one.start()

        def work(one):
            name = one._config["id"]
            for _ in range(20):
                found = one.run(one.load("ident.go"))
                if found.get("return") != [name] * 5 + [2]:
                    wrong.append([name, found])

        threads = [threading.Thread(target=work, args=(one,)) for one in (minion, other) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.__exit__()
    return wrong


def test_two_minions_in_one_process(sides):
    """Jobs of both at once: each reads its own minion's opts and grains (stock mixes them up)."""
    assert sides.saltctx(two_minions) == []


# -------------------------------------------------------------------------------- the opts an executor is handed
EXECUTOR = """
    def execute(opts, data, func, args, kwargs):
        whole = {**opts}
        seen = [
            isinstance(opts, dict), opts["id"], whole["id"], sorted(whole) == sorted(opts) == sorted(opts.keys()),
            len(whole) == len(opts), whole.get("new"), opts.get("new"), whole["file_roots"]["base"][1:],
        ]
        opts["held"] = held = list(opts.get("held", ()))  # equal to what is there, and another object
        held.append(len(held))
        seen.append(list({**opts}["held"]))
        opts["new"] = opts.get("new", 0) + 1
        opts["file_roots"]["base"].append(str(opts["new"]))
        again = {**opts}
        seen += [again["new"], "new" in opts, list(opts).count("new"), again["file_roots"]["base"][1:]]
        if opts["new"] == 3:
            del opts["new"]
            seen += ["new" in opts, "new" in {**opts}, "new" in list(opts), opts.pop("new", "gone")]
        return seen
"""


def executor_writes(minion):
    """What an executor reads in the opts it is handed, and keeps there, job after job."""
    minion.module("keeps", EXECUTOR, kind="executors")
    minion.start()
    found = []
    for _ in range(5):
        found.append(minion.value("test.ping", _load={"module_executors": ["keeps"]}))
        found.append([minion.minion.opts.get("new"), "new" in {**minion.minion.opts}])
    return found


WRITTEN_BESIDE = """
    import builtins
    def execute(opts, data, func, args, kwargs):
        theirs, found = builtins.minion_opts, []
        def see():
            for key in ("late", "id", "log_level"):
                found.append([opts.get(key, "gone"), key in opts, {**opts}.get(key, "gone"), key in list(opts)])
        see()
        theirs["late"] = 1
        see()
        theirs["late"] = 2
        theirs["log_level"] = "quiet"
        see()
        del theirs["late"]
        theirs.update(late=[3])
        see()
        theirs["late"].append(4)
        theirs.mutate_key("log_level", "warning")
        see()
        theirs.pop("late")
        theirs.setdefault("log_level", "x")
        theirs.set_shared("id", "m1")
        see()
        return [each if isinstance(each, (bool, str, int)) else list(each) for row in found for each in row]
"""


def written_beside(minion):
    """What an executor reads in the opts it is handed while others write to the minion's."""
    import builtins

    minion.module("beside", WRITTEN_BESIDE, kind="executors")
    minion.start()
    builtins.minion_opts = minion.minion.opts
    return [minion.value("test.ping", _load={"module_executors": ["beside"]}) for _ in range(3)]


def test_the_minions_opts_written_beside(sides):
    """Whoever writes to the minion's opts, by whatever name, is seen at once by who has them."""
    found = sides.both(written_beside)
    assert found[0] == found[2]
    assert 2 in found[0] and "quiet" in found[0]


THROUGH = """
    import builtins
    def execute(opts, data, func, args, kwargs):
        theirs, found = builtins.minion_opts, []
        for kind in ("keys", "values", "items"):
            theirs["late"] = kind
            there = len(opts)
            through = iter(getattr(opts, kind)())
            next(through)
            theirs[f"later {kind}"] = 1
            assert f"later {kind}" in list(opts)  # as another job does
            try:
                found.append(len(list(through)) - there)
            except RuntimeError as exc:
                found.append(str(exc))
        return found
"""


def gone_through_beside(minion):
    """How much of its opts an executor has still before it, beside one of a job that finds another key."""
    import builtins

    minion.module("through", THROUGH, kind="executors")
    minion.start()
    builtins.minion_opts = minion.minion.opts
    return minion.value("test.ping", _load={"module_executors": ["through"]})


def test_opts_gone_through_beside_others(sides):
    """Going through the opts of the minion goes on, whoever else does so or writes to them (on stock it raises)."""
    assert sides.saltctx(gone_through_beside) == [-1, -1, -1]


def copied_beside(minion):
    """Copies of opts that jobs are handed, and of opts over them, while all who make some write to them: what is wrong."""
    from salt.utils.optsdict import OptsDict

    from saltctx.hooks.optsdict import hand

    minion.start()
    minion.value("test.ping")
    theirs = minion.minion.opts
    handed, wrong = [], []

    def hand_and_write():
        handed.append(hand(theirs))
        theirs["handed"] = len(handed)

    start = threading.Barrier(4, hand_and_write)
    whole = len(theirs)

    def copy(name):
        for turn in range(15):
            start.wait()
            for number in range(10):
                theirs[f"{name} {turn} {number}"] = 1
                try:
                    copies = {**handed[-1]}, dict(handed[-1].items()), {**OptsDict.from_parent(theirs)}
                except RuntimeError as exc:
                    wrong.append(str(exc))
                else:
                    wrong.extend(len(each) for each in copies if len(each) < whole)

    threads = [threading.Thread(target=copy, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_opts_copied_beside_others(sides):
    """As each job copies them when it begins: whole, whoever else does so, with the GIL and without."""
    assert sides.saltctx(copied_beside) == []


def test_the_opts_an_executor_is_handed(sides):
    """They are the minion's own, for reading and for writing, on stock too."""
    found = sides.both(executor_writes)
    assert [each[0] for each in found[1::2]] == [1, 2, None, 1, 2]
