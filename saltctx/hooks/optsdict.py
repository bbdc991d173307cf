"""``salt.utils.optsdict``: the minion's opts tell when they change, and a job gets opts of its own."""

import functools
import threading

from salt.utils.optsdict import _DELETED, DictProxy, ListProxy, OptsDict

from ..core import LayeredLookup
from . import deep

MINION_DATA = dict.fromkeys(("pillar", "grains"))

_NOTHING = object()


class WatchedOpts(OptsDict):
    """
    The opts of a minion that runs on saltctx: ``changes`` counts the keys that got another value, but for
    ``resources``, which gen_modules() itself finds out and sets.

    An existing OptsDict becomes one by ``__class__`` assignment, so everybody who holds it still does.
    Thread-safety is OptsDict's own: a change is counted under its lock.
    """

    last_changed = None
    handed = None

    # What is made of it, by copy.copy() too, is no minion's.
    from_parent, from_dict, fromkeys = OptsDict.from_parent, OptsDict.from_dict, OptsDict.fromkeys

    def _snapshot(self):
        """A dict of all that counts now. Salt's methods empty and refill one that whoever else goes through shares."""
        with self._lock:
            now = {key: self[key] for key in self._get_all_keys() if key in self}
            if not dict.__len__(self):
                # C code (json) takes an empty inherited storage for an empty dict.
                dict.update(self, now)
        return now

    def __iter__(self):
        return iter(self._snapshot())

    def keys(self):
        return self._snapshot().keys()

    def values(self):
        return self._snapshot().values()

    def items(self):
        return self._snapshot().items()

    def _written(self):
        handed, self.handed = self.handed, None
        if handed is not None:
            # What it holds is not what there is any more.
            handed.__class__ = WatchedOpts

    def _changed(self, key):
        self._written()
        if key != "resources":
            self.changes += 1
            self.last_changed = key

    def __setitem__(self, key, value):
        with self._lock:
            before = _stored(self, key)
            super().__setitem__(key, value)
            # An equal value is another object, which may change.
            self._written()
            # The same object may have been changed in place: nobody can tell any more.
            if before is value and isinstance(value, (dict, list, set)) or not _equal(before, value):
                self._changed(key)

    def __delitem__(self, key):
        with self._lock:
            super().__delitem__(key)
            self._changed(key)

    def pop(self, key, *args):
        with self._lock:
            if key in self:
                self._changed(key)
            return super().pop(key, *args)

    def mutate_key(self, key, new_value):
        """Salt empties the dict that is there and fills it again; a job that reads meanwhile would miss all of it."""
        with self._lock:
            before = _stored(self, key)
            if not _equal(before, new_value):
                super().__setitem__(key, new_value)
                self._changed(key)


class HandedOpts(WatchedOpts):
    """
    The opts of a minion, by another name: what either has or gets, both have. It holds its items as any dict does,
    until somebody writes to either: then it is a WatchedOpts. What it holds never changes.

    Python copies it all at once, as Salt does at the start of each job (``{**opts}``, for its metrics), instead of
    looking up 300 keys; and each lookup finds a value in one dict instead of going through layers.
    """

    __iter__, keys, values, items = dict.__iter__, dict.keys, dict.values, dict.items

    def __bool__(self):
        return dict.__len__(self) > 0


def hand(opts):
    """``opts`` as a job is handed them: a HandedOpts of a minion's, anything else as it is. Safe in any thread."""
    if type(opts) is not WatchedOpts:
        return opts
    with opts._lock:
        now = HandedOpts.__new__(HandedOpts)
        now.__dict__ = vars(opts)
        dict.update(now, opts._snapshot())
        opts.handed = now
    return now


def _equal(before, after):
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    try:
        return bool(before == after)
    except Exception:  # a value that cannot be compared has changed, as far as anyone can tell
        return False


def watch(opts):
    """Make ``opts``, an OptsDict, a WatchedOpts in place. Any other type raises TypeError."""
    if type(opts) is OptsDict:
        opts.changes = 0
        opts.__class__ = WatchedOpts
    elif not isinstance(opts, WatchedOpts):
        raise TypeError(f"the minion's opts are a {type(opts).__name__}, not an OptsDict")
    return opts


class JobDict(DictProxy):
    """
    A job's own view of a dict that jobs share: the first write, or the first nested dict or list
    handed out in any way, copies it. Writes stay with the job.
    """

    def _own(self):
        self._ensure_copied()
        return object.__getattribute__(self, "_target")

    def get(self, key, default=None):
        try:
            return self[key]
        except KeyError:
            return default

    def values(self):
        return self._own().values()

    def items(self):
        return self._own().items()

    def clear(self):
        self._own().clear()
        dict.clear(self)

    def popitem(self):
        key, value = self._own().popitem()
        dict.pop(self, key, None)
        return key, value

    def copy(self):
        return dict(self.items())

    __copy__ = copy

    def __eq__(self, other):
        return object.__getattribute__(self, "_target") == other

    def __ne__(self, other):
        return not self == other

    __hash__ = None


class JobList(ListProxy):
    """A job's own view of a list that jobs share, as :class:`JobDict`."""

    def _own(self):
        self._ensure_copied()
        return object.__getattribute__(self, "_target")

    def __getitem__(self, index):
        return self._own()[index]

    def __iter__(self):
        target = object.__getattribute__(self, "_target")
        if any(isinstance(value, (dict, list)) for value in target):
            target = self._own()
        return iter(target)

    def sort(self, *args, **kwargs):
        self._own().sort(*args, **kwargs)

    def reverse(self):
        self._own().reverse()

    def __iadd__(self, values):
        self.extend(values)
        return self


class JobOpts(OptsDict):
    """An OptsDict for one job: it reads through to its parent, what the job writes, at any depth, stays in it."""

    from_parent, from_dict, fromkeys = OptsDict.from_parent, OptsDict.from_dict, OptsDict.fromkeys

    def __init__(self, parent, name="job"):
        # What OptsDict makes of a parent, which it looks through for that: each job makes one.
        self._parent, self._tracker, self._name = parent, parent._tracker, name
        self._local, self._base, self._proxy_cache, self._lock = {}, {}, {}, threading.RLock()

    def _proxy_for(self, key, value, cls):
        return super()._proxy_for(key, value, {DictProxy: JobDict, ListProxy: JobList}[cls])


def unwrapped(value):
    """The dict that ``value``, a dict or a DictProxy, stands for."""
    return object.__getattribute__(value, "_target") if isinstance(value, DictProxy) else value


def job_dict(value, name):
    """A JobDict over ``value`` (a plain dict), for the dunder ``name``."""
    return JobDict(value, OptsDict.from_dict({name: value}, name=f"job:{name}"), name)


def minion_data(opts):
    """{name: the minion's own pillar or grains} that ``opts``, an OptsDict below the minion's, hand out now."""
    return {name: _stored(opts, name) for name in _of_the_minion(opts, MINION_DATA)}


def job_opts(opts, data):
    """
    A JobOpts over ``opts``.

    data: what minion_data() told when the job's loaders were made; the job goes on with it after a refresh.
    """
    data = _of_the_minion(opts, data)
    return JobOpts(_pinned(opts, data) if data else opts)


def _of_the_minion(opts, names):
    """Those of ``names``, a dict, for which the minion's own opts count: no OptsDict on the way there has them."""
    left = dict(names)
    while not isinstance(opts, WatchedOpts):
        local = opts._local
        if local:
            left = {name: value for name, value in left.items() if name not in local}
        opts = opts._parent
        if opts is None:
            return {}
    return left


def _pinned(opts, data):
    """``opts`` with ``data`` over them: one for all jobs, none of which writes to it."""
    known = vars(opts).get("_saltctx_pinned")
    if known is None or not are_the_same(known._local, data):
        known = OptsDict.from_parent(opts, name="data")
        known._local.update(data)
        opts._saltctx_pinned = known
    return known


def are_the_same(one, other):
    """Whether two dicts hold the same objects."""
    return one.keys() == other.keys() and all(one[name] is value for name, value in other.items())


def install():
    """
    The operations of an OptsDict that each job and loader repeats hundreds of times, without its lock.

    Same results as Salt's own: reading a dict needs no lock, and only a proxy is made under it.
    """

    def is_not_empty(self):
        return any(key in self for key in _nearest_first(self))

    def make_get_all_keys(original):
        return lambda self: set(_nearest_first(self))

    deep.add(OptsDict, "__bool__", is_not_empty)
    deep.replace(OptsDict, "_get_all_keys", make_get_all_keys)
    for name in ("__getitem__", "__contains__", "get"):
        deep.replace(OptsDict, name, functools.partial(_lookup, name))
    deep.replace(OptsDict, "__deepcopy__", lambda original: _deepcopy)
    deep.replace(DictProxy, "__init__", _fill)


def _lookup(name, original):
    return LayeredLookup(name, _DELETED, _proxy, OptsDict, HandedOpts)


def _stored(opts, key):
    """The value that counts for ``opts``; _DELETED if there is none."""
    node = opts
    while True:
        value = node._local.get(key, _NOTHING)
        if value is not _NOTHING:
            return value
        if node._parent is None:
            return node._base.get(key, _DELETED)
        node = node._parent


def _proxy(self, key, value):
    with self._ensure_lock():
        return self._proxy_for(key, value, DictProxy if isinstance(value, dict) else ListProxy)


def _fill(original):
    """DictProxy.__init__() copies what it stands for; of another DictProxy by its keys, each read on its own."""

    def __init__(self, target, parent_optsdict, key):
        if type(target) is not DictProxy:
            return original(self, target, parent_optsdict, key)
        original(self, _handed_out(target), parent_optsdict, key)
        object.__setattr__(self, "_target", target)

    return __init__


def _handed_out(proxy):
    """A dict with what the DictProxy hands out when all of it is read: a copy if there is a dict or list in it."""
    target = object.__getattribute__(proxy, "_target")
    if type(target) is DictProxy:
        target = _handed_out(target)
    if not object.__getattribute__(proxy, "_copied") and any(
        isinstance(value, (dict, list)) for value in target.values()
    ):
        proxy._ensure_copied()
        target = object.__getattribute__(proxy, "_target")
    return target


def _deepcopy(self, memo):
    child = OptsDict.from_parent(self, name=f"{self._name}_deepcopy")
    # C code (json) takes an empty inherited storage for an empty dict and asks otherwise: Salt puts every
    # value there, one is enough.
    key = next((key for key in _nearest_first(self) if key in child), _NOTHING)
    if key is not _NOTHING:
        dict.__setitem__(child, key, child[key])
    return child


def _nearest_first(opts):
    """The keys of an OptsDict and of those above it, deleted ones too; another thread may change them meanwhile."""
    while opts is not None:
        # Lists: without the GIL Python copies a dict into one in a single step, not into a set or a tuple.
        yield from list(opts._local)
        if opts._parent is None:
            yield from list(opts._base)
        opts = opts._parent
