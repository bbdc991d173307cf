"""``salt.utils.metrics``, ``tracing`` and ``platform``, on CPython 3.13 without the GIL: answers without a lock."""

import functools
import logging
import types

import salt.utils.metrics
import salt.utils.platform
import salt.utils.tracing

from . import deep
from .immortal import KEEPS_CLASSES as IS_3_13_WITHOUT_GIL


def install():
    """
    What each job asks is asked without a lock.

    dict.get() holds the dict's lock there, and waits for it once more, forty times over, where the key that
    it finds was made by another thread.
    """
    if not IS_3_13_WITHOUT_GIL:
        return
    for module in (salt.utils.metrics, salt.utils.tracing):
        deep.replace(module, "is_enabled", functools.partial(_make_is_enabled, module))
        deep.replace(module, "configure", functools.partial(_make_configure, module))
    for name, func in vars(salt.utils.platform).items():
        if name.startswith("is_") and isinstance(func, types.FunctionType) and "cache" in func.__code__.co_freevars:
            _remember_shared(func)


def _make_is_enabled(module, original):
    def is_enabled():
        opts = module._cached_opts
        try:
            return bool(opts and opts["enabled"]) and original()
        except KeyError:
            return False

    return is_enabled


def _make_configure(module, original):
    block = module.__name__.rpartition(".")[2]

    def configure(opts):
        # What each job sets anew, and reads seven times, is fought over by all threads.
        settings = dict((opts or {}).get(block) or {})
        settings.setdefault("service_name", module._default_service_name(opts))
        if settings.get("enabled") or settings != module._cached_opts or module.log.isEnabledFor(logging.DEBUG):
            original(opts)

    return configure


def _remember_shared(func):
    """Let a memoized function find what it knows without a lock: by a key that is never freed, a constant."""
    cache = func.__closure__[func.__code__.co_freevars.index("cache")].cell_contents
    known = func()
    cache.pop(((), ()))
    cache[((), ())] = known
