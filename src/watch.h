/*
 * FileWatch: FileStamps that looks only at paths of which the system told that something
 * happened.
 */
#ifndef SALTCTX_WATCH_H
#define SALTCTX_WATCH_H

#include "state.h"

int watch_init(PyObject *module, CoreState *state);

#endif
