"""What a state run lays into the globals of a state module (``__low__``, ``__env__``, ...) is there for that run alone."""

import ast
import sys
import threading
import time

STATE = """
import threading
def told(name, **kwargs):
    seen = _seen() + [__instance_id__]
    threading.both_are_in.wait(30)
    seen += _seen() + [__instance_id__]
    if name == "last":
        threading.first_is_over.wait(30)
    seen += _seen() + [__instance_id__, __states__["own.nested"](name), __states__["own.nested"](name)]
    return {"name": name, "result": True, "changes": {}, "comment": str(seen)}
def nested(name):
    return __low__["__id__"]
def alone(name, **kwargs):
    seen = _seen()
    inner = __salt__["state.single"]("own.inner", name="inner", concurrent=True)
    seen += [chunk["comment"] for chunk in inner.values()] + _seen()
    return {"name": name, "result": True, "changes": {}, "comment": str(seen)}
def inner(name, **kwargs):
    return {"name": name, "result": True, "changes": {}, "comment": str(_seen() + [__states__["own.nested"](name)])}
def _seen():
    return [__low__["__id__"], __env__]
"""
SHORT = """
import time
def run(name, **kwargs):
    seen = [__low__["name"], _deeper()]
    time.sleep(0.005)
    seen += [__low__["name"], _deeper()]
    return {"name": name, "result": seen == [name] * 4, "changes": {}, "comment": str(seen)}
def _deeper():
    return __low__["__id__"]
"""


def comment(ret):
    """What the one state of a run says."""
    (chunk,) = ret["return"].values()
    return chunk["comment"]


def left_in(module):
    """The names of a state run that are in the globals of a state module now."""
    names = vars(sys.modules[f"salt.loaded.ext.states.{module}"])
    return sorted(set(names) & {"__low__", "__running__", "__instance_id__", "__lowstate__", "__user__", "__env__"})


def two_at_once(minion):
    """Two runs within one state function; the second goes on when the first is over."""
    minion.module("own", STATE, kind="states")
    # A file that was written just now is no module that two runs share.
    time.sleep(0.1)
    minion.start()
    minion.value("state.single", "own.inner", "loaded", concurrent=True)
    threading.both_are_in, threading.first_is_over = threading.Barrier(2), threading.Event()
    found = {}

    def run(name, saltenv):
        load = minion.load("state.single", "own.told", name, saltenv=saltenv, concurrent=True)
        found[name] = ast.literal_eval(comment(minion.run(load)))
        threading.first_is_over.set()

    running = [threading.Thread(target=run, args=args) for args in (("first", "base"), ("last", "dev"))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return [found["first"], found["last"], left_in("own")]


def test_two_runs_of_one_state_at_once(sides):
    """On stock each reads the other's, and the last none of it once the first is over (NameError)."""
    first, last, left = sides.saltctx(two_at_once)
    assert first == ["first", "base", first[2]] * 3 + ["first"] * 2
    assert last == ["last", "dev", last[2]] * 3 + ["last"] * 2
    assert first[2] != last[2]
    assert left == []


def within_another(minion):
    minion.module("own", STATE, kind="states")
    minion.start()
    found = [comment(minion.job("state.single", "own.alone", name, concurrent=True)) for name in ("one", "two")]
    return [*found, left_in("own")]


def test_a_run_within_a_state_of_the_same_module(sides):
    one, two, left = sides.both(within_another)
    assert one.count("'one'") == 2 and two.count("'two'") == 2 and one.count("inner") == 2
    assert left == []


def many_at_once(minion):
    """Of 96 runs of one state, eight at a time: what those said that were not their own."""
    minion.module("short", SHORT, kind="states")
    minion.start()
    loads = [minion.load("state.single", "short.run", f"n{number}", concurrent=True) for number in range(96)]
    returns = minion.run_many(loads, 8)
    return [[ret.get("retcode"), str(ret.get("return"))] for ret in returns if ret.get("retcode") != 0]


def test_many_runs_of_one_state_at_once(sides):
    """On stock about every fourth reads another's, or fails."""
    assert sides.saltctx(many_at_once) == []


def two_clouds(minion):
    minion.module("sky", """
        def whose():
            return __active_provider_name__
    """, kind="clouds")
    minion.module("calls", """
        import salt.loader
        from salt.utils.context import func_globals_inject
        def both():
            one, two = ({**salt.loader.clouds(__opts__)}["sky.whose"] for _ in range(2))
            with func_globals_inject(one, __active_provider_name__="one:sky"):
                with func_globals_inject(two, __active_provider_name__="two:sky"):
                    return [one(), two()]
    """)
    # A file that was written just now is no module that two loaders share.
    time.sleep(0.1)
    minion.start()
    return minion.values("calls.both", "calls.both")


def test_two_clouds_at_once(sides):
    """Salt's cloud client lays the provider's name into the module; on stock all clients have one module."""
    assert sides.saltctx(two_clouds) == [["one:sky", "two:sky"]] * 2
