/* FileStamps: has anything under these paths changed since they were stamped? */
#ifndef SALTCTX_STAMPS_H
#define SALTCTX_STAMPS_H

#include "state.h"

int stamps_init(PyObject *module, CoreState *state);

#endif
