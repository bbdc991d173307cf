"""What a state run builds beside its states, with saltctx as on stock: module directories, the local file server's cache."""

import os
import sys


# -------------------------------------------------------------------------------- salt.loader._module_dirs
def directories(minion):
    """Where loaders look, asked twice for each kind, after each change of what it hangs on."""
    minion.start()
    import salt.loader

    opts = dict(minion.minion.opts, saltctx=None)
    more = minion.root / "more"
    for name in ("modules", "_states", "resources/ssh/modules"):
        (more / name).mkdir(parents=True)
    found = []

    def look(**changes):
        for kind in ("modules", "states", "renderers", "utils"):
            for _ in range(2):
                made = salt.loader._module_dirs({**opts, **changes}, kind, tag=kind.rstrip("s"))
                found.append([str(path).replace(str(minion.root), "ROOT") for path in made])
                made.append("nobody else finds it")
        found.append(salt.loader._module_dirs({**opts, **changes}, "modules", "module", ext_type_dirs="own_dirs"))

    look()
    look(module_dirs=[str(more)])
    look(extension_modules=str(more))
    look(module_dirs=["/nowhere"], states_dirs=["/x"], module_type_dirs=["/y"])
    look(state_dirs=["/x"])
    look(state_dirs=["/y"], own_dirs=["/own"])
    look(resource_type="ssh", extension_modules=str(more))
    (more / "modules").rmdir()
    look(module_dirs=[str(more)])
    return [[str(path).replace(str(minion.root), "ROOT") for path in each] for each in found]


def test_module_directories(sides):
    found = sides.both(directories)
    assert any("ROOT/more/_states" in each for each in found)
    assert any("/own" in each for each in found)


# -------------------------------------------------------------------------------- salt.fileserver
def file_times(minion):
    """The list of file times, and the cache of hashes, after each change of the files and a state run."""
    minion.start()
    base = minion.root / "cache/roots"
    seen = []

    def run():
        minion.value("state.apply", "one")
        listed = (base / "mtime_map").read_text()
        cached = sorted(str(path.relative_to(base)) for path in (base / "hash").rglob("*") if path.is_file())
        seen.append([sorted(listed.replace(str(minion.root), "ROOT").splitlines()), cached])

    one = minion.sls("one", "a:\n  test.nop: []\n")
    os.utime(one, (1_000_000, 1_000_000))
    run()
    run()
    os.utime(one, (2_000_000, 2_000_000))
    run()
    two = minion.sls("two", "b:\n  test.nop: []\n")
    os.utime(two, (1_000_000, 1_000_000))
    minion.value("state.apply", "two")
    run()
    two.unlink()
    run()
    run()
    (base / "mtime_map").write_text("what is no list\n")
    run()
    (base / "mtime_map").unlink()
    run()
    return seen


def test_file_times_are_kept(sides):
    seen = sides.both(file_times)
    assert seen[0] == seen[1] != seen[2]
    assert len(seen[3][0]) == 2 and len(seen[4][0]) == 1


def written(minion):
    minion.sls("one", "a:\n  test.nop: []\n")
    minion.start()
    path = minion.root / "cache/roots/mtime_map"
    minion.value("state.apply", "one")
    before = path.stat().st_mtime_ns
    minion.value("state.apply", "one")
    return before == path.stat().st_mtime_ns


def test_file_times_are_not_written_again(sides):
    assert sides.saltctx(written) is True
    assert sides.stock(written) is False


# -------------------------------------------------------------------------------- lookups that miss
def looked_at(minion):
    """What pkg.installed of a package that is there does beside its work: scans of Salt's directories, files loaded."""
    import salt.loader.lazy

    loaded, scanned = [], []
    load_module, scandir, listdir = salt.loader.lazy.LazyLoader._load_module, os.scandir, os.listdir

    def noted(self, name):
        loaded.append(name)
        return load_module(self, name)

    def is_salts(path):
        return str(path).startswith(os.path.dirname(salt.loader.lazy.__file__).removesuffix("loader"))

    minion.module("stub_pkg", """
        __virtualname__ = "pkg"
        def __virtual__():
            return __virtualname__
        def list_pkgs(**kwargs):
            return {"there": "1.0"}
        def version(*names, **kwargs):
            return "1.0"
        def latest_version(*names, **kwargs):
            return ""
        def refresh_db(**kwargs):
            return {}
        def install(**kwargs):
            raise ValueError("it is there already")
    """)
    minion.start()
    minion.value("test.ping")
    os.scandir = lambda path=".": (is_salts(path) and scanned.append(path), scandir(path))[1]
    os.listdir = lambda path=".": (is_salts(path) and scanned.append(path), listdir(path))[1]
    salt.loader.lazy.LazyLoader._load_module = noted
    found = []
    for _ in range(3):
        del loaded[:], scanned[:]
        chunk = next(iter(minion.value("state.single", "pkg.installed", name="there").values()))
        found.append([chunk["result"], chunk["changes"], len(scanned), len(loaded)])
    return found


def test_a_package_that_is_there_is_looked_up_without_a_scan(sides):
    """Lookups that miss cost neither a look into Salt's directories nor the load of every file there."""
    (_, _, _, first), second, third = sides.saltctx(looked_at, opts={"disable_modules": []}, seconds=120)
    assert second == third
    assert second[0] is True and second[2] == 0
    assert second[3] < first and second[3] < 60


def misses(minion):
    """Lookups that miss, then hit once a custom file has the name, by whatever it gets it."""
    minion.module("asks", """
        def go(*names):
            return [name in __salt__ for name in names]
    """)
    minion.start()
    names = ("cmd.nothing", "nobody.go", "other.go", "third.go", "cmd.run", "test.ping", "virtualenv.create")
    found = [minion.value("asks.go", *names), minion.value("asks.go", *names)]
    minion.module("late", "__virtualname__ = 'nobody'\ndef __virtual__():\n    return True\ndef go():\n    return 1\n")
    minion.module("later", "def __virtual__():\n    return 'oth' + 'er'\ndef go():\n    return 1\n")
    minion.module("cmdmore", "__virtualname__ = 'cmd'\ndef __virtual__():\n    return 'cmd'\ndef nothing():\n    return 1\n")
    minion.module("third", "def go():\n    return 1\n")
    found += [minion.value("asks.go", *names), minion.value("asks.go", *names)]
    found.append([minion.value("nobody.go"), minion.value("other.go"), minion.value("cmd.nothing")])
    found.append(sorted(minion.value("sys.list_functions", "cmd"))[:5])
    found.append("cmd.run_all" in minion.value("sys.list_functions"))
    return found


def test_lookups_that_miss(sides):
    found = sides.both(misses)
    assert found[0] == [False, False, False, False, True, True, False]
    assert found[2][:4] == [True] * 4


def names_of_all(minion):
    """Names that loaded files of Salt answer to and that were not to be expected; how many files there were."""
    minion.start()
    minion.value("test.ping")
    import salt.loader

    from saltctx.hooks import names

    opts, unexpected, files = minion.minion.opts, [], 0
    functions = salt.loader.minion_mods(opts)
    loaders = [
        functions, salt.loader.states(opts, functions, {}, {}), salt.loader.utils(opts),
        salt.loader.returners(opts, functions), salt.loader.executors(opts, functions),
    ]
    for loader in loaders:
        loader._load_all()
        known = names.of_loader(loader).known()
        files += len(known)
        for key, func in loader._dict.items():
            path = getattr(func, "__globals__", {}).get("__file__")
            own = func.__module__.startswith("salt.loaded.")
            if own and path in known and key.partition(".")[0] not in known[path]:
                unexpected.append([key, path])
        for missing in loader.missing_modules:
            if not any(missing in each for each in known.values()):
                unexpected.append(["missing", missing])
    return [unexpected, files]


def test_names_of_salts_own_modules(sides):
    """Every file of Salt answers to names that were expected of it, and those are known of nearly all files."""
    unexpected, files = sides.saltctx(names_of_all, opts={"disable_modules": []}, seconds=180)
    assert [each for each in unexpected if each[0] != "missing"] == []
    assert files > 500


def loaded_beside(minion):
    """How many files are loaded where a module's __virtual__ looks up one that has dunders of its own."""
    import salt.loader.lazy

    minion.module("asks", """
        def __virtual__():
            return "imports.go" in __salt__
        def go():
            return __salt__["imports.go"]()
    """)
    minion.module("imports", """
        from salt.loader.dunder import __file_client__, __opts__, __pillar__
        __utils__ = {"its": "own"}
        def go():
            return [__opts__["id"], __pillar__.get("nothing")]
    """)
    minion.start()
    minion.value("test.ping")
    loaded, load_module = [], salt.loader.lazy.LazyLoader._load_module

    def noted(self, name):
        loaded.append(name)
        return load_module(self, name)

    salt.loader.lazy.LazyLoader._load_module = noted
    return [minion.value("asks.go"), len(loaded)]


def test_what_salt_compares_while_it_loads_loads_nothing_more(sides):
    """Salt compares what it packs with what a module has under that name; a loader that is compared loads all it has."""
    value, loaded = sides.saltctx(loaded_beside)
    assert value == ["m1", None]
    assert loaded < 20


# -------------------------------------------------------------------------------- __opts__ that a module lays down
def own_opts(minion):
    """State runs with a state module that has opts of its own, and reads them while it is loaded."""
    minion.module("lays", """
        __opts__ = {"lays.key": "its own"}
        SEEN = []
        def __init__(opts):
            global FOUND
            FOUND = [__opts__["lays.key"], "lays.key" in opts]
        def __virtual__():
            return "lays" if __opts__["lays.key"] else False
        def go(name):
            found = [FOUND, __opts__["lays.key"], __opts__["test"]]
            return {"name": name, "result": True, "changes": {}, "comment": str(found)}
    """, kind="states")
    minion.sls("stateconf", """
        #!jinja|yaml|stateconf -p
        one:
          lays.go: []
    """.strip().replace("\n        ", "\n") + "\n")
    minion.start()
    found = []
    for _ in range(3):
        for fun, args in (("state.single", ("lays.go", "name=x")), ("state.apply", ("stateconf",))):
            ret = minion.value(fun, *args)
            found.append([chunk["comment"] for chunk in ret.values()] if isinstance(ret, dict) else ret)
    return found


def test_opts_that_a_module_lays_down(sides):
    """Its __init__ and __virtual__ find them in every loader, whether its file is executed again or not."""
    found = sides.both(own_opts)
    assert found[0] == found[2] == found[4] and found[1] == found[3] == found[5]
    assert "its own" in str(found[0]) and "its own" in str(found[1])


# -------------------------------------------------------------------------------- tornado.ioloop
LOOPS = """
    import asyncio, gc
    from tornado.ioloop import IOLoop

    class Abandoned:
        def __init__(self):
            self.loop, self.itself = IOLoop(asyncio_loop=asyncio.new_event_loop(), make_current=False), self
        def __del__(self):
            self.loop.close()

    def make():
        others = [IOLoop(asyncio_loop=asyncio.new_event_loop(), make_current=False) for _ in range(5)]
        threshold, held, failed = gc.get_threshold(), [], []
        try:
            for after in range(1, 40):
                gc.disable()
                gc.collect()
                Abandoned()
                wanted = asyncio.new_event_loop()
                held += [{} for _ in range(100)]  # or Python takes one of those it keeps, without looking for garbage
                gc.set_threshold(gc.get_count()[0] + after)
                gc.enable()
                try:
                    IOLoop(asyncio_loop=wanted, make_current=False).close()
                except RuntimeError as exc:
                    failed.append(str(exc))
        finally:
            gc.set_threshold(*threshold)
            gc.enable()
        for loop in others:
            loop.close()
        return failed
"""


def make_loops(minion):
    minion.module("loops", LOOPS)
    minion.start()
    return minion.value("loops.make")


def test_event_loops_while_others_are_collected(sides):
    """A state run opens one for its pillar; where the collector took another's within the copy of a dict, it failed."""
    found = sides.run(make_loops)
    assert found["saltctx"] == []
    if sys.version_info[:2] == (3, 11):
        assert "during iteration" in str(found["stock"])
