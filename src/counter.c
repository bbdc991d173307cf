/*
 * Counter: one number, in one atomic field.
 *
 * Where foreign code can run: nowhere.
 */
#include "counter.h"

typedef struct {
    PyObject_HEAD
    Count count;
} CounterObject;

static PyObject *
counter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Counter", names)) {
        return NULL;
    }
    return type->tp_alloc(type, 0);
}

static void
counter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(counter_add_doc,
    "add($self, /)\n--\n\n"
    "Add one. No addition of any thread is lost.");

static PyObject *
counter_add(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    count_add(&((CounterObject *)self)->count);
    Py_RETURN_NONE;
}

static PyObject *
counter_value(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(count_load(&((CounterObject *)self)->count));
}

static PyMethodDef counter_methods[] = {
    {"add", counter_add, METH_NOARGS, counter_add_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef counter_getset[] = {
    {"value", counter_value, NULL, "How often one was added, an int.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(counter_doc,
    "Counter()\n--\n\n"
    "A number that starts at 0 and is added to from any thread, without a lock. Source:\n"
    "src/counter.c");

static PyType_Slot counter_slots[] = {
    {Py_tp_doc, (void *)counter_doc},
    {Py_tp_new, counter_new},
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_methods, counter_methods},
    {Py_tp_getset, counter_getset},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    .name = "saltctx._core.Counter",
    .basicsize = sizeof(CounterObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = counter_slots,
};

int
counter_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->counter_type, &counter_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->counter_type);
}
