/* LayeredLookup: a method that reads a dict which is laid over others. */
#ifndef SALTCTX_LAYERS_H
#define SALTCTX_LAYERS_H

#include "state.h"

int layers_init(PyObject *module, CoreState *state);

#endif
