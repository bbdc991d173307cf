/*
 * FileStamps: an array of stamped paths, and a hash table of indexes into it.
 *
 * Both are plain C, touched only under the object's lock by the *_lock_held functions, which call
 * nothing that could run Python code or give the lock away: two paths are compared by their
 * bytes. Paths are made exact str, hashed and encoded before the lock is taken, and stat calls
 * are made without it (and without the GIL). An entry is never removed while the object is alive.
 *
 * Where foreign code can run: none inside an operation, but for os.stat on a platform whose own
 * stat is not asked; it is called on a path of our own, between two locked steps.
 */
#include "stamps.h"

#include <string.h>

typedef struct {
    int exists;
    unsigned long long mode, size, inode, device;
    Moment mtime, ctime;
} Stamp;

typedef struct {
    PyObject *path;    /* exact str */
    PyObject *encoded; /* bytes for the system, or NULL if it cannot name such a file */
    Py_hash_t hash;
    Stamp stamp;
    int young;
} Entry;

/* The two times are fixed, the rest belongs to the lock. `table` holds index + 1, 0 is free. */
typedef struct {
    PyObject_HEAD
    long long tick_ns;
    long long coarse_ns;
    Entry *entries;
    Py_ssize_t count;
    Py_ssize_t room;
    Py_ssize_t *table;
    size_t mask;
    PyObject *weakrefs;
} FileStampsObject;

#define AS_STAMPS(op) ((FileStampsObject *)(op))

static void stamps_dealloc(PyObject *self);

/* ---- stamps ---- */

static int
same_moment(Moment a, Moment b)
{
    return a.sec == b.sec && a.nsec == b.nsec;
}

static int
same_stamp(const Stamp *a, const Stamp *b)
{
    if (!a->exists || !b->exists) {
        return a->exists == b->exists;
    }
    return a->mode == b->mode && a->size == b->size && a->inode == b->inode
           && a->device == b->device && same_moment(a->mtime, b->mtime)
           && same_moment(a->ctime, b->ctime);
}

/* now - then < limit_ns, whatever a file's times are. */
static int
within(Moment now, Moment then, long long limit_ns)
{
    const long long far = 9000000000LL; /* seconds whose nanoseconds fit with room to spare */
    if (then.sec < now.sec - far) {
        return 0;
    }
    if (then.sec > now.sec + far) {
        return 1;
    }
    return (now.sec - then.sec) * 1000000000LL + (now.nsec - then.nsec) < limit_ns;
}

/* Whether a further change may leave no trace in a stamp that was taken after `now`. */
static int
is_young(FileStampsObject *self, const Stamp *stamp, Moment now)
{
    if (!stamp->exists) {
        return 0;
    }
    int coarse = stamp->mtime.nsec == 0 && stamp->ctime.nsec == 0;
    long long limit = coarse ? self->coarse_ns : self->tick_ns;
    return within(now, stamp->mtime, limit) || within(now, stamp->ctime, limit);
}

#ifdef HAVE_POSIX_STAT

/* Needs no GIL. */
static void
stat_path(const char *path, Stamp *stamp)
{
    struct stat st;
    memset(stamp, 0, sizeof(*stamp));
    if (path == NULL || stat(path, &st) != 0) {
        return;
    }
    stamp->exists = 1;
    stamp->mode = (unsigned long long)st.st_mode;
    stamp->size = (unsigned long long)st.st_size;
    stamp->inode = (unsigned long long)st.st_ino;
    stamp->device = (unsigned long long)st.st_dev;
    stamp->mtime = (Moment){(long long)STAT_MTIM(&st).tv_sec, STAT_MTIM(&st).tv_nsec};
    stamp->ctime = (Moment){(long long)STAT_CTIM(&st).tv_sec, STAT_CTIM(&st).tv_nsec};
}

/* Stamp `count` entries in place, all without the GIL; those with `young` set are left out. */
static int
stat_entries(CoreState *Py_UNUSED(state), Entry *entries, Py_ssize_t count)
{
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!entries[i].young) {
            PyObject *encoded = entries[i].encoded;
            stat_path(encoded == NULL ? NULL : PyBytes_AS_STRING(encoded), &entries[i].stamp);
        }
    }
    Py_END_ALLOW_THREADS
    return 0;
}

#else

static int
int_field(PyObject *result, const char *name, unsigned long long *value)
{
    PyObject *field = PyObject_GetAttrString(result, name);
    if (field == NULL) {
        return -1;
    }
    *value = PyLong_AsUnsignedLongLongMask(field);
    Py_DECREF(field);
    return *value == (unsigned long long)-1 && PyErr_Occurred() ? -1 : 0;
}

static int
time_field(PyObject *result, const char *name, Moment *moment)
{
    unsigned long long bits;
    if (int_field(result, name, &bits) < 0) {
        return -1;
    }
    long long ns = (long long)bits;
    moment->sec = ns / 1000000000LL;
    moment->nsec = (long)(ns % 1000000000LL);
    return 0;
}

static int
stat_by_python(CoreState *state, PyObject *path, Stamp *stamp)
{
    memset(stamp, 0, sizeof(*stamp));
    PyObject *result = PyObject_CallOneArg(state->os_stat, path);
    if (result == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OSError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    stamp->exists = 1;
    int status = 0;
    if (int_field(result, "st_mode", &stamp->mode) < 0
        || int_field(result, "st_size", &stamp->size) < 0
        || int_field(result, "st_ino", &stamp->inode) < 0
        || int_field(result, "st_dev", &stamp->device) < 0
        || time_field(result, "st_mtime_ns", &stamp->mtime) < 0
        || time_field(result, "st_ctime_ns", &stamp->ctime) < 0) {
        status = -1;
    }
    Py_DECREF(result);
    return status;
}

static int
stat_entries(CoreState *state, Entry *entries, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!entries[i].young && stat_by_python(state, entries[i].path, &entries[i].stamp) < 0) {
            return -1;
        }
    }
    return 0;
}

#endif

/* ---- entries outside the table ---- */

static void
entry_release(Entry *entry)
{
    Py_CLEAR(entry->path);
    Py_CLEAR(entry->encoded);
}

/* The path as the system takes it; NULL without an exception if it cannot name a file. */
static int
encode_path(PyObject *path, PyObject **encoded)
{
    *encoded = PyUnicode_EncodeFSDefault(path);
    if (*encoded == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (strlen(PyBytes_AS_STRING(*encoded)) != (size_t)PyBytes_GET_SIZE(*encoded)) {
        Py_CLEAR(*encoded);
    }
    return 0;
}

/* An entry without a stamp for a path that a caller gave. */
static int
entry_make(PyObject *path, Entry *entry)
{
    memset(entry, 0, sizeof(*entry));
    if (!PyUnicode_Check(path)) {
        PyErr_Format(PyExc_TypeError, "a path must be a str, not %.200s", Py_TYPE(path)->tp_name);
        return -1;
    }
    entry->path = PyUnicode_FromObject(path); /* exact: a subclass's hash and eq are not asked */
    if (entry->path == NULL) {
        return -1;
    }
    entry->hash = PyObject_Hash(entry->path);
    if (entry->hash == -1 || encode_path(entry->path, &entry->encoded) < 0) {
        entry_release(entry);
        return -1;
    }
    return 0;
}

/* Stamp one entry as things are now. */
static int
entry_stamp(PyObject *self, Entry *entry)
{
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    Moment now = moment_now();
    if (state == NULL || stat_entries(state, entry, 1) < 0) {
        return -1;
    }
    entry->young = is_young(AS_STAMPS(self), &entry->stamp, now);
    return 0;
}

/* ---- the table: under the lock ---- */

static int
same_path(PyObject *a, PyObject *b)
{
    return a == b
           || (PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b)
               && PyUnicode_KIND(a) == PyUnicode_KIND(b)
               && memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b),
                         (size_t)PyUnicode_GET_LENGTH(a) * PyUnicode_KIND(a))
                      == 0);
}

/* The place in the table of a path, or the free place where it belongs. */
static size_t
place_lock_held(FileStampsObject *self, PyObject *path, Py_hash_t hash)
{
    size_t place = (size_t)hash & self->mask;
    while (self->table[place] != 0) {
        const Entry *entry = &self->entries[self->table[place] - 1];
        if (entry->hash == hash && same_path(entry->path, path)) {
            break;
        }
        place = (place + 1) & self->mask;
    }
    return place;
}

static Entry *
find_lock_held(FileStampsObject *self, PyObject *path, Py_hash_t hash)
{
    if (self->table == NULL) {
        return NULL;
    }
    Py_ssize_t number = self->table[place_lock_held(self, path, hash)];
    return number == 0 ? NULL : &self->entries[number - 1];
}

/*
 * Room for one more entry, the table at most half full. -1 without an exception if memory is out.
 */
static int
grow_lock_held(FileStampsObject *self)
{
    if (self->count < self->room) {
        return 0;
    }
    Py_ssize_t room = self->room == 0 ? 8 : self->room * 2;
    Entry *entries = PyMem_RawRealloc(self->entries, (size_t)room * sizeof(Entry));
    if (entries == NULL) {
        return -1;
    }
    self->entries = entries;
    Py_ssize_t *table = PyMem_RawCalloc((size_t)room * 2, sizeof(Py_ssize_t));
    if (table == NULL) {
        return -1;
    }
    PyMem_RawFree(self->table);
    self->table = table;
    self->mask = (size_t)room * 2 - 1;
    self->room = room;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        table[place_lock_held(self, entries[i].path, entries[i].hash)] = i + 1;
    }
    return 0;
}

/* Put a stamped entry in; takes over its references. */
static int
append_lock_held(FileStampsObject *self, Entry *entry)
{
    if (grow_lock_held(self) < 0) {
        return -1;
    }
    size_t place = place_lock_held(self, entry->path, entry->hash);
    self->entries[self->count++] = *entry;
    self->table[place] = self->count;
    entry->path = entry->encoded = NULL;
    return 0;
}

#ifdef SALTCTX_DEBUG
static void
check_consistent_lock_held(FileStampsObject *self)
{
    Py_ssize_t used = 0;
    assert(self->count <= self->room);
    assert(self->table == NULL || self->mask + 1 == (size_t)self->room * 2);
    for (size_t i = 0; self->table != NULL && i <= self->mask; i++) {
        used += self->table[i] != 0;
    }
    assert(used == self->count);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Entry *entry = &self->entries[i];
        assert(find_lock_held(self, entry->path, entry->hash) == entry);
        assert(PyUnicode_CheckExact(entry->path));
        (void)entry;
    }
    (void)used;
}
#define ASSERT_CONSISTENT_LOCK_HELD(self) check_consistent_lock_held(self)
#else
#define ASSERT_CONSISTENT_LOCK_HELD(self) ((void)0)
#endif

/*
 * Store a stamped entry; one that is there keeps its stamp unless `replace`. Takes over the entry's
 * references if it is new. `*young` tells of the stamp that counts. -1 if memory is out.
 */
static int
merge_lock_held(FileStampsObject *self, Entry *entry, int replace, int *young, Py_ssize_t *place)
{
    int status = 0;
    Entry *known = find_lock_held(self, entry->path, entry->hash);
    *young = entry->young;
    *place = known == NULL ? self->count : known - self->entries;
    if (known == NULL) {
        status = append_lock_held(self, entry);
    }
    else if (replace) {
        known->stamp = entry->stamp;
        known->young = entry->young;
    }
    else {
        *young = known->young;
    }
    ASSERT_CONSISTENT_LOCK_HELD(self);
    return status;
}

/*
 * Copies of all entries, NULL without an exception if memory is out. What they refer to is borrowed:
 * an entry is never removed, and keeps its path, while the object is alive. Jobs of all threads ask
 * for the same paths, and would fight over two reference counts of each.
 */
static Entry *
copy_lock_held(FileStampsObject *self)
{
    Entry *copies = PyMem_RawMalloc((size_t)(self->count + 1) * sizeof(Entry));
    if (copies != NULL && self->count > 0) {
        memcpy(copies, self->entries, (size_t)self->count * sizeof(Entry));
    }
    return copies;
}

/* ---- methods ---- */

/* Whether a path has a stamp already, and the place and age of it. */
static int
is_known(PyObject *self, const Entry *entry, Py_ssize_t *place, int *young)
{
    LOCK(self);
    const Entry *known = find_lock_held(AS_STAMPS(self), entry->path, entry->hash);
    *place = -1;
    if (known != NULL) {
        *place = known - AS_STAMPS(self)->entries;
        *young = known->young;
    }
    UNLOCK();
    return *place >= 0;
}

PyObject *
stamps_stamp(PyObject *self, PyObject *path, int replace, Py_ssize_t *place, int *added)
{
    Entry entry;
    int status = 0, young = 0;
    *added = 0;
    if (entry_make(path, &entry) < 0) {
        return NULL;
    }
    if (replace || !is_known(self, &entry, place, &young)) {
        status = entry_stamp(self, &entry);
        if (status == 0) {
            LOCKED(self, status = merge_lock_held(AS_STAMPS(self), &entry, replace, &young, place));
            *added = status == 0 && entry.path == NULL; /* its references went to the table */
            if (status < 0) {
                PyErr_NoMemory();
            }
        }
    }
    entry_release(&entry);
    return status < 0 ? NULL : PyBool_FromLong(young);
}

PyDoc_STRVAR(stamps_add_doc,
    "add($self, path, /)\n--\n\n"
    "Stamp a path (a str) that has no stamp yet; the first stamp stays. True if that is young.");

static PyObject *
stamps_add(PyObject *self, PyObject *path)
{
    Py_ssize_t place;
    int added;
    return stamps_stamp(self, path, 0, &place, &added);
}

PyDoc_STRVAR(stamps_restamp_doc,
    "restamp($self, path, /)\n--\n\n"
    "Stamp a path (a str) anew. True if the new stamp is young.");

static PyObject *
stamps_restamp(PyObject *self, PyObject *path)
{
    Py_ssize_t place;
    int added;
    return stamps_stamp(self, path, 1, &place, &added);
}

PyObject *
stamps_encoded(PyObject *self, Py_ssize_t place)
{
    PyObject *encoded;
    LOCKED(self, encoded = Py_XNewRef(AS_STAMPS(self)->entries[place].encoded));
    return encoded;
}

PyObject *
stamps_path(PyObject *self, Py_ssize_t place)
{
    PyObject *path;
    LOCKED(self, path = Py_NewRef(AS_STAMPS(self)->entries[place].path));
    return path;
}

/*
 * An array of copies of all entries, to be freed with PyMem_RawFree() while the caller still holds
 * the object. NULL with MemoryError.
 */
static Entry *
copies_make(PyObject *self, Py_ssize_t *count)
{
    Entry *copies;
    LOCKED(self, *count = AS_STAMPS(self)->count; copies = copy_lock_held(AS_STAMPS(self)));
    if (copies == NULL) {
        PyErr_NoMemory();
    }
    return copies;
}

static int
is_left_out(const char *look, Py_ssize_t count, Py_ssize_t place)
{
    return look != NULL && place < count && !look[place];
}

/* Append the paths that are suspect to a list that is made for the first. */
static int
collect_suspects(const Entry *copies, const Stamp *before, Py_ssize_t copied, char *look,
                 Py_ssize_t count, PyObject **found)
{
    for (Py_ssize_t i = 0; i < copied; i++) {
        if (is_left_out(look, count, i)) {
            continue;
        }
        if (!copies[i].young && same_stamp(&before[i], &copies[i].stamp)) {
            if (look != NULL && i < count) {
                look[i] = LOOK_EQUAL;
            }
            continue;
        }
        if ((*found == NULL && (*found = PyList_New(0)) == NULL)
            || PyList_Append(*found, copies[i].path) < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
stamps_suspects_of(PyObject *self, char *look, Py_ssize_t count)
{
    Py_ssize_t copied;
    PyObject *found = NULL;
    int status = -1;
    CoreState *state = PyType_GetModuleState(Py_TYPE(self));
    Entry *copies = state == NULL ? NULL : copies_make(self, &copied);
    if (copies == NULL) {
        return NULL;
    }
    Stamp *before = PyMem_RawMalloc((size_t)(copied + 1) * sizeof(Stamp));
    if (before == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < copied; i++) {
        before[i] = copies[i].stamp;
        copies[i].young |= is_left_out(look, count, i); /* young: no stat call is made */
    }
    if (stat_entries(state, copies, copied) == 0) {
        status = collect_suspects(copies, before, copied, look, count, &found);
    }
done:
    PyMem_RawFree(before);
    PyMem_RawFree(copies);
    if (status < 0) {
        Py_CLEAR(found);
        return NULL;
    }
    return found == NULL ? Py_NewRef(Py_None) : found;
}

PyDoc_STRVAR(stamps_suspects_doc,
    "suspects($self, /)\n--\n\n"
    "The paths that look otherwise than stamped, or whose stamp is young: a list of str, None if\n"
    "there are none.");

static PyObject *
stamps_suspects(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return stamps_suspects_of(self, NULL, 0);
}

PyDoc_STRVAR(stamps_paths_doc,
    "paths($self, /)\n--\n\n"
    "The stamped paths, a list of str in the order of their adding.");

static PyObject *
stamps_paths(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Py_ssize_t count;
    Entry *copies = copies_make(self, &count);
    if (copies == NULL) {
        return NULL;
    }
    PyObject *paths = PyList_New(count);
    for (Py_ssize_t i = 0; paths != NULL && i < count; i++) {
        PyList_SET_ITEM(paths, i, Py_NewRef(copies[i].path));
    }
    PyMem_RawFree(copies);
    return paths;
}

/* ---- slots ---- */

Py_ssize_t
stamps_count(PyObject *self)
{
    Py_ssize_t count;
    LOCKED(self, count = AS_STAMPS(self)->count);
    return count;
}

static int
stamps_contains(PyObject *self, PyObject *path)
{
    Entry entry;
    int found;
    if (entry_make(path, &entry) < 0) {
        return -1;
    }
    LOCKED(self, found = find_lock_held(AS_STAMPS(self), entry.path, entry.hash) != NULL);
    entry_release(&entry);
    return found;
}

static PyObject *
make_of_type(PyTypeObject *type, long long tick_ns, long long coarse_ns)
{
    PyObject *self = type->tp_alloc(type, 0);
    if (self != NULL) {
        AS_STAMPS(self)->tick_ns = tick_ns;
        AS_STAMPS(self)->coarse_ns = coarse_ns;
    }
    return self;
}

PyObject *
stamps_make(CoreState *state, long long tick_ns, long long coarse_ns)
{
    return make_of_type(state->filestamps_type, tick_ns, coarse_ns);
}

static PyObject *
stamps_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tick_ns", "coarse_ns", NULL};
    long long tick_ns = 50000000LL, coarse_ns = 2000000000LL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LL:FileStamps", names, &tick_ns, &coarse_ns)) {
        return NULL;
    }
    return make_of_type(type, tick_ns, coarse_ns);
}

/* The entries hold str and bytes only: no cycle goes through them. */
static int
stamps_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void
stamps_dealloc(PyObject *op)
{
    FileStampsObject *self = AS_STAMPS(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        entry_release(&self->entries[i]);
    }
    PyMem_RawFree(self->entries);
    PyMem_RawFree(self->table);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef stamps_methods[] = {
    {"add", stamps_add, METH_O, stamps_add_doc},
    {"restamp", stamps_restamp, METH_O, stamps_restamp_doc},
    {"suspects", stamps_suspects, METH_NOARGS, stamps_suspects_doc},
    {"paths", stamps_paths, METH_NOARGS, stamps_paths_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stamps_members[] = {
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(FileStampsObject, weakrefs), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(stamps_doc,
    "FileStamps(tick_ns=50_000_000, coarse_ns=2_000_000_000)\n--\n\n"
    "What a set of paths looked like; both times are in nanoseconds.\n\n"
    "A stamp is type, mtime, ctime, size, inode and device, or that there was nothing. One\n"
    "taken within ``tick_ns`` of a change (``coarse_ns`` where the file's times are whole\n"
    "seconds) is *young*: a further change may leave no trace in it. Symbolic links are\n"
    "followed. A path that no file can have counts as one where there is nothing; anything but\n"
    "a str raises TypeError. Each method may be called from any thread; the stat calls run\n"
    "without the GIL. Source: src/stamps.c");

static PyType_Slot stamps_slots[] = {
    {Py_tp_doc, (void *)stamps_doc},
    {Py_tp_new, stamps_new},
    {Py_tp_dealloc, stamps_dealloc},
    {Py_tp_traverse, stamps_traverse},
    {Py_tp_methods, stamps_methods},
    {Py_tp_members, stamps_members},
    {Py_mp_length, stamps_count},
    {Py_sq_contains, stamps_contains},
    {0, NULL},
};

static PyType_Spec stamps_spec = {
    .name = "saltctx._core.FileStamps",
    .basicsize = sizeof(FileStampsObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = stamps_slots,
};

int
stamps_init(PyObject *module, CoreState *state)
{
    if (state_add_type(module, &state->filestamps_type, &stamps_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->filestamps_type);
}
