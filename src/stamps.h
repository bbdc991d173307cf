/* FileStamps: has anything under these paths changed since they were stamped? */
#ifndef SALTCTX_STAMPS_H
#define SALTCTX_STAMPS_H

#include "state.h"

int stamps_init(PyObject *module, CoreState *state);

/* ---- for FileWatch ---- */

PyObject *stamps_make(CoreState *state, long long tick_ns, long long coarse_ns);
Py_ssize_t stamps_count(PyObject *self);

/*
 * add(), or restamp() with `replace`; `*place` is the path's among paths(), `*added` whether it
 * is new.
 */
PyObject *stamps_stamp(PyObject *self, PyObject *path, int replace, Py_ssize_t *place, int *added);

/*
 * The path at a place as the system takes it: a new reference to bytes, or NULL without an
 * exception.
 */
PyObject *stamps_encoded(PyObject *self, Py_ssize_t place);
PyObject *stamps_path(PyObject *self, Py_ssize_t place);

/*
 * suspects(), of the places below `count` whose `look` is set and of all after them; NULL looks
 * at all. `look` of those that are as stamped, and old, becomes LOOK_EQUAL.
 */
#define LOOK_EQUAL 2
PyObject *stamps_suspects_of(PyObject *self, char *look, Py_ssize_t count);

#endif
