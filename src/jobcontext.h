/* JobContext: the mapping that is every loader's pack["__context__"]. */
#ifndef SALTCTX_JOBCONTEXT_H
#define SALTCTX_JOBCONTEXT_H

#include "state.h"

/* A dict whose inherited storage holds one marker only; all other fields are fixed. */
typedef struct {
    PyDictObject dict;
    PyObject *base;    /* exact dict */
    PyObject *outside; /* exact dict */
    PyObject *weakrefs;
    char share_base;
} JobContextObject;

void jobcontext_dealloc(PyObject *self);

/* The type cannot be subclassed. */
#define JobContext_Check(op) (Py_TYPE(op)->tp_dealloc == jobcontext_dealloc)

int jobcontext_init(PyObject *module, CoreState *state);

/* The value that a reader here and now finds: 1 and a new reference, 0 for none, -1 on error. */
int jobcontext_lookup(PyObject *self, PyObject *key, PyObject **value);

#endif
