"""``salt.loader.grains``: a minion's grains stay as they are until the new ones are there."""

import salt.loader
from salt.utils.optsdict import OptsDict

from . import deep
from .optsdict import WatchedOpts


def install():
    """grains() empties ``opts["grains"]`` and works for a good while: a job that begins meanwhile would have none."""

    def make(original):
        def grains(opts, *args, **kwargs):
            if isinstance(opts, WatchedOpts):
                opts = OptsDict.from_parent(opts, name="grains")
            return original(opts, *args, **kwargs)

        return grains

    deep.replace(salt.loader, "grains", make)
