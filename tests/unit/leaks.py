"""
Run one scenario over and over in a process of its own: ``python leaks.py SCENARIO``.

Prints what grew: reference counts of the types (exact on a build with the GIL) and the resident memory.
Exit status 1 if something leaks. Without an argument: the names of the scenarios.
"""

import contextlib
import contextvars
import copy
import functools
import gc
import importlib.util
import os
import pickle
import sys
import tempfile

import saltctx._core as core

ROUNDS = int(os.environ.get("SALTCTX_LEAK_ROUNDS", "15000"))
MEMORY_CAP = 250 * 2**10
"""Bytes that a segment of the rounds may add. One small object a round adds 350 KB or more, noise some 50 KB."""

SEGMENTS = 5

loader_var = contextvars.ContextVar("loader")
SCENARIOS = {}


def scenario(func):
    SCENARIOS[func.__name__] = func
    return func


class Function(core.LoadedFunction):
    pass


class Dunder(core.NamedContext):
    pass


class LoaderContext:
    loader_ctxvar = loader_var


class Loader(core.LoaderBase):
    def __init__(self, functions=(), shared=False):
        self._dict = dict(functions)
        self.loaded = False
        self.pack = {}
        self.pack_self = None
        self.inject_globals = {}
        self.module_opts = {}
        self.shared = shared

    def _load_missing(self, key):
        raise KeyError(key)

    def _load_all(self):
        pass

    def _first_use(self, key):
        return None


def no_value(name):
    raise LookupError(name)


def view(loader, value):
    if value is None:
        raise ValueError
    return dict(value)


def bind():
    core.bind(
        loader_var=loader_var,
        loaded_function=Function,
        loaded_coroutine=Function,
        named_context=core.NamedContext,
        is_coroutine=lambda func: False,
        keep_generator=lambda context, generator: (context.run(next, generator) for _ in range(1)),
        inject=lambda loaded, inject_globals, func: functools.partial(func),
        before_call=lambda loader, func: None,
        after_call=lambda loader, func: None,
        no_value=no_value,
        variables={"__resource__": contextvars.ContextVar("resource", default={})},
        views={"__opts__": view},
    )


def ping(*args, **kwargs):
    return args, kwargs


def fail(*args, **kwargs):
    raise ValueError("failed")


def raises(error, func, *args, **kwargs):
    try:
        func(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{func} did not raise {error}")


class Key:
    def __init__(self, error=None):
        self.error = error

    def __hash__(self):
        if self.error is not None:
            raise self.error
        return 1


@scenario
def job():
    one = core.Job("1", "f", "m")
    one.layer["me"] = one.views["me"] = one.uses["me"] = one
    one.exit(one.enter())
    one.run(ping, 1, key=2)
    one.run(core.loading, core.loading, core.current_job)
    repr(one)


@scenario
def job_errors():
    one = core.Job()
    raises(ValueError, one.run, fail, object())
    raises(ValueError, core.loading, fail, object())
    raises(TypeError, core.Job, jid=1)
    raises(TypeError, core.Job, "", "", "", "")
    raises(AttributeError, setattr, one, "jid", "")
    raises(TypeError, one.run)
    raises(TypeError, one.exit, object())
    token = one.enter()
    one.exit(token)
    raises(RuntimeError, one.exit, token)


def _use_context(context):
    context["k"] = [object()]
    context["k"] = 1
    context.update({"a": 1}, b=2)
    context.setdefault("c", [])
    context.get("a"), context.get("none", object()), "a" in context, len(context), repr(context)
    list(context), list(reversed(context)), context.items(), context.keys(), context.values()
    dict(context), {**context}, context.copy(), copy.copy(context), copy.deepcopy(context)
    pickle.loads(pickle.dumps(context))
    context == {"a": 1}, context != core.JobContext(), context | {}, {} | context
    context |= {"d": 4}
    del context["a"]
    context.pop("b"), context.pop("b", None), context.popitem()
    context["base"].append(1)
    context.clear()


@scenario
def context():
    shared = core.JobContext()
    shared["me"] = shared.base["me"] = shared
    for run in (core.Job().run, core.loading, lambda func, arg: func(arg)):
        each = core.JobContext()
        each.base["base"] = [object()]
        run(_use_context, each)


@scenario
def context_errors():
    each = core.JobContext()
    each.base["k"] = [object()]
    one = core.Job()
    for run in (one.run, core.loading, lambda func, *args: func(*args)):
        for name in ("__getitem__", "__delitem__", "pop"):
            raises(KeyError, run, getattr(each, name), ("no", "key"))
        for name in ("__getitem__", "__delitem__", "pop", "get", "setdefault", "__contains__"):
            raises(TypeError, run, getattr(each, name), [])
            raises(ValueError, run, getattr(each, name), Key(ValueError()))
        raises(ValueError, run, each.update, [(1,)])
        raises(TypeError, run, each.update, 1)
        raises(TypeError, run, each.get)
        raises(TypeError, run, lambda: each | 1)
        raises(TypeError, run, lambda: each < {})
    core.loading(each.clear)
    each.clear()
    raises(KeyError, each.popitem)
    each.base["lock"] = [contextvars.copy_context()]
    one.run(dict, each)
    raises(TypeError, core.JobContext, 1, 2)


@scenario
def loader():
    one = Loader({"k": ping, "len": len})
    one.me = one
    one.pack = {"me": one}
    one["k"], one["len"], one.get("k"), "k" in one, list(one), one.get("none")
    one.run(ping, 1, key=2)
    other = Loader({"k": one.run})
    other["k"](lambda: (one.parent_loader, other.parent_loader))
    one.parent_loader = None
    shared = Loader({"k": ping}, shared=True)
    core.Job().run(lambda: shared["k"](1, key=2))
    for name in ("_dict", "loaded", "pack", "pack_self", "inject_globals", "module_opts", "shared"):
        setattr(one, name, object())
        delattr(one, name)


@scenario
def loader_errors():
    one = Loader({"k": ping})
    raises(KeyError, one.__getitem__, ("no", "key"))
    raises(TypeError, one.__getitem__, [])
    raises(TypeError, one.__contains__, [])
    raises(ValueError, one.run, fail, object(), key=object())
    raises(TypeError, one.run)
    raises(TypeError, one.get)
    raises(AttributeError, setattr, one, "parent_loader", one)
    blank = Loader.__new__(Loader)
    raises(AttributeError, blank.__getitem__, "k")
    raises(AttributeError, list, blank)
    raises(AttributeError, getattr, blank, "pack")
    one.shared = True
    spoilt = core.Job()
    spoilt.uses[id(one)] = "spoilt"
    raises(TypeError, spoilt.run, lambda: one["k"])
    raises(TypeError, core.bind, loader_var=1)


def _generate():
    yield object()


@scenario
def loaded():
    one = Loader({"k": ping, "g": _generate, "d": lambda: dunder})
    dunder = Dunder("__x__", LoaderContext())
    one.pack = {"__x__": {"a": object()}}
    each = one["k"]
    each(1, 2, key=object())
    each.__name__, each.__doc__, each.__wrapped__, each.func, each.name, each.loader, repr(each)
    hasattr(each, "none"), getattr(each, "__code__")
    vars(each), copy.copy(each)(1)
    each.mark = each
    del each.mark
    each.me = each
    functools.wraps(one["k"])(lambda: None)
    list(one["g"]())
    one["d"]()
    one.inject_globals = {"a": 1}
    one["k"](1)
    carried = core.Job().run(lambda: one["k"])
    carried(1)
    core.LoadedFunction("k", one, ping, True)(1)


@scenario
def loaded_errors():
    one = Loader({"k": fail})
    each = one["k"]
    raises(ValueError, each, object(), key=object())
    raises(AttributeError, getattr, each, "none")
    raises(AttributeError, setattr, each, "name", "x")
    raises(AttributeError, delattr, each, "none")
    raises(KeyError, core.LoadedFunction, "none", one)
    raises(TypeError, core.LoadedFunction)
    raises(AttributeError, core.LoadedFunction, "k", object())
    raises(RuntimeError, each.__init__, "k", one)
    blank = core.LoadedFunction.__new__(core.LoadedFunction)
    raises(AttributeError, blank)
    raises(AttributeError, repr, blank)
    raises(AttributeError, getattr, blank, "func")
    del one.inject_globals
    raises(AttributeError, each)
    del one._dict
    raises(AttributeError, each)


class Layered(dict):
    """A dict over others."""

    def __init__(self, parent=None, **local):
        self._parent, self._base, self._local, self._proxy_cache = parent, {"base": [1], "odd": Layered}, local, {}


def wrap(opts, key, value):
    if key == "fails":
        raise ValueError
    return list(value)


for kind in ("__getitem__", "__contains__", "get"):
    setattr(Layered, kind, core.LayeredLookup(kind, None, wrap, Layered))


@scenario
def layers():
    opts = Layered(Layered(a=object(), d={"x": 1}, none=None), own={})
    opts["a"], opts["d"], opts["own"], opts["base"], opts["odd"]
    "a" in opts, "none" in opts, "x" in opts
    opts.get("a"), opts.get("x"), opts.get("x", default=object()), opts.get(key="d")
    opts._proxy_cache["d"] = object(), id(opts._parent._local["d"])
    opts["d"]
    lookup = core.LayeredLookup("get", None, wrap, Layered)
    functools.wraps(ping)(lookup)(opts, "a")
    lookup.me = lookup
    lookup.mine = core.LayeredLookup("get", None, wrap, Layered, type("Own", (Layered,), {"lookup": lookup}))


@scenario
def layers_snapshot():
    class Snapshot(Layered):
        pass

    opts = Snapshot(Layered(d={"x": 1}))
    opts.update(a=object(), d={}, none=None)
    for kind in ("__getitem__", "__contains__", "get"):
        lookup = core.LayeredLookup(kind, None, wrap, Layered, Snapshot)
        lookup(opts, "a"), lookup(opts, "d"), lookup(opts, "none")
        raises(OSError, lookup, opts, Key(OSError()))


@scenario
def layers_errors():
    opts = Layered(Layered(fails=[]))
    raises(KeyError, opts.__getitem__, "x")
    raises(ValueError, opts.get, "fails")
    raises(OSError, opts.get, Key(OSError()))
    raises(OSError, opts.__contains__, Key(OSError()))
    raises(TypeError, opts.get)
    raises(TypeError, opts.get, "a", other=1)
    raises(TypeError, core.LayeredLookup, "get", None, wrap, 1)
    raises(TypeError, core.LayeredLookup, "get", None, wrap, Layered, 1)
    raises(ValueError, core.LayeredLookup, "x", None, wrap, Layered)
    del opts._parent
    raises(AttributeError, opts.get, "x")


@scenario
def dunder():
    shared = Loader(shared=True)
    shared.pack = {"__opts__": {"k": 1}, "__context__": core.JobContext(), "__none__": None}
    shared.module_opts = {"m": {"k": 2}}
    opts, mine, state = (Dunder(name, LoaderContext(), object()) for name in ("__opts__", "__opts__", "__context__"))
    mine.owner = "m"
    mine.me = mine
    opts.value(), opts.loader(), Dunder("__resource__", LoaderContext()).value()
    Dunder("__x__", object(), 1).value()

    def body():
        opts["k"], mine["k"], "k" in opts, len(opts), list(opts), bool(opts), opts.get("k"), opts.get("x", default=1)
        opts["x"] = object()
        del opts["x"]
        opts.items(), opts.__getattr__("keys")
        state["a"] = [1]
        state["a"], state.get("a"), state.get("none"), state.setdefault("b", [])
        shared.run(lambda: state)

    core.Job().run(shared.run, body)
    shared.run(body)


@scenario
def dunder_errors():
    one = Loader(shared=True)
    one.pack = {"__opts__": None}
    opts, missing = Dunder("__opts__", LoaderContext()), Dunder("__missing__", LoaderContext())
    raises(LookupError, one.run, missing.value)
    raises(LookupError, one.run, lambda: missing["k"])
    raises(ValueError, core.Job().run, one.run, opts.value)
    raises(TypeError, one.run, lambda: opts["k"])
    raises(AttributeError, one.run, lambda: opts.none)
    raises(TypeError, opts.get)
    raises(TypeError, core.NamedContext)
    blank = Dunder.__new__(Dunder)
    raises(AttributeError, blank.value)
    raises(AttributeError, lambda: blank.name)
    del one.pack
    raises(AttributeError, one.run, lambda: opts["k"])


@scenario
def recursion():
    one = Loader()
    itself = Dunder("__x__", LoaderContext())
    one.pack = {"__x__": itself}
    with contextlib.suppress(RecursionError):
        one.run(lambda: itself["k"])


recursion.rounds = 100


@scenario
def stamps():
    one = core.FileStamps(0, 0)
    for number in range(20):
        one.add(f"{_directory}/{number}")
        one.restamp(f"{_directory}/{number}")
    one.add(_directory), one.restamp(_directory), one.suspects(), one.paths(), len(one), _directory in one
    core.FileStamps(10**18).restamp(_directory)
    one.add("odd\0"), one.add("\ud800")


@scenario
def stamps_errors():
    one = core.FileStamps()
    for path in (b"x", 1, None):
        raises(TypeError, one.add, path)
        raises(TypeError, one.restamp, path)
        raises(TypeError, one.__contains__, path)
    raises(TypeError, core.FileStamps, object())
    raises(OverflowError, core.FileStamps, 2**64)


@scenario
def watch():
    shared, own = core.FileWatch(0, 0), core.FileWatch(0, 0, max_watches=5)
    for one in (shared, own):
        for number in range(5):
            one.add(f"{_directory}/leak/{number}")
            one.restamp(f"{_directory}/leak/{number}")
        one.add(_directory), one.suspects(), one.suspects(), one.paths(), len(one), _directory in one
        one.polled, one.reason
    one.add("odd\0"), one.add("\ud800"), one.add("relative")
    core.FileWatch.__new__(core.FileWatch).suspects()


watch.rounds = 500


@scenario
def watch_errors():
    one = core.FileWatch()
    for path in (b"x", 1, None):
        raises(TypeError, one.add, path)
        raises(TypeError, one.restamp, path)
        raises(TypeError, one.__contains__, path)
    raises(TypeError, core.FileWatch, object())
    raises(TypeError, core.FileWatch, max_watches="1")
    raises(OverflowError, core.FileWatch, max_watches=2**90)


@scenario
def objects():
    mapping = {"a": object(), "b": 1}
    one = core.ObjectEvidence((mapping, key, value, "why") for key, value in mapping.items())
    one.changed(), len(one)
    mapping["a"] = object()
    one.changed()
    core.ObjectEvidence([(mapping, "self", one, "why")])
    mapping["self"] = one
    counter = core.Counter()
    counter.add()
    counter.value


@scenario
def objects_errors():
    good = {}, "k", object(), "why"
    for items in (1, [good, 1], [good, good[:3]], [([], *good[1:])]):
        raises(TypeError, core.ObjectEvidence, items)
    raises(TypeError, core.ObjectEvidence)
    raises(TypeError, core.Counter, 1)


@scenario
def module():
    one = importlib.util.module_from_spec(core.__spec__)
    core.__spec__.loader.exec_module(one)
    repr(one), one.current_job()
    one.JobContext()["k"] = one.Job()


module.rounds = 200


_directory = tempfile.gettempdir()
EXACT_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()
TYPES = [
    each for each in vars(core).values() if isinstance(each, type)
] + [Function, Dunder, Loader]


def memory():
    gc.collect()
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def counts():
    gc.collect()
    return {each.__name__: sys.getrefcount(each) for each in TYPES}


def main(name):
    """Whether the scenario leaks. An allocator may grow now and then; a leak grows every time."""
    bind()
    run = SCENARIOS[name]
    rounds = getattr(run, "rounds", ROUNDS)
    for _ in range(rounds):
        run()
    for _ in range(SEGMENTS):
        before, used = counts(), memory()
        for _ in range(rounds):
            run()
        after, grown = counts(), memory() - used
        more = {each: after[each] - before[each] for each in after if abs(after[each] - before[each]) > 5}
        print(f"{name}: {rounds} rounds, {grown} bytes more, reference counts of types {more or 'the same'}")
        if grown <= MEMORY_CAP and not (EXACT_COUNTS and more):
            return False
    return True


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(sys.argv[1]))
    print("\n".join(SCENARIOS))
