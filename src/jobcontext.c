/*
 * JobContext: base layer, outside layer, and the layer of the job in whose context a reader is.
 *
 * Where foreign code can run: hash and eq of the keys, in every operation on a layer; deepcopy of
 * a base value (own_value); finalizers of what a write replaces. None of it runs under a lock,
 * and nothing of the object itself changes after tp_new: base, outside and the marker are fixed,
 * each layer is a plain dict with its own protection. What a call looked up before such code ran
 * is held by a reference of its own. An operation that takes several steps on a layer is not
 * atomic; each step is.
 *
 * Snapshots are private dicts, walked by a list of their items, so that a key whose hash changes
 * cannot disturb the walk.
 *
 * No tp_clear for base and outside: as in a tuple, a cycle goes through those dicts themselves.
 */
#include "jobcontext.h"
#include "job.h"

#define AS_CONTEXT(op) ((JobContextObject *)(op))

/* ---- which layer takes writes here and now ---- */

/* `dict`, borrowed, is NULL while loading: then the base layer takes writes. */
typedef struct {
    CoreState *state;
    PyObject *scope;
    PyObject *dict;
} Top;

static int
top_enter(PyObject *self, Top *top)
{
    top->state = PyType_GetModuleState(Py_TYPE(self));
    if (top->state == NULL || PyContextVar_Get(top->state->scope_var, NULL, &top->scope) < 0) {
        return -1;
    }
    if (top->scope == NULL) {
        top->dict = AS_CONTEXT(self)->outside;
    }
    else if (Job_Check(top->scope)) {
        top->dict = ((JobObject *)top->scope)->layer;
    }
    else if (Loading_Check(top->scope)) {
        top->dict = NULL;
    }
    else {
        Py_CLEAR(top->scope);
        return scope_get(top->state, &top->scope); /* raises */
    }
    return 0;
}

static inline void
top_leave(Top *top)
{
    Py_XDECREF(top->scope);
}

/* The dict that a write goes to. */
static inline PyObject *
top_target(PyObject *self, Top *top)
{
    return top->dict != NULL ? top->dict : AS_CONTEXT(self)->base;
}

#ifdef SALTCTX_DEBUG
static void
check_consistent(PyObject *self)
{
    JobContextObject *context = AS_CONTEXT(self);
    assert(PyDict_CheckExact(context->base) && PyDict_CheckExact(context->outside));
    assert(PyDict_Size(self) == 1);
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    assert(state != NULL && PyDict_Contains(self, state->deleted) == 1);
    (void)state;
}
#define ASSERT_CONSISTENT(self) check_consistent(self)
#else
#define ASSERT_CONSISTENT(self) ((void)0)
#endif

/* ---- reading ---- */

/*
 * A base value as a reader of the top layer may have it: its own copy of a plain container, put
 * into the layer. Takes over `*value`. A lock or socket inside: shared, as the value of any other
 * type.
 */
static int
own_value(PyObject *self, Top *top, PyObject *key, PyObject **value)
{
    PyObject *shared = *value;
    if (!(PyDict_CheckExact(shared) || PyList_CheckExact(shared)
          || Py_IS_TYPE(shared, &PySet_Type))
        || AS_CONTEXT(self)->share_base || top->dict == AS_CONTEXT(self)->outside) {
        return 0;
    }
    PyObject *copy = PyObject_CallOneArg(top->state->deepcopy, shared);
    if (copy == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            return 0;
        }
        Py_CLEAR(*value);
        return -1;
    }
    /* Another thread of the job may have been first. */
    int status = PyDict_SetDefaultRef(top->dict, key, copy, value);
    Py_DECREF(copy);
    Py_DECREF(shared);
    return status < 0 ? -1 : 0;
}

static int
lookup(PyObject *self, Top *top, PyObject *key, PyObject **value)
{
    PyObject *base = AS_CONTEXT(self)->base;
    if (top->dict == NULL) {
        return PyDict_GetItemRef(base, key, value);
    }
    int found = PyDict_GetItemRef(top->dict, key, value);
    if (found == 0) {
        found = PyDict_GetItemRef(base, key, value);
        if (found > 0 && own_value(self, top, key, value) < 0) {
            return -1;
        }
    }
    if (found > 0 && *value == top->state->deleted) {
        Py_CLEAR(*value);
        return 0;
    }
    return found;
}

int
jobcontext_lookup(PyObject *self, PyObject *key, PyObject **value)
{
    Top top;
    *value = NULL;
    if (top_enter(self, &top) < 0) {
        return -1;
    }
    int found = lookup(self, &top, key, value);
    top_leave(&top);
    return found;
}

static int
contains(PyObject *self, Top *top, PyObject *key)
{
    if (top->dict != NULL) {
        PyObject *value;
        int found = PyDict_GetItemRef(top->dict, key, &value);
        if (found != 0) {
            int hidden = value == top->state->deleted;
            Py_XDECREF(value);
            return found < 0 ? -1 : !hidden;
        }
    }
    return PyDict_Contains(AS_CONTEXT(self)->base, key);
}

/* Put each base value that the top layer does not hold into `merged` as the reader may have it. */
static int
own_all(PyObject *self, Top *top, PyObject *merged)
{
    PyObject *items = PyDict_Items(merged);
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(items);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        PyObject *key = PyTuple_GET_ITEM(item, 0);
        int held = PyDict_Contains(top->dict, key);
        if (held > 0) {
            continue;
        }
        PyObject *value = Py_NewRef(PyTuple_GET_ITEM(item, 1));
        if (held < 0 || own_value(self, top, key, &value) < 0
            || (value != PyTuple_GET_ITEM(item, 1) && PyDict_SetItem(merged, key, value) < 0)) {
            Py_XDECREF(value);
            Py_DECREF(items);
            return -1;
        }
        Py_DECREF(value);
    }
    Py_DECREF(items);
    return 0;
}

/* `merged` without what the job deleted; takes over `merged`. */
static PyObject *
without_deleted(Top *top, PyObject *merged)
{
    PyObject *items = PyDict_Items(merged);
    Py_DECREF(merged);
    if (items == NULL) {
        return NULL;
    }
    PyObject *kept = PyDict_New();
    Py_ssize_t count = PyList_GET_SIZE(items);
    for (Py_ssize_t i = 0; kept != NULL && i < count; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        PyObject *value = PyTuple_GET_ITEM(item, 1);
        if (value != top->state->deleted
            && PyDict_SetItem(kept, PyTuple_GET_ITEM(item, 0), value) < 0) {
            Py_CLEAR(kept);
        }
    }
    Py_DECREF(items);
    return kept;
}

/* Lay a copy of the top layer over `merged`. */
static int
merge_top(Top *top, PyObject *merged)
{
    PyObject *layer = copy_dict(top->dict);
    int status = layer == NULL ? -1 : PyDict_Update(merged, layer);
    Py_XDECREF(layer);
    return status;
}

/* A new plain dict of what a reader sees here and now. */
static PyObject *
snapshot(PyObject *self)
{
    Top top;
    if (top_enter(self, &top) < 0) {
        return NULL;
    }
    PyObject *merged = copy_dict(AS_CONTEXT(self)->base);
    if (merged != NULL && top.dict != NULL) {
        if (own_all(self, &top, merged) < 0 || merge_top(&top, merged) < 0) {
            Py_CLEAR(merged);
        }
        else {
            merged = without_deleted(&top, merged);
        }
    }
    top_leave(&top);
    return merged;
}

/* ---- writing ---- */

/* Take a key away from the reader: 1 and its value, 0 for none, -1 on error. */
static int
take(PyObject *self, PyObject *key, PyObject **value)
{
    Top top;
    *value = NULL;
    if (top_enter(self, &top) < 0) {
        return -1;
    }
    PyObject *base = AS_CONTEXT(self)->base;
    int found = lookup(self, &top, key, value);
    if (found > 0) {
        int status;
        if (top.dict == NULL) {
            status = dict_discard(base, key);
        }
        else {
            status = PyDict_Contains(base, key);
            if (status > 0) {
                status = PyDict_SetItem(top.dict, key, top.state->deleted);
            }
            else if (status == 0) {
                status = dict_discard(top.dict, key);
            }
        }
        if (status < 0) {
            Py_CLEAR(*value);
            found = -1;
        }
    }
    top_leave(&top);
    ASSERT_CONSISTENT(self);
    return found;
}

static int
store(PyObject *self, PyObject *key, PyObject *value)
{
    Top top;
    if (top_enter(self, &top) < 0) {
        return -1;
    }
    int status = PyDict_SetItem(top_target(self, &top), key, value);
    top_leave(&top);
    ASSERT_CONSISTENT(self);
    return status;
}

/* Store each item of a private dict. */
static int
store_all(PyObject *self, PyObject *new)
{
    PyObject *items = PyDict_Items(new);
    if (items == NULL) {
        return -1;
    }
    int status = 0;
    Py_ssize_t count = PyList_GET_SIZE(items);
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        status = store(self, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    }
    Py_DECREF(items);
    return status;
}

/* All that dict() takes, read in full before the first write. */
static int
update_from(PyObject *self, PyObject *other, PyObject *kwargs)
{
    PyObject *new = other != NULL ? PyObject_CallOneArg((PyObject *)&PyDict_Type, other)
                                  : PyDict_New();
    if (new == NULL) {
        return -1;
    }
    int status = kwargs == NULL ? 0 : PyDict_Update(new, kwargs);
    if (status == 0) {
        status = store_all(self, new);
    }
    Py_DECREF(new);
    return status;
}

/* ---- slots ---- */

static PyObject *
jobcontext_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"share_base", NULL};
    int share_base = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:JobContext", names, &share_base)) {
        return NULL;
    }
    CoreState *state = PyType_GetModuleState(type);
    PyObject *nothing = state == NULL ? NULL : PyTuple_New(0);
    if (nothing == NULL) {
        return NULL;
    }
    PyObject *self = PyDict_Type.tp_new(type, nothing, NULL);
    Py_DECREF(nothing);
    if (self == NULL) {
        return NULL;
    }
    AS_CONTEXT(self)->share_base = (char)share_base;
    AS_CONTEXT(self)->base = PyDict_New();
    AS_CONTEXT(self)->outside = PyDict_New();
    /* C code that takes a dict's size before it asks for its items (json) must not find 0. */
    if (AS_CONTEXT(self)->base == NULL || AS_CONTEXT(self)->outside == NULL
        || PyDict_SetItem(self, state->deleted, state->deleted) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    ASSERT_CONSISTENT(self);
    return self;
}

/* All is done in tp_new; dict's own __init__ would fill the inherited storage. */
static int
jobcontext_tp_init(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args),
                   PyObject *Py_UNUSED(kwargs))
{
    return 0;
}

static int
jobcontext_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(AS_CONTEXT(self)->base);
    Py_VISIT(AS_CONTEXT(self)->outside);
    return PyDict_Type.tp_traverse(self, visit, arg);
}

void
jobcontext_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (AS_CONTEXT(self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_XDECREF(AS_CONTEXT(self)->base);
    Py_XDECREF(AS_CONTEXT(self)->outside);
    PyDict_Type.tp_dealloc(self);
    Py_DECREF(type);
}

static PyObject *
jobcontext_subscript(PyObject *self, PyObject *key)
{
    PyObject *value;
    if (jobcontext_lookup(self, key, &value) == 0) {
        return raise_key_error(key);
    }
    return value;
}

static int
jobcontext_ass_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    if (value != NULL) {
        return store(self, key, value);
    }
    PyObject *old;
    int found = take(self, key, &old);
    if (found == 0) {
        raise_key_error(key);
    }
    Py_XDECREF(old);
    return found > 0 ? 0 : -1;
}

static int
jobcontext_contains(PyObject *self, PyObject *key)
{
    Top top;
    if (top_enter(self, &top) < 0) {
        return -1;
    }
    int found = contains(self, &top, key);
    top_leave(&top);
    return found;
}

static Py_ssize_t
jobcontext_length(PyObject *self)
{
    Top top;
    if (top_enter(self, &top) < 0) {
        return -1;
    }
    Py_ssize_t length = -1;
    PyObject *merged = NULL, *values = NULL;
    if (top.dict == NULL || PyDict_Size(top.dict) == 0) {
        length = PyDict_Size(AS_CONTEXT(self)->base);
        goto done;
    }
    merged = copy_dict(AS_CONTEXT(self)->base);
    if (merged == NULL || merge_top(&top, merged) < 0) {
        goto done;
    }
    values = PyDict_Values(merged);
    if (values == NULL) {
        goto done;
    }
    length = PyList_GET_SIZE(values);
    for (Py_ssize_t i = PyList_GET_SIZE(values) - 1; i >= 0; i--) {
        length -= PyList_GET_ITEM(values, i) == top.state->deleted;
    }
done:
    Py_XDECREF(merged);
    Py_XDECREF(values);
    top_leave(&top);
    return length;
}

static PyObject *
jobcontext_iter(PyObject *self)
{
    PyObject *seen = snapshot(self);
    PyObject *iterator = seen == NULL ? NULL : PyObject_GetIter(seen);
    Py_XDECREF(seen);
    return iterator;
}

static PyObject *
jobcontext_richcompare(PyObject *self, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !PyDict_Check(other)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (self == other) {
        return PyBool_FromLong(op == Py_EQ);
    }
    PyObject *left = snapshot(self);
    PyObject *right = JobContext_Check(other) ? snapshot(other) : Py_NewRef(other);
    PyObject *result = left == NULL || right == NULL ? NULL
                                                     : PyObject_RichCompare(left, right, op);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *
jobcontext_repr(PyObject *self)
{
    int entered = Py_ReprEnter(self);
    if (entered != 0) {
        return entered < 0 ? NULL : PyUnicode_FromString("{...}");
    }
    PyObject *seen = snapshot(self);
    PyObject *text = seen == NULL ? NULL : PyObject_Repr(seen);
    Py_XDECREF(seen);
    Py_ReprLeave(self);
    return text;
}

static PyObject *
jobcontext_or(PyObject *left, PyObject *right)
{
    if (!PyDict_Check(left) || !PyDict_Check(right)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    left = JobContext_Check(left) ? snapshot(left) : Py_NewRef(left);
    right = left != NULL && JobContext_Check(right) ? snapshot(right) : Py_NewRef(right);
    PyObject *result = left == NULL || right == NULL ? NULL : PyNumber_Or(left, right);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *
jobcontext_inplace_or(PyObject *self, PyObject *other)
{
    return update_from(self, other, NULL) < 0 ? NULL : Py_NewRef(self);
}

/* ---- methods ---- */

static int
check_count(const char *name, Py_ssize_t nargs, Py_ssize_t least, Py_ssize_t most)
{
    if (nargs >= least && nargs <= most) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s expected %zd to %zd arguments, got %zd", name, least, most,
                 nargs);
    return -1;
}

static PyObject *
jobcontext_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value;
    if (check_count("get", nargs, 1, 2) < 0 || jobcontext_lookup(self, args[0], &value) < 0) {
        return NULL;
    }
    return value != NULL ? value : Py_NewRef(nargs > 1 ? args[1] : Py_None);
}

static PyObject *
jobcontext_setdefault(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value;
    if (check_count("setdefault", nargs, 1, 2) < 0
        || jobcontext_lookup(self, args[0], &value) < 0) {
        return NULL;
    }
    if (value == NULL) {
        value = nargs > 1 ? args[1] : Py_None;
        if (store(self, args[0], value) < 0) {
            return NULL;
        }
        Py_INCREF(value);
    }
    return value;
}

static PyObject *
jobcontext_pop(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value;
    if (check_count("pop", nargs, 1, 2) < 0) {
        return NULL;
    }
    if (take(self, args[0], &value) == 0) {
        return nargs > 1 ? Py_NewRef(args[1]) : raise_key_error(args[0]);
    }
    return value;
}

static PyObject *
jobcontext_popitem(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *seen = snapshot(self);
    PyObject *keys = seen == NULL ? NULL : PyDict_Keys(seen);
    Py_XDECREF(seen);
    if (keys == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = PyList_GET_SIZE(keys) - 1; i >= 0; i--) {
        PyObject *value;
        int found = take(self, PyList_GET_ITEM(keys, i), &value);
        if (found != 0) {
            PyObject *item = found < 0 ? NULL : PyTuple_Pack(2, PyList_GET_ITEM(keys, i), value);
            Py_XDECREF(value);
            Py_DECREF(keys);
            return item;
        }
    }
    Py_DECREF(keys);
    PyErr_SetString(PyExc_KeyError, "popitem(): dictionary is empty");
    return NULL;
}

static PyObject *
jobcontext_update(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *other = NULL;
    if (!PyArg_UnpackTuple(args, "update", 0, 1, &other)
        || update_from(self, other, kwargs) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
jobcontext_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *seen = snapshot(self);
    PyObject *keys = seen == NULL ? NULL : PyDict_Keys(seen);
    Py_XDECREF(seen);
    if (keys == NULL) {
        return NULL;
    }
    int found = 0;
    for (Py_ssize_t i = 0; found >= 0 && i < PyList_GET_SIZE(keys); i++) {
        PyObject *value;
        found = take(self, PyList_GET_ITEM(keys, i), &value);
        Py_XDECREF(value);
    }
    Py_DECREF(keys);
    if (found < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* A method of a snapshot: what it returns keeps the snapshot alive. */
static PyObject *
call_on_snapshot(PyObject *self, size_t name)
{
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *seen = state == NULL ? NULL : snapshot(self);
    if (seen == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_CallMethodNoArgs(seen, *(PyObject **)((char *)state + name));
    Py_DECREF(seen);
    return result;
}

static PyObject *
jobcontext_keys(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return call_on_snapshot(self, offsetof(CoreState, str_keys));
}

static PyObject *
jobcontext_values(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return call_on_snapshot(self, offsetof(CoreState, str_values));
}

static PyObject *
jobcontext_items(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return call_on_snapshot(self, offsetof(CoreState, str_items));
}

static PyObject *
jobcontext_copy(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return snapshot(self);
}

static PyObject *
jobcontext_reversed(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *seen = snapshot(self);
    PyObject *iterator =
        seen == NULL ? NULL : PyObject_CallOneArg((PyObject *)&PyReversed_Type, seen);
    Py_XDECREF(seen);
    return iterator;
}

static PyObject *
jobcontext_deepcopy(PyObject *self, PyObject *memo)
{
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *seen = NULL, *copy = NULL, *made = PyDict_New();
    PyObject *id = PyLong_FromVoidPtr(self);
    /* Noted first: the context may be somewhere in itself. */
    if (state == NULL || made == NULL || id == NULL || PyObject_SetItem(memo, id, made) < 0) {
        goto fail;
    }
    seen = snapshot(self);
    if (seen == NULL) {
        goto fail;
    }
    copy = PyObject_CallFunctionObjArgs(state->deepcopy, seen, memo, NULL);
    if (copy == NULL || PyDict_Update(made, copy) < 0) {
        goto fail;
    }
    goto done;
fail:
    Py_CLEAR(made);
done:
    Py_XDECREF(id);
    Py_XDECREF(seen);
    Py_XDECREF(copy);
    return made;
}

static PyObject *
jobcontext_reduce_ex(PyObject *self, PyObject *Py_UNUSED(protocol))
{
    PyObject *seen = snapshot(self);
    return seen == NULL ? NULL : Py_BuildValue("O(N)", &PyDict_Type, seen);
}

static PyObject *
jobcontext_base(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(AS_CONTEXT(self)->base);
}

static PyObject *
jobcontext_outside(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(AS_CONTEXT(self)->outside);
}

static PyGetSetDef jobcontext_getset[] = {
    {"base", jobcontext_base, NULL, "The base layer, a plain dict.", NULL},
    {"outside", jobcontext_outside, NULL, "The layer of what runs in no job, a plain dict.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef jobcontext_members[] = {
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(JobContextObject, weakrefs), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef jobcontext_methods[] = {
    {"get", FASTCALL(jobcontext_get), METH_FASTCALL,
     PyDoc_STR("get($self, key, default=None, /)\n--\n\nThe value, or ``default``.")},
    {"setdefault", FASTCALL(jobcontext_setdefault), METH_FASTCALL,
     PyDoc_STR("setdefault($self, key, default=None, /)\n--\n\n"
               "The value; ``default`` is stored and returned if there is none.")},
    {"pop", FASTCALL(jobcontext_pop), METH_FASTCALL,
     PyDoc_STR("pop(key[, default])\n\n"
               "Delete a key and return its value; ``default``, or KeyError, if there is none.")},
    {"popitem", jobcontext_popitem, METH_NOARGS,
     PyDoc_STR("popitem($self, /)\n--\n\nDelete the last key and return (key, value); KeyError if "
               "there is none.")},
    {"update", FASTCALL(jobcontext_update), METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("update($self, other=(), /, **kwargs)\n--\n\n"
               "Store all that ``dict(other, **kwargs)`` holds; it is read in full first.")},
    {"clear", jobcontext_clear, METH_NOARGS,
     PyDoc_STR("clear($self, /)\n--\n\nDelete every key that is seen here.")},
    {"keys", jobcontext_keys, METH_NOARGS,
     PyDoc_STR("keys($self, /)\n--\n\nThe keys of a snapshot.")},
    {"values", jobcontext_values, METH_NOARGS,
     PyDoc_STR("values($self, /)\n--\n\nThe values of a snapshot.")},
    {"items", jobcontext_items, METH_NOARGS,
     PyDoc_STR("items($self, /)\n--\n\nThe items of a snapshot.")},
    {"copy", jobcontext_copy, METH_NOARGS,
     PyDoc_STR("copy($self, /)\n--\n\nA plain dict of what is seen here; values are shared.")},
    {"__copy__", jobcontext_copy, METH_NOARGS,
     PyDoc_STR("__copy__($self, /)\n--\n\nAs copy().")},
    {"__deepcopy__", jobcontext_deepcopy, METH_O,
     PyDoc_STR("__deepcopy__($self, memo, /)\n--\n\nA deep copy of copy(): a plain dict.")},
    {"__reduce_ex__", jobcontext_reduce_ex, METH_O,
     PyDoc_STR("__reduce_ex__($self, protocol, /)\n--\n\nPickles as a plain dict.")},
    {"__reversed__", jobcontext_reversed, METH_NOARGS,
     PyDoc_STR("__reversed__($self, /)\n--\n\nThe keys of a snapshot, last first.")},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(jobcontext_doc,
    "JobContext(share_base=False)\n--\n\n"
    "The mapping behind ``__context__``, a dict with storage rules of its own.\n\n"
    "Inside a job a read finds the job's layer, then the base layer, and a write goes to the\n"
    "job's layer; a delete of a base key hides it from this job. Outside a job, reads and\n"
    "writes go to the outside layer over the base layer; inside ``loading()`` to the base layer\n"
    "alone. A plain dict, list or set of the base layer is deep-copied into the job's layer\n"
    "when the job first reads it, unless ``share_base``; what cannot be copied is shared. All\n"
    "JobContexts share one job's layer.\n\n"
    "Raises KeyError and TypeError as a dict does. Each single operation may be called from any\n"
    "thread; one that reads and then writes (``setdefault``, ``pop``, ``update``) is not atomic\n"
    "against another thread of the same job. Iteration walks a snapshot. Source: src/jobcontext.c");

static PyType_Slot jobcontext_slots[] = {
    {Py_tp_doc, (void *)jobcontext_doc},
    {Py_tp_new, jobcontext_new},
    {Py_tp_init, jobcontext_tp_init},
    {Py_tp_dealloc, jobcontext_dealloc},
    {Py_tp_traverse, jobcontext_traverse},
    {Py_tp_repr, jobcontext_repr},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_richcompare, jobcontext_richcompare},
    {Py_tp_iter, jobcontext_iter},
    {Py_tp_methods, jobcontext_methods},
    {Py_tp_members, jobcontext_members},
    {Py_tp_getset, jobcontext_getset},
    {Py_mp_subscript, jobcontext_subscript},
    {Py_mp_ass_subscript, jobcontext_ass_subscript},
    {Py_mp_length, jobcontext_length},
    {Py_sq_contains, jobcontext_contains},
    {Py_nb_or, jobcontext_or},
    {Py_nb_inplace_or, jobcontext_inplace_or},
    {0, NULL},
};

static PyType_Spec jobcontext_spec = {
    .name = "saltctx._core.JobContext",
    .basicsize = sizeof(JobContextObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = jobcontext_slots,
};

int
jobcontext_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->jobcontext_type, &jobcontext_spec, &PyDict_Type) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->jobcontext_type);
}
