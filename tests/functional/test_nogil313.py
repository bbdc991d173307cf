"""What saltctx changes in Salt on CPython 3.13 without the GIL only."""

import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 13) or not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="CPython 3.13 without the GIL only",
)


def as_before(minion):
    """What the functions that are replaced there answer, and what is written to a minion's functions."""
    import salt.utils.metrics
    import salt.utils.platform
    import salt.utils.tracing

    minion.start()
    minion.job("test.ping")
    seen = []
    for module in (salt.utils.metrics, salt.utils.tracing):
        for opts in (None, {}, {"enabled": False}, {"enabled": 0}):
            module._cached_opts = opts
            seen.append(module.is_enabled())
    seen += [salt.utils.platform.is_linux(), salt.utils.platform.is_proxy()]
    functions = minion.minion.functions
    functions["test.ping"] = "x"
    seen.append(functions._dunder_salt._dict["test.ping"])
    del functions["test.ping"]
    return [*seen, "test.ping" in functions._dunder_salt._dict]


def test_as_before(sides):
    assert sides.both(as_before) == [False] * 8 + [True, False, "x", False]


def replaced_loaders(minion):
    """Which of the loaders that a reload replaced are still there."""
    import gc
    import weakref

    minion.start()
    minion.job("test.ping")
    minion.job("sys.reload_modules")
    functions = minion.minion.functions
    kept = [weakref.ref(functions), weakref.ref(functions._dunder_salt), weakref.ref(minion.minion.states)]
    del functions
    minion.job("sys.reload_modules")
    gc.collect()
    return [loader() is not None for loader in kept]


def test_replaced_loaders_are_freed(sides):
    assert sides.saltctx(replaced_loaders) == [False] * 3


def classes(minion):
    minion.start()
    minion.job("test.ping")
    first = type(minion.minion.functions)
    minion.job("sys.reload_modules")
    return [first is type(minion.minion.functions), first.__name__, first.__module__.partition(".")[0]]


def test_one_class_for_all_loaders(sides):
    """A class is never freed there, and Salt's own holds the loader that it was made for."""
    assert sides.saltctx(classes) == [True, "_WriteThroughLoader", "saltctx"]
