"""
Each test of a type runs on the C type (``c``) and on its specification in Python (``py``).

Both are private instances of their modules: what a test binds is not what Salt's loaders in the same
process run on.
"""

import contextvars
import importlib.util
import inspect
import os
import threading
import time
import types

import pytest

PURE = os.environ.get("SALTCTX_PURE", "") not in ("", "0")
SECONDS = 30
"""How long a test with threads may take before it counts as a deadlock."""


def _instance(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not built; SALTCTX_PURE=1 tests without it"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=["py"] if PURE else ["c", "py"])
def core(request):
    """The module under test."""
    module = _instance({"c": "saltctx._core", "py": "saltctx._reference"}[request.param])
    is_c = not isinstance(vars(module.Job)["run"], types.FunctionType)
    assert is_c == (request.param == "c")
    return module


@pytest.fixture(scope="session")
def is_c(core):
    return not isinstance(vars(core.Job)["run"], types.FunctionType)


@pytest.fixture(scope="session")
def c_core():
    """The C module, for what the specification leaves open."""
    if PURE:
        pytest.skip("SALTCTX_PURE is set")
    return _instance("saltctx._core")


def pytest_collection_modifyitems(items):
    """What is bound counts for all threads: a test that makes its host itself would bind below the others' calls."""
    for item in items:
        if "make_host" in inspect.signature(item.function).parameters:
            item.add_marker(pytest.mark.thread_unsafe(reason="it binds a host of its own"))


class LoaderContext:
    """What a dunder asks for the variable of the running loader."""

    def __init__(self, variable):
        self.loader_ctxvar = variable


class Host:
    """The smallest thing that can play Salt: it binds ``core`` and makes loaders and dunders."""

    def __init__(self, core, **changes):
        self.core = core
        self.loader_var = contextvars.ContextVar("loader")
        self.asked = []
        self.variables = {}
        self.views = {}
        self.bind(**changes)

    def bind(self, **changes):
        core, host = self.core, self

        class Function(core.LoadedFunction):
            """The class."""

        class Coroutine(core.LoadedFunction):
            async def __call__(self, *args, **kwargs):
                return await self.func(*args, **kwargs)

        class Dunder(core.NamedContext):
            pass

        class Loader(core.LoaderBase):
            def __init__(self, functions=None, pack=None, missing=None, shared=False):
                self._dict = dict(functions or {})
                self.missing = dict(missing or {})
                self.loaded = not self.missing
                self.pack = dict(pack or {})
                self.pack_self = None
                self.inject_globals = {}
                self.module_opts = {}
                self.shared = shared
                self.own = {}
                self.log = []

            def _load_missing(self, key):
                self.log.append(key)
                func = self._dict[key] = self.missing[key]
                return func

            def _load_all(self):
                self.log.append("all")
                self._dict.update(self.missing)
                self.loaded = True

            def _first_use(self, key):
                self.log.append(("first", key))
                return self.own.get(key)

            def _host(self):
                return host

        self.Function, self.Coroutine, self.Dunder, self.Loader = Function, Coroutine, Dunder, Loader
        self.bound = {
            "loader_var": self.loader_var,
            "loaded_function": Function,
            "loaded_coroutine": Coroutine,
            "named_context": core.NamedContext,
            "is_coroutine": self.is_coroutine,
            "keep_generator": self.keep_generator,
            "inject": self.inject,
            "before_call": lambda loader, func: self.asked.append(("before", loader, func)),
            "after_call": lambda loader, func: self.asked.append(("after", loader, func)),
            "no_value": self.no_value,
            "variables": self.variables,
            "views": self.views,
            **changes,
        }
        core.bind(**self.bound)

    def is_coroutine(self, func):
        self.asked.append(("coroutine", func))
        return inspect.iscoroutinefunction(func)

    @staticmethod
    def keep_generator(context, generator):
        for item in iter(lambda: context.run(next, generator, None), None):
            yield context, item

    @staticmethod
    def inject(loaded, inject_globals, func):
        def injected(*args, **kwargs):
            return loaded.name, sorted(inject_globals), func(*args, **kwargs)

        return injected

    @staticmethod
    def no_value(name):
        raise LookupError(f"not packed: {name}")

    def dunder(self, name, default=None):
        return self.Dunder(name, LoaderContext(self.loader_var), default)

    def in_loader(self, loader, func, *args):
        """Call with ``loader`` as the running one, with nothing else around it."""
        context = contextvars.copy_context()
        context.run(self.loader_var.set, loader)
        return context.run(func, *args)


@pytest.fixture
def host(core):
    return Host(core)


@pytest.fixture
def make_host(core):
    return lambda **changes: Host(core, **changes)


@pytest.fixture
def c_host(c_core):
    """A host of the C module, for what the specification leaves open."""
    return Host(c_core)


@pytest.fixture
def loader_context():
    return LoaderContext


def run_threads(*functions):
    """Start each function in a thread of its own at the same moment; what one raises is raised here."""
    barrier = threading.Barrier(len(functions))
    errors = []

    def run(function):
        try:
            barrier.wait(SECONDS)
            function()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a thread did not end"
    if errors:
        raise errors[0]


@pytest.fixture
def threads():
    return run_threads
