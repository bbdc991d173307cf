/* NamedContext: a dunder of a module, resolved through the running loader and job at each use. */
#ifndef SALTCTX_NAMEDCONTEXT_H
#define SALTCTX_NAMEDCONTEXT_H

#include "state.h"

int namedcontext_init(PyObject *module, CoreState *state);

#endif
