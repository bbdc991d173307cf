"""``salt.crypt``: the minion's private key is parsed once, not for each channel that a job opens."""

import collections

import salt.utils.stringutils
from salt.crypt import PrivateKey

from ..forksafe import ForkSafeLock
from . import deep

KEPT = 4

_lock = ForkSafeLock()
_keys = collections.OrderedDict()


def install():
    """
    PrivateKey.from_str() answers with the key it made of the same bytes before.

    OpenSSL checks an RSA key when it parses it, some 20 ms; a state run opens a channel for its pillar and
    its files each. A PrivateKey does not change once it is made, and Salt's master shares them, too.
    """

    def from_str(cls, key_str, passphrase=None):
        made_of = cls, salt.utils.stringutils.to_bytes(key_str), passphrase
        try:
            key = _keys[made_of]
        except KeyError:
            key = cls(made_of[1], passphrase)
            with _lock:
                _keys[made_of] = key
                while len(_keys) > KEPT:
                    _keys.popitem(last=False)
        return key

    deep.add(PrivateKey, "from_str", classmethod(from_str))
