/*
 * The only file that locks, and that loads or stores a field which threads share.
 *
 * Three kinds of field:
 *
 *   fixed   set before the object is handed out, never changed while it is alive. Read it plainly.
 *   once    NULL, then one value for good (once_load, once_publish). The owner keeps the value
 *           alive, so a reader that holds the owner may borrow it.
 *   shared  assigned at any time (shared_load, shared_store). A load takes a reference inside the
 *           owner's critical section; a store swaps inside and drops the old value outside, where
 *           its finalizer may run. On a GIL build there is no section, and the reference is taken
 *           all the same: code that runs while a value is in use may assign the field.
 *
 * No call that can run Python code is made inside a section.
 */
#ifndef SALTCTX_FREETHREADING_H
#define SALTCTX_FREETHREADING_H

#include "compat.h"

#ifdef Py_GIL_DISABLED
#include <stdatomic.h>
#define LOCK(owner) Py_BEGIN_CRITICAL_SECTION(owner)
#define UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define LOCK(owner) {
#define UNLOCK() }
#endif

/* Run one statement, without return or goto, under the owner's lock. */
#define LOCKED(owner, statement) \
    do {                         \
        LOCK(owner);             \
        statement;               \
        UNLOCK();                \
    } while (0)

/*
 * One fault to order, in shared_load() alone: tests/sanitizers shows with each that a sanitizer
 * sees the like of it.
 */
#if defined(SALTCTX_BREAK_LOCK)
#define LOAD(owner, value, field) value = Py_XNewRef(*(field))
#elif defined(SALTCTX_BREAK_INCREF)
#define LOAD(owner, value, field) LOCKED(owner, value = *(field))
#else
#define LOAD(owner, value, field) LOCKED(owner, value = Py_XNewRef(*(field)))
#endif

/* ---- shared fields ---- */

/* A new reference, or NULL (no exception) if the field is empty. */
static inline PyObject *
shared_load(PyObject *owner, PyObject **field)
{
    PyObject *value;
    (void)owner;
    LOAD(owner, value, field);
    return value;
}

/* Two fields as they were at one moment. */
static inline void
shared_load2(PyObject *owner, PyObject **field1, PyObject **value1, PyObject **field2,
             PyObject **value2)
{
    (void)owner;
    LOCK(owner);
    *value1 = Py_XNewRef(*field1);
    *value2 = Py_XNewRef(*field2);
    UNLOCK();
}

static inline void
shared_load3(PyObject *owner, PyObject **field1, PyObject **value1, PyObject **field2,
             PyObject **value2, PyObject **field3, PyObject **value3)
{
    (void)owner;
    LOCK(owner);
    *value1 = Py_XNewRef(*field1);
    *value2 = Py_XNewRef(*field2);
    *value3 = Py_XNewRef(*field3);
    UNLOCK();
}

/* Store a borrowed value; NULL empties the field. */
static inline void
shared_store(PyObject *owner, PyObject **field, PyObject *value)
{
    PyObject *old;
    (void)owner;
    Py_XINCREF(value);
    LOCKED(owner, old = *field; *field = value);
    Py_XDECREF(old);
}

static inline void
shared_store2(PyObject *owner, PyObject **field1, PyObject *value1, PyObject **field2,
              PyObject *value2)
{
    PyObject *old1, *old2;
    (void)owner;
    Py_XINCREF(value1);
    Py_XINCREF(value2);
    LOCK(owner);
    old1 = *field1;
    old2 = *field2;
    *field1 = value1;
    *field2 = value2;
    UNLOCK();
    Py_XDECREF(old1);
    Py_XDECREF(old2);
}

/* ---- once fields ---- */

#ifdef Py_GIL_DISABLED
#define once_load(field) \
    atomic_load_explicit((_Atomic(PyObject *) *)(field), memory_order_acquire)
#define once_set(field, value) \
    atomic_store_explicit((_Atomic(PyObject *) *)(field), (value), memory_order_release)
#else
#define once_load(field) (*(field))
#define once_set(field, value) (*(field) = (value))
#endif

/* Publish an owned value unless one is there already; the loser is dropped. Borrowed result. */
static inline PyObject *
once_publish(PyObject *owner, PyObject **field, PyObject *value)
{
    PyObject *winner;
    (void)owner;
    LOCK(owner);
    winner = *field;
    if (winner == NULL) {
        once_set(field, value);
    }
    UNLOCK();
    if (winner == NULL) {
        return value;
    }
    Py_DECREF(value);
    return winner;
}

/*
 * Publish `count` owned values at once: whoever finds field 0 set finds all of them. False if
 * field 0 was set before; the values then stay the caller's.
 */
static inline int
once_publish_all(PyObject *owner, PyObject **fields[], PyObject *values[], int count)
{
    int done = 0;
    (void)owner;
    LOCK(owner);
    if (*fields[0] == NULL) {
        for (int i = count - 1; i >= 0; i--) {
            once_set(fields[i], values[i]);
        }
        done = 1;
    }
    UNLOCK();
    return done;
}

/* ---- the one pointer of the module that changes: what bind() handed over ---- */

#ifdef Py_GIL_DISABLED
#define pointer_load(pointer) \
    atomic_load_explicit((_Atomic(void *) *)(pointer), memory_order_acquire)
#define pointer_store(pointer, value) \
    atomic_store_explicit((_Atomic(void *) *)(pointer), (value), memory_order_release)
#else
#define pointer_load(pointer) ((void *)*(pointer))
#define pointer_store(pointer, value) (*(pointer) = (value))
#endif

/* ---- a number that only grows ---- */

#ifdef Py_GIL_DISABLED
typedef _Atomic(unsigned long long) Count;
#define count_add(count) ((void)atomic_fetch_add_explicit((count), 1, memory_order_relaxed))
#define count_load(count) atomic_load_explicit((count), memory_order_relaxed)
#else
typedef unsigned long long Count;
#define count_add(count) ((void)++*(count))
#define count_load(count) (*(count))
#endif

/* ---- functions are mutable, too ---- */

/* Whether a plain function has an attribute of its own under an interned name. -1 on error. */
static inline int
function_has(PyObject *func, PyObject *name)
{
#ifdef Py_GIL_DISABLED
    PyObject *value;
    int found = PyObject_GetOptionalAttr(func, name, &value);
    Py_XDECREF(value);
    return found;
#else
    PyObject *own = ((PyFunctionObject *)func)->func_dict;
    return own == NULL ? 0 : PyDict_Contains(own, name);
#endif
}

#endif
