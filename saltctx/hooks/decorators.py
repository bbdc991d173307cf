"""``salt.utils.decorators.Depends``: its registry, which every load of a module adds to, is read as it was at once."""

import types

from salt.utils.decorators import Depends

from . import deep


def install():
    """enforce_dependencies() goes through the registry, and runs programs meanwhile: other threads load modules."""

    def make(original):
        def enforce_dependencies(cls, functions, kind, tgt_mod):
            of_module = {
                dependency: {key: known for key, known in list(dependents.items()) if key[0] == tgt_mod}
                for dependency, dependents in list(cls.dependency_dict[kind].items())
            }
            seen = types.SimpleNamespace(dependency_dict={kind: of_module}, run_command=cls.run_command)
            return original(seen, functions, kind, tgt_mod)

        return enforce_dependencies

    deep.replace(Depends, "enforce_dependencies", make)
