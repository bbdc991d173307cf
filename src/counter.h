/* Counter: a number that any thread adds to. */
#ifndef SALTCTX_COUNTER_H
#define SALTCTX_COUNTER_H

#include "state.h"

int counter_init(PyObject *module, CoreState *state);

#endif
