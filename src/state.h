/*
 * The state of one module object: everything here is set by exec or by bind(), nothing is static.
 */
#ifndef SALTCTX_STATE_H
#define SALTCTX_STATE_H

#include "freethreading.h"

/* What bind() handed over: never changed after it is published, freed with the module. */
#define BINDING_FIELDS(X) \
    X(loader_var)         \
    X(loaded_function)    \
    X(loaded_coroutine)   \
    X(named_context)      \
    X(is_coroutine)       \
    X(keep_generator)     \
    X(inject)             \
    X(before_call)        \
    X(after_call)         \
    X(no_value)           \
    X(variables)          \
    X(views)

typedef struct Binding {
    struct Binding *previous; /* kept: a call under way may still use it */
#define DECLARE(name) PyObject *name;
    BINDING_FIELDS(DECLARE)
#undef DECLARE
} Binding;

/* Names that are looked up at run time; X(field, text). */
#define INTERNED_NAMES(X)                      \
    X(str_base, "_base")                       \
    X(str_copy, "copy")                        \
    X(str_default, "default")                  \
    X(str_dict, "_dict")                       \
    X(str_dunder_class, "__class__")           \
    X(str_dunder_dict, "__dict__")             \
    X(str_dunder_getitem, "__getitem__")       \
    X(str_dunder_name, "__name__")             \
    X(str_dunder_wrapped, "__wrapped__")       \
    X(str_first_use, "_first_use")             \
    X(str_func, "func")                        \
    X(str_get, "get")                          \
    X(str_inject_globals, "inject_globals")    \
    X(str_is_coroutine, "_is_coroutine_marker")\
    X(str_items, "items")                      \
    X(str_key, "key")                          \
    X(str_keys, "keys")                        \
    X(str_load_all, "_load_all")               \
    X(str_load_missing, "_load_missing")       \
    X(str_loaded, "loaded")                    \
    X(str_loader, "loader")                    \
    X(str_loader_context, "loader_context")    \
    X(str_loader_ctxvar, "loader_ctxvar")      \
    X(str_local, "_local")                     \
    X(str_module_opts, "module_opts")          \
    X(str_name, "name")                        \
    X(str_pack, "pack")                        \
    X(str_pack_self, "pack_self")              \
    X(str_parent, "_parent")                   \
    X(str_proxy_cache, "_proxy_cache")         \
    X(str_shared, "shared")                    \
    X(str_value, "value")                      \
    X(str_values, "values")

/* Objects and types that the state owns. */
#define STATE_OBJECTS(X) \
    X(scope_var)         \
    X(calls_var)         \
    X(deleted)           \
    X(deepcopy)          \
    X(os_stat)           \
    X(update_wrapper)    \
    X(wrapper_names)     \
    X(namespace_type)    \
    X(watcher)

#define STATE_TYPES(X) \
    X(job)             \
    X(loading)         \
    X(deleted)         \
    X(jobcontext)      \
    X(loaderbase)      \
    X(loadedfunction)  \
    X(namedcontext)    \
    X(filestamps)      \
    X(watcher)         \
    X(filewatch)       \
    X(objectevidence)  \
    X(counter)         \
    X(layeredlookup)

typedef struct {
#define DECLARE(name) PyTypeObject *name##_type;
    STATE_TYPES(DECLARE)
#undef DECLARE
#define DECLARE(name) PyObject *name;
    STATE_OBJECTS(DECLARE)
#undef DECLARE
#define DECLARE(name, text) PyObject *name;
    INTERNED_NAMES(DECLARE)
#undef DECLARE
    Binding *binding; /* through binding_of() only */
} CoreState;

/*
 * The state behind an object of one of this module's types or of a Python subclass. `base` is the
 * tp_dealloc of that type: it tells the type from its subclasses, and the way up takes no lock (the
 * MRO would, on a build without the GIL). NULL with an exception once the type was torn down.
 */
static inline CoreState *
state_of(PyObject *self, destructor base)
{
    PyTypeObject *type = Py_TYPE(self);
    while (type->tp_dealloc != base && type->tp_base != NULL) {
        type = type->tp_base;
    }
    return (CoreState *)PyType_GetModuleState(type);
}

/* What was bound last: alive as long as the module is. */
static inline const Binding *
binding_of(CoreState *state)
{
    return (const Binding *)pointer_load(&state->binding);
}

/* Make a heap type from its spec into an empty place of the state. */
static inline int
state_add_type(PyObject *module, PyTypeObject **place, PyType_Spec *spec, PyTypeObject *base)
{
    PyObject *bases = NULL;
    if (base != NULL && (bases = PyTuple_Pack(1, base)) == NULL) {
        return -1;
    }
    *place = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, bases);
    Py_XDECREF(bases);
    return *place == NULL ? -1 : 0;
}

/*
 * Fold the outcome of undoing something into a call's result: the call's own exception is never
 * lost.
 */
static inline PyObject *
result_after_undo(PyObject *result, PyObject *exception, int undone, PyObject *callable)
{
    if (undone < 0) {
        if (exception != NULL) {
            PyErr_WriteUnraisable(callable);
        }
        Py_CLEAR(result);
    }
    if (exception != NULL) {
        PyErr_SetRaisedException(exception);
    }
    return result;
}

#endif
