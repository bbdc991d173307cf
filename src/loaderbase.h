/* LoaderBase: the hot methods of a loader, and the call of a function in a loader's context. */
#ifndef SALTCTX_LOADERBASE_H
#define SALTCTX_LOADERBASE_H

#include "state.h"

enum {
    LOADER_DICT,
    LOADER_LOADED,
    LOADER_PACK,
    LOADER_PACK_SELF,
    LOADER_INJECT_GLOBALS,
    LOADER_MODULE_OPTS,
    LOADER_SHARED,
    LOADER_FIELDS
};

/* All fields are shared; one that was not set is NULL. */
typedef struct {
    PyObject_HEAD
    PyObject *fields[LOADER_FIELDS];
} LoaderBaseObject;

/* The arguments of a call, in whichever form they came: `tuple` is NULL for a vector. */
typedef struct {
    PyObject *const *vector;
    size_t nargsf;
    PyObject *kwnames;
    PyObject *tuple;
    PyObject *kwargs;
} Arguments;

int loaderbase_init(PyObject *module, CoreState *state);

/* A field of any loader, ours or not: a new reference, or NULL with AttributeError. */
PyObject *loader_field(CoreState *state, PyObject *loader, int field);

/* Two fields as they were at one moment. -1 on error, nothing is held then. */
int loader_fields2(CoreState *state, PyObject *loader, int field1, PyObject **value1, int field2,
                   PyObject **value2);

/* pack_self, pack and the truth of shared of a LoaderBase. -1 on error, nothing is held then. */
int loader_pack(CoreState *state, PyObject *loader, PyObject **pack_self, PyObject **pack,
                int *shared);

/* mapping[key] where the mapping is a dict as a rule: 1 and the value, 0 for none, -1 on error. */
int mapping_get(PyObject *mapping, PyObject *key, PyObject **value);

/*
 * Call in a copy of the running context, in `job` unless that is NULL; `ask_host`: before_call and
 * after_call are called around.
 */
PyObject *loader_call(CoreState *state, PyObject *loader, PyObject *job, int ask_host,
                      PyObject *func, const Arguments *arguments);

#endif
