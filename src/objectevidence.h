/* ObjectEvidence: are these objects still where they were? */
#ifndef SALTCTX_OBJECTEVIDENCE_H
#define SALTCTX_OBJECTEVIDENCE_H

#include "state.h"

int objectevidence_init(PyObject *module, CoreState *state);

#endif
