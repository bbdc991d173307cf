/*
 * LayeredLookup: one method of a class of dicts that lie over each other, such as a host's options.
 *
 * An object of such a class has `_local`, a dict of its own values; `_parent`, the object below, or
 * None; `_base`, a dict that counts where there is no `_parent`; and `_proxy_cache`. The value
 * nearest to the object counts. All of these are asked for with each call: the host may assign
 * them.
 *
 * An object of the class `snapshot` holds what it hands out itself, as a dict. What is neither a dict
 * nor a list is taken from there: three lookups less, and no reference count that threads share.
 *
 * Where foreign code can run: hash and eq of the key in each dict, attributes of the objects, a
 * `_base` that is no plain dict, wrap() of the host. Nothing is kept over such a call but strong
 * references; the fields of a LayeredLookup are fixed.
 */
#include "layers.h"

typedef enum { LOOKUP_GETITEM, LOOKUP_CONTAINS, LOOKUP_GET } LookupKind;

static const char *const kind_names[] = {"__getitem__", "__contains__", "get"};

/* All fields are fixed, but for dict, which Python fills. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *deleted; /* stands for a key that a layer hides */
    PyObject *wrap;    /* wrap(self, key, value): what is handed out of a dict or list below */
    PyObject *layered; /* the class whose values are handed out as they are */
    PyObject *snapshot; /* the class whose objects hold what they hand out, or None */
    PyObject *dict;
    LookupKind kind;
} LookupObject;

#define AS_LOOKUP(op) ((LookupObject *)(op))

static void lookup_dealloc(PyObject *self);

/* ---- the walk ---- */

/* 1 and a new reference, 0 if there is none, -1 with an exception. */
static int
field_get(PyObject *node, PyObject *field, PyObject *key, PyObject **value)
{
    PyObject *dict = PyObject_GetAttr(node, field);
    if (dict == NULL) {
        return -1;
    }
    int found;
    if (PyDict_CheckExact(dict)) {
        found = PyDict_GetItemRef(dict, key, value);
    }
    else {
        found = PySequence_Contains(dict, key);
        *value = found > 0 ? PyObject_GetItem(dict, key) : NULL;
        found = found > 0 && *value == NULL ? -1 : found;
    }
    Py_DECREF(dict);
    return found;
}

static int
is_snapshot(LookupObject *self, PyObject *opts)
{
    return (PyObject *)Py_TYPE(opts) == self->snapshot;
}

/* As field_get(), of what a snapshot holds; a dict or list may have to be handed out anew. */
static int
snapshot_get(PyObject *opts, PyObject *key, PyObject **value)
{
    int found = PyDict_GetItemRef(opts, key, value);
    if (found > 0 && (PyDict_Check(*value) || PyList_Check(*value))) {
        Py_CLEAR(*value);
        return 0;
    }
    return found;
}

/* As field_get(); *own says whether the value is the object's own. */
static int
stored_get(CoreState *state, LookupObject *self, PyObject *opts, PyObject *key, PyObject **value,
           int *own)
{
    PyObject *node = opts, *above = NULL; /* the caller holds opts: no count that threads share */
    int found = is_snapshot(self, opts) ? snapshot_get(opts, key, value) : 0;
    *own = 1;
    if (found != 0) {
        return found;
    }
    while ((found = field_get(node, state->str_local, key, value)) == 0) {
        PyObject *parent = PyObject_GetAttr(node, state->str_parent);
        if (parent == NULL) {
            found = -1;
            break;
        }
        *own = 0;
        if (parent == Py_None) {
            Py_DECREF(parent);
            found = field_get(node, state->str_base, key, value);
            break;
        }
        Py_XSETREF(above, parent);
        node = above;
    }
    Py_XDECREF(above);
    if (found > 0 && *value == self->deleted) {
        Py_CLEAR(*value);
        return 0;
    }
    return found;
}

/* The proxy that is kept for exactly this value, or NULL; an exception may be set then. */
static PyObject *
cached_proxy(CoreState *state, PyObject *opts, PyObject *key, PyObject *value)
{
    PyObject *entry, *proxy = NULL;
    if (field_get(opts, state->str_proxy_cache, key, &entry) <= 0) {
        return NULL;
    }
    if (PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 2
        && PyLong_CheckExact(PyTuple_GET_ITEM(entry, 1))
        && PyLong_AsVoidPtr(PyTuple_GET_ITEM(entry, 1)) == (void *)value) {
        proxy = Py_NewRef(PyTuple_GET_ITEM(entry, 0));
    }
    Py_DECREF(entry);
    return proxy;
}

/* What is handed out for a stored value; takes the reference. */
static PyObject *
hand_out(CoreState *state, LookupObject *self, PyObject *opts, PyObject *key, PyObject *value,
         int own)
{
    if (own || !(PyDict_Check(value) || PyList_Check(value))) {
        return value;
    }
    int layered = PyObject_IsInstance(value, self->layered);
    if (layered != 0) {
        return layered > 0 ? value : (Py_DECREF(value), NULL);
    }
    PyObject *proxy = cached_proxy(state, opts, key, value);
    if (proxy == NULL && !PyErr_Occurred()) {
        proxy = PyObject_CallFunctionObjArgs(self->wrap, opts, key, value, NULL);
    }
    Py_DECREF(value);
    return proxy;
}

static PyObject *
look_up(CoreState *state, LookupObject *self, PyObject *opts, PyObject *key, PyObject *otherwise)
{
    PyObject *value;
    int own, found = stored_get(state, self, opts, key, &value, &own);
    if (found < 0) {
        return NULL;
    }
    if (self->kind == LOOKUP_CONTAINS) {
        Py_XDECREF(value);
        return PyBool_FromLong(found);
    }
    if (found > 0) {
        return hand_out(state, self, opts, key, value, own);
    }
    return otherwise != NULL ? Py_NewRef(otherwise) : raise_key_error(key);
}

/* ---- a call ---- */

/* get() is what a subclass's own __getitem__ makes of it. */
static int
is_overridden(CoreState *state, PyObject *op, PyObject *opts)
{
    PyObject *method;
    int found = PyObject_GetOptionalAttr((PyObject *)Py_TYPE(opts), state->str_dunder_getitem,
                                         &method);
    if (found <= 0) {
        return found < 0 ? -1 : 1;
    }
    int same = Py_TYPE(method) == Py_TYPE(op)
               && AS_LOOKUP(method)->deleted == AS_LOOKUP(op)->deleted;
    Py_DECREF(method);
    return !same;
}

static PyObject *
get_by_item(PyObject *opts, PyObject *key, PyObject *otherwise)
{
    PyObject *value = PyObject_GetItem(opts, key);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        return Py_NewRef(otherwise);
    }
    return value;
}

/* get(key, default=None): both may be given by name. */
static int
get_arguments(CoreState *state, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
              PyObject **key, PyObject **otherwise)
{
    *key = count > 1 ? args[1] : NULL;
    *otherwise = count > 2 ? args[2] : NULL;
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        int is_key = PyUnicode_Compare(name, state->str_key) == 0;
        int is_default = !is_key && PyUnicode_Compare(name, state->str_default) == 0;
        PyObject **place = is_key ? key : is_default ? otherwise : NULL;
        if (place == NULL || *place != NULL) {
            PyErr_Format(PyExc_TypeError, "get() got an unexpected argument %R", name);
            return -1;
        }
        *place = args[count + i];
    }
    if (*key == NULL || count > 3) {
        PyErr_SetString(PyExc_TypeError, "get() takes a key and a default");
        return -1;
    }
    *otherwise = *otherwise == NULL ? Py_None : *otherwise;
    return 0;
}

static PyObject *
lookup_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    LookupObject *self = AS_LOOKUP(op);
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *key, *otherwise = NULL;
    CoreState *state = state_of(op, lookup_dealloc);
    if (state == NULL) {
        return NULL;
    }
    if (count < 1) {
        return PyErr_Format(PyExc_TypeError, "%s() needs an object", kind_names[self->kind]);
    }
    if (self->kind == LOOKUP_GET) {
        if (get_arguments(state, args, count, kwnames, &key, &otherwise) < 0) {
            return NULL;
        }
        int overridden = is_snapshot(self, args[0]) ? 0 : is_overridden(state, op, args[0]);
        if (overridden != 0) {
            return overridden < 0 ? NULL : get_by_item(args[0], key, otherwise);
        }
    }
    else if (count != 2 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        return PyErr_Format(PyExc_TypeError, "%s() takes a key", kind_names[self->kind]);
    }
    else {
        key = args[1];
    }
    return look_up(state, self, args[0], key, otherwise);
}

/* ---- the type ---- */

static PyObject *
lookup_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kind", "deleted", "wrap", "layered", "snapshot", NULL};
    const char *kind;
    PyObject *deleted, *wrap, *layered, *snapshot = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOOO!|O:LayeredLookup", names, &kind,
                                     &deleted, &wrap, &PyType_Type, &layered, &snapshot)) {
        return NULL;
    }
    int number = 0;
    while (number <= LOOKUP_GET && strcmp(kind_names[number], kind) != 0) {
        number++;
    }
    if (number > LOOKUP_GET) {
        return PyErr_Format(PyExc_ValueError, "no lookup of this kind: %s", kind);
    }
    if (snapshot != Py_None && !PyType_Check(snapshot)) {
        return PyErr_Format(PyExc_TypeError, "snapshot must be a class or None, not %.200s",
                            Py_TYPE(snapshot)->tp_name);
    }
    LookupObject *self = AS_LOOKUP(type->tp_alloc(type, 0));
    if (self != NULL) {
        self->vectorcall = lookup_vectorcall;
        self->kind = (LookupKind)number;
        self->deleted = Py_NewRef(deleted);
        self->wrap = Py_NewRef(wrap);
        self->layered = Py_NewRef(layered);
        self->snapshot = Py_NewRef(snapshot);
    }
    return (PyObject *)self;
}

static PyObject *
lookup_descr_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static int
lookup_traverse(PyObject *op, visitproc visit, void *arg)
{
    LookupObject *self = AS_LOOKUP(op);
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->deleted);
    Py_VISIT(self->wrap);
    Py_VISIT(self->layered);
    Py_VISIT(self->snapshot);
    Py_VISIT(self->dict);
    return 0;
}

/* Only for an object that nothing can reach any more; a call of one with no fields cannot be. */
static int
lookup_clear(PyObject *op)
{
    Py_CLEAR(AS_LOOKUP(op)->dict);
    return 0;
}

static void
lookup_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    LookupObject *self = AS_LOOKUP(op);
    PyObject_GC_UnTrack(op);
    Py_CLEAR(self->deleted);
    Py_CLEAR(self->wrap);
    Py_CLEAR(self->layered);
    Py_CLEAR(self->snapshot);
    Py_CLEAR(self->dict);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(lookup_doc,
    "LayeredLookup(kind, deleted, wrap, layered, snapshot=None)\n--\n\n"
    "A method of a class of dicts that lie over each other: ``_local`` and, below, that of\n"
    "``_parent``, and so on; ``_base`` of the last. The nearest value counts.\n\n"
    "kind: ``__getitem__``, ``__contains__`` or ``get``. deleted: the value that hides a key.\n"
    "wrap(self, key, value): what is handed out for a dict or list that is not the object's own,\n"
    "unless it is a ``layered``, or ``_proxy_cache`` has ``(what, id(value))`` for the key.\n"
    "snapshot: a class of dicts, each of which holds what it would hand out; of exactly such an\n"
    "object what is no dict or list is taken from there, where it is there.\n"
    "May be called from any thread, from several at once; takes no lock. Source: src/layers.c");

static PyMemberDef lookup_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(LookupObject, vectorcall), Py_READONLY, NULL},
    {"__dictoffset__", Py_T_PYSSIZET, offsetof(LookupObject, dict), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef lookup_getset[] = {
    {"__dict__", PyObject_GenericGetDict, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lookup_slots[] = {
    {Py_tp_doc, (void *)lookup_doc},
    {Py_tp_new, lookup_new},
    {Py_tp_dealloc, lookup_dealloc},
    {Py_tp_traverse, lookup_traverse},
    {Py_tp_clear, lookup_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, lookup_descr_get},
    {Py_tp_members, lookup_members},
    {Py_tp_getset, lookup_getset},
    {0, NULL},
};

static PyType_Spec lookup_spec = {
    .name = "saltctx._core.LayeredLookup",
    .basicsize = sizeof(LookupObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
             | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = lookup_slots,
};

int
layers_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->layeredlookup_type, &lookup_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->layeredlookup_type);
}
