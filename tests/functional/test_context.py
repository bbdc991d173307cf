"""The private ``__context__`` of a job: who shares it, when it ends, and the retcode that travels in it."""

import threading
import time

from inprocess_minion import OWN_RETCODE, is_right, own_retcode_loads

BAG = """
def put(key, value=1):
    __context__[key] = value
def keys():
    return sorted(key for key in __context__ if key != "retcode")
def code(retcode):
    __context__["retcode"] = retcode
    return retcode
"""


def bag(minion):
    minion.module("bag", BAG)
    return minion


# -------------------------------------------------------------------------------- who shares it
def everybody_of_a_job(minion):
    bag(minion)
    minion.module("marks", "def mark(name):\n    __context__[name] = 1\n", kind="utils")
    minion.module("front", """
        def go():
            __context__["by module"] = 1
            __salt__["bag.put"]("by nested module")
            __utils__["marks.mark"]("by util")
            return __salt__["bag.keys"]()
    """)
    minion.module("mark", """
        def execute(opts, data, func, args, kwargs):
            __context__["by executor"] = 1
    """, kind="executors")
    minion.module("note", """
        import json
        def returner(ret):
            with open(__opts__["root_dir"] + "/noted", "w") as file:
                json.dump(sorted(key for key in __context__ if key != "retcode"), file)
    """, kind="returners")
    minion.start()
    seen = minion.value("front.go", _load={"ret": "note", "module_executors": ["mark", "direct_call"]})
    return {
        "in the function": seen, "in the returner": (minion.root / "noted").read_text(),
        "in the next job": minion.value("bag.keys"),
    }


def test_one_context_for_everybody_of_a_job(sides):
    """Module, nested module, util, executor and returner of one job share one, which the next does not see."""
    assert sides.both(everybody_of_a_job) == {
        "in the function": ["by executor", "by module", "by nested module", "by util"],
        "in the returner": '["by executor", "by module", "by nested module", "by util"]',
        "in the next job": [],
    }


def proxy_module(minion):
    bag(minion)
    minion.module("gate", """
        __proxyenabled__ = ["*"]
        def touch():
            before = __context__.get("touched", 0)
            __context__["touched"] = before + 1
            return before
    """, kind="proxy")
    minion.module("ask", """
        def execute(opts, data, func, args, kwargs):
            return [__proxy__["gate.touch"](), __proxy__["gate.touch"](), "touched" in __context__]
    """, kind="executors")
    minion.start()
    return [minion.value("test.ping", _load={"module_executors": ["ask"]}) for _ in range(2)]


def test_proxy_loader_shares_the_jobs_context(sides):
    """Fresh in each job on both; stock gives the proxy loader one apart from the job's own."""
    assert sides.run(proxy_module) == {
        "stock": [[0, 1, False]] * 2, "saltctx": [[0, 1, True]] * 2,
    }


def state_run(minion):
    bag(minion)
    minion.module("leave", """
        def there(name):
            __context__["by state"] = name
            seen = __salt__["bag.keys"]()
            return {"name": name, "result": True, "changes": {}, "comment": str("by state" in seen)}
    """, kind="states")
    minion.start()
    comments = [
        [chunk["comment"] for chunk in minion.value("state.single", "leave.there", name=name).values()]
        for name in ("a", "b")
    ]
    return [*comments, minion.value("bag.keys")]


def test_state_run_is_part_of_its_job(sides):
    """A state module and the execution modules it calls share one, and nothing is left for the next job."""
    assert sides.both(state_run) == [["True"], ["True"], []]


def loaded_while_loading(minion):
    minion.module("opener", """
        def __init__(opts):
            __context__["opener.at_load"] = {"handles": [], "id": opts["id"]}
        def __virtual__():
            __context__["opener.virtual"] = True
            return True
        def handles():
            __context__["opener.at_load"]["handles"].append(1)
            at_load = __context__["opener.at_load"]
            return [len(at_load["handles"]), __context__["opener.virtual"], at_load["id"]]
    """)
    minion.start()
    return [minion.value("opener.handles") for _ in range(3)]


def test_keys_written_while_loading(sides):
    """What a module's ``__init__`` and ``__virtual__`` put there is found by every job; a job's changes are its own."""
    assert sides.both(loaded_while_loading) == [[1, True, "m1"]] * 3


# -------------------------------------------------------------------------------- the dict API
def whole_dict_api(minion):
    minion.module("api", """
        import copy, json, pickle
        def go():
            c = __context__
            c.clear()
            c["a"] = 1
            seen = {"setdefault": [c.setdefault("a", 9), c.setdefault("b", [2])]}
            c.update({"c": 3}, d=4)
            c.update([("e", 5)])
            seen["len"] = len(c)
            seen["in"] = ["a" in c, "z" in c, "z" not in c]
            seen["get"] = [c.get("a"), c.get("z"), c.get("z", 0)]
            seen["iter"] = sorted(c)
            seen["keys"], seen["values"] = sorted(c.keys()), [str(value) for value in c.values()]
            seen["items"] = sorted(c.items(), key=str)
            seen["pop"] = [c.pop("c"), c.pop("c", "gone")]
            try:
                c.pop("c")
            except KeyError as exc:
                seen["pop"].append(str(exc))
            del c["d"]
            try:
                c["d"]
            except KeyError as exc:
                seen["missing"] = str(exc)
            seen["plain"] = [dict(c), {**c}, c.copy(), copy.copy(c.value()), copy.deepcopy(c.value())]
            seen["types"] = [type(one).__name__ for one in (c.copy(), copy.deepcopy(c.value()))]
            copied = copy.deepcopy(c.value())
            copied["b"].append("copied")
            c.copy()["z"] = 1
            seen["independent"] = [c["b"], "z" in c]
            seen["json"] = json.dumps(c.value(), sort_keys=True)
            seen["pickle"] = pickle.loads(pickle.dumps(dict(c)))
            seen["isinstance"] = isinstance(c.value(), dict)
            seen["equal"] = [c == {"a": 1, "b": [2], "e": 5}, c == {}, c != {}]
            seen["or"] = sorted(c.value() | {"f": 6}), sorted({"f": 6} | c.value())
            seen["bool"] = [bool(c)]
            while c:
                c.popitem()
            seen["bool"].append(bool(c))
            try:
                c.popitem()
            except KeyError:
                seen["popitem"] = "empty"
            return seen
    """)
    minion.start()
    return [minion.value("api.go"), minion.retcode("api.go")]


def test_whole_dict_api(sides):
    """All that modules do with the named ``__context__``."""
    seen, retcode = sides.both(whole_dict_api)
    assert retcode == 0
    rest = {"a": 1, "b": [2], "e": 5}
    assert seen == {
        "setdefault": [1, [2]], "len": 5, "in": [True, False, True], "get": [1, None, 0],
        "iter": ["a", "b", "c", "d", "e"], "keys": ["a", "b", "c", "d", "e"],
        "values": ["1", "[2]", "3", "4", "5"],
        "items": [["a", 1], ["b", [2]], ["c", 3], ["d", 4], ["e", 5]],
        "pop": [3, "gone", "'c'"], "missing": "'d'", "plain": [rest] * 5, "types": ["dict", "dict"],
        "independent": [[2], False], "json": '{"a": 1, "b": [2], "e": 5}', "pickle": rest,
        "isinstance": True, "equal": [True, False, True], "or": [["a", "b", "e", "f"]] * 2,
        "bool": [True, False], "popitem": "empty",
    }


def changed_while_iterated(minion):
    minion.module("loop", """
        def go():
            for number in range(5):
                __context__[str(number)] = number
            for key in list(__context__):
                del __context__[key]
            return len(__context__)
    """)
    minion.start()
    return minion.value("loop.go")


def test_emptied_while_iterated_over_a_list(sides):
    assert sides.both(changed_while_iterated) == 0


# -------------------------------------------------------------------------------- when it ends
def after_exceptions(minion):
    bag(minion)
    minion.module("bad", """
        from salt.exceptions import CommandExecutionError
        def go(kind):
            __context__["left"] = 1
            __context__["retcode"] = 9
            raise {"value": ValueError, "command": CommandExecutionError, "type": TypeError}[kind]("x")
        def leave():
            __context__["left"] = 1
            __context__["retcode"] = 9
            raise SystemExit(3)
    """)
    minion.start()
    seen = []
    for kind in ("value", "command", "type"):
        seen.append(minion.retcode("bad.go", kind))
        after = minion.job("bag.keys")
        seen.append([after["return"], after["retcode"]])
    minion.job("bad.leave")
    after = minion.job("bag.keys")
    return [*seen, [after["return"], after["retcode"]]]


def test_fresh_after_exceptions(sides):
    """A job that raises, whatever it raises, leaves neither keys nor a retcode."""
    assert sides.both(after_exceptions) == [1, [[], 0], 1, [[], 0], 1, [[], 0], [[], 0]]


def after_refreshes(minion):
    bag(minion).start()
    seen = []
    for refresh in (
        minion.minion.module_refresh, lambda: minion.job("sys.reload_modules"), minion.refresh_pillar,
        minion.minion.gen_modules,
    ):
        minion.job("bag.put", "before")
        refresh()
        seen.append(minion.value("bag.keys"))
        minion.job("bag.put", "after")
        seen.append(minion.value("bag.keys"))
    return seen


def test_fresh_after_each_kind_of_refresh(sides):
    """module_refresh, sys.reload_modules as a job, a pillar refresh, gen_modules() itself."""
    assert sides.both(after_refreshes) == [[]] * 8


def reload_inside_a_job(minion):
    bag(minion)
    minion.module("mid", """
        def go():
            __context__["mine"] = 1
            __context__["retcode"] = 5
            answer = __salt__["sys.reload_modules"]()
            return [answer, "mine" in __context__, __salt__["bag.keys"]()]
    """)
    minion.start()
    ret = minion.job("mid.go")
    after = minion.job("bag.keys")
    return [ret["return"], ret["retcode"], after["return"], after["retcode"]]


def test_reload_inside_a_job(sides):
    """The job keeps its context and its retcode; the call answers None, as Salt's own does."""
    assert sides.saltctx(reload_inside_a_job) == [[None, True, ["mine"]], 5, [], 0]


def beacons(minion):
    import salt.beacons

    bag(minion)
    minion.module("beat", """
        def validate(config):
            return True, "valid"
        def beacon(config):
            __context__["beats"] = __context__.get("beats", 0) + 1
            __salt__["bag.put"]("by beacon")
            return [{"beats": __context__["beats"], "seen": __salt__["bag.keys"]()}]
    """, kind="beacons")
    minion.start()
    beacon = salt.beacons.Beacon(minion.minion.opts, minion.minion.functions)
    seen = []
    for number in range(3):
        minion.job("bag.put", f"by job {number}")
        events = beacon.process({"beat": []}, minion.minion.opts["grains"])
        seen += [event.get("data", event) for event in events]
        seen.append(minion.value("bag.keys"))
    return [
        one if isinstance(one, list) else [one["beats"], [key for key in one["seen"] if "job" in key]]
        for one in seen
    ]


def test_beacons_have_their_own(sides):
    """A beacon finds at each beat what it left, sees nothing of a job, and no job anything of it."""
    assert sides.both(beacons) == [[1, []], [], [2, []], [], [3, []], []]


# -------------------------------------------------------------------------------- threads of a module
THREADS = """
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

def _work(number):
    __context__[f"by thread {number}"] = number
    return __salt__["test.echo"](number)

def plain():
    results = []
    threads = [
        threading.Thread(target=lambda number=number: results.append(_work(number))) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sorted(results), __salt__["bag.keys"]()]

def pool():
    with ThreadPoolExecutor(2) as executor:
        return [list(executor.map(_work, range(3))), __salt__["bag.keys"]()]

def copied():
    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(_work, number)) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [[0, 1, 2], __salt__["bag.keys"]()]

def handed_over():
    put, keys = __salt__["bag.put"], __salt__["bag.keys"]
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(put, [f"by thread {number}" for number in range(3)]))
        return [executor.submit(keys).result(), keys()]

def timer():
    done = []
    timer = threading.Timer(0, lambda: done.append(_work(0)))
    timer.start()
    timer.join()
    return [done, __salt__["bag.keys"]()]
"""


def threads_of_a_module(minion, funs):
    bag(minion)
    minion.module("many", THREADS)
    minion.start()
    seen = {}
    for fun in funs:
        seen[fun] = minion.value(f"many.{fun}")
        seen[f"after {fun}"] = minion.value("bag.keys")
    return seen


THREE = ["by thread 0", "by thread 1", "by thread 2"]


def test_threads_that_stock_serves(sides):
    """A thread in a copied context, and loaded functions handed to a pool, work in the job's own context."""
    assert sides.both(threads_of_a_module, ["copied", "handed_over"]) == {
        "copied": [[0, 1, 2], THREE], "after copied": [],
        "handed_over": [THREE, THREE], "after handed_over": [],
    }


def test_threads_that_a_module_starts(sides):
    """A plain thread, a pool and a timer run in their job (stock: the dunders are None there)."""
    assert sides.saltctx(threads_of_a_module, ["plain", "pool", "timer"]) == {
        "plain": [[0, 1, 2], THREE], "after plain": [], "pool": [[0, 1, 2], THREE], "after pool": [],
        "timer": [[0], ["by thread 0"]], "after timer": [],
    }


def pool_that_outlives_its_job(minion):
    bag(minion)
    # The pool hangs on a module that no loader loads, as one of a library does.
    minion.write("lib/lasting_pool.py", "import concurrent.futures as f\npool = f.ThreadPoolExecutor(1)\n")
    minion.module("long", """
        import sys
        def go(name):
            sys.path.append(__opts__["root_dir"] + "/lib")
            import lasting_pool
            lasting_pool.pool.submit(__salt__["bag.put"], name).result()
            return lasting_pool.pool.submit(__salt__["bag.keys"]).result()
    """)
    minion.start()
    return [minion.value("long.go", name) for name in ("first", "second")]


def test_pool_that_outlives_its_job(sides):
    """Its worker serves each job that submits, and keeps none."""
    assert sides.both(pool_that_outlives_its_job) == [["first"], ["second"]]


def thread_that_outlives_its_job(minion):
    bag(minion)
    minion.module("late", """
        import threading
        go_on = threading.Event()
        def go(path):
            def work():
                go_on.wait(20)
                __context__["late"] = 1
                with open(path, "w") as file:
                    file.write(",".join(__salt__["bag.keys"]()))
            threading.Thread(target=work, name="late").start()
            __context__["early"] = 1
            return id(go_on)
        def release():
            for thread in threading.enumerate():
                if thread.name == "late":
                    return thread.name
    """)
    minion.start()
    path = minion.root / "late"
    minion.job("late.go", str(path))
    keys = minion.value("bag.keys")
    # The job's module may be an instance of its own: the event is found by the thread that waits for it.
    import gc

    for event in [thing for thing in gc.get_objects() if type(thing) is threading.Event]:
        if event._cond._waiters:
            event.set()
    for thread in threading.enumerate():
        if thread.name == "late":
            thread.join(20)
    return [keys, path.read_text(), minion.value("bag.keys")]


def test_thread_that_outlives_its_job(sides):
    """It goes on in its own job's context; the next job sees nothing of it."""
    assert sides.saltctx(thread_that_outlives_its_job) == [[], "early,late", []]


# -------------------------------------------------------------------------------- retcodes
def retcodes(minion):
    bag(minion)
    minion.start()
    jobs = [
        ("bag.code", 7), ("test.ping",), ("cmd.run", "exit 3"), ("cmd.run", "true"), ("no.such",),
        ("test.false",), ("bag.code", 0), ("state.single", "test.fail_without_changes", "name=x"),
        ("state.single", "test.nop", "name=x"), ("test.exception", "x"), ("bag.code", 254), ("test.ping",),
    ]
    return [minion.retcode(*job) for job in jobs]


def test_retcodes_one_after_the_other(sides):
    """Each job has its own, and 0 again after any that failed."""
    assert sides.both(retcodes) == [7, 0, 3, 0, 1, 0, 0, 2, 0, 1, 254, 0]


def several_functions(minion):
    bag(minion).start()
    seen = []
    for funs, args in (
        (["bag.code", "test.ping", "bag.keys"], [[5], [], []]),
        (["test.ping", "bag.code"], [[], [6]]),
        (["bag.put", "bag.keys", "no.such", "bag.code"], [["kept"], [], [], [8]]),
    ):
        ret = minion.job("", _load={"fun": funs, "arg": args})
        seen.append([ret["retcode"], ret["return"].get("bag.keys")])
    after = minion.job("bag.keys")
    return [*seen, [after["retcode"], after["return"]]]


def test_several_functions_in_one_job(sides):
    """Each function has its own retcode in both orders; they are one job, and share its context."""
    assert sides.both(several_functions) == [
        [{"bag.code": 5, "test.ping": 0, "bag.keys": 0}, []],
        [{"test.ping": 0, "bag.code": 6}, None],
        [{"bag.put": 0, "bag.keys": 0, "bag.code": 8}, ["kept"]],
        [0, []],
    ]


def several_functions_ordered(minion):
    bag(minion).start()
    ret = minion.job("", _load={"fun": ["bag.code", "test.ping", "bag.code"], "arg": [[5], [], [6]]})
    return [ret["retcode"], ret["return"]]


def test_several_functions_with_multifunc_ordered(sides):
    """Returns and retcodes go by position, so a function may be there twice."""
    assert sides.both(several_functions_ordered, opts={"multifunc_ordered": True}) == [
        [5, 0, 6], [5, True, 6],
    ]


def generators(minion):
    bag(minion)
    minion.module("gen", """
        def rows():
            yield {"first": __opts__["id"]}
            __context__["retcode"] = 4
            yield {"second": __salt__["test.echo"]("echoed")}
        def items():
            yield 1
            yield __salt__["bag.keys"]()
        def breaks():
            yield 1
            raise ValueError("broken off")
    """)
    minion.start()
    seen = []
    for fun in ("gen.rows", "gen.items"):
        ret = minion.job(fun)
        seen.append([ret["return"], ret["retcode"]])
    broken = minion.job("gen.breaks")
    return [*seen, broken["retcode"], "broken off" in str(broken["return"]), minion.retcode("test.ping")]


def test_functions_that_return_generators(sides):
    """Their body has the dunders, and its retcode counts (stock runs it in no loader, with dunders of None)."""
    assert sides.saltctx(generators) == [
        [{"first": "m1", "second": "echoed"}, 4], [[1, []], 0], 1, True, 0,
    ]


def unknown_functions(minion):
    bag(minion).start()
    seen = []
    for fun in ("no.such", "bag.no_such", "test.no_such"):
        ret = minion.job(fun)
        seen.append([ret["retcode"], ret["success"], str(ret["return"])])
    return seen


def test_unknown_functions(sides):
    """A retcode and Salt's own text; the same for a module that is there."""
    seen = sides.both(unknown_functions)
    assert [one[:2] for one in seen] == [[1, False]] * 3
    assert [one[2] for one in seen] == [
        "'no.such' is not available.", "'bag.no_such' is not available.", "'test.no_such' is not available.",
    ]


# -------------------------------------------------------------------------------- side by side
def side_by_side(minion, count, in_flight):
    minion.module("own", OWN_RETCODE)
    minion.start()
    return _tally(minion, *_run(minion, count, in_flight))


def _run(minion, count, in_flight):
    loads = own_retcode_loads(minion, count)
    return minion.run_many([load for load, _ in loads], in_flight), [code for _, code in loads]


def _tally(minion, returns, codes):
    lost = sum(not ret for ret in returns)
    foreign = sum(bool(ret) and ret["return"] != [code, [], [f"of{code}"]] for ret, code in zip(returns, codes))
    wrong = sum(bool(ret) and not is_right(ret, code) for ret, code in zip(returns, codes))
    return {"jobs": len(returns), "wrong": wrong, "foreign": foreign, "lost": lost, "left": minion.value("own.seen")}


def test_side_by_side(sides):
    """16 threads: every job has its own retcode and sees its own keys only."""
    assert sides.saltctx(side_by_side, 800, 16) == {
        "jobs": 800, "wrong": 0, "foreign": 0, "lost": 0, "left": [],
    }


def beside_reloads(minion, count, in_flight, reload_count):
    minion.module("own", OWN_RETCODE)
    minion.start()
    minion.value("own.seen")
    stop = threading.Event()
    reloads, returns, codes = [], [], []

    def reload_modules():
        while not stop.wait(0.05):
            reloads.append(minion.run(minion.load("sys.reload_modules"))["retcode"])

    thread = threading.Thread(target=reload_modules)
    thread.start()
    try:
        while len(returns) < count or len(reloads) < reload_count:
            more = _run(minion, 100, in_flight)
            returns += more[0]
            codes += more[1]
    finally:
        stop.set()
        thread.join()
    return [_tally(minion, returns, codes), len(reloads) > 3, sum(reloads)]


def test_beside_reloads(sides):
    """The same while sys.reload_modules runs every 50 ms as a job of its own."""
    found = sides.saltctx(beside_reloads, 500, 16, 5)
    assert found[0].pop("jobs") >= 500
    assert found == [{"wrong": 0, "foreign": 0, "lost": 0, "left": []}, True, 0]


def kinds_of_jobs_beside_each_other(minion):
    bag(minion)
    minion.module("slow", """
        import time
        def raises(name):
            __context__["by " + name] = 1
            __context__["retcode"] = 99
            time.sleep(0.004)
            assert sorted(key for key in __context__ if key != "retcode") == ["by " + name], "a foreign key"
            raise ValueError("as told")
    """)
    minion.start()
    loads, expected = [], []
    for number in range(160):
        kind = number % 4
        if kind == 0:
            loads.append(minion.load("cmd.run", f"exit {number % 50 + 1}", python_shell=True))
            expected.append(number % 50 + 1)
        elif kind == 1:
            loads.append(minion.load("test.ping"))
            expected.append(0)
        elif kind == 2:
            loads.append(minion.load("slow.raises", str(number)))
            expected.append(1)
        else:
            loads.append(minion.load("", _load={"fun": ["bag.code", "test.ping"], "arg": [[number], []]}))
            expected.append({"bag.code": number, "test.ping": 0})
    returns = minion.run_many(loads, 8)
    wrong = [
        [load["fun"], code, ret.get("retcode")]
        for load, code, ret in zip(loads, expected, returns) if ret.get("retcode") != code
    ]
    return [wrong, sum("a foreign key" in str(ret.get("return")) for ret in returns)]


def test_kinds_of_jobs_beside_each_other(sides):
    """Shipped functions, failing ones and jobs of several functions, 8 at a time."""
    assert sides.saltctx(kinds_of_jobs_beside_each_other) == [[], 0]


def first_use_at_once(minion):
    minion.module("cold", """
        import time
        time.sleep(0.05)
        def __virtual__():
            time.sleep(0.05)
            return True
        def go():
            return __salt__["colder.go"]()
    """)
    minion.module("colder", "import time\ntime.sleep(0.05)\ndef go():\n    return 1\n")
    minion.start()
    return [ret.get("return") for ret in minion.run_many([minion.load("cold.go") for _ in range(32)], 16)]


def test_jobs_that_load_the_same_module_at_once(sides):
    assert sides.saltctx(first_use_at_once) == [1] * 32


def listing_beside_loads(minion):
    for number in range(20):
        minion.module(f"many{number}", f"def go():\n    return {number}\n")
    minion.module("lister", 'def go():\n    return len([key for key in __salt__ if key.startswith("many")])\n')
    minion.start()
    loads, expected = [], []
    for number in range(60):
        listing = number % 15 == 0
        loads.append(minion.load("lister.go" if listing else f"many{number % 20}.go"))
        expected.append(20 if listing else number % 20)
    returns = [ret.get("return") for ret in minion.run_many(loads, 8)]
    return [[ret, value] for ret, value in zip(returns, expected) if ret != value]


def test_listing_all_functions_beside_loads(sides):
    """Iterating over the loader while other jobs make it load: all are there, nothing raises."""
    assert sides.saltctx(listing_beside_loads) == []


def own_threads_at_once(minion):
    """Jobs in threads of their own, as the minion starts them."""
    minion.module("own", OWN_RETCODE)
    minion.start()
    wrong = []

    def one(number):
        code = number % 250 + 1
        ret = minion.job("own.fail", code, 0.002)
        if not is_right(ret, code):
            wrong.append(ret)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    return wrong


def test_jobs_in_threads_of_their_own(sides):
    assert sides.saltctx(own_threads_at_once) == []
