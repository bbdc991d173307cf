"""A job runs the code that is on disk when it starts, whatever changed and however; and nothing is rebuilt in vain."""

import json
import os
import shutil
import sys
import textwrap
import threading
import time

import pytest

# -------------------------------------------------------------------------------- every loader kind, every change
SOURCES = {
    "modules": "def version():\n    return {version!r}\n",
    "utils": "def version():\n    return {version!r}\n",
    "proxy": "__proxyenabled__ = ['*']\ndef version():\n    return {version!r}\n",
    "serializers": "def version():\n    return {version!r}\n",
    "executors": "def execute(opts, data, func, args, kwargs):\n    return {version!r}\n",
    "states": """
        def there(name):
            return {{"name": name, "result": True, "changes": {{}}, "comment": {version!r}}}
    """,
    "renderers": """
        def render(data, saltenv="base", sls="", **kwargs):
            return {{"x": {{"test.nop": [{{"name": {version!r}}}]}}}}
    """,
    "returners": """
        def returner(ret):
            with open(__opts__["root_dir"] + "/returned", "w") as file:
                file.write({version!r})
    """,
    "matchers": """
        def match(tgt, opts=None, minion_id=None, delimiter=":"):
            return tgt == {version!r}
    """,
}
NAMES = {"matchers": "it_match"}
NONE = "none"

ASK = """
def util():
    return __utils__["it.version"]()
"""
ASK_EXECUTOR = """
def execute(opts, data, func, args, kwargs):
    return __proxy__["it.version"]()
"""
ASK_STATE = """
def serializer(name):
    return {"name": name, "result": True, "changes": {}, "comment": __serializers__["it.version"]()}
"""


class Kind:
    """One loader kind of a minion: writes its module ``it`` and looks which version of it a job runs."""

    def __init__(self, minion, kind):
        self.minion = minion
        self.kind = kind
        self.name = NAMES.get(kind, "it")
        minion.module("ask", ASK)
        minion.module("ask", ASK_EXECUTOR, kind="executors")
        minion.module("ask", ASK_STATE, kind="states")
        minion.sls("page", "#!it\nanything\n")

    def source(self, version):
        return textwrap.dedent(SOURCES[self.kind]).format(version=version)

    def write(self, version):
        return self.minion.module(self.name, self.source(version), kind=self.kind)

    def look(self):
        """The version that a job which starts now runs; ``none`` if there is none."""
        found = getattr(self, f"_look_{self.kind}", self._look)()
        return found if isinstance(found, str) and found.startswith("version ") else NONE

    def _look(self):
        return {
            "modules": lambda: self.minion.value("it.version"),
            "utils": lambda: self.minion.value("ask.util"),
            "executors": lambda: self.minion.value("test.ping", _load={"module_executors": ["it"]}),
            "proxy": lambda: self.minion.value("test.ping", _load={"module_executors": ["ask"]}),
            "states": lambda: self._state("state.single", "it.there", "comment", name="x"),
            "serializers": lambda: self._state("state.single", "ask.serializer", "comment", name="x"),
            "renderers": lambda: self._state("state.apply", "page", "name"),
        }[self.kind]()

    def _look_returners(self):
        returned = self.minion.root / "returned"
        returned.unlink(missing_ok=True)
        self.minion.job("test.ping", _load={"ret": "it"})
        return returned.read_text() if returned.exists() else NONE

    def _look_matchers(self):
        self.minion.job("test.ping")
        for number in range(1, 9):
            load = {"tgt_type": "it", "tgt": f"version {number}", "fun": "test.ping", "arg": [], "jid": "1", "ret": ""}
            try:
                if self.minion.minion._target_load(load):
                    return load["tgt"]
            except Exception:
                return NONE
        return NONE

    def _state(self, fun, what, key, **kwargs):
        found = self.minion.value(fun, what, **kwargs)
        return next(iter(found.values()))[key] if isinstance(found, dict) and found else found


def changes_of(minion, kind):
    it = Kind(minion, kind)
    minion.start()
    seen = {"absent": it.look()}
    path = it.write("version 1")
    seen["added"] = it.look()
    it.write("version 2")
    seen["edited"] = it.look()
    new = minion.write("new/of.py", it.source("version 3"))
    os.utime(new, (1_400_000_000, 1_400_000_000))
    new.replace(path)
    seen["older time"] = it.look()
    shutil.copyfile(minion.write("new/of.py", it.source("version 4")), path)
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    seen["copied in place"] = it.look()
    it.minion.module(it.name, "def broken(:\n", kind=kind)
    seen["broken"] = it.look()
    it.write("version 5")
    seen["mended"] = it.look()
    minion.remove(path)
    seen["removed"] = it.look()
    it.write("version 6")
    seen["back"] = it.look()
    return seen


@pytest.mark.parametrize("kind", SOURCES)
def test_changes_of(sides, kind):
    """Each kind of loader follows its files: the first is laid down in a directory that was not there."""
    assert sides.both(changes_of, kind) == {
        "absent": NONE, "added": "version 1", "edited": "version 2", "older time": "version 3",
        "copied in place": "version 4", "broken": NONE, "mended": "version 5", "removed": NONE,
        "back": "version 6",
    }


def edits_within_a_second(minion, kind):
    """Same size, same whole second, other content: Python's own check of a ``.pyc`` cannot tell."""
    it = Kind(minion, kind)
    second = int(time.time()) - 1000
    path = it.write("version 1")
    os.utime(path, ns=(second * 10**9 + 100, second * 10**9 + 100))
    minion.start()
    seen = [it.look()]
    for number in (2, 3):
        new = minion.write("new/of.py", it.source(f"version {number}"))
        stamp = second * 10**9 + number * 1000
        os.utime(new, ns=(stamp, stamp))
        new.replace(path)
        seen.append(it.look())
    path.write_text(it.source("version 4"))
    os.utime(path, ns=(second * 10**9 + 4000, second * 10**9 + 4000))
    seen.append(it.look())
    return seen


@pytest.mark.parametrize("kind", SOURCES)
def test_edits_within_a_second(sides, kind):
    """Edits that leave the size and the second as they were count (stock runs the old bytecode)."""
    assert sides.saltctx(edits_within_a_second, kind) == [f"version {number}" for number in (1, 2, 3, 4)]


def package_edited_within_a_second(minion):
    second = int(time.time()) - 1000
    seen = []
    for number in (1, 2, 3):
        path = minion.write("ext/modules/suite/__init__.py", f"def version():\n    return 'version {number}'\n")
        os.utime(path, ns=(second * 10**9 + number * 1000, second * 10**9 + number * 1000))
        if not seen:
            minion.start()
        seen.append(minion.value("suite.version"))
    return seen


def test_package_edited_within_a_second(sides):
    """The same for a module that is a package."""
    assert sides.saltctx(package_edited_within_a_second) == [f"version {number}" for number in (1, 2, 3)]


def edits_in_a_row(minion):
    """Edits in place, one right after the other, each of the same size."""
    it = Kind(minion, "modules")
    path = it.write("version 0")
    minion.start()
    seen = []
    for number in range(9):
        path.write_text(it.source(f"version {number}"))
        seen.append(it.look())
    return seen


def test_edits_in_a_row(sides):
    """Each job runs the edit just before it, however short the time between two."""
    assert sides.saltctx(edits_in_a_row) == [f"version {number}" for number in range(9)]


def changes_of_a_while_ago(minion):
    """As changes_of, with a while between each change and the next job: no stamp is young."""
    it = Kind(minion, "modules")
    path = it.write("version 1")
    time.sleep(0.2)
    minion.start()
    seen = [it.look(), minion.value("test.echo", "x")]
    for change in (
        lambda: it.write("version 2"),
        lambda: minion.module("test", "def echo(text):\n    return 'mine ' + text\n"),
        lambda: minion.remove(path),
        lambda: minion.remove(minion.root / "ext/modules/test.py"),
        lambda: it.write("version 3"),
        lambda: path.write_text(it.source("version 4")),
    ):
        minion.value("test.echo", "x")
        time.sleep(0.2)
        minion.value("test.echo", "x")
        change()
        time.sleep(0.2)
        seen.append([minion.value("test.echo", "x"), it.look()])
    return seen


def test_changes_of_a_while_ago(sides):
    assert sides.both(changes_of_a_while_ago) == [
        "version 1", "x", ["x", "version 2"], ["mine x", "version 2"], ["mine x", NONE], ["x", NONE],
        ["x", "version 3"], ["x", "version 4"],
    ]


# -------------------------------------------------------------------------------- ways to change a file
def bytecode_left_over(minion):
    it = Kind(minion, "modules")
    path = it.write("version 1")
    minion.start()
    seen = [it.look()]
    path.unlink()
    seen.append([it.look(), any((path.parent / "__pycache__").glob("it.*"))])
    it.write("version 2")
    seen.append(it.look())
    return seen


def test_bytecode_left_over(sides):
    """A module whose source alone was removed is gone (stock serves what is left in __pycache__)."""
    assert sides.saltctx(bytecode_left_over) == ["version 1", [NONE, True], "version 2"]


def symbolic_links(minion):
    it = Kind(minion, "modules")
    seen = []
    for number in (1, 2):
        minion.write(f"release{number}/it.py", it.source(f"version {number}"))
        minion.write(f"tree{number}/it.py", it.source(f"version {number + 2}"))
    directory = minion.root / "ext/modules"
    directory.mkdir(exist_ok=True)
    link = directory / "it.py"
    link.symlink_to(minion.root / "release1/it.py")
    minion.start()
    seen.append(it.look())
    _swap(link, minion.root / "release2/it.py")
    seen.append(it.look())
    shutil.rmtree(directory)
    (minion.root / "current").symlink_to(minion.root / "tree1")
    directory.symlink_to(minion.root / "current")
    seen.append(it.look())
    _swap(minion.root / "current", minion.root / "tree2")
    seen.append(it.look())
    return seen


def _swap(link, target):
    new = link.with_name(link.name + ".new")
    new.symlink_to(target)
    os.replace(new, link)


def test_symbolic_links_that_are_swapped(sides):
    """A link to the file, to one of the same size and time (stock runs the old), to the directory, on the way there."""
    assert sides.saltctx(symbolic_links) == [f"version {number}" for number in (1, 2, 3, 4)]


def overriding_a_shipped_module(minion):
    minion.start()
    seen = [minion.value("test.echo", "x")]
    path = minion.module("test", "def echo(text):\n    return 'mine ' + text\n")
    seen += [minion.value("test.echo", "x"), minion.retcode("test.ping")]
    path.unlink()
    seen += [minion.value("test.echo", "x"), minion.retcode("test.ping")]
    minion.module("other_file", """
        __virtualname__ = "test"
        def __virtual__():
            return __virtualname__
        def extra():
            return "extra"
    """)
    seen += [minion.value("test.extra"), minion.value("test.echo", "x")]
    return seen


def test_overriding_a_shipped_module(sides):
    """A custom module takes the shipped one's place whole and gives it back; a second file adds to its name."""
    assert sides.both(overriding_a_shipped_module) == ["x", "mine x", 1, "x", 0, "extra", "x"]


def added_after_a_listing(minion):
    it = Kind(minion, "modules")
    minion.start()
    before = minion.value("sys.list_functions")
    it.write("version 1")
    seen = ["test.ping" in before, "it.version" in before, it.look()]
    return [*seen, "it.version" in minion.value("sys.list_functions")]


def test_added_after_a_listing(sides):
    """A job that listed all functions does not make the loader believe it has all."""
    assert sides.both(added_after_a_listing) == [True, False, "version 1", True]


def package_modules(minion):
    minion.write("ext/modules/suite/__init__.py", "def version():\n    return 'version 1'\n")
    minion.start()
    seen = [minion.value("suite.version")]
    path = minion.write("ext/modules/suite/__init__.py", "def version():\n    return 'version 22'\n")
    seen.append(minion.value("suite.version"))
    path.unlink()
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    seen.append(minion.retcode("suite.version"))
    minion.write("ext/modules/suite/__init__.py", "def version():\n    return 'version 333'\n")
    seen.append(minion.value("suite.version"))
    (minion.root / "ext/modules/late").mkdir()
    seen.append(minion.retcode("late.version"))
    minion.write("ext/modules/late/__init__.py", "def version():\n    return 'late'\n")
    seen.append(minion.value("late.version"))
    return seen


def test_modules_that_are_packages(sides):
    """Edited, emptied, back; and a directory that becomes a package."""
    assert sides.both(package_modules) == ["version 1", "version 22", 1, "version 333", 1, "late"]


def helper_files(minion):
    minion.module("helper", "def number():\n    return 1\n")
    minion.module("kit/__init__", "")
    minion.module("kit/part", "NUMBER = 1\n")
    minion.module("uses", """
        import helper
        from kit.part import NUMBER
        def numbers():
            return [helper.number(), NUMBER]
    """)
    minion.start()
    seen = [minion.value("uses.numbers")]
    minion.module("helper", "def number():\n    return 22\n")
    seen.append(minion.value("uses.numbers"))
    minion.module("kit/part", "NUMBER = 22\n")
    seen.append(minion.value("uses.numbers"))
    seen.append([[name for name in ("helper.py", "part.py") if name in reason] for reason in minion.reasons()[1:]])
    return seen


def test_helper_files_that_a_module_imports(sides):
    """An edited helper counts, a module or a package beside its user (stock keeps the first until a restart)."""
    assert sides.saltctx(helper_files) == [[1, 1], [22, 1], [22, 22], [["helper.py"], ["part.py"]]]


def utils_beside(minion):
    """A module that imports from its own name in utils, as ``__utils__`` is going away."""
    minion.module("tool", "def number():\n    return 1\n", kind="utils")
    minion.module("uses", "def number():\n    import salt.loader\n    return __utils__['tool.number']()\n")
    minion.start()
    seen = [minion.value("uses.number")]
    minion.module("tool", "def number():\n    return __salt__['test.echo'](22)\n", kind="utils")
    seen.append(minion.value("uses.number"))
    return seen


def test_utils_that_call_modules(sides):
    assert sides.both(utils_beside) == [1, 22]


def directories_that_appear(minion):
    seen = [minion.retcode("it.version")] if minion.start() else []
    minion.write("more/_modules/it.py", "def version():\n    return 'underscore'\n")
    seen.append(minion.value("it.version"))
    minion.write("more/modules/it.py", "def version():\n    return 'plain'\n")
    seen.append(minion.value("it.version") in ("plain", "underscore"))
    shutil.rmtree(minion.root / "more")
    seen.append(minion.retcode("it.version"))
    minion.write("more/modules/it.py", "def version():\n    return 'again'\n")
    seen.append(minion.value("it.version"))
    return seen


def with_module_dirs(minion):
    minion._config["module_dirs"] = [str(minion.root / "more")]
    return directories_that_appear(minion)


def test_module_dirs_that_appear(sides):
    """A directory below ``module_dirs`` that was not there, vanishes, and is there again."""
    assert sides.both(with_module_dirs) == [1, "underscore", True, 1, "again"]


def extension_modules_vanish(minion):
    it = Kind(minion, "modules")
    it.write("version 1")
    minion.start()
    seen = [it.look()]
    (minion.root / "ext").rename(minion.root / "away")
    seen.append([it.look(), minion.retcode("test.ping")])
    (minion.root / "away").rename(minion.root / "ext")
    seen.append(it.look())
    return seen


def test_extension_modules_that_vanish(sides):
    assert sides.both(extension_modules_vanish) == ["version 1", [NONE, 0], "version 1"]


def odd_directories(minion):
    """A loop of links, a dangling link, an unreadable file and names that are no modules."""
    it = Kind(minion, "modules")
    it.write("version 1")
    directory = minion.root / "ext/modules"
    (directory / "loop").symlink_to(directory)
    (directory / "dangling.py").symlink_to(minion.root / "nowhere.py")
    (directory / "itself.py").symlink_to(directory / "itself.py")
    minion.write("ext/modules/with-dash.py", "def go():\n    return 1\n")
    minion.write("ext/modules/notes.txt", "no module\n")
    minion.start()
    seen = [it.look(), it.look()]
    it.write("version 2")
    return [*seen, it.look()]


def test_odd_directories(sides):
    assert sides.both(odd_directories) == ["version 1", "version 1", "version 2"]


def many_files(minion, count):
    directory = minion.root / "ext/modules"
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"filler{number}.py").write_text("")
    it = Kind(minion, "modules")
    it.write("version 1")
    minion.start()
    seen = [it.look()]
    it.write("version 2")
    seen.append(it.look())
    minion.module("added", "def go():\n    return 1\n")
    seen.append(minion.value("added.go"))
    time.sleep(0.1)
    minion.value("added.go")
    before = minion.counts()["rebuilt"]
    for _ in range(10):
        seen.append(it.look())
    return [seen, minion.counts()["rebuilt"] - before]


def test_directory_of_many_files(sides):
    """Thousands of files beside it: an edit counts, and an unchanged one costs no rebuild."""
    assert sides.saltctx(many_files, 5000) == [["version 1", "version 2", 1, *["version 2"] * 10], 0]


def packages_with_entry_points(minion):
    """Packages that extend Salt through the entry point group ``salt.loader``."""
    site = minion.root / "site"
    sys.path.append(str(site))
    site.mkdir()
    _install(minion, "early")
    minion.start()
    seen = [minion.value("early.version"), minion.retcode("later.version")]
    minion.write("site/early_dist/modules/early.py", "def version():\n    return 'edited'\n")
    seen.append(minion.value("early.version"))
    _install(minion, "later")
    time.sleep(1)  # Salt itself remembers for half a second which packages are installed
    seen.append(minion.value("later.version"))
    return seen


def _install(minion, name):
    minion.write(f"site/{name}_dist/__init__.py", textwrap.dedent("""
        import os
        def dirs():
            return {"modules": [os.path.join(os.path.dirname(__file__), "modules")]}
    """))
    minion.write(f"site/{name}_dist/modules/{name}.py", f"def version():\n    return '{name}'\n")
    info = f"site/{name}_dist-1.0.dist-info"
    minion.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
    minion.write(f"{info}/entry_points.txt", f"[salt.loader]\n{name} = {name}_dist:dirs\n")


def test_packages_with_entry_points(sides):
    """A module of an installed package that is edited, and a package that is installed while the minion runs."""
    assert sides.both(packages_with_entry_points) == ["early", 1, "edited", "later"]


# -------------------------------------------------------------------------------- Salt's own ways to lay down modules
def synced(minion):
    source = "def version():\n    return 'version {}'\n"
    minion.write("srv/_modules/it.py", source.format(1))
    minion.write("srv/_utils/tool.py", source.format(1))
    minion.write("srv/_modules/ask.py", "def util():\n    return __utils__['tool.version']()\n")
    minion.start()
    minion.value("saltutil.sync_modules", refresh=False)
    seen = []
    for number in (1, 22):
        minion.write("srv/_modules/it.py", source.format(number))
        minion.write("srv/_utils/tool.py", source.format(number))
        synced_names = minion.value("saltutil.sync_modules", refresh=False)
        synced_names += minion.value("saltutil.sync_utils", refresh=False)
        seen += [synced_names, minion.value("it.version"), minion.value("ask.util")]
    (minion.root / "srv/_modules/it.py").unlink()
    minion.value("saltutil.sync_modules", refresh=False)
    return [*seen, minion.retcode("it.version")]


def test_synced_modules(sides):
    """saltutil.sync_* writes in place and fires no event here: what it brings or takes counts all the same."""
    both = ["modules.it", "utils.tool"]
    assert sides.both(synced) == [
        ["utils.tool"], "version 1", "version 1", both, "version 22", "version 22", 1,
    ]


def laid_down_by_a_state(minion):
    minion.module("it", "def version():\n    return 'version 1'\n")
    new = minion.write("new.py", "def version():\n    return 'version 22'\n")
    minion.sls("lay", f"""
        lay:
          file.copy:
            - name: {minion.root}/ext/modules/it.py
            - source: {new}
            - force: True
            - reload_modules: True
        ask:
          module.run:
            - it.version:
            - require:
              - file: lay
    """)
    minion.start()
    seen = [minion.value("it.version")]
    ret = minion.job("state.apply", "lay")
    return [*seen, ret["retcode"], minion.value("it.version")]


def test_module_laid_down_by_a_state(sides):
    assert sides.both(laid_down_by_a_state) == ["version 1", 0, "version 22"]


def edited_beside_a_running_job(minion):
    """A job that is running keeps its code; one that starts after the edit has the new."""
    source = """
        import os, time
        NUMBER = {0}
        def go(path=None):
            before = [{0}, NUMBER, __salt__["it.number"]()]
            while path and not os.path.exists(path):
                time.sleep(0.01)
            return before + [NUMBER, __salt__["it.number"]()]
        def number():
            return NUMBER
    """
    minion.module("it", source.format(1))
    minion.start()
    load, path = minion.load("it.go", str(minion.root / "go on")), minion.root / "go on"
    results = []
    thread = threading.Thread(target=lambda: results.append(minion.run(load)))
    thread.start()
    while not list((minion.root / "cache/proc").iterdir()):
        time.sleep(0.01)
    time.sleep(0.3)
    minion.module("it", source.format(22))
    after = minion.value("it.go")
    path.touch()
    thread.join(30)
    return [results[0]["return"], after]


def test_edited_beside_a_running_job(sides):
    assert sides.saltctx(edited_beside_a_running_job) == [[1] * 5, [22] * 5]


def edited_under_load(minion):
    """Eight workers call a module that is edited meanwhile."""
    source = "import time\nNUMBER = {0}\ndef go():\n    time.sleep(0.002)\n    return [{0}, NUMBER]\n"
    minion.module("it", source.format(0))
    minion.start()
    current, wrong, done, stop = [0], [], [], threading.Event()

    def work():
        while not stop.is_set():
            at_least = current[0]
            found = minion.run(minion.load("it.go")).get("return")
            done.append(found)
            if not isinstance(found, list) or found[0] < at_least or found[0] != found[1]:
                wrong.append([at_least, found])

    def wait_for_jobs(count):
        until = len(done) + count
        while len(done) < until:
            time.sleep(0.01)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        wait_for_jobs(40)
        minion.write("ext/modules/it.py", source.format(number))
        current[0] = number
    wait_for_jobs(40)
    stop.set()
    for thread in threads:
        thread.join()
    return [wrong, len(done) > 8, minion.value("it.go")]


def test_edited_under_load(sides):
    """No job that starts after an edit runs an older version, or code and constants of two; none fails."""
    assert sides.saltctx(edited_under_load) == [[], True, [5, 5]]


# -------------------------------------------------------------------------------- what __virtual__ and @depends say
def virtual_follows(minion, of):
    """Whether a module is there follows what its ``__virtual__`` looks at: on, off, on, as another name, off."""
    look = {
        "file": "os.path.exists(__opts__['root_dir'] + '/flag')",
        "path": "salt.utils.path.which('flagtool')",
        "pillar": "__pillar__.get('flag')",
        "grains": "__grains__.get('flag')",
        "opts": "__opts__.get('flag')",
        "another module": "__salt__['flags.there']()",
    }[of]
    minion.module("flags", """
        import os
        def there():
            return os.path.exists(__opts__["root_dir"] + "/flag")
    """)
    minion.module("asks", f"""
        import os
        import salt.utils.path
        def __virtual__():
            if not ({look}):
                return False, "the flag is not there"
            return "called" if not os.path.exists(__opts__["root_dir"] + "/rename") else "renamed"
        def version():
            return "there"
    """)
    os.environ["PATH"] = f"{minion.root / 'bin'}:{os.environ['PATH']}"
    minion.pillar(flag=False)
    minion.start()

    def flag(on):
        if of == "path":
            tool = minion.write("bin/flagtool", "#!/bin/sh\n")
            tool.chmod(0o755) if on else tool.unlink()
        elif of == "pillar":
            minion.pillar(flag=on)
            minion.refresh_pillar()
        elif of == "grains":
            minion.refresh_grains(flag=on)
        elif of == "opts":
            minion.minion.opts["flag"] = on
        elif on:
            minion.write("flag", "")
        else:
            (minion.root / "flag").unlink(missing_ok=True)

    def seen():
        return [minion.value("called.version") == "there", minion.value("renamed.version") == "there"]

    found = [seen()]
    for on in (True, False, True):
        flag(on)
        found.append(seen())
    minion.write("rename", "")
    found.append(seen())
    (minion.root / "rename").unlink()
    found.append(seen())
    flag(False)
    return [*found, seen()]


@pytest.mark.parametrize("of", ["file", "path", "pillar", "grains", "opts", "another module"])
def test_virtual_follows(sides, of):
    no, called, renamed = [False, False], [True, False], [False, True]
    assert sides.both(virtual_follows, of) == [no, called, no, called, renamed, called, no]


def virtual_that_keeps_its_answer(minion):
    """A ``__virtual__`` that puts what it found into ``__context__``, for its functions."""
    minion.module("found", """
        import os
        def __virtual__():
            if "found" not in __context__:
                __context__["found"] = os.path.exists(__opts__["root_dir"] + "/flag")
            return __context__["found"]
        def go():
            return "there"
    """)
    minion.start()
    seen = [minion.retcode("found.go")]
    minion.write("flag", "")
    seen.append(minion.value("found.go"))
    (minion.root / "flag").unlink()
    seen.append(minion.retcode("found.go"))
    return seen


def test_virtual_that_keeps_its_answer_in_the_context(sides):
    """It is asked with a fresh context, as when each job loaded the module."""
    assert sides.both(virtual_that_keeps_its_answer) == [1, "there", 1]


def virtuals_that_call_each_other(minion):
    for name, other in (("one", "two"), ("two", "one")):
        minion.module(name, f"""
            def __virtual__():
                try:
                    __salt__["{other}.go"]()
                except KeyError:
                    pass
                return True
            def go():
                return "{name}"
        """)
    minion.start()
    return minion.values("one.go", "two.go", "one.go", "two.go")


def test_virtuals_that_call_each_other(sides):
    """Neither is asked again while it is being asked."""
    assert sides.both(virtuals_that_call_each_other) == ["one", "two", "one", "two"]


def reason_of_virtual(minion):
    minion.module("asks", """
        import os
        def __virtual__():
            try:
                with open(__opts__["root_dir"] + "/why") as file:
                    return False, file.read()
            except OSError:
                return True
        def go():
            return 1
    """)
    minion.start()
    seen = [minion.value("asks.go")]
    minion.write("why", "because of this")
    seen.append(minion.value("asks.go"))
    minion.write("why", "because of that")
    return [*seen, minion.value("asks.go")]


def test_reason_that_virtual_gives(sides):
    """A job is told the reason as it is now."""
    assert sides.both(reason_of_virtual) == [
        1, "'asks' __virtual__ returned False: because of this", "'asks' __virtual__ returned False: because of that",
    ]


def virtual_of_other_kinds(minion):
    """A returner, an executor, a util and a state that come and go."""
    virtual = (
        "import os\ndef __virtual__():\n    return os.path.exists(__opts__['root_dir'] + '/flag')\n"
    )
    kinds = ("returners", "executors", "utils", "states")
    its = [Kind(minion, kind) for kind in kinds]
    for it in its:
        minion.module("it", virtual + it.source("version 1"), kind=it.kind)
    minion.start()
    seen = [[it.look() for it in its]]
    minion.write("flag", "")
    seen.append([it.look() for it in its])
    (minion.root / "flag").unlink()
    seen.append([it.look() for it in its])
    return seen


def test_virtual_of_other_kinds(sides):
    assert sides.both(virtual_of_other_kinds) == [[NONE] * 4, ["version 1"] * 4, [NONE] * 4]


def depends(minion):
    """``@depends`` on a condition, on a binary of the system and with a fallback."""
    minion.module("needs", """
        import os
        from salt.utils.decorators import depends
        FLAG = os.path.exists(%r)
        def _fallback():
            return "fallback"
        @depends("FLAG")
        def bare():
            return "there"
        @depends("FLAG", fallback_function=_fallback)
        def backed():
            return "there"
        def always():
            return "there"
    """ % str(minion.root / "flag"))
    minion.start()

    def seen():
        return [value if value in ("there", "fallback") else NONE for value in minion.values(
            "needs.bare", "needs.backed", "needs.always"
        )]

    found = [seen()]
    minion.write("flag", "")
    found.append(seen())
    (minion.root / "flag").unlink()
    return [*found, seen()]


def test_depends(sides):
    """What ``@depends`` took away appears when the condition holds, and is gone again when it does not."""
    assert sides.both(depends) == [[NONE, "fallback", "there"], ["there"] * 3, [NONE, "fallback", "there"]]


def executions_of_test(minion):
    """Which execution of Salt's ``test`` module, which lacks a dependency, each job got; then sys.path grows."""
    import builtins

    from saltctx.core import FileStamps

    builtins.executions = executions = []
    minion.module("which", """
        import builtins
        def execution():
            own = __salt__["test.ping"].__globals__
            if not any(own is known for known in builtins.executions):
                builtins.executions.append(own)
            return [own is known for known in builtins.executions].index(True)
    """)
    minion.start()
    found = [minion.value("which.execution") for _ in range(3)]
    (minion.root / "site").mkdir()
    sys.path.append(str(minion.root / "site"))
    while FileStamps().add(sys.path[-1]):
        time.sleep(0.01)  # a directory that has just changed counts as one that may go on changing
    return found + [minion.value("which.execution") for _ in range(4)], len(executions)


def test_one_execution_for_all_that_may_have_come(sides):
    """Where a library may have come, a module that lacks one is executed once more, and not for each job."""
    assert sides.saltctx(executions_of_test) == [[0, 0, 0, 1, 1, 1, 1], 2]


def libraries_that_appear(minion):
    minion.module("hard", "import librarythatappears\ndef go():\n    return librarythatappears.number\n")
    minion.module("soft", """
        try:
            import librarythatappears
            HAS = True
        except ImportError:
            HAS = False
        def __virtual__():
            return HAS
        def go():
            return librarythatappears.number
    """)
    (minion.root / "site").mkdir()
    sys.path.append(str(minion.root / "site"))
    minion.start()
    seen = [minion.retcode("hard.go"), minion.retcode("soft.go")]
    minion.write("site/librarythatappears.py", "number = 1\n")
    return [*seen, minion.value("hard.go"), minion.value("soft.go")]


def test_libraries_that_appear(sides):
    """A Python package installed while the minion runs: for an unguarded import and for a guarded one."""
    assert sides.both(libraries_that_appear) == [1, 1, 1, 1]


def disabled_modules(minion):
    minion.module("it", "def version():\n    return 'version 1'\n")
    minion.start()
    opts = minion.minion.opts
    seen = [minion.value("it.version")]
    shipped = list(opts["disable_modules"])
    opts["disable_modules"] = [*shipped, "it"]
    seen.append([minion.retcode("it.version"), minion.retcode("test.ping")])
    opts["disable_modules"] = shipped
    seen.append(minion.value("it.version"))
    opts["disable_modules"].append("it")
    opts["disable_modules"] = opts["disable_modules"]
    seen.append(minion.retcode("it.version"))
    opts["disable_modules"] = shipped[:-1] if shipped[-1] == "it" else shipped
    opts["whitelist_modules"] = ["test"]
    seen.append([minion.retcode("it.version"), minion.retcode("test.ping")])
    opts.pop("whitelist_modules")
    return [*seen, minion.value("it.version")]


def test_disabled_and_whitelisted_modules(sides):
    """The lists of the minion's opts count in the next job, replaced or changed in place, and when they are gone."""
    assert sides.both(disabled_modules) == ["version 1", [1, 0], "version 1", 1, [1, 0], "version 1"]


# -------------------------------------------------------------------------------- reasons, and nothing in vain
def reasons(minion):
    it = Kind(minion, "modules")
    path = it.write("version 1")
    minion.start()
    it.look()
    steps = [
        ("edited", lambda: it.write("version 2")),
        ("added", lambda: minion.module("fresh", "def go():\n    return 1\n")),
        ("removed", lambda: minion.remove(path)),
        ("returner added", lambda: minion.module("back", "def returner(ret):\n    pass\n", kind="returners")),
        ("opts", lambda: minion.minion.opts.__setitem__("brand_new", 1)),
        ("refresh", minion.minion.module_refresh),
        ("grains", lambda: minion.refresh_grains(role="web")),
        ("flush", lambda: minion.value("saltctx.flush")),
    ]
    found = {"first": minion.reasons()}
    for name, step in steps:
        time.sleep(0.06)  # so that what the last step wrote is looked at no more
        it.look()
        before = len(minion.reasons())
        step()
        it.look()
        found[name] = [reason.replace(str(minion.root), "ROOT") for reason in minion.reasons()[before:]]
    status = minion.value("saltctx.status")
    found["status"] = [entry["reason"] for entry in status["reasons"]][-2:]
    return found


def test_reasons(sides):
    """Each rebuild says why, once, and names what changed; saltctx.status shows it."""
    found = sides.saltctx(reasons)
    assert found == {
        "first": ["first job of this minion"],
        "edited": ["module file changed: ROOT/ext/modules/it.py"],
        "added": ["module directory changed: ROOT/ext/modules: fresh.py added"],
        "removed": ["module directory changed: ROOT/ext/modules: it.py removed"],
        "returner added": ["module directory changed: ROOT/ext/returners: appeared"],
        "opts": ["minion option changed: brand_new"],
        "refresh": ["the minion's utils were replaced (a refresh of modules or pillar)"],
        "grains": ["minion option changed: grains"],
        "flush": ["flushed (saltctx.flush)"],
        "status": ["minion option changed: grains", "flushed (saltctx.flush)"],
    }


def unchanged(minion):
    """Jobs of many kinds on a minion that nobody touches."""
    for kind in SOURCES:
        Kind(minion, kind).write("version 1")
    minion.pillar(flag=1)
    minion.sls("page", "x:\n  test.nop: []\n")
    minion.start()
    jobs = [
        ("it.version",), ("ask.util",), ("test.ping",), ("state.apply", "page"), ("cmd.run", "true"), ("no.such",),
        ("pillar.items",), ("grains.items",), ("saltctx.status",), ("sys.list_functions",), ("config.get", "id"),
    ]
    for _ in range(3):
        for job in jobs:
            minion.job(*job)
    minion.job("test.ping", _load={"ret": "it"})
    minion.job("test.ping", _load={"module_executors": ["it"]})
    return [minion.counts(), minion.reasons(), len(jobs) * 3 + 2]


def test_nothing_is_rebuilt_on_an_unchanged_minion(sides):
    """Not even right after the files were written: every job but the first adopts."""
    counts, reasons, jobs = sides.saltctx(unchanged)
    assert reasons == ["first job of this minion"]
    assert counts == {"adopted": jobs - 1, "rebuilt": 1, "partial": 0, "reloaded": 0, "fallback": 0}


def no_change(minion):
    """What is done to a module directory that changes no module."""
    path = minion.module("it", "def version():\n    return 'version 1'\n")
    minion.start()
    time.sleep(0.06)
    minion.job("it.version")
    before = minion.counts()["rebuilt"]
    for step in (
        lambda: minion.write("ext/modules/.it.py.swp", "editor"),
        lambda: minion.write("ext/modules/it.py~", "backup"),
        lambda: shutil.rmtree(path.parent / "__pycache__"),
        lambda: path.read_text(),
        lambda: minion.write("elsewhere/it.py", ""),
        lambda: minion.sls("new", "x:\n  test.nop: []\n"),
    ):
        step()
        minion.job("it.version")
    return minion.counts()["rebuilt"] - before


def test_what_is_no_change(sides):
    """Editors' files, bytecode, reading, state files: no reason to rebuild."""
    assert sides.saltctx(no_change) == 0


def rebuilt_once_for_all(minion):
    """An edit while 16 threads start jobs costs one rebuild."""
    minion.module("it", "def version():\n    return 'version 1'\n")
    minion.start()
    time.sleep(0.06)
    minion.job("it.version")
    minion.job("it.version")
    before = minion.counts()["rebuilt"]
    minion.module("it", "def version():\n    return 'version 22'\n")
    time.sleep(0.06)
    returns = [ret["return"] for ret in minion.run_many([minion.load("it.version") for _ in range(64)], 16)]
    return [sorted(set(returns)), minion.counts()["rebuilt"] - before]


def test_one_rebuild_for_jobs_that_start_at_once(sides):
    assert sides.saltctx(rebuilt_once_for_all) == [["version 22"], 1]


def loaded_once(minion):
    """How often the file of a module is executed in 20 jobs that use it."""
    minion.module("it", """
        with open(%r, "a") as file:
            file.write("x")
        def go():
            return __salt__["test.ping"]()
    """ % str(minion.root / "executed"))
    minion.start()
    for _ in range(20):
        minion.job("it.go")
    return len((minion.root / "executed").read_text())


def test_a_module_file_is_executed_once(sides):
    """Stock executes it again in each job."""
    executed = sides.run(loaded_once)
    assert executed["saltctx"] <= 2
    assert executed["stock"] >= 20


def blackout(minion):
    minion.pillar(minion_blackout=False)
    minion.start()
    seen = [minion.retcode("test.ping")]
    for on in (True, False):
        minion.pillar(minion_blackout=on)
        minion.refresh_pillar()
        seen.append(minion.retcode("test.ping"))
    return seen


def test_blackout_follows_the_pillar(sides):
    assert sides.both(blackout) == [0, 1, 0]


def mine(minion):
    minion.module("it", "def version():\n    return 'version 1'\n")
    minion.start()
    minion.minion.opts["mine_functions"] = {"it.version": []}
    minion.job("mine.update")
    seen = [minion.value("mine.get", "m1", "it.version")]
    minion.module("it", "def version():\n    return 'version 22'\n")
    minion.job("mine.update")
    return json.loads(json.dumps([*seen, minion.value("mine.get", "m1", "it.version")]))


def test_mine_runs_the_edited_module(sides):
    assert sides.both(mine) == [{"m1": "version 1"}, {"m1": "version 22"}]


def virtual_after_a_listing(minion):
    """A module that says no while a job lists all functions, then yes, then no."""
    minion.module("asks", """
        import os
        def __virtual__():
            return os.path.exists(__opts__["root_dir"] + "/flag")
        def version():
            return "there"
    """)
    minion.start()

    def seen():
        return ["asks.version" in minion.value("sys.list_functions"), minion.value("asks.version") == "there"]

    found = [seen()]
    minion.write("flag", "")
    found.append(minion.value("asks.version") == "there")
    found.append(seen())
    (minion.root / "flag").unlink()
    found.append(seen())
    minion.write("flag", "")
    found.append(seen())
    return found


def test_virtual_after_a_listing(sides):
    """A job that listed everything does not settle what is there for those after it."""
    assert sides.both(virtual_after_a_listing) == [[False, False], True, [True, True], [False, False], [True, True]]


def providers(minion):
    """Three files that answer to one name, each while its flag is there; ``svc`` itself comes first."""
    for name in ("svc", "svc_one", "other"):
        minion.module(name, f"""
            import os
            __virtualname__ = "svc"
            def __virtual__():
                return __virtualname__ if os.path.exists(__opts__["root_dir"] + "/{name}") else False
            def version():
                return "{name}"
        """)
    minion.start()
    found = [minion.retcode("svc.version")]
    for flags in (("other",), ("svc_one",), ("svc_one", "other"), ("svc", "svc_one"), ("svc",), (), ("other",)):
        for name in ("svc", "svc_one", "other"):
            if name in flags:
                minion.write(name, "")
            else:
                (minion.root / name).unlink(missing_ok=True)
        found.append(minion.value("svc.version"))
    return found


def test_providers(sides):
    """A name goes to the provider that says yes now, by Salt's order if several do."""
    assert sides.both(providers) == [
        1, "other", "svc_one", "svc_one", "svc", "svc", "'svc' __virtual__ returned False", "other",
    ]


# -------------------------------------------------------------------------------- keys that no file has
FINDS = """
    PATH, SOURCE = {path!r}, {source!r}

    def __virtual__():
        return True

    def missing(key="known.later"):
        return key in __salt__

    def lay_down():
        found = ["known.later" in __salt__]
        with open(PATH, "w") as file:
            file.write(SOURCE)
        found.append("known.later" in __salt__)
        return [*found, __salt__["known.later"]() if found[-1] else None]
"""
KNOWN = """
    def __virtual__():
        return True

    def sooner():
        return 1
"""
MORE_OF_KNOWN = "__virtualname__ = 'known'\ndef __virtual__():\n    return __virtualname__\ndef later():\n    return 2\n"


def misses(minion):
    """A key that loaded modules do not have, asked for by job after job, until a second file has it."""
    path = minion.root / "ext/modules/more_of_known.py"
    minion.module("finds", FINDS.format(path=str(path), source=MORE_OF_KNOWN))
    minion.module("known", KNOWN)
    minion.start()
    found = [minion.value("known.sooner")]
    found += [minion.value("finds.missing") for _ in range(3)]
    found += [minion.value("finds.lay_down"), minion.value("finds.missing"), minion.value("known.later")]
    minion.remove(path)
    found += [minion.value("finds.missing") for _ in range(2)]
    found += [minion.value("finds.lay_down"), minion.value("finds.missing")]
    return found


def test_a_key_that_nobody_has_until_a_file_comes(sides):
    """Known to miss, it is there as soon as a file has it, in the job that lays it down and in those after."""
    found = sides.both(misses)
    assert found[:4] == [1, False, False, False]
    assert found[4:] == [[False, True, 2], True, 2, False, False, [False, True, 2], True]


REFUSES = """
    import os

    def __virtual__():
        return ("known", "") if False else ("known" if os.path.exists({path!r}) else (False, "not yet"))

    def later():
        return 3
"""


def misses_until_yes(minion):
    """A key that a file has which says no, then yes, then no; a settled module answers to the same name."""
    path = minion.root / "yes"
    minion.module("finds", FINDS.format(path="", source=""))
    minion.module("known", KNOWN)
    minion.module("other_known", REFUSES.format(path=str(path)))
    minion.start()
    found = []
    for there in (False, False, True, True, False, False, True):
        if there:
            path.touch()
        elif path.exists():
            path.unlink()
        found.append([minion.value("known.sooner"), *(minion.value("finds.missing") for _ in range(2))])
    return found


def test_a_key_that_a_refusing_file_has(sides):
    found = sides.both(misses_until_yes)
    assert [each[1:] for each in found] == [[there, there] for there in (False, False, True, True, False, False, True)]
