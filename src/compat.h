/* The few shims that CPython 3.10 to 3.14 and the platforms need. Nothing here knows saltctx. */
#ifndef SALTCTX_COMPAT_H
#define SALTCTX_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <time.h>

/* ---- type members: PyMemberDef's names moved into Python.h in 3.12 ---- */

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_OBJECT_EX T_OBJECT_EX
#define Py_T_LONGLONG T_LONGLONG
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

/* ---- exceptions: one object instead of three since 3.12 ---- */

#if PY_VERSION_HEX < 0x030C0000
static inline PyObject *
PyErr_GetRaisedException(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL && value != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static inline void
PyErr_SetRaisedException(PyObject *exception)
{
    PyObject *type = Py_NewRef((PyObject *)Py_TYPE(exception));
    PyErr_Restore(type, exception, PyException_GetTraceback(exception));
}
#endif

/* ---- dict copies: up to 3.11 the collector may run within PyDict_Copy(), after the entries and before
   their number was taken over, and a finalizer may change the dict then ---- */

static inline PyObject *
copy_dict(PyObject *dict)
{
#if PY_VERSION_HEX < 0x030C0000
    PyObject *copy = PyDict_New();
    if (copy != NULL && PyDict_Update(copy, dict) < 0) {
        Py_CLEAR(copy);
    }
    return copy;
#else
    return PyDict_Copy(dict);
#endif
}

/* ---- strong references out of a dict: public since 3.13 ---- */

#if PY_VERSION_HEX < 0x030D0000
static inline int
PyDict_GetItemRef(PyObject *dict, PyObject *key, PyObject **result)
{
    *result = Py_XNewRef(PyDict_GetItemWithError(dict, key));
    if (*result != NULL) {
        return 1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Without the count of 3.13: nobody here asks whether the key was there. */
static inline int
PyDict_SetDefaultRef(PyObject *dict, PyObject *key, PyObject *value, PyObject **result)
{
    *result = Py_XNewRef(PyDict_SetDefault(dict, key, value));
    return *result == NULL ? -1 : 0;
}

static inline int
PyObject_GetOptionalAttr(PyObject *object, PyObject *name, PyObject **result)
{
    *result = PyObject_GetAttr(object, name);
    if (*result != NULL) {
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}
#endif

/* Remove a key if it is there. 0, or -1 with an exception: what a key's hash or eq raised, too. */
static inline int
dict_discard(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyDict_Pop(dict, key, NULL) < 0 ? -1 : 0;
#else
    int found = PyDict_Contains(dict, key);
    if (found <= 0) {
        return found;
    }
    if (PyDict_DelItem(dict, key) < 0) {
        /* A key's __eq__ may have removed it between the two steps. */
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
            return -1;
        }
        PyErr_Clear();
    }
    return 0;
#endif
}

/* KeyError(key) for any key: PyErr_SetObject() alone would unpack a tuple. Returns NULL. */
static inline PyObject *
raise_key_error(PyObject *key)
{
    PyObject *arguments = PyTuple_Pack(1, key);
    if (arguments != NULL) {
        PyErr_SetObject(PyExc_KeyError, arguments);
        Py_DECREF(arguments);
    }
    return NULL;
}

/* ---- the clock and stat ---- */

typedef struct {
    long long sec;
    long nsec;
} Moment;

static inline Moment
moment_now(void)
{
    struct timespec now;
#ifdef _WIN32
    (void)timespec_get(&now, TIME_UTC);
#else
    (void)clock_gettime(CLOCK_REALTIME, &now);
#endif
    return (Moment){.sec = (long long)now.tv_sec, .nsec = now.tv_nsec};
}

/* Windows' own stat has whole seconds and no inode: os.stat is asked there. */
#if !defined(_WIN32) && !defined(SALTCTX_STAT_BY_PYTHON)
#define HAVE_POSIX_STAT 1
#include <sys/stat.h>
#ifdef __APPLE__
#define STAT_MTIM(st) ((st)->st_mtimespec)
#define STAT_CTIM(st) ((st)->st_ctimespec)
#else
#define STAT_MTIM(st) ((st)->st_mtim)
#define STAT_CTIM(st) ((st)->st_ctim)
#endif
#endif

#endif
