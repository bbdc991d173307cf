/*
 * ObjectEvidence: the objects that a generation hangs on, by their identity.
 *
 * All fields are fixed once made; a dict is only read, by a call that gives a strong reference.
 *
 * Where foreign code can run: the iteration over what the constructor is given; __hash__ and
 * __eq__ of keys in a dict that are no str; finalizers of a value that another thread replaced.
 *
 * No tp_clear: a cycle through an ObjectEvidence goes through one of its dicts too, and they can
 * be cleared.
 */
#include "objectevidence.h"

typedef struct {
    PyObject *mapping;
    PyObject *key;
    PyObject *value;
    PyObject *reason;
} Place;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *weakrefs;
    Place places[];
} ObjectEvidenceObject;

#define AS_EVIDENCE(op) ((ObjectEvidenceObject *)(op))

static int
place_init(Place *place, PyObject *item)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 4
        || !PyDict_Check(PyTuple_GET_ITEM(item, 0))
        || !PyUnicode_Check(PyTuple_GET_ITEM(item, 1))) {
        PyErr_Format(PyExc_TypeError, "(dict, str, value, reason) was expected, not %R", item);
        return -1;
    }
    place->mapping = Py_NewRef(PyTuple_GET_ITEM(item, 0));
    place->key = Py_NewRef(PyTuple_GET_ITEM(item, 1));
    place->value = Py_NewRef(PyTuple_GET_ITEM(item, 2));
    place->reason = Py_NewRef(PyTuple_GET_ITEM(item, 3));
    return 0;
}

static PyObject *
objectevidence_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", NULL};
    PyObject *given;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:ObjectEvidence", names, &given)) {
        return NULL;
    }
    PyObject *items = PySequence_Tuple(given);
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    /* Zeroed: what is not filled in yet is nothing to the collector. */
    PyObject *self = type->tp_alloc(type, count);
    for (Py_ssize_t i = 0; self != NULL && i < count; i++) {
        if (place_init(&AS_EVIDENCE(self)->places[i], PyTuple_GET_ITEM(items, i)) < 0) {
            Py_CLEAR(self);
        }
    }
    Py_DECREF(items);
    return self;
}

static int
objectevidence_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Place *place = &AS_EVIDENCE(self)->places[i];
        Py_VISIT(place->mapping);
        Py_VISIT(place->key);
        Py_VISIT(place->value);
        Py_VISIT(place->reason);
    }
    return 0;
}

static void
objectevidence_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (AS_EVIDENCE(self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Place *place = &AS_EVIDENCE(self)->places[i];
        Py_XDECREF(place->mapping);
        Py_XDECREF(place->key);
        Py_XDECREF(place->value);
        Py_XDECREF(place->reason);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(objectevidence_changed_doc,
    "changed($self, /)\n--\n\n"
    "None while each key holds its very object; else the reason given with the first that does not.");

static PyObject *
objectevidence_changed(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Place *place = &AS_EVIDENCE(self)->places[i];
        PyObject *now;
        if (PyDict_GetItemRef(place->mapping, place->key, &now) < 0) {
            return NULL;
        }
        int same = (now != NULL ? now : Py_None) == place->value;
        Py_XDECREF(now);
        if (!same) {
            return Py_NewRef(place->reason);
        }
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
objectevidence_length(PyObject *self)
{
    return Py_SIZE(self);
}

static PyMethodDef objectevidence_methods[] = {
    {"changed", objectevidence_changed, METH_NOARGS, objectevidence_changed_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef objectevidence_members[] = {
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(ObjectEvidenceObject, weakrefs), Py_READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(objectevidence_doc,
    "ObjectEvidence(places, /)\n--\n\n"
    "Tells whether dicts hold the objects that they should. Its length is their number.\n\n"
    "places: iterable of (mapping: dict, key: str, value: object, reason: object); a missing key\n"
    "counts as None. Raises TypeError for anything else. The objects are kept alive, and compared\n"
    "by identity. All of it may be used from any thread. Source: src/objectevidence.c");

static PyType_Slot objectevidence_slots[] = {
    {Py_tp_doc, (void *)objectevidence_doc},
    {Py_tp_new, objectevidence_new},
    {Py_tp_dealloc, objectevidence_dealloc},
    {Py_tp_traverse, objectevidence_traverse},
    {Py_tp_methods, objectevidence_methods},
    {Py_tp_members, objectevidence_members},
    {Py_sq_length, objectevidence_length},
    {0, NULL},
};

static PyType_Spec objectevidence_spec = {
    .name = "saltctx._core.ObjectEvidence",
    .basicsize = sizeof(ObjectEvidenceObject),
    .itemsize = sizeof(Place),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = objectevidence_slots,
};

int
objectevidence_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->objectevidence_type, &objectevidence_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->objectevidence_type);
}
