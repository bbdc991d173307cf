"""``salt.loader.minion_mods``, on CPython 3.13 without the GIL: loaders that Python's immortal objects would keep."""

import functools
import inspect
import sys
import sysconfig

import salt.loader
from salt.loader.lazy import LazyLoader

from . import deep
from .loader import Loader

KEEPS_CLASSES = sys.version_info[:2] == (3, 13) and bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Whether this Python never frees a class, nor the function that is a class statement's body (3.14 does)."""


def install():
    """minion_mods() makes a class for each loader it returns, which must not hold that loader for ever."""
    if not KEEPS_CLASSES:
        return

    def make(original):
        code = inspect.unwrap(original).__code__

        def note_frame(cls, **kwargs):
            super(Loader, cls).__init_subclass__(**kwargs)
            frame = sys._getframe(2)  # the frame between is ABCMeta's
            if frame.f_code is code:
                cls.made_in = frame

        deep.add(Loader, "__init_subclass__", classmethod(note_frame))

        def minion_mods(*args, **kwargs):
            made = original(*args, **kwargs)
            if isinstance(made, Loader):
                let_go(made)
            return made

        return minion_mods

    deep.replace(salt.loader, "minion_mods", make)


def let_go(made):
    """Give ``made``, which nobody else has yet, a class that all such loaders share; empty what held the two."""
    cls = type(made)
    frame = vars(cls).get("made_in")
    if frame is None:
        return
    del cls.made_in
    made.__class__ = write_through(cls.__mro__[1])
    # The class statement's body keeps these cells. To ask the collector for them stops all threads.
    frame.f_locals.update(dict.fromkeys(frame.f_code.co_cellvars))


@functools.cache
def write_through(base):
    """What minion_mods() makes of ``base``, with the inner loader found on the loader itself."""

    def __setitem__(self, key, value):
        LazyLoader.__setitem__(self, key, value)
        self._dunder_salt._dict[key] = value

    def __delitem__(self, key):
        LazyLoader.__delitem__(self, key)
        self._dunder_salt._dict.pop(key, None)

    methods = {"__module__": base.__module__, "__setitem__": __setitem__, "__delitem__": __delitem__}
    return type(base)("_WriteThroughLoader", (base,), methods)
