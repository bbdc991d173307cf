"""One edited module in loaders that are right otherwise: loaders like them, which have loaded it anew."""

from salt.loader.lazy import FilterDictWrapper

from . import helpers
from .immortal import write_through
from .loader import Loader


def reload(loaders, old, new, path):
    """
    Loaders like those of the Generation ``old``, for ``new``, but for the module whose file ``path`` changed.

    loaders: {name: loader, wrapper or dict of loaders}. Returns the same of the new ones, or None where that
    is not enough: the file is a helper's, or was not loaded, answers to names that it did not answer to, shares
    them with another file, or left something in the base of ``__context__``. The old ones are not touched: jobs
    go on with them.
    """
    if helpers.is_known(path):
        return None
    again = _Again(old, new)
    made = {name: again(value) for name, value in loaders.items()}
    changed = [(loader, known) for loader in again.made for known in _modules_of(loader, path)]
    if not changed or not all(_reload_module(loader, known) for loader, known in changed):
        return None
    return made


class _Again:
    """Loaders with what the loaders before them have loaded, that pack each other as those did."""

    def __init__(self, old, new):
        new.context.base.update(old.context.base)
        # What is not in here is no part of a generation, and stays.
        self._known = {id(old.context): new.context, id(old.files): new.files}
        self.made = []

    def __call__(self, value):
        known = self._known.get(id(value))
        if known is not None:
            return known
        if isinstance(value, Loader):
            return self._loader(value)
        if type(value) is FilterDictWrapper:
            again = self._known[id(value)] = FilterDictWrapper(self(value._dict), value.suffix)
            return again
        if type(value) is dict and value and all(isinstance(each, Loader) for each in value.values()):
            again = self._known[id(value)] = {key: self(each) for key, each in value.items()}
            return again
        return value

    def _loader(self, loader):
        again = self._known[id(loader)] = loader.copy()
        self.made.append(again)
        again._files = self(loader._files)
        again.pack = {name: self(packed) for name, packed in loader.pack.items()}
        # A loader takes an attribute that it does not have for a module, and loads them all to find it.
        inner = vars(loader).get("_dunder_salt")
        if inner is not None:
            # The class of one that minion_mods() made writes to the loader inside that one.
            again._dunder_salt = self(inner)
            again.__class__ = write_through(Loader)
        return again


def _modules_of(loader, path):
    """The LoadedModules of a loader that are made from the file."""
    return [
        known for known in loader._modules.values()
        if loader.file_mapping.get(known.name, ("",))[0] == path
    ]


def _reload_module(loader, known):
    """Load a changed file in place of what it was; whether all else in the loader is right with that."""
    namespace = {known.namespace}
    names = loader.names_of(namespace)
    if known.wrote_context or not names or names & loader.names_of(loader._modules.keys() - namespace):
        return False
    loader.unload(known)
    loader.forget_refusals()
    with loader._lock:
        loader._load_module(known.name)
    # A name that is new here may be another file's, too, which a new loader would load first.
    return loader.names_of(namespace) <= names
