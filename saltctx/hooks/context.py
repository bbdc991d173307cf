"""``salt.loader.context``: the dunders of a module, resolved in C through the running loader and job."""

import contextvars
import copy

from salt.exceptions import LoaderError
from salt.loader.context import LoaderContext, NamedLoaderContext

from ..core import LoaderBase, NamedContext
from . import deep

loading = contextvars.ContextVar("saltctx_loading", default=None)
"""The load of a module while Salt's own code is at it, not the module's."""


class Dunder(NamedContext, NamedLoaderContext):
    """A NamedLoaderContext with the hot methods in C."""

    def __eq__(self, other):
        # Salt compares with what a module has imported from salt.loader.dunder; by value, that loads all there is.
        if isinstance(other, NamedLoaderContext):
            return self.loader_context == other.loader_context and self.name == other.name
        # Salt then only notes that a module has one of its own; to compare a loader loads all there is.
        return loading.get() is None and self.value() == other

    __hash__ = None

    def with_default(self, default):
        return type(self)(self.name, self.loader_context, default)


class ModuleOpts(Dunder):
    """The ``__opts__`` of a module, where Salt has a dict: it passes for one, and what is copied is what it has now."""

    __class__ = property(lambda self: dict)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.value(), memo)

    def __reduce_ex__(self, protocol):
        return self.value().__reduce_ex__(protocol)

    def __reversed__(self):
        return reversed(list(self))

    def __or__(self, other):
        return {**self, **other} if isinstance(other, dict) else NotImplemented

    def __ror__(self, other):
        return {**other, **self} if isinstance(other, dict) else NotImplemented

    def __ior__(self, other):
        self.update(other)
        return self

    def __repr__(self):
        return repr(self.value())


def no_value(name):
    """Raise what Salt raises for a dunder that the loader does not pack."""
    raise LoaderError(f"LazyLoader does not have a packed value for: {name}")


def install():
    """Every NamedLoaderContext made from now on is a Dunder; those made before resolve as one does."""

    def make_named_context(original):
        def named_context(self, name, default=None, ctx_class=NamedLoaderContext):
            if ctx_class is NamedLoaderContext:
                ctx_class = Dunder
            return ctx_class(name, self, default)

        return named_context

    def make_value(original):
        def value(self):
            # salt.loader.dunder, and what was loaded before, hold contexts that were made by Salt's own class.
            if isinstance(self.loader(), LoaderBase):
                return Dunder(self.name, self.loader_context, self.default).value()
            return original(self)

        return value

    deep.replace(LoaderContext, "named_context", make_named_context)
    deep.replace(NamedLoaderContext, "value", make_value)
