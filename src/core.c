/*
 * saltctx._core: the module, its state, and bind().
 *
 * Where foreign code can run: issubclass() tests and the copies of the two mappings in bind(),
 * before anything is published; finalizers when the module goes.
 *
 * The state has no m_clear: every cycle through the module goes through a heap type or a dict as
 * well, which can be cleared, and so no method ever meets a state that was taken apart.
 */
#include "state.h"

#include "counter.h"
#include "job.h"
#include "jobcontext.h"
#include "layers.h"
#include "loadedfunction.h"
#include "loaderbase.h"
#include "namedcontext.h"
#include "objectevidence.h"
#include "stamps.h"
#include "watch.h"
#include "watcher.h"

/* ---- the marker of a key that a job deleted ---- */

static PyObject *
deleted_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromString("<deleted>");
}

static int
deleted_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void
deleted_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot deleted_slots[] = {
    {Py_tp_repr, deleted_repr},
    {Py_tp_traverse, deleted_traverse},
    {Py_tp_dealloc, deleted_dealloc},
    {0, NULL},
};

static PyType_Spec deleted_spec = {
    .name = "saltctx._core._Deleted",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = deleted_slots,
};

static int
deleted_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->deleted_type, &deleted_spec, NULL) < 0) {
        return -1;
    }
    state->deleted = state->deleted_type->tp_alloc(state->deleted_type, 0);
    return state->deleted == NULL ? -1 : 0;
}

/* ---- bind ---- */

static void
binding_free(Binding *binding)
{
    while (binding != NULL) {
        Binding *previous = binding->previous;
#define DROP(name) Py_XDECREF(binding->name);
        BINDING_FIELDS(DROP)
#undef DROP
        PyMem_Free(binding);
        binding = previous;
    }
}

/* Make this what binding_of() gives. The one before stays: a call under way may still use it. */
static void
binding_publish(PyObject *module, CoreState *state, Binding *binding)
{
    (void)module;
    LOCK(module);
    binding->previous = state->binding;
    pointer_store(&state->binding, binding);
    UNLOCK();
}

/* What holds until the host calls bind(): no loaders, no views, callbacks that are None. */
static int
binding_init(PyObject *module, CoreState *state)
{
    Binding *binding = PyMem_Calloc(1, sizeof(Binding));
    if (binding == NULL) {
        PyErr_NoMemory();
        return -1;
    }
#define NOTHING(name) binding->name = Py_NewRef(Py_None);
    BINDING_FIELDS(NOTHING)
#undef NOTHING
    Py_SETREF(binding->loader_var, PyContextVar_New("saltctx_loader", NULL));
    Py_SETREF(binding->named_context, Py_NewRef(state->namedcontext_type));
    Py_SETREF(binding->variables, PyDict_New());
    Py_SETREF(binding->views, PyDict_New());
    if (binding->loader_var == NULL || binding->variables == NULL || binding->views == NULL) {
        binding_free(binding);
        return -1;
    }
    binding_publish(module, state, binding);
    return 0;
}

static int
check_variable(PyObject *variable)
{
    if (PyContextVar_CheckExact(variable)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a ContextVar was expected, not %.200s",
                 Py_TYPE(variable)->tp_name);
    return -1;
}

static int
check_type(PyObject *type)
{
    if (PyType_Check(type)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a type was expected, not %R", type);
    return -1;
}

static int
check_loaded_type(CoreState *state, PyObject *type)
{
    if (PyType_Check(type)
        && PyType_IsSubtype((PyTypeObject *)type, state->loadedfunction_type)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a subclass of LoadedFunction was expected, not %R", type);
    return -1;
}

/* A plain dict of its own for a mapping argument. */
static int
copy_mapping(PyObject **mapping)
{
    PyObject *copy = PyObject_CallOneArg((PyObject *)&PyDict_Type, *mapping);
    if (copy == NULL) {
        return -1;
    }
    Py_SETREF(*mapping, copy);
    return 0;
}

static int
binding_check(CoreState *state, Binding *binding)
{
    if (check_loaded_type(state, binding->loaded_function) < 0
        || check_loaded_type(state, binding->loaded_coroutine) < 0
        || check_type(binding->named_context) < 0
        || check_variable(binding->loader_var) < 0 || copy_mapping(&binding->variables) < 0
        || copy_mapping(&binding->views) < 0) {
        return -1;
    }
    PyObject *variables = PyDict_Values(binding->variables);
    int status = variables == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(variables); i++) {
        status = check_variable(PyList_GET_ITEM(variables, i));
    }
    Py_XDECREF(variables);
    return status;
}

PyDoc_STRVAR(core_bind_doc,
    "bind(*, loader_var, loaded_function, loaded_coroutine, named_context, is_coroutine,\n"
    "     keep_generator, inject, before_call, after_call, no_value, variables, views)\n--\n\n"
    "Hand over what belongs to the host: once a process, before any loader is made.\n\n"
    "loader_var: ContextVar of the running loader.\n"
    "loaded_function, loaded_coroutine: subclasses of LoadedFunction that a lookup returns.\n"
    "named_context: type with a method value(): for an instance that a function returns, what that\n"
    "gives is handed out.\n"
    "is_coroutine(func) -> bool: asked for anything but a plain function.\n"
    "keep_generator(context, generator) -> generator: runs each step of it in ``context``.\n"
    "inject(loaded, inject_globals, func) -> callable: wraps the function of ``loaded``, a\n"
    "LoadedFunction, whose loader has ``inject_globals``.\n"
    "before_call(loader, func), after_call(loader, func): called around a call, in the loader's\n"
    "context, unless the loader is shared and the job has no views; ``after_call`` only if the\n"
    "call returned.\n"
    "no_value(name): raises the host's error for a dunder that the loader does not pack.\n"
    "variables: {dunder name: ContextVar that holds its value}.\n"
    "views: {dunder name: view(loader, value) -> the value as one job may have it}.\n\n"
    "Raises TypeError for a wrong type; nothing is bound then. A call under way goes on with\n"
    "what it read; what was bound before is kept for the life of the process. Source:\n"
    "src/core.c");

static PyObject *
core_bind(PyObject *module, PyObject *args, PyObject *kwargs)
{
#define NAME(name) #name,
    static char *names[] = {BINDING_FIELDS(NAME) NULL};
#undef NAME
    CoreState *state = PyModule_GetState(module);
    Binding given = {.previous = NULL};
#define PLACE(name) , &given.name
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOOOOOOOOOO:bind",
                                     names BINDING_FIELDS(PLACE))) {
        return NULL;
    }
#undef PLACE
    Binding *binding = PyMem_Malloc(sizeof(Binding));
    if (binding == NULL) {
        return PyErr_NoMemory();
    }
    *binding = given;
#define KEEP(name) Py_INCREF(binding->name);
    BINDING_FIELDS(KEEP)
#undef KEEP
    if (binding_check(state, binding) < 0) {
        binding_free(binding);
        return NULL;
    }
    binding_publish(module, state, binding);
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"bind", (PyCFunction)(void (*)(void))core_bind, METH_VARARGS | METH_KEYWORDS, core_bind_doc},
    {"current_job", core_current_job, METH_NOARGS, core_current_job_doc},
    {"loading", (PyCFunction)(void (*)(void))core_loading, METH_FASTCALL | METH_KEYWORDS,
     core_loading_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the state ---- */

static int
import_attribute(PyObject **place, const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL) {
        return -1;
    }
    *place = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return *place == NULL ? -1 : 0;
}

static int
names_init(CoreState *state)
{
#define INTERN(name, text)                                            \
    if ((state->name = PyUnicode_InternFromString(text)) == NULL) { \
        return -1;                                                    \
    }
    INTERNED_NAMES(INTERN)
#undef INTERN
    return 0;
}

static int
imports_init(CoreState *state)
{
    PyObject *names;
    if (import_attribute(&state->deepcopy, "copy", "deepcopy") < 0
        || import_attribute(&state->os_stat, "os", "stat") < 0
        || import_attribute(&state->update_wrapper, "functools", "update_wrapper") < 0
        || import_attribute(&state->namespace_type, "types", "SimpleNamespace") < 0
        || import_attribute(&names, "functools", "WRAPPER_ASSIGNMENTS") < 0) {
        return -1;
    }
    state->wrapper_names = PyFrozenSet_New(names);
    Py_DECREF(names);
    return state->wrapper_names == NULL ? -1 : 0;
}

static int
all_init(PyObject *module)
{
    PyObject *names =
        Py_BuildValue("[sssssssssssss]", "Counter", "FileStamps", "FileWatch", "Job", "JobContext",
                      "LayeredLookup", "LoadedFunction", "LoaderBase", "NamedContext",
                      "ObjectEvidence", "bind", "current_job", "loading");
    int status = names == NULL ? -1 : PyModule_AddObjectRef(module, "__all__", names);
    Py_XDECREF(names);
    return status;
}

/* Each step stores into the state only what it has made: m_free undoes a part as well. */
static int
core_exec(PyObject *module)
{
    CoreState *state = PyModule_GetState(module);
    if (names_init(state) < 0 || imports_init(state) < 0 || deleted_init(module, state) < 0
        || job_init(module, state) < 0 || jobcontext_init(module, state) < 0
        || loaderbase_init(module, state) < 0 || loadedfunction_init(module, state) < 0
        || namedcontext_init(module, state) < 0 || stamps_init(module, state) < 0
        || watcher_init(module, state) < 0 || watch_init(module, state) < 0
        || objectevidence_init(module, state) < 0 || counter_init(module, state) < 0
        || layers_init(module, state) < 0
        || binding_init(module, state) < 0) {
        return -1;
    }
    return all_init(module);
}

static int
core_traverse(PyObject *module, visitproc visit, void *arg)
{
    CoreState *state = PyModule_GetState(module);
    if (state == NULL) {
        return 0;
    }
#define VISIT_TYPE(name) Py_VISIT(state->name##_type);
    STATE_TYPES(VISIT_TYPE)
#undef VISIT_TYPE
#define VISIT(name) Py_VISIT(state->name);
    STATE_OBJECTS(VISIT)
#undef VISIT
    for (Binding *binding = state->binding; binding != NULL; binding = binding->previous) {
#define VISIT(name) Py_VISIT(binding->name);
        BINDING_FIELDS(VISIT)
#undef VISIT
    }
    return 0;
}

static void
core_free(void *module)
{
    CoreState *state = PyModule_GetState((PyObject *)module);
    if (state == NULL) {
        return;
    }
    binding_free(state->binding);
    state->binding = NULL;
#define DROP(name) Py_CLEAR(state->name);
    STATE_OBJECTS(DROP)
#undef DROP
#define DROP_NAME(name, text) Py_CLEAR(state->name);
    INTERNED_NAMES(DROP_NAME)
#undef DROP_NAME
#define DROP_TYPE(name) Py_CLEAR(state->name##_type);
    STATE_TYPES(DROP_TYPE)
#undef DROP_TYPE
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#ifdef Py_mod_multiple_interpreters
    /* No static holds an object, and types are told by their functions. */
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    /*
     * True without the GIL, because: a Job, a JobContext and a scope are fixed once made, and
     * their layers are plain dicts, used by calls that return strong references, as are the dicts
     * of an ObjectEvidence; a Counter is one atomic number; the fields of a
     * LoaderBase and a NamedContext are loaded with a reference and swapped under the object's
     * own lock; those of a LoadedFunction are set once and published together; a FileStamps
     * touches its table under its lock, and then calls nothing; all FileWatch of one watcher
     * share its lock, under which descriptors that do not block are asked, and nothing else is
     * called; what bind() handed over is one pointer, never freed before the module. A call
     * enters a context copied for it, by the thread that copied it. There are no
     * free lists, and the one cache, what a NamedContext knows of its name, is read and written
     * with the name, under the same lock. tests/stress runs all of this.
     */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

PyDoc_STRVAR(core_doc,
    "The types of saltctx in C. saltctx._reference is their specification in Python.");

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "saltctx._core",
    .m_doc = core_doc,
    .m_size = sizeof(CoreState),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_free = core_free,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
