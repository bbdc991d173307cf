"""One edited module is loaded anew and all else is kept; where that is not enough, all is built anew."""

import time

import pytest

COUNTED = """
    import builtins
    builtins.executed = getattr(builtins, "executed", []) + [__name__.rpartition(".")[2]]
"""


def executed(minion):
    """The names of the modules that were executed since it was last asked."""
    import builtins

    names = getattr(builtins, "executed", [])
    builtins.executed = []
    return sorted(names)


def partial(minion):
    """(partial, rebuilt) so far; what was not counted on stock is a dash."""
    return "-" if minion.jobs() is None else [minion.counts()[name] for name in ("partial", "rebuilt")]


def one_edit(minion):
    for name in ("one", "two"):
        minion.module(name, COUNTED + f"""
    def go():
        return {name!r}
    def call():
        return __salt__["two.go"]()
    """)
    minion.start()
    found = [minion.values("one.go", "two.go", "one.call", "two.call"), sorted({*executed(minion)}), partial(minion)]
    time.sleep(0.06)
    minion.job("one.go")
    executed(minion)
    minion.module("two", COUNTED + """
    def go():
        return "two, edited"
    def call():
        return __salt__["two.go"]()
    """)
    found += [minion.values("one.go", "one.call", "two.go", "two.call"), sorted({*executed(minion)}), partial(minion)]
    found += [minion.value("sys.reload_modules"), minion.values("one.call", "test.ping"), partial(minion)]
    return [*found, minion.logged()]


def test_one_edit(sides):
    """The edited module runs, also where another calls it; the other is not executed again."""
    found = sides.saltctx(one_edit)
    assert found[:3] == [["one", "two", "two", "two"], ["one", "two"], [0, 1]]
    assert found[3:6] == [["one", "two, edited", "two, edited", "two, edited"], ["two"], [1, 2]]
    assert found[6:] == [None, ["two, edited", True], [1, 2], []]
    assert sides.stock(one_edit)[3] == found[3]


def kinds(minion):
    """Each kind of module, edited one after the other and looked at through a job."""
    minion.module("it", "def version():\n    return 1\n", kind="utils")
    minion.module("it", "def version():\n    return __utils__['it.version'](), __opts__['id'], __context__.get('k')\n")
    minion.module("it", """
        def there(name):
            found = [__salt__["it.version"](), 1]
            return {"name": name, "result": True, "changes": {}, "comment": repr(found)}
    """, kind="states")
    minion.module("it", """
        def execute(opts, data, func, args, kwargs):
            return "executed", func(*args, **kwargs)
    """, kind="executors")
    minion.start()

    def look():
        found = minion.value("state.single", "it.there", name="x")
        found = [state["comment"] for state in found.values()] if isinstance(found, dict) else found
        return [minion.value("it.version"), found, minion.value("it.version", _load={"module_executors": ["it"]})]

    seen = [look()]
    time.sleep(0.06)
    look()
    minion.module("it", "def version():\n    return 2\n", kind="utils")
    seen.append(look())
    minion.module("it", "def version():\n    __context__['k'] = 1\n    return __utils__['it.version'](), 'edited'\n")
    seen.append(look())
    minion.module("it", """
        def execute(opts, data, func, args, kwargs):
            return "executed anew", func(*args, **kwargs)
    """, kind="executors")
    seen.append(look())
    minion.module("it", """
        def there(name):
            return {"name": name, "result": True, "changes": {}, "comment": "edited"}
    """, kind="states")
    seen.append(look())
    return [seen, minion.value("test.ping"), minion.retcode("no.such")]


def test_kinds(sides):
    """Modules, utils, executors and states call each other as they are now, as with a rebuild."""
    sides.both(kinds)


MORE = {
    "a helper": [("helper", "VALUE = 1\n"), ("one", "import helper\ndef go():\n    return helper.VALUE\n"),
                 ("helper", "VALUE = 2\n")],
    "another name": [("one", "def go():\n    return 1\n"),
                     ("one", "__virtualname__ = 'other'\ndef __virtual__():\n    return 'other'\ndef go():\n    return 2\n")],
    "a name less": [("one", "__virtual_aliases__ = ('other',)\ndef go():\n    return 1\n"),
                    ("one", "def go():\n    return 2\n")],
    "a name taken from another": [
        ("other", "def go():\n    return 'other'\n"), ("one", "def go():\n    return 1\n"),
        ("one", "__virtual_aliases__ = ('other',)\ndef go():\n    return 2\n")],
    "a no": [("one", "def go():\n    return 1\n"), ("one", "def __virtual__():\n    return False, 'not today'\ndef go():\n    return 2\n")],
    "a no that becomes a yes": [("one", "def __virtual__():\n    return False, 'no'\ndef go():\n    return 1\n"),
                                ("one", "def go():\n    return 2\n")],
    "an error": [("one", "def go():\n    return 1\n"), ("one", "def go(:\n")],
    "an error in __init__": [("one", "def go():\n    return 1\n"),
                             ("one", "def __init__(opts):\n    raise ValueError('no')\ndef go():\n    return 2\n")],
    "a mended error": [("one", "def go(:\n"), ("one", "def go():\n    return 2\n")],
    "an imported function": [("one", "from salt.utils.stringutils import to_str\ndef go():\n    return to_str('1')\n"),
                             ("one", "def go():\n    return to_str('1')\n")],
    "written to __context__": [
        ("one", "def __virtual__():\n    __context__['a'] = 1\n    return True\ndef go():\n    return sorted(__context__)\n"),
        ("one", "def __virtual__():\n    __context__['b'] = 1\n    return True\ndef go():\n    return sorted(__context__)\n")],
    "an alias": [("one", "__func_alias__ = {'go_': 'go'}\ndef go_():\n    return 1\n"), ("one", "def go_():\n    return 2\n")],
    "a global": [("one", "seen = []\ndef go():\n    seen.append(1)\n    return len(seen)\n"),
                 ("one", "seen = []\ndef go():\n    seen.append(1)\n    return 10 + len(seen)\n")],
    "opts of its own": [("one", "__opts__ = {'mine': 1}\ndef go():\n    return __opts__.get('mine')\n"),
                        ("one", "__opts__ = {'mine': 2}\ndef go():\n    return __opts__.get('mine')\n")],
    "to and fro": [("one", "def go():\n    return 1\n"), ("one", "def go():\n    return 2\n"), ("one", "def go():\n    return 1\n")],
}


def edits(minion, name, settled):
    """What jobs see before and after each edit of the steps called ``name``."""
    def look():
        funs = ("one.go", "other.go", "other.more", "one.to_str", "one.go_", "one.go", "sys.list_functions")
        seen = [str(minion.value(fun)).partition(":")[0] for fun in funs[:-1]]
        return [*seen, [each for each in minion.value(funs[-1]) if each.partition(".")[0] in ("one", "other")]]

    steps = MORE[name]
    first = [step for at, step in enumerate(steps) if step[0] not in [before[0] for before in steps[:at]]]
    for module, source in first:
        minion.module(module, source)
    minion.start()
    seen = [look()]
    for module, source in steps[len(first):]:
        if settled:
            time.sleep(0.06)
            seen.append(look())
        minion.module(module, source)
        seen.append(look())
    errors = [message for _, message, _ in minion.log if "one" in message and "mport" in message]
    return [seen, len(errors)]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", MORE)
def test_edits(sides, name, settled):
    """Whatever an edit changes beside the code, jobs see what they would see if all were built anew for each."""
    seen = sides.saltctx(edits, name, settled)
    assert seen == sides.saltctx(edits, name, settled, opts={"saltctx": {"freshness": "always"}})


def shared_name(minion):
    """Two files that both say they are ``other``; one gets a function that the other has."""
    said = "__virtualname__ = 'other'\ndef __virtual__():\n    return 'other'\n"
    minion.module("a_two", said + "def go():\n    return 'a'\n")
    minion.module("one", said + "def more():\n    return 1\n")
    minion.start()
    seen = [minion.values("other.go", "other.more")]
    minion.module("one", said + "def go():\n    return 'b'\n")
    return [*seen, minion.values("other.go", "other.more"), partial(minion)]


def test_shared_name(sides):
    """Which of the two has the name is for a new loader to find out."""
    gone = "'other.more' is not available."
    assert sides.saltctx(shared_name) == [["a", 1], ["a", gone], [0, 2]]


def running_job(minion):
    """A job that is under way, and one that starts, while the module they use is edited."""
    import threading

    source = """
        import time, os
        def go(flag):
            open(flag + ".in", "w").close()
            while not os.path.exists(flag + ".out"):
                time.sleep(0.01)
            return [{number}, __salt__["it.number"]()]
        def number():
            return {number}
        def call():
            return __salt__["it.number"]()
    """
    minion.module("it", source.format(number=1))
    minion.start()
    # The loader that modules see is another than the job's: what neither has loaded yet, it loads as it is then.
    minion.job("it.call")
    answers = []
    flag = str(minion.root / "flag")
    job = threading.Thread(target=lambda: answers.append(minion.value("it.go", flag)))
    job.start()
    end = time.monotonic() + 30
    while not (minion.root / "flag.in").exists() and time.monotonic() < end:
        time.sleep(0.01)
    minion.module("it", source.format(number=2))
    answers.append(minion.value("it.number"))
    (minion.root / "flag.out").touch()
    job.join(30)
    return [answers, partial(minion)]


def test_running_job_keeps_its_code(sides):
    assert sides.saltctx(running_job) == [[2, [1, 1]], [1, 2]]


def many_at_once(minion):
    """Edits while 16 threads run jobs: each sees a whole version, none older than its start."""
    minion.module("it", "def a():\n    return 0\ndef b():\n    return __salt__['it.a']()\n")
    minion.start()
    minion.job("it.b")
    wrong = []
    for number in range(1, 16):
        minion.module("it", f"def a():\n    return {number}\ndef b():\n    return __salt__['it.a']()\n")
        loads = [minion.load("it.b") for _ in range(32)]
        wrong += [ret for ret in minion.run_many(loads, 16) if ret.get("return") != number]
    return [wrong, minion.counts()["fallback"]]


def test_many_at_once(sides):
    assert sides.saltctx(many_at_once) == [[], 0]
