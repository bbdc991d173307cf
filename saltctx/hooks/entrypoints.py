"""``salt.utils.entrypoints``: installed packages are searched again when an installation changed, not by the clock."""

import inspect

import salt.utils.entrypoints

from . import deep, installation

_known = {}


def install():
    """Keep what iter_entry_points found while no directory of sys.path changed."""

    def make(original):
        def iter_entry_points(group, name=None):
            revision = installation.revision()
            try:
                known = _known[group, name]
            except KeyError:
                known = None, ()
            if known[0] != revision:
                # Salt's own memory, of half a second, may be older than the change.
                known = _known[group, name] = revision, tuple(inspect.unwrap(original)(group, name))
            return list(known[1])

        return iter_entry_points

    deep.replace(salt.utils.entrypoints, "iter_entry_points", make)
