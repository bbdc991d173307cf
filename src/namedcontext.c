/*
 * NamedContext: a dunder of a module (__context__, __opts__, __salt__ ...), resolved at each use.
 *
 * Where foreign code can run: loader_ctxvar of a loader context that is not the host's usual one,
 * attributes of a loader that is not a LoaderBase, hash and eq of names and of what a pack is
 * keyed by, view() and no_value() of the host, and then whatever the value's own operation runs.
 * name, owner, default and the loader context may be assigned meanwhile: each resolution works on
 * references that it took at its start.
 */
#include "namedcontext.h"
#include "job.h"
#include "jobcontext.h"
#include "loaderbase.h"

/* All fields are shared; an empty owner reads as None. */
typedef struct {
    PyObject_HEAD
    PyObject *name;
    PyObject *loader_context;
    PyObject *variable; /* loader_context.loader_ctxvar if that was the host's own, else NULL */
    PyObject *fallback; /* `default` */
    PyObject *owner;
    uintptr_t known; /* of `name`: the address of a Binding, never freed, and KNOWN_FLAGS */
} NamedContextObject;

/* Whether the binding has a variable, a view under the name. */
#define KNOWN_VARIABLE ((uintptr_t)1)
#define KNOWN_VIEW ((uintptr_t)2)
#define KNOWN_FLAGS (KNOWN_VARIABLE | KNOWN_VIEW)

/* What a resolution works on, taken at its start; all but the binding and the name may be NULL. */
typedef struct {
    const Binding *binding;
    PyObject *name;
    PyObject *owner;
    PyObject *variable;
    uintptr_t known;
} Resolution;

#define AS_NAMED(op) ((NamedContextObject *)(op))

static void namedcontext_dealloc(PyObject *self);

static inline CoreState *
named_state(PyObject *self)
{
    return state_of(self, namedcontext_dealloc);
}

#ifdef SALTCTX_DEBUG
/* What was learnt is of a name that is there, the variable of a loader context that is. */
static void
check_consistent_lock_held(NamedContextObject *named)
{
    assert(named->known == 0 || named->name != NULL);
    assert(named->variable == NULL || named->loader_context != NULL);
    (void)named;
}
#define ASSERT_CONSISTENT(self) LOCKED(self, check_consistent_lock_held(AS_NAMED(self)))
#else
#define ASSERT_CONSISTENT(self) ((void)0)
#endif

static PyObject *
missing_field(const char *name)
{
    PyErr_SetString(PyExc_AttributeError, name);
    return NULL;
}

/* variable.get(default) */
static PyObject *
variable_get(PyObject *variable, PyObject *fallback)
{
    PyObject *value;
    if (PyContextVar_Get(variable, fallback, &value) < 0) {
        return NULL;
    }
    if (value == NULL) {
        PyErr_SetObject(PyExc_LookupError, variable);
    }
    return value;
}

/* ---- the running loader ---- */

/* The loader by way of the loader context; None if that knows of no variable. */
static PyObject *
loader_by_context(CoreState *state, PyObject *self)
{
    PyObject *variable;
    PyObject *loader_context = shared_load(self, &AS_NAMED(self)->loader_context);
    if (loader_context == NULL) {
        return missing_field("loader_context");
    }
    int found = PyObject_GetOptionalAttr(loader_context, state->str_loader_ctxvar, &variable);
    Py_DECREF(loader_context);
    if (found <= 0) {
        return found < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *loader;
    if (PyContextVar_CheckExact(variable)) {
        loader = variable_get(variable, Py_None);
    }
    else if (variable == Py_None) {
        loader = Py_NewRef(Py_None);
    }
    else {
        loader = PyObject_CallMethodOneArg(variable, state->str_get, Py_None);
    }
    Py_DECREF(variable);
    return loader;
}

/* The running loader or None; `variable` is NULL if the loader context is to be asked. */
static PyObject *
running_loader(CoreState *state, PyObject *self, PyObject *variable)
{
    return variable != NULL ? variable_get(variable, Py_None) : loader_by_context(state, self);
}

/* ---- resolution ---- */

static int
same_name(PyObject *name, PyObject *other)
{
    if (name == other) {
        return 1;
    }
    return other == Py_None ? 0 : PyObject_RichCompareBool(name, other, Py_EQ);
}

/* The job's view of a value, made by the host when the job first asks. */
static PyObject *
job_view(PyObject *job, PyObject *loader, PyObject *view, PyObject *name, PyObject *owner,
         PyObject *value)
{
    PyObject *result = NULL;
    PyObject *views = job_part(((JobObject *)job)->views, loader);
    PyObject *key = views == NULL ? NULL : PyTuple_Pack(2, name, owner);
    if (key != NULL && PyDict_GetItemRef(views, key, &result) == 0) {
        PyObject *args[] = {loader, value};
        PyObject *made = PyObject_Vectorcall(view, args, 2, NULL);
        if (made != NULL) {
            (void)PyDict_SetDefaultRef(views, key, made, &result);
            Py_DECREF(made);
        }
    }
    Py_XDECREF(key);
    Py_XDECREF(views);
    return result;
}

/* The value as the module `owner` has it: its own if the loader holds one. Takes over `value`. */
static PyObject *
owned_value(CoreState *state, PyObject *loader, PyObject *owner, PyObject *value)
{
    PyObject *own = NULL;
    PyObject *module_opts = loader_field(state, loader, LOADER_MODULE_OPTS);
    int found = module_opts == NULL ? -1 : mapping_get(module_opts, owner, &own);
    Py_XDECREF(module_opts);
    if (found == 0) {
        return value;
    }
    Py_DECREF(value);
    return own;
}

/* The value of a shared loader as the running job may have it; takes over `value`. */
static PyObject *
shared_value(CoreState *state, PyObject *loader, const Resolution *what, PyObject *value)
{
    PyObject *view = NULL, *job = NULL;
    PyObject *owner = what->owner != NULL ? what->owner : Py_None;
    int found = PyDict_GetItemRef(what->binding->views, what->name, &view);
    if (found > 0) {
        found = job_current(state, &job);
    }
    if (found < 0) {
        Py_CLEAR(value);
    }
    else if (job != NULL) {
        Py_SETREF(value, job_view(job, loader, view, what->name, owner, value));
    }
    Py_XDECREF(view);
    Py_XDECREF(job);
    return value;
}

/* pack[name], or what the host makes of a name that is not packed. `*packed` tells which. */
static PyObject *
packed_value(PyObject *pack, const Resolution *what, int *packed)
{
    PyObject *value = NULL;
    if (PyDict_CheckExact(pack)) {
        *packed = PyDict_GetItemRef(pack, what->name, &value);
    }
    else {
        *packed = PySequence_Contains(pack, what->name);
        if (*packed > 0) {
            value = PyObject_GetItem(pack, what->name);
        }
    }
    return *packed != 0 ? value : PyObject_CallOneArg(what->binding->no_value, what->name);
}

/* The loader if its pack_self has this name, or what it packs. `*packed` is true for the latter. */
static PyObject *
plain_value(PyObject *loader, PyObject *pack_self, PyObject *pack, const Resolution *what,
            int *packed)
{
    *packed = 0;
    int is_self = same_name(what->name, pack_self);
    if (is_self != 0) {
        return is_self < 0 ? NULL : Py_NewRef(loader);
    }
    return packed_value(pack, what, packed);
}

/* What the dunder stands for in a loader that is not a LoaderBase. */
static PyObject *
value_in_other_loader(CoreState *state, PyObject *loader, const Resolution *what)
{
    int packed;
    PyObject *value = NULL;
    PyObject *pack_self = PyObject_GetAttr(loader, state->str_pack_self);
    PyObject *pack = pack_self == NULL ? NULL : PyObject_GetAttr(loader, state->str_pack);
    if (pack != NULL) {
        value = plain_value(loader, pack_self, pack, what, &packed);
    }
    Py_XDECREF(pack_self);
    Py_XDECREF(pack);
    return value;
}

/* What the dunder stands for in a LoaderBase. */
static PyObject *
value_in_loader(CoreState *state, PyObject *loader, const Resolution *what)
{
    int packed, shared;
    PyObject *pack_self, *pack;
    if (loader_pack(state, loader, &pack_self, &pack, &shared) < 0) {
        return NULL;
    }
    PyObject *value = plain_value(loader, pack_self, pack, what, &packed);
    Py_DECREF(pack_self);
    Py_DECREF(pack);
    if (value != NULL && packed > 0) {
        if (what->owner != NULL && what->owner != Py_None) {
            value = owned_value(state, loader, what->owner, value);
        }
        if (value != NULL && shared && what->known & KNOWN_VIEW) {
            value = shared_value(state, loader, what, value);
        }
    }
    return value;
}

static void
take_lock_held(NamedContextObject *named, Resolution *what)
{
    what->name = Py_XNewRef(named->name);
    what->owner = Py_XNewRef(named->owner);
    what->variable = Py_XNewRef(named->variable);
    what->known = named->known;
}

/* Keep what was learnt, unless another name was assigned meanwhile. */
static void
keep_lock_held(NamedContextObject *named, const Resolution *what)
{
    if (named->name == what->name) {
        named->known = what->known;
    }
}

/* What is known of this name in this binding, looked up once for each name. -1 on error. */
static int
learn(PyObject *self, Resolution *what)
{
    if ((what->known & ~KNOWN_FLAGS) == (uintptr_t)what->binding) {
        return 0;
    }
    int variable = PyDict_Contains(what->binding->variables, what->name);
    int view = variable < 0 ? -1 : PyDict_Contains(what->binding->views, what->name);
    if (view < 0) {
        return -1;
    }
    what->known = (uintptr_t)what->binding | (variable ? KNOWN_VARIABLE : 0)
                  | (view ? KNOWN_VIEW : 0);
    LOCKED(self, keep_lock_held(AS_NAMED(self), what));
    ASSERT_CONSISTENT(self);
    return 0;
}

/* variables[name].get() */
static PyObject *
value_of_variable(const Resolution *what)
{
    PyObject *variable;
    int found = PyDict_GetItemRef(what->binding->variables, what->name, &variable);
    if (found <= 0) {
        return found < 0 ? NULL : raise_key_error(what->name);
    }
    PyObject *value = variable_get(variable, NULL);
    Py_DECREF(variable);
    return value;
}

/* The value by way of the running loader. */
static PyObject *
value_by_loader(CoreState *state, PyObject *self, const Resolution *what)
{
    PyObject *value;
    PyObject *loader = running_loader(state, self, what->variable);
    if (loader == NULL) {
        return NULL;
    }
    if (loader == Py_None) {
        value = shared_load(self, &AS_NAMED(self)->fallback);
        if (value == NULL) {
            missing_field("default");
        }
    }
    else if (PyObject_TypeCheck(loader, state->loaderbase_type)) {
        value = value_in_loader(state, loader, what);
    }
    else {
        value = value_in_other_loader(state, loader, what);
    }
    Py_DECREF(loader);
    return value;
}

/* What the dunder stands for here and now: a new reference. */
static PyObject *
resolve(CoreState *state, PyObject *self)
{
    Resolution what = {.binding = binding_of(state)};
    PyObject *value = NULL;
    LOCKED(self, take_lock_held(AS_NAMED(self), &what));
    if (what.name == NULL) {
        missing_field("name");
    }
    else if (learn(self, &what) == 0) {
        value = what.known & KNOWN_VARIABLE ? value_of_variable(&what)
                                            : value_by_loader(state, self, &what);
    }
    Py_XDECREF(what.name);
    Py_XDECREF(what.owner);
    Py_XDECREF(what.variable);
    return value;
}

/*
 * The value to hand an operation on to, with the recursion counted: a dunder that stands for itself
 * passes no Python code. Pair it with value_leave().
 */
static PyObject *
value_enter(PyObject *self)
{
    CoreState *state = named_state(self);
    if (state == NULL || Py_EnterRecursiveCall(" in a dunder of a module")) {
        return NULL;
    }
    PyObject *value = resolve(state, self);
    if (value == NULL) {
        Py_LeaveRecursiveCall();
    }
    return value;
}

static void
value_leave(PyObject *value)
{
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
}

/* ---- slots: each one hands on to the value ---- */

static PyObject *
namedcontext_subscript(PyObject *self, PyObject *key)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_GetItem(value, key);
    value_leave(value);
    return result;
}

static int
namedcontext_ass_subscript(PyObject *self, PyObject *key, PyObject *item)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return -1;
    }
    int status = item != NULL ? PyObject_SetItem(value, key, item) : PyObject_DelItem(value, key);
    value_leave(value);
    return status;
}

static int
namedcontext_contains(PyObject *self, PyObject *item)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return -1;
    }
    int found = PySequence_Contains(value, item);
    value_leave(value);
    return found;
}

static int
namedcontext_bool(PyObject *self)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    value_leave(value);
    return truth;
}

static Py_ssize_t
namedcontext_length(PyObject *self)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return -1;
    }
    Py_ssize_t length = PyObject_Size(value);
    value_leave(value);
    return length;
}

static PyObject *
namedcontext_iter(PyObject *self)
{
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(value);
    value_leave(value);
    return iterator;
}

/* ---- methods ---- */

PyDoc_STRVAR(namedcontext_loader_doc,
    "loader($self, /)\n--\n\n"
    "The running loader, or None.");

static PyObject *
namedcontext_loader(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    CoreState *state = named_state(self);
    if (state == NULL) {
        return NULL;
    }
    PyObject *variable = shared_load(self, &AS_NAMED(self)->variable);
    PyObject *loader = running_loader(state, self, variable);
    Py_XDECREF(variable);
    return loader;
}

PyDoc_STRVAR(namedcontext_value_doc,
    "value($self, /)\n--\n\n"
    "What the dunder stands for here and now.");

static PyObject *
namedcontext_value(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    CoreState *state = named_state(self);
    return state == NULL ? NULL : resolve(state, self);
}

PyDoc_STRVAR(namedcontext_get_doc,
    "get($self, key, default=None)\n--\n\n"
    "``value().get(key, default)``");

/* value.get(key, fallback) */
static PyObject *
get_from(CoreState *state, PyObject *value, PyObject *key, PyObject *fallback)
{
    if (JobContext_Check(value)) {
        PyObject *item;
        int found = jobcontext_lookup(value, key, &item);
        return found == 0 ? Py_NewRef(fallback) : item;
    }
    PyObject *args[] = {value, key, fallback};
    return PyObject_VectorcallMethod(state->str_get, args, 3, NULL);
}

static PyObject *
namedcontext_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    CoreState *state = named_state(self);
    PyObject *value = state == NULL ? NULL : value_enter(self);
    if (value == NULL) {
        return NULL;
    }
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *result = NULL;
    PyObject *key = nargs > 0 ? args[0] : NULL, *fallback = nargs > 1 ? args[1] : NULL;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject **place = NULL;
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "key") == 0) {
            place = &key;
        }
        else if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "default") == 0) {
            place = &fallback;
        }
        if (place == NULL || *place != NULL) {
            PyErr_Format(PyExc_TypeError, "get() got an unexpected or repeated argument '%U'",
                         PyTuple_GET_ITEM(kwnames, i));
            goto done;
        }
        *place = args[nargs + i];
    }
    if (key == NULL || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "get() takes a key and a default");
        goto done;
    }
    result = get_from(state, value, key, fallback != NULL ? fallback : Py_None);
done:
    value_leave(value);
    return result;
}

PyDoc_STRVAR(namedcontext_getattr_doc,
    "__getattr__($self, name, /)\n--\n\n"
    "The value's attribute.");

static PyObject *
namedcontext_getattr(PyObject *self, PyObject *name)
{
    CoreState *state = named_state(self);
    if (state == NULL) {
        return NULL;
    }
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "attribute name must be a str");
        return NULL;
    }
    if (PyUnicode_Compare(name, state->str_name) == 0
        || PyUnicode_Compare(name, state->str_loader_context) == 0
        || PyUnicode_Compare(name, state->str_default) == 0) {
        PyErr_SetObject(PyExc_AttributeError, name);
        return NULL;
    }
    PyObject *value = value_enter(self);
    if (value == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_GetAttr(value, name);
    value_leave(value);
    return result;
}

static PyObject *
namedcontext_getattro(PyObject *self, PyObject *name)
{
    PyObject *result = PyObject_GenericGetAttr(self, name);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        result = namedcontext_getattr(self, name);
    }
    return result;
}

/* ---- attributes ---- */

/* loader_context.loader_ctxvar if that is the host's own: then it need not be asked again. */
static int
usual_variable(CoreState *state, PyObject *loader_context, PyObject **variable)
{
    if (PyObject_GetOptionalAttr(loader_context, state->str_loader_ctxvar, variable) < 0) {
        return -1;
    }
    if (*variable != binding_of(state)->loader_var) {
        Py_CLEAR(*variable);
    }
    return 0;
}

static int
set_loader_context(CoreState *state, PyObject *self, PyObject *loader_context)
{
    PyObject *variable = NULL;
    if (loader_context != NULL && usual_variable(state, loader_context, &variable) < 0) {
        return -1;
    }
    shared_store2(self, &AS_NAMED(self)->loader_context, loader_context, &AS_NAMED(self)->variable,
                  variable);
    Py_XDECREF(variable);
    ASSERT_CONSISTENT(self);
    return 0;
}

static PyObject *
namedcontext_get_context(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *value = shared_load(self, &AS_NAMED(self)->loader_context);
    return value != NULL ? value : missing_field("loader_context");
}

static int
namedcontext_set_context(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    CoreState *state = named_state(self);
    return state == NULL ? -1 : set_loader_context(state, self, value);
}

static PyObject *
swap_name_lock_held(NamedContextObject *named, PyObject *name)
{
    PyObject *old = named->name;
    named->name = name;
    named->known = 0;
    return old;
}

/* Another name, borrowed or NULL; nothing is known of it. */
static void
set_name(PyObject *self, PyObject *name)
{
    PyObject *old;
    Py_XINCREF(name);
    LOCKED(self, old = swap_name_lock_held(AS_NAMED(self), name));
    Py_XDECREF(old);
    ASSERT_CONSISTENT(self);
}

static int
namedcontext_set_name(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    set_name(self, value);
    return 0;
}

/* What getters and setters need to know of a plain field. */
typedef struct {
    const char *name;
    size_t offset;
} Field;

static const Field field_name = {"name", offsetof(NamedContextObject, name)};
static const Field field_default = {"default", offsetof(NamedContextObject, fallback)};
static const Field field_owner = {NULL, offsetof(NamedContextObject, owner)};

static inline PyObject **
field_place(PyObject *self, const Field *field)
{
    return (PyObject **)((char *)self + field->offset);
}

static PyObject *
namedcontext_get_field(PyObject *self, void *closure)
{
    const Field *field = closure;
    PyObject *value = shared_load(self, field_place(self, field));
    if (value != NULL) {
        return value;
    }
    return field->name != NULL ? missing_field(field->name) : Py_NewRef(Py_None);
}

static int
namedcontext_set_field(PyObject *self, PyObject *value, void *closure)
{
    shared_store(self, field_place(self, closure), value);
    return 0;
}

static PyGetSetDef namedcontext_getset[] = {
    {"name", namedcontext_get_field, namedcontext_set_name, "The dunder, a str.",
     (void *)&field_name},
    {"loader_context", namedcontext_get_context, namedcontext_set_context,
     "What knows the variable of the running loader: its ``loader_ctxvar``.", NULL},
    {"default", namedcontext_get_field, namedcontext_set_field, "The value where no loader runs.",
     (void *)&field_default},
    {"owner", namedcontext_get_field, namedcontext_set_field,
     "The module whose own value counts, or None.", (void *)&field_owner},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef namedcontext_methods[] = {
    {"loader", namedcontext_loader, METH_NOARGS, namedcontext_loader_doc},
    {"value", namedcontext_value, METH_NOARGS, namedcontext_value_doc},
    {"get", (PyCFunction)(void (*)(void))namedcontext_get, METH_FASTCALL | METH_KEYWORDS,
     namedcontext_get_doc},
    {"__getattr__", namedcontext_getattr, METH_O, namedcontext_getattr_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static int
namedcontext_tp_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "loader_context", "default", NULL};
    PyObject *name, *loader_context, *fallback = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:NamedContext", names, &name,
                                     &loader_context, &fallback)) {
        return -1;
    }
    CoreState *state = named_state(self);
    if (state == NULL || set_loader_context(state, self, loader_context) < 0) {
        return -1;
    }
    shared_store(self, &AS_NAMED(self)->fallback, fallback);
    set_name(self, name);
    return 0;
}

/* Arguments are __init__'s: a subclass may take others. */
static PyObject *
namedcontext_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static int
namedcontext_traverse(PyObject *op, visitproc visit, void *arg)
{
    NamedContextObject *self = AS_NAMED(op);
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->name);
    Py_VISIT(self->loader_context);
    Py_VISIT(self->variable);
    Py_VISIT(self->fallback);
    Py_VISIT(self->owner);
    return 0;
}

static int
namedcontext_clear(PyObject *op)
{
    NamedContextObject *self = AS_NAMED(op);
    set_name(op, NULL);
    shared_store(op, &self->owner, NULL);
    shared_store2(op, &self->loader_context, NULL, &self->variable, NULL);
    shared_store(op, &self->fallback, NULL);
    return 0;
}

static void
namedcontext_dealloc(PyObject *op)
{
    NamedContextObject *self = AS_NAMED(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_CLEAR(self->name);
    Py_CLEAR(self->loader_context);
    Py_CLEAR(self->variable);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->owner);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(namedcontext_doc,
    "NamedContext(name, loader_context, default=None)\n--\n\n"
    "A dunder of a module, resolved at each use.\n\n"
    "Through the running loader's ``pack``, or the module's own value if ``owner`` (a module\n"
    "name) is set and the loader holds one in ``module_opts``; through the job's view of it if\n"
    "the loader is shared. ``default`` where no loader runs. A dunder that the loader does not\n"
    "pack raises the host's error.\n\n"
    "Subscript, ``in``, ``len``, iteration, truth, ``get`` and attributes are the value's; they\n"
    "do not pass a ``value()`` or ``loader()`` that a subclass defines. May be used from any\n"
    "thread; an operation goes on with the value that it found at its start. Source:\n"
    "src/namedcontext.c");

static PyType_Slot namedcontext_slots[] = {
    {Py_tp_doc, (void *)namedcontext_doc},
    {Py_tp_new, namedcontext_new},
    {Py_tp_init, namedcontext_tp_init},
    {Py_tp_dealloc, namedcontext_dealloc},
    {Py_tp_traverse, namedcontext_traverse},
    {Py_tp_clear, namedcontext_clear},
    {Py_tp_iter, namedcontext_iter},
    {Py_tp_methods, namedcontext_methods},
    {Py_tp_getset, namedcontext_getset},
    {Py_mp_subscript, namedcontext_subscript},
    {Py_mp_ass_subscript, namedcontext_ass_subscript},
    {Py_mp_length, namedcontext_length},
    {Py_sq_contains, namedcontext_contains},
    {Py_nb_bool, namedcontext_bool},
    {0, NULL},
};

static PyType_Spec namedcontext_spec = {
    .name = "saltctx._core.NamedContext",
    .basicsize = sizeof(NamedContextObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = namedcontext_slots,
};

int
namedcontext_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->namedcontext_type, &namedcontext_spec, NULL) < 0) {
        return -1;
    }
    /*
     * Not in the slots: as a __getattribute__ of the type's own it would make each attribute of a
     * Python subclass twice as slow. A subclass finds __getattr__ among the methods instead.
     */
    state->namedcontext_type->tp_getattro = namedcontext_getattro;
    return PyModule_AddType(module, state->namedcontext_type);
}
