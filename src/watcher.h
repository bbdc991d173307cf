/*
 * Watcher: one inotify descriptor, and the tree of the paths that it watches for any number of
 * FileWatch.
 */
#ifndef SALTCTX_WATCHER_H
#define SALTCTX_WATCHER_H

#include "state.h"

/* Why a path is looked at by stat; WHY_WATCHED if it is not. */
typedef enum {
    WHY_WATCHED,
    WHY_PLATFORM,
    WHY_INSTANCES,
    WHY_LIMIT,
    WHY_CHILD,
    WHY_BROKEN,
    WHY_MEMORY,
    WHY_RELATIVE,
    WHY_LINK,
    WHY_FILESYSTEM,
    WHY_PERMISSION,
    WHY_PATH,
} Why;

/* Grows with everything that was seen to happen, starts at 1. */
typedef unsigned long long Version;

int watcher_init(PyObject *module, CoreState *state);

/* A new reference: the watcher of this process; or one with a limit of its own for nobody else. */
PyObject *watcher_shared(PyObject *module, CoreState *state);
PyObject *watcher_make(CoreState *state, Py_ssize_t limit);

/* Take in what has happened since the last call: after it the versions are right. */
Why watcher_look_lock_held(PyObject *watcher);

/* The last Version given out. */
Version watcher_now_lock_held(PyObject *watcher);

/*
 * The node of an absolute path, to be given back with watcher_release_lock_held(); -1 if memory
 * is out.
 */
int watcher_acquire_lock_held(PyObject *watcher, const char *path);
void watcher_release_lock_held(PyObject *watcher, int node);

/* What happened last at or above the node; 0 if that is not known, because it is not armed. */
Version watcher_version_lock_held(PyObject *watcher, int node);

/*
 * Arm a node that the caller has acquired by `path`. Not under the lock, it makes system calls.
 * `*version` is the node's from before the first call, 0 if it could not be armed this time.
 */
Why watcher_arm(PyObject *watcher, int node, const char *path, Version *version);

#endif
