/*
 * FileWatch: a FileStamps that is asked only of the paths which something may have happened to.
 *
 * For each path there is an item: the version (of the watcher's node) at which the path was found
 * equal to its stamp, and old. While the node still has that version, nothing happened to the
 * path. Everything else is looked at by stat: a path that was just added or restamped, one that
 * an event came for, one whose stamp is young, and one that cannot be watched, which is looked at
 * each time.
 *
 * The items belong to the watcher's lock, which all objects of one watcher share: what one thread
 * takes in is there for each of them. Stamps are taken and compared without it.
 *
 * Where foreign code can run: as in stamps.c.
 */
#include "watch.h"

#include "stamps.h"
#include "watcher.h"

#include <string.h>

typedef struct {
    int node; /* -1: none yet */
    int polled;
    Version settled; /* the node's version when the path was found as stamped; 0: never */
} Item;

/* stamps and watcher are fixed, the rest belongs to the watcher's lock. */
typedef struct {
    PyObject_HEAD
    PyObject *stamps;
    PyObject *watcher;
    Item *items; /* by the path's place in stamps */
    Py_ssize_t count, room;
    Py_ssize_t polled;
    Why why; /* of the first path that is polled */
    Py_ssize_t why_place;
    unsigned long long restamps;
    Version quiet; /* all of the first quiet_count paths were settled as of this; or 0 */
    Py_ssize_t quiet_count;
    PyObject *weakrefs;
} FileWatchObject;

#define AS_WATCH(op) ((FileWatchObject *)(op))

/* ---- items: under the lock of the watcher ---- */

static int
reserve_lock_held(FileWatchObject *self, Py_ssize_t count)
{
    Py_ssize_t room = self->room == 0 ? 8 : self->room;
    while (room < count) {
        room *= 2;
    }
    if (room > self->room) {
        Item *items = PyMem_RawRealloc(self->items, (size_t)room * sizeof(Item));
        if (items == NULL) {
            return -1;
        }
        self->items = items;
        self->room = room;
    }
    for (; self->count < count; self->count++) {
        self->items[self->count] = (Item){.node = -1};
    }
    return 0;
}

static void
poll_lock_held(FileWatchObject *self, Py_ssize_t place, Why why)
{
    if (self->items[place].polled) {
        return;
    }
    self->items[place].polled = 1;
    if (self->polled++ == 0) {
        self->why = why;
        self->why_place = place;
    }
}

static int
is_settled_lock_held(FileWatchObject *self, const Item *item)
{
    return item->settled != 0
           && watcher_version_lock_held(self->watcher, item->node) == item->settled;
}

#ifdef SALTCTX_DEBUG
static void
check_consistent_lock_held(FileWatchObject *self)
{
    Py_ssize_t polled = 0;
    assert(self->count <= self->room);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        polled += self->items[i].polled != 0;
        assert(self->items[i].node >= 0 || self->items[i].settled == 0);
    }
    assert(polled == self->polled && (polled == 0) == (self->why == WHY_WATCHED));
    assert(polled == 0 || self->items[self->why_place].polled);
    assert(self->quiet == 0 || self->quiet_count < self->count || polled == 0);
    (void)polled;
}
#define ASSERT_CONSISTENT_LOCK_HELD(self) check_consistent_lock_held(self)
#else
#define ASSERT_CONSISTENT_LOCK_HELD(self) ((void)0)
#endif

/* An item for a path that was just added: with a node, or polled. -1 if memory is out. */
static int
enter_lock_held(FileWatchObject *self, Py_ssize_t place, const char *path)
{
    if (reserve_lock_held(self, place + 1) < 0) {
        return -1;
    }
    Why why = watcher_look_lock_held(self->watcher);
    if (why == WHY_WATCHED && (path == NULL || path[0] != '/')) {
        why = WHY_RELATIVE;
    }
    if (why == WHY_WATCHED) {
        self->items[place].node = watcher_acquire_lock_held(self->watcher, path);
        why = self->items[place].node < 0 ? WHY_MEMORY : WHY_WATCHED;
    }
    if (why != WHY_WATCHED) {
        poll_lock_held(self, place, why);
    }
    ASSERT_CONSISTENT_LOCK_HELD(self);
    return 0;
}

/* The watcher is of no use any more: everything is polled, for the reason it gives. */
static void
poll_all_lock_held(FileWatchObject *self, Why why)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        poll_lock_held(self, i, why);
    }
}

/* ---- arming ---- */

/* Try to arm the node of a path; the version that it then has, 0 if it is not armed. */
static Version
arm(PyObject *op, Py_ssize_t place)
{
    FileWatchObject *self = AS_WATCH(op);
    int node;
    Version version;
    LOCKED(self->watcher, node = self->items[place].polled ? -1 : self->items[place].node);
    PyObject *encoded = node < 0 ? NULL : stamps_encoded(self->stamps, place);
    if (encoded == NULL) {
        return 0;
    }
    Why why = watcher_arm(self->watcher, node, PyBytes_AS_STRING(encoded), &version);
    if (why != WHY_WATCHED) {
        LOCKED(self->watcher, poll_lock_held(self, place, why));
    }
    Py_DECREF(encoded);
    return version;
}

/* Watch a path that was just added. -1 with an exception. */
static int
begin_to_watch(PyObject *op, Py_ssize_t place)
{
    FileWatchObject *self = AS_WATCH(op);
    PyObject *encoded = stamps_encoded(self->stamps, place);
    const char *path = encoded == NULL ? NULL : PyBytes_AS_STRING(encoded);
    int status;
    LOCKED(self->watcher, status = enter_lock_held(self, place, path));
    Py_XDECREF(encoded);
    if (status < 0) {
        PyErr_NoMemory();
        return -1;
    }
    (void)arm(op, place);
    return 0;
}

/* ---- methods ---- */

static PyObject *
stamp(PyObject *op, PyObject *path, int replace)
{
    FileWatchObject *self = AS_WATCH(op);
    Py_ssize_t place;
    int added;
    PyObject *young = stamps_stamp(self->stamps, path, replace, &place, &added);
    if (young == NULL || (added && begin_to_watch(op, place) < 0)) {
        Py_CLEAR(young);
    }
    else if (replace) {
        /* A look that is under way compared with the stamp before. */
        LOCK(self->watcher);
        self->restamps++;
        self->quiet = 0;
        if (place < self->count) {
            self->items[place].settled = 0;
        }
        ASSERT_CONSISTENT_LOCK_HELD(self);
        UNLOCK();
    }
    return young;
}

PyDoc_STRVAR(watch_add_doc,
    "add($self, path, /)\n--\n\n"
    "Stamp a path (a str) that has no stamp yet; the first stamp stays. True if that is young.");

static PyObject *
watch_add(PyObject *self, PyObject *path)
{
    return stamp(self, path, 0);
}

PyDoc_STRVAR(watch_restamp_doc,
    "restamp($self, path, /)\n--\n\n"
    "Stamp a path (a str) anew. True if the new stamp is young.");

static PyObject *
watch_restamp(PyObject *self, PyObject *path)
{
    return stamp(self, path, 1);
}

static int
is_quiet_lock_held(FileWatchObject *self, Py_ssize_t count)
{
    return watcher_look_lock_held(self->watcher) == WHY_WATCHED && self->quiet_count == count
           && self->quiet == watcher_now_lock_held(self->watcher);
}

/* What one call of suspects() looks at. */
typedef struct {
    Py_ssize_t count;
    char *look; /* by place, for stamps_suspects_of() */
    Version *versions; /* by place, of what may be settled when it is found equal; else 0 */
    unsigned long long restamps;
} Round;

static int
round_make(Round *round, Py_ssize_t count)
{
    round->count = count;
    round->look = PyMem_RawCalloc((size_t)count + 1, 1);
    round->versions = PyMem_RawCalloc((size_t)count + 1, sizeof(Version));
    if (round->look == NULL || round->versions == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void
round_free(Round *round)
{
    PyMem_RawFree(round->look);
    PyMem_RawFree(round->versions);
}

static void
choose_lock_held(FileWatchObject *self, Round *round)
{
    Why why = watcher_look_lock_held(self->watcher);
    if (why != WHY_WATCHED) {
        poll_all_lock_held(self, why);
    }
    round->restamps = self->restamps;
    for (Py_ssize_t i = 0; i < round->count; i++) {
        const Item *item = i < self->count ? &self->items[i] : NULL;
        round->look[i] = item == NULL || item->polled || !is_settled_lock_held(self, item);
        if (round->look[i] && item != NULL && !item->polled && item->node >= 0) {
            round->versions[i] = watcher_version_lock_held(self->watcher, item->node);
        }
    }
}

/* Before the stat calls: what happens to a path that is armed now is heard. */
static void
arm_what_is_not(PyObject *op, Round *round)
{
    Py_ssize_t known;
    LOCKED(AS_WATCH(op)->watcher, known = AS_WATCH(op)->count);
    for (Py_ssize_t i = 0; i < round->count && i < known; i++) {
        if (round->look[i] && round->versions[i] == 0) {
            round->versions[i] = arm(op, i);
        }
    }
}

static void
settle_lock_held(FileWatchObject *self, const Round *round)
{
    if (self->restamps != round->restamps) {
        return;
    }
    int quiet = self->polled == 0 && self->count == round->count;
    for (Py_ssize_t i = 0; i < round->count && i < self->count; i++) {
        if (round->look[i] == LOOK_EQUAL && round->versions[i] != 0) {
            self->items[i].settled = round->versions[i]; /* of no use if something happened since */
        }
        quiet = quiet && is_settled_lock_held(self, &self->items[i]);
    }
    self->quiet = quiet ? watcher_now_lock_held(self->watcher) : 0;
    self->quiet_count = round->count;
    ASSERT_CONSISTENT_LOCK_HELD(self);
}

PyDoc_STRVAR(watch_suspects_doc,
    "suspects($self, /)\n--\n\n"
    "The paths that look otherwise than stamped, or whose stamp is young: a list of str, None if\n"
    "there are none. What changed before the call is seen, as is what another thread was told of.");

static PyObject *
watch_suspects(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FileWatchObject *self = AS_WATCH(op);
    Py_ssize_t count = stamps_count(self->stamps);
    int quiet;
    LOCKED(self->watcher, quiet = is_quiet_lock_held(self, count));
    if (quiet) {
        Py_RETURN_NONE;
    }
    Round round;
    PyObject *found = NULL;
    if (round_make(&round, count) == 0) {
        LOCKED(self->watcher, choose_lock_held(self, &round));
        arm_what_is_not(op, &round);
        found = stamps_suspects_of(self->stamps, round.look, round.count);
    }
    if (found != NULL) {
        LOCKED(self->watcher, settle_lock_held(self, &round));
    }
    round_free(&round);
    return found;
}

PyDoc_STRVAR(watch_paths_doc,
    "paths($self, /)\n--\n\n"
    "The stamped paths, a list of str in the order of their adding.");

static PyObject *
watch_paths(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyObject_CallMethod(AS_WATCH(op)->stamps, "paths", NULL);
}

/* ---- slots ---- */

static PyObject *
watch_get_polled(PyObject *op, void *Py_UNUSED(closure))
{
    FileWatchObject *self = AS_WATCH(op);
    Py_ssize_t polled;
    LOCKED(self->watcher, polled = self->polled);
    return PyLong_FromSsize_t(polled);
}

static PyObject *
watch_get_reason(PyObject *op, void *Py_UNUSED(closure))
{
    static const char *const reasons[] = {
        [WHY_WATCHED] = NULL,
        [WHY_PLATFORM] = "this platform has no inotify",
        [WHY_INSTANCES] =
            "no inotify descriptor is left (fs.inotify.max_user_instances, or open files)",
        [WHY_LIMIT] = "the watch limit is reached (fs.inotify.max_user_watches)",
        [WHY_CHILD] = "a forked child does not watch",
        [WHY_BROKEN] = "the inotify descriptor was closed by somebody else",
        [WHY_MEMORY] = "memory is out",
        [WHY_RELATIVE] = "not an absolute path: %S",
        [WHY_LINK] = "a symbolic link in the path: %S",
        [WHY_FILESYSTEM] = "a file system that does not tell of every change: %S",
        [WHY_PERMISSION] = "not permitted to watch: %S",
        [WHY_PATH] = "a path that cannot be watched: %S",
    };
    FileWatchObject *self = AS_WATCH(op);
    Why why;
    Py_ssize_t place;
    LOCKED(self->watcher, why = self->why; place = self->why_place);
    if (why == WHY_WATCHED) {
        Py_RETURN_NONE;
    }
    PyObject *path = stamps_path(self->stamps, place);
    PyObject *reason = PyUnicode_FromFormat(reasons[why], path);
    Py_DECREF(path);
    return reason;
}

static Py_ssize_t
watch_length(PyObject *op)
{
    return stamps_count(AS_WATCH(op)->stamps);
}

static int
watch_contains(PyObject *op, PyObject *path)
{
    return PySequence_Contains(AS_WATCH(op)->stamps, path);
}

/* The watcher for a limit: None is the one of the process. */
static PyObject *
watcher_for(PyTypeObject *type, PyObject *max_watches)
{
    CoreState *state = PyType_GetModuleState(type);
    if (state == NULL) {
        return NULL;
    }
    if (max_watches == Py_None) {
        return watcher_shared(PyType_GetModule(type), state);
    }
    Py_ssize_t limit = PyNumber_AsSsize_t(max_watches, PyExc_OverflowError);
    return limit == -1 && PyErr_Occurred() ? NULL : watcher_make(state, limit);
}

static PyObject *
watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tick_ns", "coarse_ns", "max_watches", NULL};
    long long tick_ns = 50000000LL, coarse_ns = 2000000000LL;
    PyObject *max_watches = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LLO:FileWatch", names, &tick_ns, &coarse_ns,
                                     &max_watches)) {
        return NULL;
    }
    PyObject *watcher = watcher_for(type, max_watches);
    PyObject *stamps =
        watcher == NULL ? NULL : stamps_make(PyType_GetModuleState(type), tick_ns, coarse_ns);
    PyObject *self = stamps == NULL ? NULL : type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(watcher);
        Py_XDECREF(stamps);
        return NULL;
    }
    AS_WATCH(self)->watcher = watcher;
    AS_WATCH(self)->stamps = stamps;
    return self;
}

/* Neither of the two leads back here: there is no cycle to break. */
static int
watch_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(AS_WATCH(op)->stamps);
    Py_VISIT(AS_WATCH(op)->watcher);
    return 0;
}

static void
release_nodes_lock_held(FileWatchObject *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->items[i].node >= 0) {
            watcher_release_lock_held(self->watcher, self->items[i].node);
        }
    }
}

static void
watch_dealloc(PyObject *op)
{
    FileWatchObject *self = AS_WATCH(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->watcher != NULL) {
        LOCKED(self->watcher, release_nodes_lock_held(self));
    }
    PyMem_RawFree(self->items);
    Py_XDECREF(self->watcher);
    Py_XDECREF(self->stamps);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef watch_methods[] = {
    {"add", watch_add, METH_O, watch_add_doc},
    {"restamp", watch_restamp, METH_O, watch_restamp_doc},
    {"suspects", watch_suspects, METH_NOARGS, watch_suspects_doc},
    {"paths", watch_paths, METH_NOARGS, watch_paths_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef watch_getset[] = {
    {"polled", watch_get_polled, NULL,
     PyDoc_STR("How many of the paths are looked at by stat each time: int."), NULL},
    {"reason", watch_get_reason, NULL, PyDoc_STR("Why the first of them is: str, None if none is."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef watch_members[] = {
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(FileWatchObject, weakrefs), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(watch_doc,
    "FileWatch(tick_ns=50_000_000, coarse_ns=2_000_000_000, max_watches=None)\n--\n\n"
    "A FileStamps that asks the system what happened instead of looking at each path.\n\n"
    "suspects() answers the same, and looks only at paths that something happened to since\n"
    "they were last found as stamped. What cannot be watched is looked at each time: all paths\n"
    "where there is no inotify, in a forked child, or beyond ``max_watches`` (of this object;\n"
    "None: what the system allows); a path with a symbolic link in it or on a file system that\n"
    "others may write to. A change through a shared memory mapping is seen when the mapping is\n"
    "closed. Source: src/watch.c");

static PyType_Slot watch_slots[] = {
    {Py_tp_doc, (void *)watch_doc},   {Py_tp_new, watch_new},
    {Py_tp_dealloc, watch_dealloc},   {Py_tp_traverse, watch_traverse},
    {Py_tp_methods, watch_methods},   {Py_tp_getset, watch_getset},
    {Py_tp_members, watch_members},   {Py_mp_length, watch_length},
    {Py_sq_contains, watch_contains}, {0, NULL},
};

static PyType_Spec watch_spec = {
    .name = "saltctx._core.FileWatch",
    .basicsize = sizeof(FileWatchObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = watch_slots,
};

int
watch_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->filewatch_type, &watch_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->filewatch_type);
}
