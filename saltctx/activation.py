"""
The ``salt.loader`` entry point: says where saltctx's own execution module is, and puts the hooks in.

Salt calls :func:`loader_dirs` in every process that builds loaders, about twenty times in a state run.
"""

import logging
import os
import sys

from . import options
from .forksafe import ForkSafeLock
from .hooks import deep, passthroughs

log = logging.getLogger(__name__)

_DIRS = {"modules": [os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules")]}
_lock = ForkSafeLock()
_active = False
# Module of Salt -> the last name it defines: one that has it is not half imported.
_DAEMONS = {"salt.minion": "SProxyMinion", "salt.master": "ClearFuncs"}
_untried = set(_DAEMONS)

refusal = None
"""Why this Salt is not hooked: a str, None where it is or was not tried."""


def loader_dirs():
    """{loader kind: [directory]}, as Salt asks of an entry point of the group ``salt.loader``."""
    for name in tuple(_untried):
        # A process that runs no such daemon, or has not imported all of it yet: Salt will ask again.
        if hasattr(sys.modules.get(name), _DAEMONS[name]):
            _try_passthroughs(name)
    return _DIRS


def _try_passthroughs(name):
    with _lock:
        if name not in _untried:
            return
        _untried.discard(name)
        if refusal is not None or options.disabled_by_environment():
            return
        try:
            from .hooks import master, minion, schedule

            if name == "salt.master":
                master.install_passthroughs(activate)
            else:
                minion.install_passthroughs(activate)
                schedule.install_passthrough(activate)
        except Exception as exc:
            refuse(exc)


def refuse(exc):
    """Take all hooks out; Salt runs untouched."""
    global refusal
    refusal = str(exc)
    deep.remove()
    passthroughs.remove()
    log.error("saltctx does not know this Salt and stays off: %s", exc)


def activate(wanted=None):
    """
    Put the deep hooks in, once a process, for a minion that asked for saltctx.

    wanted(opts): whether a loader that is made of these opts outside any generation is saltctx's; those of a
    minion that asked for it are, unless another rule is given.

    Raises compat.UnknownSalt, before anything is hooked, if Salt is not as expected.
    """
    global _active, refusal
    if _active:
        return
    with _lock:
        from . import compat

        if refusal is not None:
            raise compat.UnknownSalt(refusal)
        try:
            compat.require()
        except compat.UnknownSalt as exc:
            refusal = str(exc)
            raise
        from .hooks import (
            args,
            context,
            crypt,
            decorators,
            entrypoints,
            eventloop,
            fileserver,
            grains,
            immortal,
            loader,
            master,
            minion,
            moduledirs,
            optsdict,
            sharedreads,
            source,
            state,
            threads,
            yamldumper,
        )

        context.install()
        loader.install(wanted or (lambda opts: minion.wanted(opts) or master.wanted(opts)))
        minion.install()
        args.install()
        crypt.install()
        decorators.install()
        entrypoints.install()
        eventloop.install()
        fileserver.install()
        moduledirs.install()
        grains.install()
        immortal.install()
        optsdict.install()
        sharedreads.install()
        source.install()
        state.install()
        threads.install()
        yamldumper.install()
        _active = True
