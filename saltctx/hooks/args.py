"""``salt.utils.args``: a function that has not changed is not inspected again for each job."""

import types
import weakref

import salt.utils.args

from . import deep

_specs = weakref.WeakKeyDictionary()


def install():
    """Remember what get_function_argspec found out about a plain function, while its code stays the same."""

    def make(original):
        def get_function_argspec(func, is_class_method=None):
            inner = func
            while hasattr(inner, "__wrapped__"):
                inner = inner.__wrapped__
            if type(inner) is not types.FunctionType or is_class_method:
                return original(func, is_class_method)
            key = (inner.__code__, inner.__defaults__, inner.__kwdefaults__)
            known = _specs.get(inner)
            if known is None or not all(a is b for a, b in zip(known[0], key)):
                if hasattr(inner, "__signature__"):
                    return original(func, is_class_method)
                known = (key, original(func, is_class_method))
                _specs[inner] = known
            spec = known[1]
            # The list of names is the caller's to change.
            return spec._replace(args=list(spec.args))

        return get_function_argspec

    deep.replace(salt.utils.args, "get_function_argspec", make)
