"""``salt.state``: state runs side by side do not trip over the directory that each wants to make first."""

import os

import salt.state

from . import deep


def install():
    """get_accumulator_dir() looks whether the directory is there, then makes it: another run may come between."""

    def make(original):
        def get_accumulator_dir(cachedir):
            try:
                return original(cachedir)
            except FileExistsError:
                return os.path.join(cachedir, "accumulator")

        return get_accumulator_dir

    deep.replace(salt.state, "get_accumulator_dir", make)
