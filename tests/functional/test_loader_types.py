"""Loaders, loaded functions and dunders are what Salt's code and custom modules take them for."""

import pytest

TYPES = """
import copy
import functools
import inspect
import json
import pickle

import salt.loader.context
import salt.loader.lazy
import salt.utils.args


def documented(first, second=2, *rest, keyword=None, **more):
    \"\"\"What it does.\"\"\"
    return [first, second, list(rest), keyword, more]


documented.__outputter__ = {"documented": "highstate"}


def ping():
    return "pong"


async def later(value):
    __context__["later"] = value
    return [value, __salt__["types.ping"](), __opts__["id"]]


def classes():
    func = __salt__["types.documented"]
    return {
        "loader": [
            isinstance(__salt__.value(), salt.loader.lazy.LazyLoader), isinstance(__salt__.value(), dict),
            isinstance(__utils__.value(), salt.loader.lazy.LazyLoader),
            isinstance(__salt__.loader(), salt.loader.lazy.LazyLoader),
        ],
        "function": [isinstance(func, salt.loader.lazy.LoadedFunc), callable(func), inspect.isfunction(func)],
        "coroutine": [
            isinstance(__salt__["types.later"], salt.loader.lazy.LoadedCoro),
            isinstance(__salt__["types.later"], salt.loader.lazy.LoadedFunc),
            inspect.iscoroutinefunction(__salt__["types.later"]), isinstance(func, salt.loader.lazy.LoadedCoro),
        ],
        "dunders": [
            isinstance(globals()[name], salt.loader.context.NamedLoaderContext)
            for name in ("__salt__", "__context__", "__utils__", "__pillar__", "__grains__")
        ],
        "loader context": isinstance(__salt_loader__, salt.loader.context.LoaderContext),
        "module": isinstance(__salt__.types, salt.loader.lazy.LoadedMod),
    }


def representation():
    return [
        repr(__salt__["types.ping"]), repr(__salt__["types.later"]), repr(__salt__.types),
        repr(dict(__context__)), str(__salt__["types.ping"].name),
        isinstance(__salt__["types.ping"].loader, salt.loader.lazy.LazyLoader),
    ]


def wrapped():
    func = __salt__["types.documented"]

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)

    spec = salt.utils.args.get_function_argspec(func)
    return {
        "names": [func.__name__, func.__doc__, wrapper.__name__, wrapper.__doc__],
        "module": [func.__module__.rpartition(".")[2], wrapper.__module__.rpartition(".")[2]],
        "called": [wrapper(1, 3, 4, keyword=5, other=6), func(1)],
        "wrapped": [inspect.unwrap(func).__name__, inspect.unwrap(wrapper).__name__, func.__wrapped__ is func.func],
        "signature": str(inspect.signature(func)),
        "spec": [spec.args, spec.varargs, spec.keywords, list(spec.defaults)],
        "again": salt.utils.args.get_function_argspec(func).args,
        "attributes": [func.__outputter__, func.__globals__["__name__"].rpartition(".")[2]],
        "dict": sorted(vars(wrapper)),
        "missing": getattr(func, "no_such_attribute", "none"),
    }


def access():
    found = [__salt__.types.ping(), __salt__["types.ping"](), __salt__.get("types.ping")(), __salt__.get("no.such", 3)]
    for look in (lambda: __salt__["no.such"], lambda: __salt__.types.no_such, lambda: __salt__.no_such.ping):
        try:
            look()
        except (KeyError, AttributeError) as exc:
            found.append(type(exc).__name__)
    return found + ["types.ping" in __salt__, "no.such" in __salt__]


def iteration():
    names = list(__salt__)
    return [
        "types.ping" in names, names == sorted(set(names), key=names.index), set(names) == set(__salt__.keys()),
        len(names) == len(__salt__), dict(__salt__.items())["types.ping"]() if hasattr(__salt__, "items") else None,
        [type(value).__name__ for key, value in __salt__.items() if key == "types.ping"],
    ]


def missing_fun_string():
    loader = __salt__.value()
    return [loader.missing_fun_string("no.such"), loader.missing_fun_string("types.no_such"),
            __salt__.missing_fun_string("no.such")]


def context_copies():
    __context__["a"] = {"b": [1]}
    __context__.pop("retcode", None)
    deep = copy.deepcopy(__context__.value())
    deep["a"]["b"].append(2)
    named = copy.deepcopy(__context__)
    pickled = pickle.loads(pickle.dumps(__context__.value()))
    return {
        "deep": deep, "own": __context__["a"], "named": named["a"], "pickled": pickled,
        "plain": type(pickled).__name__, "json": json.dumps(__context__.value()),
        "equal": [__context__ == {"a": {"b": [1]}}, __context__ == named, __context__ != {}],
    }


def msgpack():
    import salt.payload

    __context__["a"] = [1, {"b": 2}]
    __context__.pop("retcode", None)
    return salt.payload.loads(salt.payload.dumps({"context": __context__.value()}))


def opts_and_grains():
    return [
        __opts__["id"], __opts__.get("no_such", 1), "id" in __opts__, len(__opts__) > 50,
        __grains__["id"], "os" in __grains__, isinstance(dict(__grains__), dict), bool(__pillar__),
        isinstance({**__opts__}, dict), json.dumps(dict(__grains__)) != "",
    ]
"""

EXPECTED = {
    "classes": {
        "loader": [True, False, True, True], "function": [True, True, False],
        "coroutine": [True, True, True, False], "dunders": [True] * 5, "loader context": True, "module": True,
    },
    "wrapped": {
        "names": ["documented", "What it does."] * 2, "module": ["types", "types"],
        "called": [[1, 3, [4], 5, {"other": 6}], [1, 2, [], None, {}]],
        "wrapped": ["documented", "documented", True],
        "signature": "(first, second=2, *rest, keyword=None, **more)",
        "spec": [["first", "second", "keyword"], "rest", "more", [2, None]], "again": ["first", "second", "keyword"],
        "attributes": [{"documented": "highstate"}, "types"], "missing": "none",
    },
    "access": ["pong", "pong", "pong", 3, "KeyError", "AttributeError", "AttributeError", True, False],
    "missing_fun_string": [
        "'no.such' is not available.", "'types.no_such' is not available.", "'no.such' is not available.",
    ],
    "context_copies": {
        "deep": {"a": {"b": [1, 2]}}, "own": {"b": [1]}, "named": {"b": [1]}, "pickled": {"a": {"b": [1]}},
        "plain": "dict", "json": '{"a": {"b": [1]}}', "equal": [True, True, True],
    },
    "msgpack": {"context": {"a": [1, {"b": 2}]}},
}


def types_of_a_module(minion):
    minion.module("types", TYPES)
    minion.start()
    names = (
        "classes", "representation", "wrapped", "access", "iteration", "missing_fun_string", "context_copies",
        "msgpack", "opts_and_grains",
    )
    return {name: minion.value(f"types.{name}") for name in names}


@pytest.fixture(scope="module")
def seen(sides):
    return sides.run(types_of_a_module)


@pytest.mark.parametrize("name", EXPECTED)
def test_as_salt_has_it(seen, name):
    """The same on both, and the right value."""
    saltctx, stock = seen["saltctx"][name], seen["stock"][name]
    assert saltctx == stock
    if isinstance(saltctx, dict):
        assert {key: saltctx[key] for key in EXPECTED[name]} == EXPECTED[name]
    else:
        assert saltctx == EXPECTED[name]


def test_representation(seen):
    """The class's own name, as Salt's repr says it, and the function's."""
    saltctx, stock = seen["saltctx"]["representation"], seen["stock"]["representation"]
    assert saltctx == stock
    assert saltctx[:2] == ["<LoadedFunc name='types.ping'>", "<LoadedCoro name='types.later'>"]


def test_wraps_leaves_nothing_of_the_loader_behind(seen):
    """functools.wraps() of a loaded function hands on what it hands on in Salt."""
    assert seen["saltctx"]["wrapped"]["dict"] == seen["stock"]["wrapped"]["dict"]


def test_iteration(seen):
    found = seen["saltctx"]["iteration"]
    assert found == seen["stock"]["iteration"]
    assert found[:5] == [True, True, True, True, "pong"]


def test_opts_and_grains(seen):
    assert seen["saltctx"]["opts_and_grains"] == seen["stock"]["opts_and_grains"]
    assert seen["saltctx"]["opts_and_grains"][0] == "m1"


def coroutines(minion):
    minion.module("types", TYPES)
    minion.module("runs", """
        import asyncio
        def one():
            return asyncio.run(__salt__["types.later"](5))
        def many():
            async def gather():
                return await asyncio.gather(*(__salt__["types.later"](number) for number in range(5)))
            return [asyncio.run(gather()), __context__["later"]]
        def raises():
            async def fails():
                await __salt__["types.later"]()
            try:
                asyncio.run(fails())
            except TypeError:
                return "TypeError"
        def task():
            async def inner():
                return await asyncio.create_task(__salt__["types.later"](7))
            return [asyncio.run(inner()), __context__["later"]]
    """)
    minion.start()
    return minion.values("runs.one", "runs.many", "runs.raises", "runs.task")


def test_coroutine_functions(sides):
    """Awaited in an event loop of the job's own, they have its dunders (stock: only where they do not await)."""
    assert sides.saltctx(coroutines) == [
        [5, "pong", "m1"], [[[number, "pong", "m1"] for number in range(5)], 4], "TypeError", [[7, "pong", "m1"], 7],
    ]


def injected_globals(minion):
    """What renderers do: ``inject_globals`` gives each function of a loader names of its own."""
    minion.module("names", """
        def go():
            return [injected, __salt__["names.nested"]()]
        def nested():
            return globals().get("injected")
    """)
    minion.start()
    minion.value("names.nested")
    functions = minion.minion.functions
    before = dict(functions.inject_globals)
    functions.inject_globals = {"injected": "by the test"}
    try:
        found = functions["names.go"]()
    finally:
        functions.inject_globals = before
    return [found, minion.value("names.nested")]


def test_injected_globals(sides):
    """They are there in the call, and gone afterwards."""
    assert sides.both(injected_globals) == [["by the test", "by the test"], None]


def loaders_of_a_nested_call(minion):
    """eldest_loader() and parent_loader of a util that a module calls."""
    minion.module("asks", """
        def go():
            return [
                __salt__.loader().tag, __salt__.eldest_loader().tag, __utils__["told.go"](), __utils__["told.back"](),
            ]
        def inner():
            return [__salt__.loader().tag, __salt__.eldest_loader().tag]
    """)
    minion.module("told", """
        def go():
            loader = __opts__ and __salt__.loader()
            parent = loader.parent_loader
            return [loader.tag, parent and parent.tag, __salt__.eldest_loader().tag]
        def back():
            return __salt__["asks.inner"]()
    """, kind="utils")
    minion.start()
    return [minion.value("asks.go"), minion.value("asks.go"), minion.minion.functions.parent_loader is None]


def test_loaders_of_a_nested_call(sides):
    """A util's loader has the module's as its parent while the call lasts, and the eldest is the executor's."""
    first, second, no_parent = sides.both(loaders_of_a_nested_call)
    assert first == second == ["module", "executor", ["utils", "module", "executor"], ["module", "executor"]]
    assert no_parent is True


def outputters(minion):
    minion.module("types", TYPES)
    minion.start()
    minion.job("types.ping")
    functions = minion.minion.functions
    return [getattr(functions[fun], "__outputter__", None) for fun in ("types.documented", "types.ping", "state.apply")]


def test_outputter_of_a_function(sides):
    """What the minion asks for when it returns a job, and sys modules that set it."""
    documented, none, shipped = sides.both(outputters)
    assert documented == {"documented": "highstate"}
    assert none is None
    assert shipped == "highstate"


def raw_providers(minion):
    """``providers`` of the config: raw_mod() loads a module under another name."""
    minion.module("plainsvc", """
        def __virtual__():
            return "own_service"
        def status(name):
            __context__.setdefault("asked", []).append(name)
            return [name, __context__["asked"], __opts__["id"]]
    """)
    minion._config["providers"] = {"service": "plainsvc"}
    minion.start()
    jobs = (("service.status", "a"), ("service.status", "b"), ("own_service.status", "c"))
    return [minion.value(*job) for job in jobs]


def test_raw_providers(sides):
    """A provider's functions are the job's: its context, fresh in each."""
    assert sides.both(raw_providers) == [["a", ["a"], "m1"], ["b", ["b"], "m1"], ["c", ["c"], "m1"]]


def matchers(minion):
    minion.module("odd_match", """
        def match(tgt, opts=None, minion_id=None, delimiter=":"):
            return tgt == (opts or __opts__)["id"] + "!"
    """, kind="matchers")
    minion.start()
    minion.job("test.ping")
    found = []
    for tgt_type, tgt in (
        ("glob", "m*"), ("glob", "x*"), ("list", "m1,m2"), ("list", "m2"), ("grain", "id:m1"), ("pcre", "m[0-9]"),
        ("compound", "m* and not G@id:m1"), ("compound", "L@m1 or x*"), ("odd", "m1!"), ("odd", "m1"),
    ):
        load = {"tgt_type": tgt_type, "tgt": tgt, "fun": "test.ping", "arg": [], "jid": "1", "ret": ""}
        found.append(bool(minion.minion._target_load(load)))
    return found


def test_matchers(sides):
    """Shipped ones and one of our own, asked from the main loop."""
    assert sides.both(matchers) == [True, False, True, False, True, True, False, True, True, False]


def odd_functions(minion):
    """Functions that are no plain ones."""
    minion.module("odd", """
        import functools
        class Callable:
            __name__ = "instance"
            def __call__(self, value):
                return ["instance", value, __opts__["id"]]
        instance = Callable()
        def _base(first, second):
            return [first, second, __salt__["test.echo"]("echoed")]
        partial = functools.partial(_base, 1)
        functools.update_wrapper(partial, _base)
        def decorated(func):
            @functools.wraps(func)
            def wrapper(*args):
                return ["decorated", func(*args)]
            return wrapper
        @decorated
        def plain(value):
            return [value, __context__.get("retcode")]
        def list_():
            return "aliased"
        __func_alias__ = {"list_": "list"}
        class NoFunction:
            pass
        def _private():
            return "private"
        __all__ = ["plain", "list_", "partial", "instance"]
        def not_in_all():
            return "not in __all__"
    """)
    minion.module("loads", """
        __load__ = ["yes"]
        def yes():
            return "loaded"
        def no():
            return "not loaded"
    """)
    minion.module("aliased", """
        __virtual_aliases__ = ("other_name",)
        def go():
            return "here"
    """)
    minion.start()
    jobs = [
        ("odd.plain", 1), ("odd.partial", 2), ("odd.instance", 3), ("odd.list",), ("odd.list_",), ("odd._private",),
        ("odd.not_in_all",), ("loads.yes",), ("loads.no",), ("aliased.go",), ("other_name.go",),
    ]
    return [str(minion.value(*job)).partition("\n")[0] for job in jobs]


def test_odd_functions(sides):
    """Decorated ones, aliases, ``__load__``, ``__all__``, ``__virtual_aliases__``, partial objects and instances."""
    found = sides.both(odd_functions)
    assert found[0] == "['decorated', [1, 0]]"
    assert found[3] == "aliased"
    assert found[7] == "loaded"
    assert found[8] == "'loads.no' is not available."
    assert found[9:] == ["here", "here"]


def setting_functions(minion):
    """A loader takes functions by subscript, as Salt itself gives it sys.reload_modules."""
    minion.start()
    minion.job("test.ping")
    functions = minion.minion.functions
    functions["made.up"] = lambda value: ["made up", value]
    found = ["made.up" in functions, functions["made.up"](1)]
    del functions["made.up"]
    return [*found, "made.up" in functions, callable(functions["sys.reload_modules"])]


def test_functions_set_by_subscript(sides):
    assert sides.both(setting_functions) == [True, ["made up", 1], False, True]


def outside_any_job(minion):
    """What engines, beacons and the schedule do with the minion's own loaders."""
    minion.module("own", """
        def go(key):
            __context__[key] = __context__.get(key, 0) + 1
            return [__context__[key], __opts__["id"], __salt__["test.echo"]("x")]
    """)
    minion.start()
    minion.job("test.ping")
    functions = minion.minion.functions
    found = [functions["own.go"]("a"), functions["own.go"]("a"), functions["test.ping"]()]
    return [*found, minion.value("own.go", "a"), functions["own.go"]("a")]


def test_calls_outside_any_job(sides):
    """They have a context that lasts as long as the loaders, apart from every job's."""
    assert sides.saltctx(outside_any_job) == [
        [1, "m1", "x"], [2, "m1", "x"], True, [1, "m1", "x"], [3, "m1", "x"],
    ]


OPTS_USES = {
    "dict()": "dict(__opts__)['id']",
    "stars": "{**__opts__}['id']",
    "copy.copy": "copy.copy(__opts__)['id']",
    "copy.deepcopy": "copy.deepcopy(__opts__)['id']",
    "deepcopy is apart": "changed(copy.deepcopy(__opts__))",
    "deepcopies are apart": "changed_twice()",
    "copies are": "[type(each(__opts__)).__name__ for each in (copy.copy, copy.deepcopy, piped)]",
    ".copy()": "__opts__.copy()['id']",
    "safe_opts_copy": "salt.utils.optsdict.safe_opts_copy(__opts__)['id']",
    "safe_opts_copy is apart": "changed(salt.utils.optsdict.safe_opts_copy(__opts__))",
    "json": "json.loads(json.dumps(dict(__opts__), default=str))['id']",
    "pickle": "pickle.loads(pickle.dumps(dict(__opts__)))['id']",
    "pickle as it is": "piped(__opts__)['id']",
    "yaml": "yamled(__opts__)['id']",
    "yaml of a part": "[yamled(__opts__['tree']), yamled(__opts__['list']), yamled({'a': __opts__['tree']})]",
    "yaml of config.get": "yamled(__salt__['config.get']('tree'))",
    "yaml of a value": "yamled(__opts__.get('tree')['deep'])",
    "PyYAML": "yaml.safe_load(yaml.safe_dump(__opts__['tree']))",
    "dict": "isinstance(__opts__, dict)",
    "or": "[(__opts__ | {'own': 1})['own'], ({'own': 1} | __opts__)['own'], ored()]",
    "reversed": "isinstance(list(reversed(__opts__)), list)",
    "keys": "'id' in list(__opts__.keys())",
    "items": "dict(__opts__.items())['id']",
    "values": "len(list(__opts__.values())) == len(__opts__)",
    "iteration": "sorted(__opts__) == sorted(set(__opts__))",
    "in": "['id' in __opts__, 'no such' in __opts__]",
    "truth": "bool(__opts__)",
    "equal": "__opts__ == __opts__",
    "mapping": "isinstance(__opts__, collections.abc.Mapping)",
    "merge": "salt.utils.dictupdate.merge({'id': 0, 'own': 1}, dict(__opts__))['own']",
    "update of a dict": "updated({})",
    "a loader of its own": "salt.loader.minion_mods(__opts__)['test.ping']()",
    "a renderer": "salt.loader.render(__opts__, __salt__)['yaml']('a: 1', '', '')['a']",
    "a file client": "salt.fileclient.get_file_client(__opts__).opts['id']",
    "traverse": "salt.utils.data.traverse_dict_and_list(__opts__, 'tree:deep:a')",
    "pop": "[__opts__.pop('plain'), 'plain' in __opts__]",
    "setdefault": "[__opts__.setdefault('plain', 5), __opts__['plain']]",
    "nested in place": "nested()",
    "grains through opts": "__opts__['grains']['id']",
    "passed to a function": "[takes(__opts__), takes(opts=__opts__)]",
}


def uses_of_opts(minion):
    body = """
import collections.abc, copy, json, pickle
import yaml
import salt.fileclient, salt.loader, salt.utils.data, salt.utils.dictupdate, salt.utils.optsdict, salt.utils.yaml
def _changed(opts):
    opts["id"] = "changed"
    opts["tree"]["deep"]["a"] = "changed"
    return [__opts__["id"], __opts__["tree"]["deep"]["a"]]
def _changed_twice():
    opts = copy.deepcopy(__opts__)
    opts["id"] = "changed"
    return [copy.deepcopy(__opts__)["id"], opts["id"]]
def _piped(opts):
    return pickle.loads(pickle.dumps(opts))
def _yamled(value):
    return salt.utils.yaml.safe_load(salt.utils.yaml.safe_dump(value))
def _ored():
    opts = __opts__
    opts |= {"own": 1}
    return opts["id"]
def _updated(target):
    target.update(__opts__)
    return target["id"]
def _nested():
    __opts__["tree"]["deep"]["b"] = 2
    return [__opts__["tree"]["deep"]["b"], __opts__.get("tree")["deep"]["b"], sorted(__opts__["tree"]["deep"])]
def _takes(opts):
    return opts["id"]
changed, changed_twice, piped, yamled, ored = _changed, _changed_twice, _piped, _yamled, _ored
updated, nested, takes = _updated, _nested, _takes
"""
    for number, use in enumerate(OPTS_USES.values()):
        body += f"def use{number}():\n    return {use}\n"
    minion.module("uses", body)
    minion._config.update(tree={"deep": {"a": 1}}, plain="plain", list=[1, {"a": [2]}])
    minion.start()
    return {name: minion.value(f"uses.use{number}") for number, name in enumerate(OPTS_USES)}


def test_uses_of_opts(sides):
    """All that modules do with ``__opts__`` as a whole."""
    found = sides.both(uses_of_opts)
    for name in (
        "dict()", "stars", "copy.copy", "copy.deepcopy", ".copy()", "safe_opts_copy", "json", "pickle", "items",
        "update of a dict", "a file client", "grains through opts", "pickle as it is", "yaml",
    ):
        assert found[name] == "m1", name
    for name in ("deepcopy is apart", "safe_opts_copy is apart"):
        assert found[name] == ["m1", 1], name
    assert found["deepcopies are apart"] == ["m1", "changed"]
    assert found["copies are"] == ["OptsDict"] * 3
    assert found["yaml of a part"] == [{"deep": {"a": 1}}, [1, {"a": [2]}], {"a": {"deep": {"a": 1}}}]
    assert found["yaml of config.get"] == found["PyYAML"] == {"deep": {"a": 1}}
    assert found["yaml of a value"] == {"a": 1}
    assert found["or"] == [1, 1, "m1"]
    for name in ("keys", "values", "iteration", "truth", "equal", "mapping", "a loader of its own", "dict", "reversed"):
        assert found[name] is True, name
    assert found["in"] == [True, False]
    assert found["pop"] == ["plain", False]
    assert found["setdefault"] == ["plain", "plain"]
    assert found["nested in place"] == [2, 2, ["a", "b"]]
    assert found["traverse"] == 1
    assert found["passed to a function"] == ["m1", "m1"]


def named_contexts_of_before(minion):
    """Functions that return a dunder which Salt made, and somebody imported, before saltctx was switched on."""
    import salt.loader.dunder  # noqa: F401

    minion.module("early", """
        from salt.loader.dunder import __grains__, __opts__, __pillar__
        def pillar():
            return __pillar__
        def grains():
            return __grains__
        def opts():
            return __opts__
        def nested():
            return __salt__["early.pillar"]()["who"]
    """)
    minion.pillar(who="one")
    minion.start()
    opts = minion.value("early.opts")
    return [minion.value("early.pillar"), minion.value("early.nested"), minion.value("early.grains")["id"], opts["id"]]


def test_named_contexts_of_before(sides):
    """They are handed out as what they stand for."""
    sides.both(named_contexts_of_before)
