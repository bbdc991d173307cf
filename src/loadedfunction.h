/* LoadedFunction: one function of a loader, resolved and called in the loader's context. */
#ifndef SALTCTX_LOADEDFUNCTION_H
#define SALTCTX_LOADEDFUNCTION_H

#include "state.h"

int loadedfunction_init(PyObject *module, CoreState *state);

/* type(name, loader, func, own); __init__ is not called if it is ours. */
PyObject *loadedfunction_make(CoreState *state, PyObject *type, PyObject *name, PyObject *loader,
                              PyObject *func, int own);

#endif
