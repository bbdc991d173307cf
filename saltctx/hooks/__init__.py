"""
The places in Salt that saltctx hooks, one module for each, named after it.

A person who must follow a new Salt release reads this folder only. Two sets of hooks are kept apart:
*pass-throughs* stand in every process that has a minion and hand each call on unless the minion asks
for saltctx; *deep hooks* are put in when the first such minion of a process starts a job.
"""

import functools

from ..forksafe import ForkSafeLock

_ABSENT = object()


class Hooks:
    """Replaced attributes of Salt, and what was there before. Safe in any thread."""

    def __init__(self):
        self._lock = ForkSafeLock()
        self._replaced = {}
        self._items = []

    def replace(self, owner, name, make):
        """
        Put ``make(original)`` in the place of ``owner.name``; a second time does nothing.

        A classmethod is handed over as its function and stays one. The replacement carries the original
        as ``__wrapped__``, with its name, docstring and signature.
        """
        with self._lock:
            if (owner, name) in self._replaced:
                return
            kept = vars(owner)[name]
            original = kept.__func__ if isinstance(kept, classmethod) else kept
            replacement = functools.wraps(original)(make(original))
            if isinstance(kept, classmethod):
                replacement = classmethod(replacement)
            self._replaced[owner, name] = kept
            setattr(owner, name, replacement)

    def new(self, owner, make):
        """
        Give the class ``owner``, which has none of its own, a ``__new__``: ``make(cls, *args, **kwargs)``.

        Python cannot take a ``__new__`` out again without leaving the class unable to take arguments, so
        :meth:`remove` leaves one that does what ``object.__new__`` does.
        """
        with self._lock:
            if (owner, "__new__") not in self._replaced:
                self._replaced[owner, "__new__"] = staticmethod(lambda cls, *_, **__: object.__new__(cls))
                owner.__new__ = make

    def add(self, owner, name, value):
        """Give the class ``owner`` an attribute that it does not define itself."""
        with self._lock:
            if (owner, name) not in self._replaced:
                self._replaced[owner, name] = _ABSENT
                setattr(owner, name, value)

    def replace_item(self, mapping, key, value):
        """Put ``value`` in the place of ``mapping[key]``; a second time does nothing."""
        with self._lock:
            if not any(place is mapping and at == key for place, at, _ in self._items):
                self._items.append((mapping, key, mapping[key]))
                mapping[key] = value

    def remove(self):
        """Put everything back as it was."""
        with self._lock:
            while self._items:
                mapping, key, kept = self._items.pop()
                mapping[key] = kept
            while self._replaced:
                (owner, name), kept = self._replaced.popitem()
                if kept is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, kept)

    def places(self):
        """What is replaced now: a sorted list of dotted names."""
        with self._lock:
            return sorted(
                f"{getattr(owner, '__module__', None) or ''}.{owner.__name__}.{name}".lstrip(".")
                if isinstance(owner, type)
                else f"{owner.__name__}.{name}"
                for owner, name in self._replaced
            )


passthroughs = Hooks()
deep = Hooks()
