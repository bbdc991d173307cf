"""``salt.loader._module_dirs``: where a kind of loader looks, found out once where it hangs on the config alone."""

import inspect

import salt.loader
import salt.utils.entrypoints

from ..activation import loader_dirs
from ..forksafe import ForkSafeLock
from . import deep

KEPT = 256
OWN = f"{loader_dirs.__module__}:{loader_dirs.__name__}"

_lock = ForkSafeLock()
_known = {}


def install():
    """
    _module_dirs() answers as it did for the same arguments and config, unless it has to look around.

    With ``module_dirs``, a resource's loaders, or an entry point of another package, it looks at the disk or asks
    that package, each time.
    """

    def make(original):
        parameters = list(inspect.signature(original).parameters.values())[2:]
        names = [each.name for each in parameters]
        defaults = {each.name: each.default for each in parameters}

        def _module_dirs(opts, ext_type, *args, **kwargs):
            given = {**defaults, **dict(zip(names, args)), **kwargs}
            if _looks_around(opts, given):
                return original(opts, ext_type, *args, **kwargs)
            more = opts.get(given["ext_type_dirs"] or f"{given['tag'] or ext_type}_dirs") or ()
            key = (ext_type, *given.values(), opts.get("extension_modules"), tuple(more))
            try:
                known = _known[key]
            except KeyError:
                known = tuple(original(opts, ext_type, *args, **kwargs))
                with _lock:
                    if len(_known) >= KEPT:
                        _known.clear()
                    _known[key] = known
            return list(known)

        return _module_dirs

    deep.replace(salt.loader, "_module_dirs", make)


def _looks_around(opts, given):
    if opts.get("module_dirs") or opts.get("resource_type"):
        return True
    if not (given["ext_dirs"] and given["load_extensions"] is True):
        return False
    return any(entry.value != OWN for entry in salt.utils.entrypoints.iter_entry_points("salt.loader"))
