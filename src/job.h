/* Job: one run of a job, its layer of __context__, and which one runs here and now. */
#ifndef SALTCTX_JOB_H
#define SALTCTX_JOB_H

#include "state.h"

/* All fields are fixed. */
typedef struct {
    PyObject_HEAD
    PyObject *jid;
    PyObject *fun;
    PyObject *minion_id;
    PyObject *layer; /* exact dict */
    PyObject *views; /* exact dict */
    PyObject *uses;  /* exact dict */
    long long start_ns;
    PyObject *weakrefs;
} JobObject;

/* The scope of a module that is being loaded; `outer` is fixed: the scope around it, or NULL. */
typedef struct {
    PyObject_HEAD
    PyObject *outer;
} LoadingObject;

void job_dealloc(PyObject *self);
void loading_dealloc(PyObject *self);

/* Neither type can be subclassed. */
#define Job_Check(op) (Py_TYPE(op)->tp_dealloc == job_dealloc)
#define Loading_Check(op) (Py_TYPE(op)->tp_dealloc == loading_dealloc)

int job_init(PyObject *module, CoreState *state);

/* The scope of the running context: a new reference to a Job or a Loading, or NULL. -1 on error. */
int scope_get(CoreState *state, PyObject **scope);

/* The current Job, a new reference, or NULL for none. -1 on error. */
int job_current(CoreState *state, PyObject **job);

/*
 * What a job keeps of one loader in `all`, its views or its uses: the dict in {id(loader): (loader,
 * dict)}, made if need be. A new reference, NULL on error.
 */
PyObject *job_part(PyObject *all, PyObject *loader);

PyObject *core_current_job(PyObject *module, PyObject *ignored);
PyObject *core_loading(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

extern const char core_current_job_doc[];
extern const char core_loading_doc[];

#endif
