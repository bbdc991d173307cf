"""``salt.master``: a worker compiles a minion's pillar with loaders that share their scans and modules."""

import contextlib
import contextvars
import inspect
import logging

from .. import compat
from . import passthroughs
from .asked import asked_of, is_master, said

log = logging.getLogger(__name__)

_compiling = contextvars.ContextVar("saltctx_compiling_pillar", default=False)


def wanted(opts):
    """Whether loaders that are made here from these opts are of a pillar that a master compiles with saltctx."""
    return _compiling.get() and is_master(opts)


@contextlib.contextmanager
def _compile(functions, activate):
    """The block answers a minion's request for its pillar; with saltctx, if the config of the master asks for it."""
    asked = asked_of(functions, functions.opts, activate) is not None
    if asked and said.once(functions, "on"):
        log.info("saltctx compiles the pillars that this worker of master %s is asked for", functions.opts.get("id"))
    token = _compiling.set(asked)
    try:
        yield
    finally:
        _compiling.reset(token)


def install_passthroughs(activate):
    """
    Stand before what answers a request for a pillar; ``activate()`` puts the deep hooks in.

    Raises compat.UnknownSalt, before anything is hooked, if Salt's master is not as expected.
    """
    from salt.master import AESFuncs

    compat.require_master()

    def make(original):
        # One answers in the worker's event loop (master_async_mworker), the other is the default.
        if inspect.iscoroutinefunction(original):
            async def pillar(self, load):
                with _compile(self, activate):
                    return await original(self, load)
        else:
            def pillar(self, load):
                with _compile(self, activate):
                    return original(self, load)

        return pillar

    passthroughs.replace(AESFuncs, "_pillar", make)
    passthroughs.replace(AESFuncs, "_sync_pillar", make)
