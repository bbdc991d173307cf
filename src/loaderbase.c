/*
 * LoaderBase, and the call of a function in a loader's context.
 *
 * Where foreign code can run: hash and eq of a key; _first_use(), _load_missing() and _load_all()
 * of the subclass; is_coroutine() of the host; in loader_call() the host's before_call(),
 * after_call() and keep_generator(), value() of a dunder that was returned, and the function
 * itself. What such code returns to is held in locals: the loader's fields are read anew, a new
 * reference each, whenever they are needed, and a loader holds nothing of a call under way. The
 * context that a call enters is a copy made for that call, in a local: no other thread can have
 * entered it.
 */
#include "loaderbase.h"
#include "job.h"
#include "loadedfunction.h"
#include "namedcontext.h"

#define AS_LOADER(op) ((LoaderBaseObject *)(op))

static void loaderbase_dealloc(PyObject *self);

/* Where the name of a field is in the state. */
static const size_t field_names[LOADER_FIELDS] = {
    [LOADER_DICT] = offsetof(CoreState, str_dict),
    [LOADER_LOADED] = offsetof(CoreState, str_loaded),
    [LOADER_PACK] = offsetof(CoreState, str_pack),
    [LOADER_PACK_SELF] = offsetof(CoreState, str_pack_self),
    [LOADER_INJECT_GLOBALS] = offsetof(CoreState, str_inject_globals),
    [LOADER_MODULE_OPTS] = offsetof(CoreState, str_module_opts),
    [LOADER_SHARED] = offsetof(CoreState, str_shared),
};

/* ---- fields ---- */

#ifdef SALTCTX_DEBUG
/* What a field holds is alive. */
static void
check_consistent_lock_held(LoaderBaseObject *self)
{
    for (int i = 0; i < LOADER_FIELDS; i++) {
        assert(self->fields[i] == NULL || Py_REFCNT(self->fields[i]) > 0);
    }
    (void)self;
}
#define ASSERT_CONSISTENT(self) LOCKED(self, check_consistent_lock_held(AS_LOADER(self)))
#else
#define ASSERT_CONSISTENT(self) ((void)0)
#endif

static inline PyObject *
field_name(CoreState *state, int field)
{
    return *(PyObject **)((char *)state + field_names[field]);
}

/* What an empty field reads as: only `shared` has a default. */
static PyObject *
empty_field(CoreState *state, PyObject *loader, int field)
{
    if (field == LOADER_SHARED) {
        return Py_NewRef(Py_False);
    }
    PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'",
                 Py_TYPE(loader)->tp_name, field_name(state, field));
    return NULL;
}

static PyObject *
own_field(CoreState *state, PyObject *loader, int field)
{
    PyObject *value = shared_load(loader, &AS_LOADER(loader)->fields[field]);
    return value != NULL ? value : empty_field(state, loader, field);
}

PyObject *
loader_field(CoreState *state, PyObject *loader, int field)
{
    if (PyObject_TypeCheck(loader, state->loaderbase_type)) {
        return own_field(state, loader, field);
    }
    return PyObject_GetAttr(loader, field_name(state, field));
}

int
loader_fields2(CoreState *state, PyObject *loader, int field1, PyObject **value1, int field2,
               PyObject **value2)
{
    if (PyObject_TypeCheck(loader, state->loaderbase_type)) {
        PyObject **fields = AS_LOADER(loader)->fields;
        shared_load2(loader, &fields[field1], value1, &fields[field2], value2);
        if (*value1 == NULL) {
            *value1 = empty_field(state, loader, field1);
        }
        if (*value1 != NULL && *value2 == NULL) {
            *value2 = empty_field(state, loader, field2);
        }
    }
    else {
        *value1 = PyObject_GetAttr(loader, field_name(state, field1));
        *value2 = *value1 == NULL ? NULL : PyObject_GetAttr(loader, field_name(state, field2));
    }
    if (*value1 == NULL || *value2 == NULL) {
        Py_CLEAR(*value1);
        Py_CLEAR(*value2);
        return -1;
    }
    return 0;
}

int
loader_pack(CoreState *state, PyObject *loader, PyObject **pack_self, PyObject **pack, int *shared)
{
    PyObject **fields = AS_LOADER(loader)->fields;
    PyObject *is_shared;
    shared_load3(loader, &fields[LOADER_PACK_SELF], pack_self, &fields[LOADER_PACK], pack,
                 &fields[LOADER_SHARED], &is_shared);
    *shared = is_shared == NULL ? 0 : PyObject_IsTrue(is_shared);
    Py_XDECREF(is_shared);
    if (*pack_self == NULL || *pack == NULL) {
        (void)empty_field(state, loader, *pack_self == NULL ? LOADER_PACK_SELF : LOADER_PACK);
        *shared = -1;
    }
    if (*shared < 0) {
        Py_CLEAR(*pack_self);
        Py_CLEAR(*pack);
        return -1;
    }
    return 0;
}

/* The truth of a field, -1 on error. */
static int
field_is_true(CoreState *state, PyObject *loader, int field)
{
    PyObject *value = loader_field(state, loader, field);
    if (value == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    Py_DECREF(value);
    return truth;
}

int
mapping_get(PyObject *mapping, PyObject *key, PyObject **value)
{
    if (PyDict_CheckExact(mapping)) {
        return PyDict_GetItemRef(mapping, key, value);
    }
    *value = PyObject_GetItem(mapping, key);
    if (*value != NULL) {
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* ---- a call ---- */

/*
 * The calls of loaders under way, innermost first: (loader, outer chain or None) in a context
 * variable. A call from outside any loader has no entry of its own: it has no parent, which is
 * what none means.
 */
static int
push_call(CoreState *state, PyObject *loader, PyObject *current)
{
    PyObject *outer, *chain, *token = NULL;
    if (PyContextVar_Get(state->calls_var, NULL, &outer) < 0) {
        return -1;
    }
    if (current == Py_None) {
        if (outer == Py_None) {
            Py_DECREF(outer);
            return 0;
        }
        Py_SETREF(outer, Py_NewRef(Py_None));
    }
    else if (!PyTuple_CheckExact(outer) || PyTuple_GET_ITEM(outer, 0) != current) {
        Py_SETREF(outer, PyTuple_Pack(2, current, Py_None));
    }
    chain = outer == NULL ? NULL : PyTuple_Pack(2, loader, outer);
    if (chain != NULL) {
        token = PyContextVar_Set(state->calls_var, chain);
    }
    Py_XDECREF(outer);
    Py_XDECREF(chain);
    Py_XDECREF(token);
    return token == NULL ? -1 : 0;
}

/* Make `loader` the current loader of the running context, and `job` (or NULL) its job. */
static int
enter_loader(CoreState *state, PyObject *loader, PyObject *job)
{
    PyObject *token, *current;
    if (job != NULL) {
        token = PyContextVar_Set(state->scope_var, job);
        if (token == NULL) {
            return -1;
        }
        Py_DECREF(token);
    }
    PyObject *loader_var = binding_of(state)->loader_var;
    if (PyContextVar_Get(loader_var, Py_None, &current) < 0) {
        return -1;
    }
    int status = 0;
    if (current != loader) {
        status = push_call(state, loader, current);
        token = status < 0 ? NULL : PyContextVar_Set(loader_var, loader);
        status = token == NULL ? -1 : 0;
        Py_XDECREF(token);
    }
    Py_DECREF(current);
    return status;
}

/* Whether a call may meet a module's own opts, so that the host must be asked around it. */
static int
has_views(CoreState *state, PyObject *loader)
{
    int shared = field_is_true(state, loader, LOADER_SHARED);
    if (shared <= 0) {
        return shared < 0 ? -1 : 1;
    }
    PyObject *job;
    if (job_current(state, &job) < 0) {
        return -1;
    }
    int result = job == NULL || PyDict_Size(((JobObject *)job)->views) > 0;
    Py_XDECREF(job);
    return result;
}

/* before_call or after_call. */
static int
tell_host(CoreState *state, PyObject *callback, PyObject *loader, PyObject *func)
{
    int asked = has_views(state, loader);
    if (asked <= 0) {
        return asked;
    }
    PyObject *args[] = {loader, func};
    PyObject *result = PyObject_Vectorcall(callback, args, 2, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* What the caller gets for what the function returned; takes over `result`. */
static PyObject *
finish_result(CoreState *state, PyObject *context, PyObject *result)
{
    PyObject *finished;
    const Binding *binding = binding_of(state);
    if (PyObject_TypeCheck(result, (PyTypeObject *)binding->named_context)) {
        finished = PyObject_CallMethodNoArgs(result, state->str_value);
    }
    else if (PyGen_CheckExact(result)) {
        PyObject *args[] = {context, result};
        finished = PyObject_Vectorcall(binding->keep_generator, args, 2, NULL);
    }
    else {
        return result;
    }
    Py_DECREF(result);
    return finished;
}

static PyObject *
call_entered(CoreState *state, PyObject *loader, PyObject *job, PyObject *context, int ask_host,
             PyObject *func, const Arguments *arguments)
{
    const Binding *binding = binding_of(state);
    if (enter_loader(state, loader, job) < 0
        || (ask_host && tell_host(state, binding->before_call, loader, func) < 0)) {
        return NULL;
    }
    PyObject *result =
        arguments->tuple != NULL
            ? PyObject_Call(func, arguments->tuple, arguments->kwargs)
            : PyObject_Vectorcall(func, arguments->vector, arguments->nargsf, arguments->kwnames);
    if (result != NULL && ask_host && tell_host(state, binding->after_call, loader, func) < 0) {
        Py_CLEAR(result);
    }
    return result == NULL ? NULL : finish_result(state, context, result);
}

PyObject *
loader_call(CoreState *state, PyObject *loader, PyObject *job, int ask_host, PyObject *func,
            const Arguments *arguments)
{
    PyObject *result = NULL;
    /* A loaded function that calls itself need not pass any Python code. */
    if (Py_EnterRecursiveCall(" in a loaded function")) {
        return NULL;
    }
    PyObject *context = PyContext_CopyCurrent();
    if (context != NULL && PyContext_Enter(context) == 0) {
        result = call_entered(state, loader, job, context, ask_host, func, arguments);
        PyObject *exception = result == NULL ? PyErr_GetRaisedException() : NULL;
        result = result_after_undo(result, exception, PyContext_Exit(context), func);
    }
    Py_XDECREF(context);
    Py_LeaveRecursiveCall();
    return result;
}

/* ---- lookup ---- */

/* Whether a function gives a coroutine: a plain one's code tells, the host is asked for others. */
static int
is_coroutine(CoreState *state, const Binding *binding, PyObject *func)
{
    if (PyFunction_Check(func)) {
        if (((PyCodeObject *)PyFunction_GET_CODE(func))->co_flags & CO_COROUTINE) {
            return 1;
        }
        /* Left by inspect.markcoroutinefunction(). */
        int marked = function_has(func, state->str_is_coroutine);
        if (marked <= 0) {
            return marked;
        }
    }
    PyObject *answer = PyObject_CallOneArg(binding->is_coroutine, func);
    if (answer == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return truth;
}

/* used[key], asked of the subclass when the job first looks the key up. */
static PyObject *
first_use(CoreState *state, PyObject *self, PyObject *used, PyObject *key)
{
    PyObject *func = NULL;
    if (PyDict_GetItemRef(used, key, &func) == 0) {
        PyObject *given = PyObject_CallMethodOneArg(self, state->str_first_use, key);
        if (given != NULL) {
            (void)PyDict_SetDefaultRef(used, key, given, &func);
            Py_DECREF(given);
        }
    }
    return func;
}

/* The job's own function under a key of a shared loader, NULL for the loader's. -1 on error. */
static int
own_function(CoreState *state, PyObject *self, PyObject *key, PyObject **func)
{
    PyObject *job;
    if (job_current(state, &job) < 0 || job == NULL) {
        return job == NULL && !PyErr_Occurred() ? 0 : -1;
    }
    PyObject *used = job_part(((JobObject *)job)->uses, self);
    if (used != NULL) {
        *func = first_use(state, self, used, key);
        Py_DECREF(used);
    }
    Py_DECREF(job);
    if (*func == NULL) {
        return -1;
    }
    if (*func == Py_None) {
        Py_CLEAR(*func);
    }
    return 0;
}

/* The function behind a key and whether it is the job's own; KeyError if there is none. */
static PyObject *
find_function(CoreState *state, PyObject *self, PyObject *key, int *own)
{
    PyObject *func = NULL;
    int shared = field_is_true(state, self, LOADER_SHARED);
    int asked = shared > 0 ? own_function(state, self, key, &func) : shared;
    *own = func != NULL;
    if (asked < 0 || func != NULL) {
        return func;
    }
    PyObject *functions = own_field(state, self, LOADER_DICT);
    if (functions == NULL) {
        return NULL;
    }
    int found = mapping_get(functions, key, &func);
    Py_DECREF(functions);
    if (found != 0) {
        return func;
    }
    /* What others load or take back between these two looks, only _load_missing() can tell. */
    int loaded = shared ? 0 : field_is_true(state, self, LOADER_LOADED);
    if (loaded != 0) {
        return loaded < 0 ? NULL : raise_key_error(key);
    }
    return PyObject_CallMethodOneArg(self, state->str_load_missing, key);
}

static PyObject *
loaderbase_subscript(PyObject *self, PyObject *key)
{
    int own;
    CoreState *state = state_of(self, loaderbase_dealloc);
    PyObject *func = state == NULL ? NULL : find_function(state, self, key, &own);
    if (func == NULL) {
        return NULL;
    }
    const Binding *binding = binding_of(state);
    int coroutine = is_coroutine(state, binding, func);
    PyObject *loaded =
        coroutine < 0 ? NULL
                      : loadedfunction_make(state,
                                            coroutine ? binding->loaded_coroutine
                                                      : binding->loaded_function,
                                            key, self, func, own);
    Py_DECREF(func);
    return loaded;
}

static int
loaderbase_contains(PyObject *self, PyObject *key)
{
    int own;
    CoreState *state = state_of(self, loaderbase_dealloc);
    PyObject *func = state == NULL ? NULL : find_function(state, self, key, &own);
    if (func == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(func);
    return 1;
}

static PyObject *
loaderbase_iter(PyObject *self)
{
    CoreState *state = state_of(self, loaderbase_dealloc);
    int loaded = state == NULL ? -1 : field_is_true(state, self, LOADER_LOADED);
    if (loaded < 0) {
        return NULL;
    }
    if (!loaded) {
        PyObject *result = PyObject_CallMethodNoArgs(self, state->str_load_all);
        if (result == NULL) {
            return NULL;
        }
        Py_DECREF(result);
    }
    PyObject *functions = own_field(state, self, LOADER_DICT);
    if (functions == NULL) {
        return NULL;
    }
    /* A list of the keys in one step: the loader may load on while they are walked. */
    PyObject *keys = PyDict_CheckExact(functions) ? PyDict_Keys(functions)
                                                  : PySequence_List(functions);
    Py_DECREF(functions);
    PyObject *iterator = keys == NULL ? NULL : PyObject_GetIter(keys);
    Py_XDECREF(keys);
    return iterator;
}

/* ---- methods ---- */

PyDoc_STRVAR(loaderbase_get_doc,
    "get($self, key, default=None)\n--\n\n"
    "The loaded function, or ``default``.");

static PyObject *
loaderbase_get(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"key", "default", NULL};
    PyObject *key, *fallback = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:get", names, &key, &fallback)) {
        return NULL;
    }
    PyObject *func = PyObject_GetItem(self, key);
    if (func == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        return Py_NewRef(fallback);
    }
    return func;
}

PyDoc_STRVAR(loaderbase_run_doc,
    "run($self, _func_or_method, /, *args, **kwargs)\n--\n\n"
    "Call in this loader's context: a copy of the thread's, entered for this call alone.\n\n"
    "Returns what the call returns, a dunder as its value and a generator as the host keeps it.");

static PyObject *
loaderbase_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "run() takes a callable and its arguments");
        return NULL;
    }
    CoreState *state = state_of(self, loaderbase_dealloc);
    if (state == NULL) {
        return NULL;
    }
    Arguments arguments = {.vector = args + 1, .nargsf = (size_t)(nargs - 1), .kwnames = kwnames};
    return loader_call(state, self, NULL, 0, args[0], &arguments);
}

/* ---- attributes ---- */

static PyObject *
loaderbase_get_field(PyObject *self, void *closure)
{
    CoreState *state = state_of(self, loaderbase_dealloc);
    return state == NULL ? NULL : own_field(state, self, (int)(intptr_t)closure);
}

static int
loaderbase_set_field(PyObject *self, PyObject *value, void *closure)
{
    shared_store(self, &AS_LOADER(self)->fields[(intptr_t)closure], value);
    ASSERT_CONSISTENT(self);
    return 0;
}

/* The entry behind this loader's own in the chain of calls. */
static PyObject *
loaderbase_get_parent(PyObject *self, void *Py_UNUSED(closure))
{
    CoreState *state = state_of(self, loaderbase_dealloc);
    PyObject *calls;
    if (state == NULL || PyContextVar_Get(state->calls_var, NULL, &calls) < 0) {
        return NULL;
    }
    PyObject *parent = Py_None;
    for (PyObject *chain = calls; PyTuple_CheckExact(chain); chain = PyTuple_GET_ITEM(chain, 1)) {
        if (PyTuple_GET_ITEM(chain, 0) == self) {
            PyObject *outer = PyTuple_GET_ITEM(chain, 1);
            parent = PyTuple_CheckExact(outer) ? PyTuple_GET_ITEM(outer, 0) : Py_None;
            break;
        }
    }
    Py_INCREF(parent);
    Py_DECREF(calls);
    return parent;
}

static int
loaderbase_set_parent(PyObject *Py_UNUSED(self), PyObject *value, void *Py_UNUSED(closure))
{
    if (value == Py_None) {
        return 0;
    }
    PyErr_SetString(PyExc_AttributeError,
                    "parent_loader follows the running call: only None can be assigned");
    return -1;
}

#define FIELD(name, index, doc) \
    {name, loaderbase_get_field, loaderbase_set_field, doc, (void *)(intptr_t)(index)}

static PyGetSetDef loaderbase_getset[] = {
    FIELD("_dict", LOADER_DICT, "What is loaded: {name: function}."),
    FIELD("loaded", LOADER_LOADED, "Whether all is in _dict; not relied on if it is shared."),
    FIELD("pack", LOADER_PACK, "The modules' dunders: {name: value}."),
    FIELD("pack_self", LOADER_PACK_SELF, "The dunder that is this loader, or None."),
    FIELD("inject_globals", LOADER_INJECT_GLOBALS, "Globals for each call: {name: value}."),
    FIELD("module_opts", LOADER_MODULE_OPTS, "{module: its own value of a dunder}."),
    FIELD("shared", LOADER_SHARED, "Whether jobs share this loader; False by default."),
    {"parent_loader", loaderbase_get_parent, loaderbase_set_parent,
     "The loader whose function called into this one, in the running context; None at the\n"
     "outermost. Only None can be assigned.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef loaderbase_methods[] = {
    {"get", (PyCFunction)(void (*)(void))loaderbase_get, METH_VARARGS | METH_KEYWORDS,
     loaderbase_get_doc},
    {"run", (PyCFunction)(void (*)(void))loaderbase_run, METH_FASTCALL | METH_KEYWORDS,
     loaderbase_run_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

/* Arguments are the subclass's. */
static PyObject *
loaderbase_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static int
loaderbase_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < LOADER_FIELDS; i++) {
        Py_VISIT(AS_LOADER(self)->fields[i]);
    }
    return 0;
}

static int
loaderbase_clear(PyObject *self)
{
    for (int i = 0; i < LOADER_FIELDS; i++) {
        shared_store(self, &AS_LOADER(self)->fields[i], NULL);
    }
    return 0;
}

static void
loaderbase_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int i = 0; i < LOADER_FIELDS; i++) {
        Py_CLEAR(AS_LOADER(self)->fields[i]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(loaderbase_doc,
    "The hot methods of a loader, with no state of a call on the loader.\n\n"
    "Fields, set by the subclass: ``_dict`` {name: function}, ``loaded`` (all is in ``_dict``),\n"
    "``pack`` {dunder name: value}, ``pack_self`` (the dunder that is this loader, or None),\n"
    "``inject_globals``, ``module_opts`` {module: its own value of a dunder}, ``shared`` (jobs\n"
    "share this loader). A field that was not set raises AttributeError. The subclass provides\n"
    "``_load_missing(key)``, which loads and returns the function or raises KeyError;\n"
    "``_first_use(key)``, called when a job first looks up a key in a shared loader, which\n"
    "returns the function that this job is to have, or None for the loader's; and\n"
    "``_load_all()``.\n\n"
    "Lookup, iteration and calls may be made from any thread; a field may be assigned\n"
    "meanwhile, and a call under way goes on with what it read. Source: src/loaderbase.c");

static PyType_Slot loaderbase_slots[] = {
    {Py_tp_doc, (void *)loaderbase_doc},
    {Py_tp_new, loaderbase_new},
    {Py_tp_dealloc, loaderbase_dealloc},
    {Py_tp_traverse, loaderbase_traverse},
    {Py_tp_clear, loaderbase_clear},
    {Py_tp_iter, loaderbase_iter},
    {Py_tp_methods, loaderbase_methods},
    {Py_tp_getset, loaderbase_getset},
    {Py_mp_subscript, loaderbase_subscript},
    {Py_sq_contains, loaderbase_contains},
    {0, NULL},
};

static PyType_Spec loaderbase_spec = {
    .name = "saltctx._core.LoaderBase",
    .basicsize = sizeof(LoaderBaseObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loaderbase_slots,
};

int
loaderbase_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->loaderbase_type, &loaderbase_spec, NULL) < 0) {
        return -1;
    }
    state->calls_var = PyContextVar_New("saltctx_calls", Py_None);
    if (state->calls_var == NULL) {
        return -1;
    }
    return PyModule_AddType(module, state->loaderbase_type);
}
