/*
 * LoadedFunction: resolve-and-call of one function in its loader's context.
 *
 * Where foreign code can run: the lookup in the loader (hash and eq of the name, attributes of a
 * loader that is not a LoaderBase), inject() of the host, the call itself, attributes of the
 * function, and update_wrapper() where the instance dict is filled. name, loader, job, func and
 * own are set once, all together, and the dict is published once, when it is complete: such code
 * finds an object that is either blank (made by __new__ alone) or whole. The function is looked
 * up anew for each call and held in a local meanwhile.
 */
#include "loadedfunction.h"
#include "job.h"
#include "loaderbase.h"

/* All fields are once fields. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *name;
    PyObject *loader;
    PyObject *job;     /* the Job that it was made in, or None */
    PyObject *func;    /* the function as it was then */
    PyObject *own;     /* True if it is the job's own, and a call does not look again */
    PyObject *dict;    /* filled when someone asks for it */
    PyObject *weakrefs;
} LoadedFunctionObject;

#define AS_LOADED(op) ((LoadedFunctionObject *)(op))

static void loadedfunction_dealloc(PyObject *self);

#ifdef SALTCTX_DEBUG
static void
check_consistent(PyObject *op)
{
    LoadedFunctionObject *self = AS_LOADED(op);
    int whole = once_load(&self->name) != NULL;
    assert(!whole || (self->loader != NULL && self->job != NULL && self->func != NULL));
    assert(!whole || PyBool_Check(self->own));
    assert(self->dict == NULL || PyDict_Check(self->dict));
    (void)whole;
}
#define ASSERT_CONSISTENT(self) check_consistent(self)
#else
#define ASSERT_CONSISTENT(self) ((void)0)
#endif

/* ---- making one ---- */

/* Set all fields together; -1 if they were set before. */
static int
fill(PyObject *op, PyObject *name, PyObject *loader, PyObject *job, PyObject *func, int own)
{
    LoadedFunctionObject *self = AS_LOADED(op);
    PyObject **fields[] = {&self->name, &self->loader, &self->job, &self->func, &self->own};
    PyObject *values[] = {Py_NewRef(name), Py_NewRef(loader),
                          Py_NewRef(job != NULL ? job : Py_None), Py_NewRef(func),
                          PyBool_FromLong(own)};
    if (once_publish_all(op, fields, values, 5)) {
        ASSERT_CONSISTENT(op);
        return 0;
    }
    for (int i = 0; i < 5; i++) {
        Py_DECREF(values[i]);
    }
    PyErr_SetString(PyExc_RuntimeError, "a loaded function is initialised once");
    return -1;
}

static PyObject *loadedfunction_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                           PyObject *kwnames);

static PyObject *
loadedfunction_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyObject *self = type->tp_alloc(type, 0);
    if (self != NULL) {
        AS_LOADED(self)->vectorcall = loadedfunction_vectorcall;
    }
    return self;
}

/* The function behind a name, as the loader holds it now; KeyError if it does not. */
static PyObject *
function_of_loader(CoreState *state, PyObject *loader, PyObject *name)
{
    PyObject *func;
    PyObject *functions = loader_field(state, loader, LOADER_DICT);
    if (functions == NULL) {
        return NULL;
    }
    int found = mapping_get(functions, name, &func);
    Py_DECREF(functions);
    return found == 0 ? raise_key_error(name) : func;
}

static int
loadedfunction_tp_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "loader", "func", "own", NULL};
    PyObject *name, *loader, *job, *func = Py_None;
    int own = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|Op:LoadedFunction", names, &name, &loader,
                                     &func, &own)) {
        return -1;
    }
    CoreState *state = state_of(self, loadedfunction_dealloc);
    if (state == NULL) {
        return -1;
    }
    func = func != Py_None ? Py_NewRef(func) : function_of_loader(state, loader, name);
    if (func == NULL) {
        return -1;
    }
    int status = job_current(state, &job);
    if (status == 0) {
        status = fill(self, name, loader, job, func, own);
        Py_XDECREF(job);
    }
    Py_DECREF(func);
    return status;
}

PyObject *
loadedfunction_make(CoreState *state, PyObject *type, PyObject *name, PyObject *loader,
                    PyObject *func, int own)
{
    PyTypeObject *made = (PyTypeObject *)type;
    if (!PyType_Check(type) || made->tp_new != loadedfunction_new
        || made->tp_init != loadedfunction_tp_init) {
        PyObject *args[] = {name, loader, func, own ? Py_True : Py_False};
        return PyObject_Vectorcall(type, args, 4, NULL);
    }
    PyObject *job;
    if (job_current(state, &job) < 0) {
        return NULL;
    }
    PyObject *self = loadedfunction_new(made, NULL, NULL);
    if (self != NULL && fill(self, name, loader, job, func, own) < 0) {
        Py_CLEAR(self);
    }
    Py_XDECREF(job);
    return self;
}

/* False, with an exception, for an object made by __new__ alone. */
static int
check_whole(PyObject *self)
{
    if (once_load(&AS_LOADED(self)->name) != NULL) {
        return 1;
    }
    PyErr_SetString(PyExc_AttributeError, "the loaded function was not initialised");
    return 0;
}

/* The function that a call runs, where `functions` (taken over) is what the loader holds now. */
static PyObject *
pick_function(PyObject *self, PyObject *functions)
{
    PyObject *func = NULL;
    int found = AS_LOADED(self)->own == Py_True
                    ? 0
                    : mapping_get(functions, AS_LOADED(self)->name, &func);
    Py_DECREF(functions);
    return found == 0 ? Py_NewRef(AS_LOADED(self)->func) : func;
}

/* The function behind this object here and now. */
static PyObject *
current_func(CoreState *state, PyObject *self)
{
    if (!check_whole(self)) {
        return NULL;
    }
    PyObject *functions = loader_field(state, AS_LOADED(self)->loader, LOADER_DICT);
    return functions == NULL ? NULL : pick_function(self, functions);
}

/* ---- the call ---- */

/* Wrap a function if its loader has globals to inject; takes over `globals`, and `func` or NULL. */
static PyObject *
inject(CoreState *state, PyObject *self, PyObject *globals, PyObject *func)
{
    int any = func == NULL ? 0 : PyObject_IsTrue(globals);
    if (any != 0) {
        PyObject *args[] = {self, globals, func};
        PyObject *wrapped =
            any < 0 ? NULL : PyObject_Vectorcall(binding_of(state)->inject, args, 3, NULL);
        Py_SETREF(func, wrapped);
    }
    Py_DECREF(globals);
    return func;
}

/* The job to enter: that of the making, where none runs. Borrowed, NULL for none; -1 on error. */
static int
job_to_enter(CoreState *state, PyObject *self, PyObject **job)
{
    PyObject *scope;
    if (scope_get(state, &scope) < 0) {
        return -1;
    }
    *job = scope == NULL && AS_LOADED(self)->job != Py_None ? AS_LOADED(self)->job : NULL;
    Py_XDECREF(scope);
    return 0;
}

static PyObject *
call(PyObject *self, const Arguments *arguments)
{
    PyObject *functions, *globals, *func, *job;
    CoreState *state = state_of(self, loadedfunction_dealloc);
    if (state == NULL || !check_whole(self)) {
        return NULL;
    }
    PyObject *loader = AS_LOADED(self)->loader;
    if (loader_fields2(state, loader, LOADER_DICT, &functions, LOADER_INJECT_GLOBALS, &globals)
        < 0) {
        return NULL;
    }
    func = inject(state, self, globals, pick_function(self, functions));
    if (func == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    if (job_to_enter(state, self, &job) == 0) {
        result = loader_call(state, loader, job, 1, func, arguments);
    }
    Py_DECREF(func);
    return result;
}

static PyObject *
loadedfunction_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Arguments arguments = {.vector = args, .nargsf = nargsf, .kwnames = kwnames};
    return call(self, &arguments);
}

/* Subclasses come this way below 3.12: the tuple goes on as it is. */
static PyObject *
loadedfunction_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Arguments arguments = {.tuple = args, .kwargs = kwargs};
    return call(self, &arguments);
}

/* ---- attributes ---- */

/* The instance dict, borrowed: filled at the first use as functools.update_wrapper() fills one. */
static PyObject *
instance_dict(CoreState *state, PyObject *op)
{
    LoadedFunctionObject *self = AS_LOADED(op);
    PyObject *dict = once_load(&self->dict);
    if (dict != NULL) {
        return dict;
    }
    if (!check_whole(op)) {
        return NULL;
    }
    PyObject *wrapper = PyObject_CallNoArgs(state->namespace_type);
    if (wrapper == NULL) {
        return NULL;
    }
    if (PyObject_SetAttr(wrapper, state->str_name, self->name) == 0
        && PyObject_SetAttr(wrapper, state->str_loader, self->loader) == 0) {
        PyObject *same =
            PyObject_CallFunctionObjArgs(state->update_wrapper, wrapper, self->func, NULL);
        Py_XDECREF(same);
        dict = same == NULL ? NULL : PyObject_GetAttr(wrapper, state->str_dunder_dict);
    }
    Py_DECREF(wrapper);
    if (dict != NULL) {
        dict = once_publish(op, &self->dict, dict);
        ASSERT_CONSISTENT(op);
    }
    return dict;
}

/*
 * What the instance dict would give for a name, were it filled: a new reference, or NULL. With an
 * exception on error. Sets `*fill_first` if the answer takes the filled dict.
 */
static PyObject *
unfilled_attribute(CoreState *state, PyObject *self, PyObject *name, int *fill_first)
{
    PyObject *value = NULL, *own = NULL, *func = AS_LOADED(self)->func;
    if (name == state->str_dunder_wrapped) {
        return Py_NewRef(func);
    }
    int assigned = PySet_Contains(state->wrapper_names, name);
    if (assigned > 0) {
        (void)PyObject_GetOptionalAttr(func, name, &value);
        return value;
    }
    if (assigned == 0 && PyObject_GetOptionalAttr(func, state->str_dunder_dict, &own) > 0) {
        *fill_first = PySequence_Contains(own, name) > 0;
        Py_DECREF(own);
    }
    return NULL;
}

static PyObject *
loadedfunction_getattro(PyObject *self, PyObject *name)
{
    CoreState *state = state_of(self, loadedfunction_dealloc);
    if (state == NULL) {
        return NULL;
    }
    if (name != state->str_name && name != state->str_loader && name != state->str_func
        && name != state->str_dunder_class && once_load(&AS_LOADED(self)->name) != NULL
        && once_load(&AS_LOADED(self)->dict) == NULL) {
        int fill_first = 0;
        PyObject *value = unfilled_attribute(state, self, name, &fill_first);
        if (value != NULL || PyErr_Occurred()
            || (fill_first && instance_dict(state, self) == NULL)) {
            return value;
        }
    }
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)
        || once_load(&AS_LOADED(self)->name) == NULL) {
        return value;
    }
    PyErr_Clear();
    PyObject *func = current_func(state, self);
    if (func != NULL && Py_EnterRecursiveCall(" in an attribute of a loaded function") == 0) {
        value = PyObject_GetAttr(func, name);
        Py_LeaveRecursiveCall();
    }
    Py_XDECREF(func);
    return value;
}

static int
loadedfunction_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    CoreState *state = state_of(self, loadedfunction_dealloc);
    if (state == NULL || instance_dict(state, self) == NULL) {
        return -1;
    }
    return PyObject_GenericSetAttr(self, name, value);
}

static PyObject *
loadedfunction_get_dict(PyObject *self, void *Py_UNUSED(closure))
{
    CoreState *state = state_of(self, loadedfunction_dealloc);
    return state == NULL ? NULL : Py_XNewRef(instance_dict(state, self));
}

static PyObject *
loadedfunction_get_func(PyObject *self, void *Py_UNUSED(closure))
{
    CoreState *state = state_of(self, loadedfunction_dealloc);
    return state == NULL ? NULL : current_func(state, self);
}

static PyObject *
loadedfunction_get_name(PyObject *self, void *Py_UNUSED(closure))
{
    return check_whole(self) ? Py_NewRef(AS_LOADED(self)->name) : NULL;
}

static PyObject *
loadedfunction_get_loader(PyObject *self, void *Py_UNUSED(closure))
{
    return check_whole(self) ? Py_NewRef(AS_LOADED(self)->loader) : NULL;
}

static PyObject *
loadedfunction_repr(PyObject *self)
{
    CoreState *state = state_of(self, loadedfunction_dealloc);
    if (state == NULL || !check_whole(self)) {
        return NULL;
    }
    PyObject *type_name = PyObject_GetAttr((PyObject *)Py_TYPE(self), state->str_dunder_name);
    if (type_name == NULL) {
        return NULL;
    }
    PyObject *text = PyUnicode_FromFormat("<%U name=%R>", type_name, AS_LOADED(self)->name);
    Py_DECREF(type_name);
    return text;
}

PyDoc_STRVAR(loadedfunction_reduce_doc,
    "__reduce__($self, /)\n--\n\n"
    "Copies as what it was made of, with the attributes that were set on it.");

static PyObject *
loadedfunction_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!check_whole(self)) {
        return NULL;
    }
    LoadedFunctionObject *whole = AS_LOADED(self);
    PyObject *dict = once_load(&whole->dict);
    return Py_BuildValue("O(OOOO)O", Py_TYPE(self), whole->name, whole->loader, whole->func,
                         whole->own, dict != NULL ? dict : Py_None);
}

static PyGetSetDef loadedfunction_getset[] = {
    {"__dict__", loadedfunction_get_dict, NULL, NULL, NULL},
    {"func", loadedfunction_get_func, NULL, "The function that a call runs now.", NULL},
    {"name", loadedfunction_get_name, NULL, "The key that it was looked up by.", NULL},
    {"loader", loadedfunction_get_loader, NULL, "The loader that holds the function.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef loadedfunction_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(LoadedFunctionObject, vectorcall), Py_READONLY,
     NULL},
    {"__dictoffset__", Py_T_PYSSIZET, offsetof(LoadedFunctionObject, dict), Py_READONLY, NULL},
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(LoadedFunctionObject, weakrefs), Py_READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef loadedfunction_methods[] = {
    {"__reduce__", loadedfunction_reduce, METH_NOARGS, loadedfunction_reduce_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static int
loadedfunction_traverse(PyObject *op, visitproc visit, void *arg)
{
    LoadedFunctionObject *self = AS_LOADED(op);
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->name);
    Py_VISIT(self->loader);
    Py_VISIT(self->job);
    Py_VISIT(self->func);
    Py_VISIT(self->own);
    Py_VISIT(self->dict);
    return 0;
}

/* Only for an object that nothing can reach any more: a once field never changes otherwise. */
static int
loadedfunction_clear(PyObject *op)
{
    LoadedFunctionObject *self = AS_LOADED(op);
    Py_CLEAR(self->name); /* first: without it the object counts as blank */
    Py_CLEAR(self->loader);
    Py_CLEAR(self->job);
    Py_CLEAR(self->func);
    Py_CLEAR(self->own);
    Py_CLEAR(self->dict);
    return 0;
}

static void
loadedfunction_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (AS_LOADED(self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    (void)loadedfunction_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(loadedfunction_doc,
    "LoadedFunction(name, loader, func=None, own=False)\n--\n\n"
    "One function of a loader.\n\n"
    "Without ``func`` it is looked up in the loader, KeyError if it is not there. A call finds\n"
    "the function in the loader again, unless it is the job's ``own``, or the loader has it no\n"
    "more: then ``func`` it is. It runs in the loader's context. Attributes are the function's.\n"
    "Made inside a job and called where there is none (a thread of the job), it runs in that\n"
    "job. ``name`` and ``loader`` cannot be assigned. May be called from any thread, from\n"
    "several at once. Source: src/loadedfunction.c");

static PyType_Slot loadedfunction_slots[] = {
    {Py_tp_doc, (void *)loadedfunction_doc},
    {Py_tp_new, loadedfunction_new},
    {Py_tp_init, loadedfunction_tp_init},
    {Py_tp_dealloc, loadedfunction_dealloc},
    {Py_tp_traverse, loadedfunction_traverse},
    {Py_tp_clear, loadedfunction_clear},
    {Py_tp_call, loadedfunction_call},
    {Py_tp_repr, loadedfunction_repr},
    {Py_tp_getattro, loadedfunction_getattro},
    {Py_tp_setattro, loadedfunction_setattro},
    {Py_tp_methods, loadedfunction_methods},
    {Py_tp_members, loadedfunction_members},
    {Py_tp_getset, loadedfunction_getset},
    {0, NULL},
};

static PyType_Spec loadedfunction_spec = {
    .name = "saltctx._core.LoadedFunction",
    .basicsize = sizeof(LoadedFunctionObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loadedfunction_slots,
};

int
loadedfunction_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->loadedfunction_type, &loadedfunction_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->loadedfunction_type);
}
