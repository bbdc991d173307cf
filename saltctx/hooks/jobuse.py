"""``LazyLoader`` as jobs share one: what a rebuild gave each job for free, for the modules that it uses."""

import types

from ..core import current_job
from .modulestate import known_of, reusable

_SHARED = {}


class JobUse:
    """
    The part of a Loader that jobs share: asking again, and instances of modules for one job alone.

    ``_modules``: {namespace: LoadedModule}. ``_refused``: {name of a file: Refusal}. ``_asked_before``: names of
    files that were loaded before. ``_misses``: {key that none of the files has: the ``loaded_files`` of then}.
    ``_settled``: {key that each job finds, or misses, as the last did: bool, whether a job may change the module}.
    ``_apart``: {namespace: LoadedModule} of a job's own instances, or None. ``_own_functions``: {name of a file: {key:
    function}} of instances that are this loader's alone.
    """

    def _load_all(self):
        """As Salt's; each job that lists all functions asks again what may have another answer now."""
        job = current_job() if self.shared else None
        if job is not None:
            self._ask_again(None, job)
        super()._load_all()
        if self.shared:
            self.loaded = False

    def _ask_again(self, module, job):
        """
        Ask what another job loaded, or was refused, and what may stand for ``module`` (any for None).

        Returns what the job has an instance of its own of: a list of {key: function}.
        """
        self._forget_refusals(module, job)
        return [
            self._use(known, job) for known in list(self._modules.values())
            if known.loaded_by() is not job and known.may_be(module)
        ]

    def _forget_refusals(self, module, job):
        """Let files that said no to an earlier job, and may stand for ``module``, be loaded again."""
        if not self._refused:
            return
        with self._lock:
            for name, refusal in list(self._refused.items()):
                if refusal.by() is job or not refusal.may_be(module):
                    continue
                self.loaded = False
                del self._refused[name]
                self.loaded_files.discard(name)
                self._unsettle()
                for missing in refusal.missing:
                    self.missing_modules.pop(missing, None)

    def _unsettle(self):
        """Let each key be looked into again: what is loaded, or what may be, is not what it was."""
        self._misses, self._settled = {}, {}

    def _is_settled_miss(self, module):
        """Whether nothing that may stand for ``module`` can have another answer for another job."""
        return all(known.is_settled for known in list(self._modules.values()) if known.may_be(module)) and not any(
            refusal.may_be(module) for refusal in list(self._refused.values())
        )

    def _first_use(self, key):
        """What a rebuild gave a job for free, for the one module it is about to use."""
        settled = self._settled
        if key in settled and not self._volatile:
            return None
        if not isinstance(key, str):
            return None
        job = current_job()
        module = key.partition(".")[0]
        known = known_of(self, key) or self._known_once_loaded(key)
        if known is not None:
            own = self._use(known, job)
            if known.loaded_by() is not job and self._has_better(module, job):
                self.unload(known)
            if key in own or key in self._dict:
                if own is _SHARED and known.is_settled and not self._refusals_of(module):
                    settled[key] = bool(known.watched)
                return own.get(key)
        if key in self._dict:
            return None
        for own in self._ask_again(module, job):
            if key in own:
                return own[key]
        if self.loaded:
            return None
        self._load_missing(key)
        # It may be another job that has loaded it while this one waited.
        known = known_of(self, key)
        return None if known is None else self._use(known, job).get(key)

    def _known_once_loaded(self, key):
        """The LoadedModule of a function that is there, but not yet known: waits for the job that is loading it."""
        try:
            is_loaded = self._is_loaded_name(self._dict[key])
        except KeyError:
            return None
        if not is_loaded:
            return None
        with self._lock:
            return known_of(self, key)

    def _refusals_of(self, module):
        """The Refusals of files that say themselves that they answer to the module name ``module``: a list."""
        return [refusal for refusal in list(self._refused.values()) if refusal.is_of(module)] if self._refused else []

    def _has_better(self, module, job):
        """Whether a file that Salt would rather load for ``module``, and that said no to another job, says yes now."""
        refusals = self._refusals_of(module)
        if not refusals:
            return False
        _, used = job.uses.setdefault(id(self), (self, {}))
        refusals = [refusal for refusal in refusals if refusal.by() is not job and refusal not in used]
        used.update(dict.fromkeys(refusals, _SHARED))
        return any(refusal.says_yes(self) for refusal in refusals)

    def _use(self, known, job):
        """The functions that the job has of its own of a module, {} if it shares the loader's."""
        _, used = job.uses.setdefault(id(self), (self, {}))
        own = used.get(known)
        if own is None:
            if known.loaded_by() is job or not known.is_volatile(self):
                own = used.setdefault(known, _SHARED)
                if known.loaded_by() is not job and known.is_outdated(self):
                    self.unload(known)
            else:
                own = used.setdefault(known, self._private(known, job))
        return own

    def names_of(self, namespaces):
        """The module names, a set of str, under which the loader has functions of ``namespaces``."""
        return {
            key.partition(".")[0] for key, func in list(self._dict.items())
            if getattr(func, "__module__", None) in namespaces
        }

    def _is_from(self, key, func, known, names):
        """Whether a function is of ``known``, which has the module names ``names``, or one that it imported."""
        namespace = getattr(func, "__module__", None)
        if namespace == known.namespace:
            return True
        # A method is no file's: the minion's own, for sys.reload_modules.
        is_foreign = namespace in self._modules or isinstance(func, types.MethodType)
        return not is_foreign and key.partition(".")[0] in names

    def unload(self, known):
        """Forget a module that is not what it was when it was loaded; the next lookup loads it again."""
        with self._lock:
            if self._modules.pop(known.namespace, None) is None:
                return
            names = self.names_of({known.namespace})
            kept = {
                key: func for key, func in list(self._dict.items()) if not self._is_from(key, func, known, names)
            }
            self.loaded_modules.difference_update(
                {key.partition(".")[0] for key in list(self._dict)}
                - {key.partition(".")[0] for key in kept}
            )
            # First: who misses a key of what has all is told that there is none.
            self.loaded = False
            # Replaced, not changed: a job that iterates or calls goes on with what it has.
            self._dict = kept
            self.loaded_files.discard(known.name)
            self._unsettle()
            self._asked_before.add(known.name)

    def _private(self, known, job):
        """The functions of an instance of the module for one job alone: {key: function}."""
        # The job's other loaders of this kind use the same instance.
        return self._instance(known.name, job.views.setdefault(id(reusable), (reusable, {}))[1])

    def own_function(self, key, func):
        """
        What an instance of a module that is this loader's alone has in the place of ``func``, which is there under
        ``key``; ``func`` itself where there is no such instance. Safe in any thread.
        """
        name = func.__module__.rpartition(".")[2] if self._is_loaded_name(func) else None
        if name not in self.file_mapping:
            return func
        if name not in self._own_functions:
            try:
                self._own_functions.setdefault(name, self._instance(name, {}))
            except OSError:  # the file is gone
                return func
        return self._own_functions[name].get(key, func)

    def _instance(self, name, instances):
        """
        The functions, {key: function}, of another instance of the module of the file ``name``.

        instances: {namespace: LoadedModule}, those that there are already; the new one is put there.
        """
        apart = self._twin()
        apart._apart = instances
        apart.shared, apart._files, apart._modules, apart._refused = False, None, {}, {}
        apart.loaded_files, apart.loaded_modules, apart.missing_modules = set(), set(), {}
        apart._dict, apart.loaded = {}, True
        apart._load_module(name)
        return apart._dict
