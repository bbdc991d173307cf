/*
 * Watcher: what happened to which path, asked of inotify without looking at the paths.
 *
 * Each component of a watched path is a node of a tree, and each node that exists has an inotify
 * watch on the inode itself: whatever changes what stat() says of a path is an event of the inode
 * at its end (write, chmod, unlink, rename over or away, also through another hard link) or of
 * one above it (moved, removed, replaced). A path that is not there yet is told by its nearest
 * directory, which reports new names.
 *
 * A node is *armed* while its watch and those above it are in place and nothing was heard of
 * them. An event disarms the node and all beneath, and gives each a new version. Who arms a node,
 * looks at the file and finds its version unchanged has missed nothing: watches are placed from
 * the root downwards, so that a component replaced meanwhile is an event of one that is watched
 * already.
 *
 * A call that changes a file puts its events into the queue before it returns (Linux: vfs_write()
 * calls fsnotify_modify(), vfs_rename() fsnotify_move(), __fput() fsnotify_close();
 * inotify_handle_inode_event() inserts the event there and then). So a job that starts after an
 * edit returned finds the event by reading. The one late change is that of a shared memory
 * mapping: it is told when the mapping goes.
 *
 * poll() and read() on the non-blocking descriptor are made under the lock, with the GIL: what
 * one thread takes out of the queue must be marked before another can find the queue empty.
 * Placing a watch may wait for a disk and is done without; an event for a watch that is not
 * recorded yet is a stray, and an arming during which there was one does not count.
 *
 * Where foreign code can run: nowhere.
 */
#include "watcher.h"

#include <string.h>

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NONE (-1)
#define MAX_DEPTH 128
#define EVENT_MAX (sizeof(struct inotify_event) + NAME_MAX + 1)

#define SELF_MASK (IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
#define APPEAR_MASK (IN_CREATE | IN_MOVED_TO)
#define NAMES_MASK (APPEAR_MASK | IN_DELETE | IN_MOVED_FROM)
#define DIRECTORY_MASK (SELF_MASK | NAMES_MASK)
#define FILE_MASK (SELF_MASK | IN_MODIFY | IN_CLOSE_WRITE)

typedef struct {
    char *name;
    size_t length;
    size_t hash;
    int parent, child, next, previous; /* the tree */
    int chain;                         /* the next node in the same bucket, or free node */
    int uses;                          /* acquired by this many */
    int wd;
    uint32_t mask; /* what the watch asks for */
    int armed;
    int missing; /* nothing there; a directory above tells when it comes */
    Version version;
} Node;

typedef struct {
    int wd;
    int node;
} Pair;

/* pid and limit are fixed, the rest belongs to the lock. */
typedef struct {
    PyObject_HEAD
    pid_t pid;
    int fd;
    int mounts; /* /proc/self/mountinfo: poll() tells of a mount; NONE without /proc */
    Py_ssize_t limit;
    Why why; /* nothing can be watched */
    Version now;
    unsigned long long strays;
    Py_ssize_t watches;
    Node *nodes;
    int count, room, free;
    int *buckets;
    size_t bucket_mask;
    Pair *pairs; /* ordered by wd; one inode may be at several paths */
    Py_ssize_t pair_count, pair_room;
} WatcherObject;

#define AS_WATCHER(op) ((WatcherObject *)(op))

/* ---- the tree: under the lock ---- */

static size_t
name_hash(int parent, const char *name, size_t length)
{
    size_t hash = (size_t)2166136261u ^ (size_t)(unsigned)parent;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * (size_t)16777619u;
    }
    return hash ^ (hash >> 15);
}

static int
find_lock_held(WatcherObject *self, int parent, const char *name, size_t length)
{
    size_t hash = name_hash(parent, name, length);
    int number = self->buckets[hash & self->bucket_mask];
    while (number != NONE) {
        const Node *node = &self->nodes[number];
        if (node->hash == hash && node->parent == parent && node->length == length
            && memcmp(node->name, name, length) == 0) {
            break;
        }
        number = node->chain;
    }
    return number;
}

static void
into_bucket_lock_held(WatcherObject *self, int number)
{
    int *bucket = &self->buckets[self->nodes[number].hash & self->bucket_mask];
    self->nodes[number].chain = *bucket;
    *bucket = number;
}

/* Twice the room, for nodes and buckets alike. -1 if memory is out. */
static int
grow_lock_held(WatcherObject *self)
{
    int room = self->room == 0 ? 64 : self->room * 2;
    Node *nodes = PyMem_RawRealloc(self->nodes, (size_t)room * sizeof(Node));
    if (nodes == NULL) {
        return -1;
    }
    self->nodes = nodes;
    int *buckets = PyMem_RawMalloc((size_t)room * sizeof(int));
    if (buckets == NULL) {
        return -1;
    }
    PyMem_RawFree(self->buckets);
    self->buckets = buckets;
    self->bucket_mask = (size_t)room - 1;
    self->room = room;
    for (int i = 0; i < room; i++) {
        buckets[i] = NONE;
    }
    /* Called with no free node: all of them have a name. */
    for (int i = 0; i < self->count; i++) {
        into_bucket_lock_held(self, i);
    }
    return 0;
}

static int
take_free_lock_held(WatcherObject *self)
{
    if (self->free != NONE) {
        int number = self->free;
        self->free = self->nodes[number].chain;
        return number;
    }
    if (self->count == self->room && grow_lock_held(self) < 0) {
        return NONE;
    }
    self->nodes[self->count].name = NULL;
    return self->count++;
}

static void
give_free_lock_held(WatcherObject *self, int number)
{
    self->nodes[number].chain = self->free;
    self->free = number;
}

/* A new child; the parent is NONE for the root. NONE if memory is out. */
static int
add_node_lock_held(WatcherObject *self, int parent, const char *name, size_t length)
{
    int number = take_free_lock_held(self);
    if (number == NONE) {
        return NONE;
    }
    char *copy = PyMem_RawMalloc(length + 1);
    if (copy == NULL) {
        give_free_lock_held(self, number);
        return NONE;
    }
    memcpy(copy, name, length);
    self->nodes[number] = (Node){
        .name = copy,
        .length = length,
        .hash = name_hash(parent, name, length),
        .parent = parent,
        .child = NONE,
        .next = NONE,
        .previous = NONE,
        .wd = NONE,
        .version = self->now,
    };
    if (parent != NONE) {
        int first = self->nodes[parent].child;
        self->nodes[number].next = first;
        self->nodes[parent].child = number;
        if (first != NONE) {
            self->nodes[first].previous = number;
        }
    }
    into_bucket_lock_held(self, number);
    return number;
}

static void
unlink_node_lock_held(WatcherObject *self, int number)
{
    Node *node = &self->nodes[number];
    int *place = &self->buckets[node->hash & self->bucket_mask];
    while (*place != number) {
        place = &self->nodes[*place].chain;
    }
    *place = node->chain;
    if (node->previous != NONE) {
        self->nodes[node->previous].next = node->next;
    }
    else {
        self->nodes[node->parent].child = node->next;
    }
    if (node->next != NONE) {
        self->nodes[node->next].previous = node->previous;
    }
}

/* ---- watches: under the lock ---- */

/* The first pair of a wd, or where it belongs. */
static Py_ssize_t
pair_place_lock_held(WatcherObject *self, int wd)
{
    Py_ssize_t low = 0, high = self->pair_count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (self->pairs[middle].wd < wd) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low;
}

static int
is_pair_of_lock_held(WatcherObject *self, Py_ssize_t place, int wd)
{
    return place < self->pair_count && self->pairs[place].wd == wd;
}

static void
drop_pair_lock_held(WatcherObject *self, Py_ssize_t place)
{
    self->pair_count--;
    memmove(&self->pairs[place], &self->pairs[place + 1],
            (size_t)(self->pair_count - place) * sizeof(Pair));
}

static int
insert_pair_lock_held(WatcherObject *self, int wd, int number)
{
    if (self->pair_count == self->pair_room) {
        Py_ssize_t room = self->pair_room == 0 ? 64 : self->pair_room * 2;
        Pair *pairs = PyMem_RawRealloc(self->pairs, (size_t)room * sizeof(Pair));
        if (pairs == NULL) {
            return -1;
        }
        self->pairs = pairs;
        self->pair_room = room;
    }
    Py_ssize_t place = pair_place_lock_held(self, wd);
    self->watches += !is_pair_of_lock_held(self, place, wd);
    memmove(&self->pairs[place + 1], &self->pairs[place],
            (size_t)(self->pair_count - place) * sizeof(Pair));
    self->pairs[place] = (Pair){wd, number};
    self->pair_count++;
    return 0;
}

/* Take a node's watch from it; the kernel's goes if no other node has the same. */
static void
detach_lock_held(WatcherObject *self, int number)
{
    Node *node = &self->nodes[number];
    int wd = node->wd;
    if (wd == NONE) {
        return;
    }
    node->wd = NONE;
    node->mask = 0;
    Py_ssize_t first = pair_place_lock_held(self, wd), place = first;
    while (self->pairs[place].node != number) {
        place++;
    }
    drop_pair_lock_held(self, place);
    if (!is_pair_of_lock_held(self, first, wd)) {
        self->watches--;
        (void)inotify_rm_watch(self->fd, wd); /* gone already if the inode is */
    }
}

#ifdef SALTCTX_DEBUG
/* A node is where the tree and the table look for it, and is armed only if all above it are. */
static void
check_node_lock_held(WatcherObject *self, int number)
{
    const Node *node = &self->nodes[number];
    assert(find_lock_held(self, node->parent, node->name, node->length) == number);
    assert(node->uses >= 0 && node->version <= self->now);
    assert(!node->armed || node->missing || node->wd != NONE);
    if (number == 0) {
        assert(node->parent == NONE && node->previous == NONE && node->next == NONE);
        return;
    }
    const Node *parent = &self->nodes[node->parent];
    assert(parent->name != NULL && (!node->armed || parent->armed));
    assert(node->previous == NONE ? parent->child == number
                                  : self->nodes[node->previous].next == number);
    assert(node->next == NONE || self->nodes[node->next].previous == number);
    assert(node->uses > 0 || node->child != NONE); /* or it would have been pruned */
    (void)parent;
}

static void
check_pairs_lock_held(WatcherObject *self)
{
    Py_ssize_t watches = 0;
    for (Py_ssize_t i = 0; i < self->pair_count; i++) {
        const Pair *pair = &self->pairs[i];
        assert(self->nodes[pair->node].name != NULL && self->nodes[pair->node].wd == pair->wd);
        assert(i == 0 || pair[-1].wd <= pair->wd);
        watches += i == 0 || pair[-1].wd != pair->wd;
    }
    assert(watches == self->watches && self->pair_count <= self->pair_room);
    (void)watches;
}

static void
check_consistent_lock_held(WatcherObject *self)
{
    int count = 0;
    Py_ssize_t watched = 0;
    assert(self->count <= self->room && self->bucket_mask + 1 == (size_t)self->room);
    for (int i = 0; i < self->count; i++) {
        if (self->nodes[i].name != NULL) {
            check_node_lock_held(self, i);
            count++;
            watched += self->nodes[i].wd != NONE;
        }
    }
    for (int i = self->free; i != NONE; i = self->nodes[i].chain) {
        assert(self->nodes[i].name == NULL);
        count++;
    }
    assert(count == self->count && watched == self->pair_count);
    check_pairs_lock_held(self);
    (void)watched;
}
#define ASSERT_CONSISTENT_LOCK_HELD(self) check_consistent_lock_held(self)
#else
#define ASSERT_CONSISTENT_LOCK_HELD(self) ((void)0)
#endif

/* ---- events: under the lock ---- */

/* Something happened to a node: nothing is known of it and of what is beneath. */
static void
doubt_lock_held(WatcherObject *self, int top)
{
    Node *nodes = self->nodes;
    nodes[top].version = ++self->now;
    if (!nodes[top].armed) {
        return; /* nothing beneath is; who is arming something there has this node in the plan */
    }
    nodes[top].armed = 0;
    int number = nodes[top].child;
    while (number != NONE) {
        nodes[number].version = self->now;
        nodes[number].armed = 0;
        if (nodes[number].child != NONE) {
            number = nodes[number].child;
            continue;
        }
        while (number != top && nodes[number].next == NONE) {
            number = nodes[number].parent;
        }
        number = number == top ? NONE : nodes[number].next;
    }
}

/* -1 if memory is out: the watch is removed then. */
static int
attach_lock_held(WatcherObject *self, int number, int wd, uint32_t mask)
{
    Node *node = &self->nodes[number];
    if (node->wd == wd) {
        node->mask |= mask;
        return 0;
    }
    if (node->armed) {
        doubt_lock_held(self, number); /* what the old watch has yet to tell is lost with it */
    }
    detach_lock_held(self, number);
    if (insert_pair_lock_held(self, wd, number) < 0) {
        if (!is_pair_of_lock_held(self, pair_place_lock_held(self, wd), wd)) {
            (void)inotify_rm_watch(self->fd, wd);
        }
        return -1;
    }
    node->wd = wd;
    node->mask = mask;
    return 0;
}

/* A name came or went in a directory: its own stamp changes, and what has that name. */
static void
name_changed_lock_held(WatcherObject *self, int directory, const char *name)
{
    if (self->nodes[directory].uses > 0) {
        self->nodes[directory].version = ++self->now;
    }
    int child = find_lock_held(self, directory, name, strlen(name));
    if (child != NONE) {
        doubt_lock_held(self, child);
    }
}

static void
watch_is_gone_lock_held(WatcherObject *self, Py_ssize_t place, int wd)
{
    self->watches--;
    while (is_pair_of_lock_held(self, place, wd)) {
        Node *node = &self->nodes[self->pairs[place].node];
        node->wd = NONE;
        node->mask = 0;
        drop_pair_lock_held(self, place);
    }
}

static void
take_event_lock_held(WatcherObject *self, const struct inotify_event *event, const char *name)
{
    if (event->mask & IN_Q_OVERFLOW) {
        doubt_lock_held(self, 0);
        self->strays++;
        return;
    }
    Py_ssize_t first = pair_place_lock_held(self, event->wd);
    if (!is_pair_of_lock_held(self, first, event->wd)) {
        self->strays++;
        return;
    }
    for (Py_ssize_t i = first; is_pair_of_lock_held(self, i, event->wd); i++) {
        if (event->len == 0) {
            doubt_lock_held(self, self->pairs[i].node);
        }
        else if (event->mask & NAMES_MASK) {
            name_changed_lock_held(self, self->pairs[i].node, name);
        }
    }
    if (event->mask & IN_IGNORED) {
        watch_is_gone_lock_held(self, first, event->wd);
    }
}

/* Take all events that are in the queue. -1 if it cannot be read. */
static int
drain_lock_held(WatcherObject *self)
{
    char buffer[8192];
    for (;;) {
        ssize_t size = read(self->fd, buffer, sizeof(buffer));
        if (size <= 0) {
            if (size < 0 && errno == EINTR) {
                continue;
            }
            return size < 0 && errno == EAGAIN ? 0 : -1;
        }
        for (ssize_t at = 0; at < size;) {
            struct inotify_event event;
            memcpy(&event, &buffer[at], sizeof(event)); /* without the name behind it */
            take_event_lock_held(self, &event, &buffer[at + (ssize_t)sizeof(event)]);
            at += (ssize_t)(sizeof(event) + event.len);
        }
        if ((size_t)size + EVENT_MAX <= sizeof(buffer)) {
            return 0; /* one more would have had its place: the queue was empty */
        }
    }
}

/* ---- the descriptors ---- */

/* Close what a fork copied, unless the child has put something else in its place. */
static void
close_copy(int fd, const char *ending)
{
    char link[64], target[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = fd < 0 ? -1 : readlink(link, target, sizeof(target));
    size_t wanted = strlen(ending);
    if (length >= (ssize_t)wanted
        && memcmp(&target[(size_t)length - wanted], ending, wanted) == 0) {
        (void)close(fd);
    }
}

/* A child that read the queue would take the events from its parent. */
static void
become_child_lock_held(WatcherObject *self)
{
    close_copy(self->fd, "inotify");
    close_copy(self->mounts, "/mountinfo");
    self->fd = self->mounts = NONE;
    self->why = WHY_CHILD;
}

static void
open_descriptors(WatcherObject *self)
{
    self->pid = getpid();
    self->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    self->mounts = NONE;
    if (self->fd < 0) {
        self->why = errno == EMFILE || errno == ENFILE ? WHY_INSTANCES : WHY_PLATFORM;
        return;
    }
    self->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

Why
watcher_look_lock_held(PyObject *op)
{
    WatcherObject *self = AS_WATCHER(op);
    if (self->why == WHY_WATCHED && self->pid != getpid()) {
        become_child_lock_held(self);
    }
    if (self->why != WHY_WATCHED) {
        return self->why;
    }
    struct pollfd ready[2] = {{.fd = self->fd, .events = POLLIN},
                              {.fd = self->mounts, .events = POLLPRI}};
    int count = poll(ready, 2, 0);
    if (count == 0) {
        return WHY_WATCHED;
    }
    if (count < 0 || ready[1].revents != 0) {
        doubt_lock_held(self, 0); /* something may be mounted over a directory now */
    }
    if ((count < 0 || ready[0].revents != 0) && drain_lock_held(self) < 0) {
        doubt_lock_held(self, 0);
        self->fd = NONE; /* not ours to close: the number may be another file's by now */
        self->why = WHY_BROKEN;
    }
    ASSERT_CONSISTENT_LOCK_HELD(self);
    return self->why;
}

/* ---- arming ---- */

typedef struct {
    int node;
    size_t end; /* of the path up to here */
    int armed, missing, wd;
    uint32_t mask;
    Version version;
    int placed; /* wd and mask are new */
} Step;

typedef struct {
    char path[PATH_MAX];
    Step steps[MAX_DEPTH];
    int count;
    int fd;
    Py_ssize_t left; /* watches that may still be placed */
    unsigned long long strays;
    int spoilt; /* a component was replaced meanwhile */
} Plan;

/* The end of the path component that begins at or after `at`; 0 if there is none. */
static size_t
next_component(const char *path, size_t at, size_t *begin)
{
    while (path[at] == '/') {
        at++;
    }
    *begin = at;
    while (path[at] != '\0' && path[at] != '/') {
        at++;
    }
    return at > *begin ? at : 0;
}

static void
plan_step_lock_held(WatcherObject *self, Plan *plan, int number, size_t end)
{
    const Node *node = &self->nodes[number];
    plan->steps[plan->count++] = (Step){
        .node = number,
        .end = end,
        .armed = node->armed,
        .missing = node->missing,
        .wd = node->wd,
        .mask = node->mask,
        .version = node->version,
    };
}

static Why
plan_lock_held(WatcherObject *self, Plan *plan, const char *path)
{
    if (self->why != WHY_WATCHED) {
        return self->why;
    }
    size_t length = strlen(path), begin, end = 1;
    if (length >= sizeof(plan->path)) {
        return WHY_PATH;
    }
    memcpy(plan->path, path, length + 1);
    plan->count = 0;
    plan->fd = self->fd;
    plan->left = self->limit - self->watches;
    plan->strays = self->strays;
    plan->spoilt = 0;
    int number = 0;
    for (;;) {
        plan_step_lock_held(self, plan, number, end);
        end = next_component(path, end, &begin);
        if (end == 0) {
            return WHY_WATCHED;
        }
        number = find_lock_held(self, number, &path[begin], end - begin);
        if (plan->count == MAX_DEPTH || number == NONE) {
            return WHY_PATH;
        }
    }
}

/*
 * 0, or why a path is not watched: what happens elsewhere may be done by others, or is not known
 * to be told.
 */
static int
filesystem_error_of(const char *path)
{
    static const uint32_t known[] = {
        0xEF53u, /* ext2, ext3, ext4 */
        0x58465342u, /* xfs */
        0x9123683Eu, /* btrfs */
        0x01021994u, /* tmpfs */
        0x858458F6u, /* ramfs */
        0xF2F52010u, /* f2fs */
        0x2FC12FC1u, /* zfs */
        0xCA451A4Eu, /* bcachefs */
        0x3153464Au, /* jfs */
        0x52654973u, /* reiserfs */
        0x73717368u, /* squashfs */
        0xE0F5E1E2u, /* erofs */
        0x9660u, /* iso9660 */
    };
    struct statfs found;
    if (statfs(path, &found) != 0) {
        return errno == ENOENT ? 0 : errno;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if ((uint32_t)found.f_type == known[i]) {
            return 0;
        }
    }
    return EOPNOTSUPP;
}

/* Place a watch on the path up to a step. 0, or an errno. */
static int
place(Plan *plan, int at, uint32_t mask)
{
    Step *step = &plan->steps[at];
    if (step->wd == NONE && plan->left <= 0) {
        return ENOSPC;
    }
    char cut = plan->path[step->end];
    plan->path[step->end] = '\0';
    int wd = inotify_add_watch(plan->fd, plan->path, mask | IN_DONT_FOLLOW | IN_MASK_ADD);
    int error = wd < 0 ? errno : 0;
    plan->path[step->end] = cut;
    if (error != 0) {
        return error;
    }
    plan->left -= step->wd == NONE;
    step->mask = (wd == step->wd ? step->mask : 0) | (mask & IN_ALL_EVENTS);
    step->wd = wd;
    step->placed = 1;
    return 0;
}

static int
mode_of(Plan *plan, int at, mode_t *mode)
{
    struct stat st;
    size_t end = plan->steps[at].end;
    char cut = plan->path[end];
    plan->path[end] = '\0';
    int error = lstat(plan->path, &st) != 0 ? errno : 0;
    plan->path[end] = cut;
    *mode = st.st_mode;
    return error;
}

static int
filesystem_error(Plan *plan, int at)
{
    size_t end = plan->steps[at].end;
    char cut = plan->path[end];
    plan->path[end] = '\0';
    int error = filesystem_error_of(plan->path);
    plan->path[end] = cut;
    return error;
}

/* A watch on what is no directory: a file is asked for its contents, a link is ELOOP. */
static int
place_on_file(Plan *plan, int at)
{
    mode_t mode;
    int error = place(plan, at, FILE_MASK);
    if (error == 0) {
        error = mode_of(plan, at, &mode);
    }
    if (error == 0 && S_ISLNK(mode)) {
        return ELOOP;
    }
    plan->spoilt |= error == ENOENT || (error == 0 && S_ISDIR(mode));
    return error;
}

static int
place_as_needed(Plan *plan, int at)
{
    int last = at == plan->count - 1;
    int error = place(plan, at, (last ? DIRECTORY_MASK : SELF_MASK) | IN_ONLYDIR);
    if (error == ENOTDIR && last) {
        return place_on_file(plan, at);
    }
    if (error == ENOTDIR) {
        mode_t mode;
        error = mode_of(plan, at, &mode);
        return error == 0 && S_ISLNK(mode) ? ELOOP : ENOTDIR;
    }
    return error;
}

/* Have a directory tell of new names. Another wd: it is not the same directory any more. */
static int
await_names(Plan *plan, int at)
{
    int wd = plan->steps[at].wd;
    if ((plan->steps[at].mask & APPEAR_MASK) == APPEAR_MASK) {
        return 0;
    }
    int error = place(plan, at, APPEAR_MASK | IN_ONLYDIR);
    plan->spoilt |= plan->steps[at].wd != wd;
    return error;
}

static int
is_in_place(const Plan *plan, int at)
{
    const Step *step = &plan->steps[at];
    uint32_t mask = step->mask;
    if (!step->armed || at < plan->count - 1) {
        return step->armed;
    }
    return (mask & DIRECTORY_MASK) == DIRECTORY_MASK || (mask & FILE_MASK) == FILE_MASK;
}

static Why
why_of(int error)
{
    switch (error) {
    case 0:
        return WHY_WATCHED;
    case ENOSPC:
        return WHY_LIMIT;
    case ENOMEM:
        return WHY_MEMORY;
    case ELOOP:
        return WHY_LINK;
    case EOPNOTSUPP:
        return WHY_FILESYSTEM;
    case EACCES:
    case EPERM:
        return WHY_PERMISSION;
    default:
        return WHY_PATH;
    }
}

/* Place the watches that are not, from the root down. Needs neither lock nor GIL. */
static Why
carry_out(Plan *plan)
{
    for (int at = 0; at < plan->count; at++) {
        if (plan->steps[at].armed && plan->steps[at].missing) {
            break;
        }
        if (is_in_place(plan, at)) {
            continue;
        }
        int error = filesystem_error(plan, at);
        if (error == 0) {
            error = place_as_needed(plan, at);
        }
        if (error == ENOENT && at > 0 && !plan->spoilt) {
            error = await_names(plan, at - 1);
            if (error == 0) {
                error =
                    place_as_needed(plan, at); /* it may have come before its directory was asked */
                plan->steps[at].missing = error == ENOENT;
            }
            if (error == ENOENT && plan->steps[at].missing) {
                break;
            }
        }
        if (plan->spoilt || error == ENOENT) {
            plan->spoilt = 1;
            return WHY_WATCHED;
        }
        plan->steps[at].missing = 0;
        if (error != 0) {
            return why_of(error);
        }
    }
    return WHY_WATCHED;
}

/* Whether nothing was heard of the path since the plan was made. */
static int
still_holds_lock_held(WatcherObject *self, const Plan *plan)
{
    int holds = self->strays == plan->strays && self->why == WHY_WATCHED && !plan->spoilt;
    for (int i = 0; i < plan->count; i++) {
        holds &= self->nodes[plan->steps[i].node].version == plan->steps[i].version;
    }
    return holds;
}

/* Record the watches; arm the nodes if nothing was missed. */
static Version
record_lock_held(WatcherObject *self, const Plan *plan, Why why)
{
    int holds = why == WHY_WATCHED && still_holds_lock_held(self, plan), missing = 0;
    for (int i = 0; i < plan->count; i++) {
        const Step *step = &plan->steps[i];
        if (step->placed && self->why == WHY_WATCHED
            && attach_lock_held(self, step->node, step->wd, step->mask) < 0) {
            holds = 0;
        }
    }
    for (int i = 0; holds && i < plan->count; i++) {
        Node *node = &self->nodes[plan->steps[i].node];
        missing |= plan->steps[i].missing;
        node->armed = 1;
        node->missing = missing;
    }
    ASSERT_CONSISTENT_LOCK_HELD(self);
    return holds ? plan->steps[plan->count - 1].version : 0;
}

Why
watcher_arm(PyObject *op, int node, const char *path, Version *version)
{
    WatcherObject *self = AS_WATCHER(op);
    Plan plan;
    Why why;
    *version = 0;
    (void)node;
    LOCKED(op, why = plan_lock_held(self, &plan, path));
    if (why != WHY_WATCHED) {
        return why;
    }
    assert(plan.steps[plan.count - 1].node == node);
    Py_BEGIN_ALLOW_THREADS
    why = carry_out(&plan);
    Py_END_ALLOW_THREADS
    LOCKED(op, *version = record_lock_held(self, &plan, why));
    return why;
}

/* ---- nodes for others ---- */

Version
watcher_now_lock_held(PyObject *op)
{
    return AS_WATCHER(op)->now;
}

Version
watcher_version_lock_held(PyObject *op, int node)
{
    const Node *found = &AS_WATCHER(op)->nodes[node];
    return found->armed ? found->version : 0;
}

/* Free a node that nobody needs, and those above it that were there for its sake. */
static void
prune_lock_held(WatcherObject *self, int number)
{
    while (number != 0 && self->nodes[number].uses == 0 && self->nodes[number].child == NONE) {
        int parent = self->nodes[number].parent;
        detach_lock_held(self, number);
        unlink_node_lock_held(self, number);
        PyMem_RawFree(self->nodes[number].name);
        self->nodes[number].name = NULL;
        give_free_lock_held(self, number);
        number = parent;
    }
}

int
watcher_acquire_lock_held(PyObject *op, const char *path)
{
    WatcherObject *self = AS_WATCHER(op);
    size_t begin, end = 0;
    int number = 0;
    while ((end = next_component(path, end, &begin)) != 0) {
        int child = find_lock_held(self, number, &path[begin], end - begin);
        if (child == NONE) {
            child = add_node_lock_held(self, number, &path[begin], end - begin);
        }
        if (child == NONE) {
            prune_lock_held(self, number);
            ASSERT_CONSISTENT_LOCK_HELD(self);
            return NONE;
        }
        number = child;
    }
    self->nodes[number].uses++;
    ASSERT_CONSISTENT_LOCK_HELD(self);
    return number;
}

void
watcher_release_lock_held(PyObject *op, int node)
{
    WatcherObject *self = AS_WATCHER(op);
    self->nodes[node].uses--;
    if (self->why == WHY_WATCHED && self->pid != getpid()) {
        become_child_lock_held(self);
    }
    prune_lock_held(self, node);
    ASSERT_CONSISTENT_LOCK_HELD(self);
}

/* ---- the type ---- */

static void
watcher_dealloc(PyObject *op)
{
    WatcherObject *self = AS_WATCHER(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->pid != getpid()) {
        become_child_lock_held(self);
    }
    if (self->mounts >= 0) {
        (void)close(self->mounts);
    }
    if (self->fd >= 0) {
        (void)close(self->fd);
    }
    for (int i = 0; i < self->count; i++) {
        PyMem_RawFree(self->nodes[i].name);
    }
    PyMem_RawFree(self->nodes);
    PyMem_RawFree(self->buckets);
    PyMem_RawFree(self->pairs);
    type->tp_free(op);
    Py_DECREF(type);
}

PyObject *
watcher_make(CoreState *state, Py_ssize_t limit)
{
    PyObject *op = state->watcher_type->tp_alloc(state->watcher_type, 0);
    if (op == NULL) {
        return NULL;
    }
    WatcherObject *self = AS_WATCHER(op);
    self->limit = limit;
    self->now = 1;
    self->free = NONE;
    open_descriptors(self);
    if (add_node_lock_held(self, NONE, "", 0) == NONE) {
        Py_DECREF(op);
        return PyErr_NoMemory();
    }
    return op;
}

static int
is_usable(PyObject *op)
{
    Why why;
    LOCKED(op, why = AS_WATCHER(op)->why);
    return why == WHY_WATCHED && AS_WATCHER(op)->pid == getpid();
}

#else /* no inotify: nothing is watched */

static void
watcher_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    type->tp_free(op);
    Py_DECREF(type);
}

typedef struct {
    PyObject_HEAD
} WatcherObject;

PyObject *
watcher_make(CoreState *state, Py_ssize_t Py_UNUSED(limit))
{
    return state->watcher_type->tp_alloc(state->watcher_type, 0);
}

static int
is_usable(PyObject *Py_UNUSED(op))
{
    return 1;
}

Why
watcher_look_lock_held(PyObject *Py_UNUSED(op))
{
    return WHY_PLATFORM;
}

Version
watcher_now_lock_held(PyObject *Py_UNUSED(op))
{
    return 1;
}

int
watcher_acquire_lock_held(PyObject *Py_UNUSED(op), const char *Py_UNUSED(path))
{
    return -1;
}

void
watcher_release_lock_held(PyObject *Py_UNUSED(op), int Py_UNUSED(node))
{
}

Version
watcher_version_lock_held(PyObject *Py_UNUSED(op), int Py_UNUSED(node))
{
    return 0;
}

Why
watcher_arm(PyObject *Py_UNUSED(op), int Py_UNUSED(node), const char *Py_UNUSED(path),
            Version *version)
{
    *version = 0;
    return WHY_PLATFORM;
}

#endif

/*
 * One for the process: the next generation's paths are watched already, and closing inotify takes
 * 10 ms.
 */
PyObject *
watcher_shared(PyObject *module, CoreState *state)
{
    PyObject *known = shared_load(module, &state->watcher);
    if (known != NULL && is_usable(known)) {
        return known;
    }
    Py_XDECREF(known);
    /* Two threads may make one each; both work, the later one is kept. */
    PyObject *made = watcher_make(state, PY_SSIZE_T_MAX);
    if (made != NULL) {
        shared_store(module, &state->watcher, made);
    }
    return made;
}

static int
watcher_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static PyType_Slot watcher_slots[] = {
    {Py_tp_traverse, watcher_traverse},
    {Py_tp_dealloc, watcher_dealloc},
    {0, NULL},
};

static PyType_Spec watcher_spec = {
    .name = "saltctx._core._Watcher",
    .basicsize = sizeof(WatcherObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = watcher_slots,
};

int
watcher_init(PyObject *module, CoreState *state)
{
    return state_add_type(module, &state->watcher_type, &watcher_spec, NULL);
}
