/*
 * Job, the scope of a module that is being loaded, and the context variable that holds either.
 *
 * Where foreign code can run: in the call that Job.run() and loading() make, and in the
 * finalizers of what is dropped there. Nothing of a Job changes after tp_new, so there is no
 * state to be caught in between; the token of the context variable is held in a local across the
 * call.
 *
 * No tp_clear: the fields are fixed, so a cycle through a Job always goes through its dicts too,
 * and they can be cleared. A field is therefore never NULL in an object that Python code can see.
 */
#include "job.h"

/* ---- the scope ---- */

int
scope_get(CoreState *state, PyObject **scope)
{
    if (PyContextVar_Get(state->scope_var, NULL, scope) < 0) {
        return -1;
    }
    if (*scope == NULL || Job_Check(*scope) || Loading_Check(*scope)) {
        return 0;
    }
    /* The variable can be had from copy_context(): anything may have been put there. */
    PyErr_Format(PyExc_TypeError, "a Job was expected in the context, not %.200s",
                 Py_TYPE(*scope)->tp_name);
    Py_CLEAR(*scope);
    return -1;
}

int
job_current(CoreState *state, PyObject **job)
{
    if (scope_get(state, job) < 0) {
        return -1;
    }
    while (*job != NULL && Loading_Check(*job)) {
        PyObject *outer = Py_XNewRef(((LoadingObject *)*job)->outer);
        Py_SETREF(*job, outer);
    }
    return 0;
}

PyObject *
job_part(PyObject *all, PyObject *loader)
{
    PyObject *entry = NULL, *part = NULL;
    PyObject *key = PyLong_FromVoidPtr(loader);
    if (key == NULL) {
        return NULL;
    }
    if (PyDict_GetItemRef(all, key, &entry) == 0) {
        /* The entry keeps the loader alive, so that its id is not used again within the job. */
        PyObject *made = Py_BuildValue("O{}", loader);
        if (made != NULL) {
            (void)PyDict_SetDefaultRef(all, key, made, &entry);
            Py_DECREF(made);
        }
    }
    Py_DECREF(key);
    if (entry == NULL) {
        return NULL;
    }
    if (PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 2
        && PyDict_CheckExact(PyTuple_GET_ITEM(entry, 1))) {
        part = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    }
    else {
        PyErr_SetString(PyExc_TypeError, "a job keeps {id(loader): (loader, dict)}");
    }
    Py_DECREF(entry);
    return part;
}

/* Call args[0] with the others, `scope` being the current one meanwhile. */
static PyObject *
call_in_scope(CoreState *state, PyObject *scope, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    PyObject *token = PyContextVar_Set(state->scope_var, scope);
    if (token == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, nargs - 1, kwnames);
    PyObject *exception = result == NULL ? PyErr_GetRaisedException() : NULL;
    int undone = PyContextVar_Reset(state->scope_var, token);
    Py_DECREF(token);
    return result_after_undo(result, exception, undone, args[0]);
}

/* ---- Loading ---- */

static int
loading_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((LoadingObject *)self)->outer);
    return 0;
}

void
loading_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((LoadingObject *)self)->outer);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot loading_slots[] = {
    {Py_tp_dealloc, loading_dealloc},
    {Py_tp_traverse, loading_traverse},
    {0, NULL},
};

static PyType_Spec loading_spec = {
    .name = "saltctx._core._Loading",
    .basicsize = sizeof(LoadingObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = loading_slots,
};

const char core_loading_doc[] = PyDoc_STR(
    "loading(func, /, *args, **kwargs)\n--\n\n"
    "Call ``func`` while what it writes to a JobContext goes to the base layer.\n\n"
    "Returns what ``func`` returns and raises what it raises. The scope is that of the running\n"
    "context: other threads are not touched. Source: src/job.c");

PyObject *
core_loading(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "loading() takes a callable and its arguments");
        return NULL;
    }
    CoreState *state = PyModule_GetState(module);
    PyObject *outer;
    if (scope_get(state, &outer) < 0) {
        return NULL;
    }
    PyObject *scope = state->loading_type->tp_alloc(state->loading_type, 0);
    if (scope == NULL) {
        Py_XDECREF(outer);
        return NULL;
    }
    ((LoadingObject *)scope)->outer = outer;
    PyObject *result = call_in_scope(state, scope, args, nargs, kwnames);
    Py_DECREF(scope);
    return result;
}

const char core_current_job_doc[] = PyDoc_STR(
    "current_job()\n--\n\n"
    "The Job of the running context, or None.\n\n"
    "May be called from any thread; a thread that was started inside a job has no job of its own\n"
    "unless it inherited the context. Source: src/job.c");

PyObject *
core_current_job(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *job;
    if (job_current(PyModule_GetState(module), &job) < 0) {
        return NULL;
    }
    return job != NULL ? job : Py_NewRef(Py_None);
}

/* ---- Job ---- */

static PyObject *
job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"jid", "fun", "minion_id", NULL};
    PyObject *jid = NULL, *fun = NULL, *minion_id = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|UUU:Job", names, &jid, &fun, &minion_id)) {
        return NULL;
    }
    JobObject *self = (JobObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Moment now = moment_now();
    self->start_ns = now.sec * 1000000000LL + now.nsec;
    self->jid = jid != NULL ? Py_NewRef(jid) : PyUnicode_FromString("");
    self->fun = fun != NULL ? Py_NewRef(fun) : PyUnicode_FromString("");
    self->minion_id = minion_id != NULL ? Py_NewRef(minion_id) : PyUnicode_FromString("");
    self->layer = PyDict_New();
    self->views = PyDict_New();
    self->uses = PyDict_New();
    if (self->jid == NULL || self->fun == NULL || self->minion_id == NULL || self->layer == NULL
        || self->views == NULL || self->uses == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
job_traverse(PyObject *op, visitproc visit, void *arg)
{
    JobObject *self = (JobObject *)op;
    Py_VISIT(Py_TYPE(op));
    /* Strings too: an instance of a subclass of str may hold anything. */
    Py_VISIT(self->jid);
    Py_VISIT(self->fun);
    Py_VISIT(self->minion_id);
    Py_VISIT(self->layer);
    Py_VISIT(self->views);
    Py_VISIT(self->uses);
    return 0;
}

void
job_dealloc(PyObject *op)
{
    JobObject *self = (JobObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    Py_XDECREF(self->jid);
    Py_XDECREF(self->fun);
    Py_XDECREF(self->minion_id);
    Py_XDECREF(self->layer);
    Py_XDECREF(self->views);
    Py_XDECREF(self->uses);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
job_repr(PyObject *op)
{
    JobObject *self = (JobObject *)op;
    return PyUnicode_FromFormat("<Job jid=%R fun=%R minion_id=%R>", self->jid, self->fun,
                                self->minion_id);
}

PyDoc_STRVAR(job_run_doc,
    "run($self, func, /, *args, **kwargs)\n--\n\n"
    "Call ``func`` with this job as the current one; the outer job is back afterwards, whatever\n"
    "happens. Returns what ``func`` returns and raises what it raises.");

static PyObject *
job_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "Job.run() takes a callable and its arguments");
        return NULL;
    }
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    return state == NULL ? NULL : call_in_scope(state, self, args, nargs, kwnames);
}

PyDoc_STRVAR(job_enter_doc,
    "enter($self, /)\n--\n\n"
    "Make this the current job of the running context; returns the token for ``exit()``.");

static PyObject *
job_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    return state == NULL ? NULL : PyContextVar_Set(state->scope_var, self);
}

PyDoc_STRVAR(job_exit_doc,
    "exit($self, token, /)\n--\n\n"
    "Give the context its outer job back.\n\n"
    "Raises ValueError in another context than that of ``enter()``, RuntimeError for a used\n"
    "token, TypeError for anything but a token.");

static PyObject *
job_exit(PyObject *self, PyObject *token)
{
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL || PyContextVar_Reset(state->scope_var, token) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef job_methods[] = {
    {"run", (PyCFunction)(void (*)(void))job_run, METH_FASTCALL | METH_KEYWORDS, job_run_doc},
    {"enter", job_enter, METH_NOARGS, job_enter_doc},
    {"exit", job_exit, METH_O, job_exit_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef job_members[] = {
    {"jid", Py_T_OBJECT_EX, offsetof(JobObject, jid), Py_READONLY, "The job id, a str."},
    {"fun", Py_T_OBJECT_EX, offsetof(JobObject, fun), Py_READONLY, "The function's name, a str."},
    {"minion_id", Py_T_OBJECT_EX, offsetof(JobObject, minion_id), Py_READONLY,
     "The minion's id, a str."},
    {"start_ns", Py_T_LONGLONG, offsetof(JobObject, start_ns), Py_READONLY,
     "When the Job was made, in nanoseconds since the epoch, an int."},
    {"layer", Py_T_OBJECT_EX, offsetof(JobObject, layer), Py_READONLY,
     "What the job wrote to __context__, a plain dict."},
    {"views", Py_T_OBJECT_EX, offsetof(JobObject, views), Py_READONLY,
     "Values made once a job for a loader's dunders, a plain dict."},
    {"uses", Py_T_OBJECT_EX, offsetof(JobObject, uses), Py_READONLY,
     "What the job looked up in shared loaders, a plain dict:\n"
     "{id(loader): (loader, {key: the job's own function or None})}."},
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(JobObject, weakrefs), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(job_doc,
    "Job(jid='', fun='', minion_id='')\n--\n\n"
    "One run of a job. The arguments are str, else TypeError; no attribute can be assigned.\n\n"
    "``start_ns`` is the time of construction in nanoseconds since the epoch. ``layer`` is the\n"
    "dict of what the job wrote to ``__context__``, ``views`` the dict of values made once a\n"
    "job for a loader's dunders, ``uses`` the dict of what the job looked up in shared loaders.\n"
    "Any number of threads may enter a Job at once, and one thread may enter it again. Source:\n"
    "src/job.c");

static PyType_Slot job_slots[] = {
    {Py_tp_doc, (void *)job_doc},
    {Py_tp_new, job_new},
    {Py_tp_dealloc, job_dealloc},
    {Py_tp_traverse, job_traverse},
    {Py_tp_repr, job_repr},
    {Py_tp_methods, job_methods},
    {Py_tp_members, job_members},
    {0, NULL},
};

static PyType_Spec job_spec = {
    .name = "saltctx._core.Job",
    .basicsize = sizeof(JobObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = job_slots,
};

int
job_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->loading_type, &loading_spec, NULL) < 0
        || state_add_type(module, &state->job_type, &job_spec, NULL) < 0) {
        return -1;
    }
    state->scope_var = PyContextVar_New("saltctx_job", NULL);
    if (state->scope_var == NULL) {
        return -1;
    }
    return PyModule_AddType(module, state->job_type);
}
