"""Whether a daemon's config asks for saltctx, and what stands against it."""

import logging

from .. import options
from ..forksafe import ForkSafeLock

log = logging.getLogger(__name__)


class Said:
    """What was logged of whom, so that each thing is said once. Safe in any thread."""

    def __init__(self):
        self._lock = ForkSafeLock()
        self._said = set()

    def once(self, owner, text):
        """Whether this is the first time that ``text`` is said of ``owner``."""
        with self._lock:
            key = id(owner), text
            return key not in self._said and not self._said.add(key)


said = Said()


def is_master(opts):
    """Whether these opts are a master's."""
    return opts.get("__role") == "master"


def _kind(opts):
    return "master" if is_master(opts) else "minion"


def left_to_salt(opts):
    """Why a minion with these opts runs Salt's own code though saltctx is switched on; None if it does not."""
    if opts.get("multiprocessing", True):
        return "multiprocessing is on: each job is a process of its own"
    if opts.get("proxy") or opts.get("metaproxy_running"):
        return "a proxy minion: not supported yet"
    return None


def asked_of(owner, opts, activate):
    """
    The Options with which saltctx works for a Minion, its Schedule or a master's AESFuncs; None if it does not.

    The deep hooks are in if it does. What stands against it is logged once, and Salt's own code runs.
    """
    value = opts.get("saltctx")
    if value is None or value is False:
        return None
    try:
        # Each job asks: no look into the opts that is not needed.
        source = None if value is True else opts.get("conf_file") or f"the {_kind(opts)} config"
        asked = options.parse(value, source)
        if not asked.enabled or (left_to_salt(opts) is not None and not is_master(opts)):
            return None
        activate()
    except Exception as exc:
        if said.once(owner, str(exc)):
            log.error("saltctx is not used by %s %s: %s", _kind(opts), opts.get("id"), exc)
        return None
    return asked
