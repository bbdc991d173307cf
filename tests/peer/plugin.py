"""
A pytest plugin for Salt's own tests: every loader that they make is one of saltctx's.

A minion that asks for saltctx gets its loaders where it starts a job. Salt's tests make theirs themselves, of any
opts, so the hooks are put in here as for such a minion's first job, and take all opts for one's. With SALTCTX_DISABLE
set Salt stays as it is; what else the plugin does, it does on both sides.
"""

import pytest

from saltctx import activation, options
from saltctx.core import Job

_made = 0


def _wanted(opts):
    """Every LazyLoader that Salt makes asks here."""
    global _made
    _made += 1
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    """Put the hooks in; a Salt that saltctx does not know ends the run, before anything else was begun."""
    if options.disabled_by_environment():
        return
    if Job.__module__ != "saltctx._core":
        raise pytest.UsageError("saltctx has no extension here")
    import salt.minion  # noqa: F401
    from salt.loader.lazy import LazyLoader

    # The pass-throughs, as in every process that has a minion; then what a first job puts in.
    activation.loader_dirs()
    activation.activate(_wanted)
    from saltctx.hooks.loader import Loader

    if type(LazyLoader([], {"optimization_order": [0]}, tag="peer")) is not Loader:
        raise pytest.UsageError("the loaders that Salt makes are not saltctx's")


def pytest_collection_modifyitems(items):
    """Salt's limit of 50 ms for anything in an event loop measures how busy the machine is."""
    for item in items:
        item.add_marker(pytest.mark.no_blocking(reason="two cores that others use"))


def pytest_terminal_summary(terminalreporter):
    """Say how many loaders the tests got from saltctx."""
    terminalreporter.write_line(f"loaders made by saltctx: {_made}")
