/* HitIndex: the memory tier's read path as one C call.

   peek(key[, default]) reads a dict, checks the deadline, writes the key into a lossy ring and counts the hit, all
   under the interpreter lock and without running Python code, so it needs no lock of its own and the count is exact.
   The plain-Python twin in hit_index.py does the same; tests hold the two to equal results. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#ifdef __APPLE__ /* the clock of time.monotonic(): CLOCK_MONOTONIC goes on there while the machine sleeps */
#define MONOTONIC CLOCK_UPTIME_RAW
#else
#define MONOTONIC CLOCK_MONOTONIC
#endif

typedef struct {
    PyObject_HEAD
    PyObject *entries;    /* dict: key -> (value, make, deadline, frame, size, due) */
    PyObject *clock;      /* callable giving monotonic seconds, or NULL for that of time.monotonic() */
    PyObject *below;      /* callable(key, default) for what is not here */
    PyObject *catch_up;   /* callable() that applies other processes' invalidations, or NULL */
    PyObject **ring;      /* the last `capacity` keys hit, oldest overwritten */
    size_t capacity;      /* a power of two */
    size_t written, read; /* positions, counting up for ever */
    unsigned long long hits;
    Py_buffer shared;           /* one 64-bit sequence number of all processes, or empty */
    unsigned long long seen;    /* its value when this process last caught up */
    PyObject *sink;             /* callable((key, Unix ns, context)) for one in `every` hits, or NULL */
    unsigned long long every, turn; /* the first hit with this number or a later one is sampled; NEVER without a sink */
    uint64_t random;
    uint64_t waiting;           /* calls of `below` under way */
} HitIndex;

/* A tracer's place to look in (see mmcache/tracer). The semaphore is raised by the kernel in a process that is traced:
   in all others a read pays for one load and one branch, and the probe is not called. Both symbols are exported, so
   that a stripped library has them; the code here takes the short way to the semaphore. */
#if defined(__linux__) && !defined(MMCACHE_NO_PROBE) /* table `ebpf` asks what it costs */
static volatile unsigned short traced __attribute__((section(".probes"), used)) = 0;
extern volatile unsigned short mmcache_probe_semaphore __attribute__((alias("traced"), visibility("default")));

/* hash: the key's three parts, first 8 bytes of each, XORed. key: its 48 bytes. delay: ns that the read took in here,
   lower tiers included where it went on to them; 0 where the caller did the looking. waiting: how many `get`s wait for
   a lower tier right now. hit: whether memory had it. */
void mmcache_probe_read(uint64_t hash, const void *key, uint64_t delay, uint64_t waiting, uint64_t hit);

#ifdef __x86_64__ /* Linux from 6.18 on turns a probe on this very instruction into a call, without a trap */
__asm__(".pushsection .text\n.p2align 4\n.globl mmcache_probe_read\n.type mmcache_probe_read, @function\n"
        "mmcache_probe_read:\n.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\nret\n"
        ".size mmcache_probe_read, . - mmcache_probe_read\n.popsection\n");
#else
__attribute__((noinline, visibility("default"))) void mmcache_probe_read(uint64_t hash, const void *key, uint64_t delay,
                                                                         uint64_t waiting, uint64_t hit)
{
    __asm__ volatile("" ::"r"(hash), "r"(key), "r"(delay), "r"(waiting), "r"(hit));
}
#endif

static uint64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t watched(void) /* when this read began, or 0 = nobody asks */
{
    return __builtin_expect(traced, 0) ? nanoseconds() : 0;
}

static Py_NO_INLINE void tell(HitIndex *self, PyObject *key, uint64_t began, int hit)
{
    uint64_t part[6], delay = began ? nanoseconds() - began : 0;
    if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != sizeof part) return; /* no `Key` */
    memcpy(part, PyBytes_AS_STRING(key), sizeof part);
    mmcache_probe_read(part[0] ^ part[2] ^ part[4], PyBytes_AS_STRING(key), delay, self->waiting, (uint64_t)hit);
}
#else
enum { traced = 0 };
static inline uint64_t watched(void) { return 0; }
static void tell(HitIndex *self, PyObject *key, uint64_t began, int hit) {}
#endif

#define NEVER ULLONG_MAX
#define SEED 0x9E3779B97F4A7C15u /* also in the plain twin: both sample the same hits */

/* Hits until the next sample: uniform over 1 … 2 every - 1, so that no periodic load is always, or never, sampled. */
static unsigned long long gap(HitIndex *self)
{
    self->random = self->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return 1 + (((self->random >> 32) * (2 * self->every - 1)) >> 32);
}

/* Tell the sink of the n-th hit, unless another thread did meanwhile. What the sink raises is dropped, but for what is
   no Exception (an interrupt): then -1. */
static Py_NO_INLINE int sampled(HitIndex *self, PyObject *key, unsigned long long n)
{
    if (n < self->turn) return 0;
    if (self->every > 1) self->turn = n + gap(self);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    PyObject *sink = Py_NewRef(self->sink); /* what runs in it may take it away */
    PyObject *context = PyContext_CopyCurrent();
    PyObject *seen = context == NULL ? NULL : Py_BuildValue(
        "OLN", key, (long long)t.tv_sec * 1000000000 + t.tv_nsec, context);
    PyObject *done = seen == NULL ? NULL : PyObject_CallOneArg(sink, seen);
    Py_DECREF(sink);
    Py_XDECREF(seen);
    Py_XDECREF(done);
    if (done != NULL) return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}

static int expired(HitIndex *self, PyObject *deadline) /* 1 yes, 0 no, -1 error */
{
    double now, limit;
    if (deadline == Py_None) return 0;
    limit = PyFloat_AsDouble(deadline);
    if (limit == -1.0 && PyErr_Occurred()) return -1;
    if (self->clock == NULL) {
        struct timespec t;
        clock_gettime(MONOTONIC, &t);
        now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    } else {
        PyObject *read = PyObject_CallNoArgs(self->clock);
        if (read == NULL) return -1;
        now = PyFloat_AsDouble(read);
        Py_DECREF(read);
        if (now == -1.0 && PyErr_Occurred()) return -1;
    }
    return limit <= now;
}

static int behind(HitIndex *self)
{
    return self->shared.buf != NULL && __atomic_load_n((uint64_t *)self->shared.buf, __ATOMIC_ACQUIRE) != self->seen;
}

#define DEADLINE 2 /* places in an entry */
#define DUE 5

/* New reference; NULL without an exception set = not here, or the time at `place` has come. */
static PyObject *find(HitIndex *self, PyObject *key, Py_ssize_t place)
{
    if (behind(self)) { /* another process invalidated something */
        PyObject *done = self->catch_up == NULL ? NULL : PyObject_CallNoArgs(self->catch_up);
        if (done == NULL && PyErr_Occurred()) return NULL;
        Py_XDECREF(done);
        if (behind(self)) return NULL;
    }
    PyObject *entry = PyDict_GetItemWithError(self->entries, key);
    if (entry == NULL) return NULL;
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 6) {
        PyErr_SetString(PyExc_TypeError, "an entry is a tuple of 6"); /* the macros below check nothing */
        return NULL;
    }
    Py_INCREF(entry); /* a clock or a maker may run Python code that drops the entry */
    PyObject *result = NULL;
    int over = expired(self, PyTuple_GET_ITEM(entry, place));
    if (over == 0) {
        PyObject **slot = &self->ring[self->written++ & (self->capacity - 1)];
        PyObject *old = *slot;
        Py_INCREF(key);
        *slot = key;
        unsigned long long n = self->hits++;
        PyObject *make = PyTuple_GET_ITEM(entry, 1);
        if (make == Py_None) {
            result = PyTuple_GET_ITEM(entry, 0);
            Py_INCREF(result);
        } else {
            result = PyObject_CallNoArgs(make);
        }
        if (n >= self->turn && result != NULL && sampled(self, key, n) < 0) Py_CLEAR(result);
        Py_XDECREF(old);
    }
    Py_DECREF(entry);
    return result;
}

/* Borrowed reference to the default, or NULL with an exception: (key, default=None). */
static PyObject *parse_default(PyObject *const *args, Py_ssize_t count, PyObject *names, const char *name)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count == 1 && named == 0) return Py_None;
    if (count == 2 && named == 0) return args[1];
    if (count == 1 && named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "default") == 0)
        return args[1];
    PyErr_Format(PyExc_TypeError, "%s(key, default=None) got other arguments", name);
    return NULL;
}

static PyObject *find_or_default(HitIndex *self, PyObject *key, PyObject *fallback, Py_ssize_t place)
{
    if (fallback == NULL) return NULL;
    uint64_t began = watched();
    PyObject *found = find(self, key, place);
    if (found == NULL && PyErr_Occurred()) return NULL;
    if (began) tell(self, key, began, found != NULL);
    return found == NULL ? Py_NewRef(fallback) : found;
}

static PyObject *peek(HitIndex *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *fallback = parse_default(args, count, names, "peek");
    return find_or_default(self, args[0], fallback, DEADLINE);
}

static PyObject *fresh(HitIndex *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *fallback = parse_default(args, count, names, "fresh");
    return find_or_default(self, args[0], fallback, DUE);
}

static PyObject *get(HitIndex *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *fallback = parse_default(args, count, names, "get");
    if (fallback == NULL) return NULL;
    uint64_t began = watched();
    PyObject *found = find(self, args[0], DEADLINE);
    int hit = found != NULL;
    if (!hit) {
        if (PyErr_Occurred()) return NULL;
        self->waiting++;
        found = PyObject_CallFunctionObjArgs(self->below, args[0], fallback, NULL);
        self->waiting--;
    }
    if (began && found != NULL) tell(self, args[0], began, hit);
    return found;
}

static PyObject *touched(HitIndex *self, PyObject *key)
{
    PyObject **place = &self->ring[self->written++ & (self->capacity - 1)];
    PyObject *old = *place;
    Py_INCREF(key);
    *place = key;
    unsigned long long n = self->hits++;
    if (n >= self->turn && self->every > 1) self->turn = n + gap(self); /* its turn, and nobody is told */
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *sample(HitIndex *self, PyObject *args)
{
    long long every;
    PyObject *sink;
    if (!PyArg_ParseTuple(args, "LO:sample", &every, &sink)) return NULL;
    if (every < 1 || every > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "one in `every` hits: every must be from 1 to 2**31 - 1");
        return NULL;
    }
    self->every = (unsigned long long)every;
    self->random = SEED;
    if (sink == Py_None) self->turn = NEVER;
    else self->turn = every == 1 ? 0 : self->hits + gap(self) - 1;
    Py_XSETREF(self->sink, sink == Py_None ? NULL : Py_NewRef(sink));
    Py_RETURN_NONE;
}

static PyObject *drain(HitIndex *self, PyObject *unused)
{
    PyObject *keys = PyList_New(0); /* may run the garbage collector, so positions are read only afterwards */
    if (keys == NULL) return NULL;
    size_t end = self->written;
    size_t start = end - self->read > self->capacity ? end - self->capacity : self->read;
    for (size_t i = start; i < end; i++) {
        PyObject **place = &self->ring[i & (self->capacity - 1)];
        if (PyList_Append(keys, *place) < 0) {
            self->read = i;
            Py_DECREF(keys);
            return NULL;
        }
        Py_CLEAR(*place); /* the list holds it now */
    }
    self->read = end;
    return keys;
}

static int init(HitIndex *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"entries", "below", "capacity", "clock", "shared", "catch_up", NULL};
    PyObject *entries, *below, *clock = Py_None, *shared = Py_None, *catch_up = Py_None;
    Py_ssize_t capacity;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!On|OOO", names, &PyDict_Type, &entries, &below, &capacity, &clock,
                                     &shared, &catch_up))
        return -1;
    if (capacity < 1 || (capacity & (capacity - 1)) != 0 || capacity > (1 << 24)) {
        PyErr_SetString(PyExc_ValueError, "capacity must be a power of two up to 2**24");
        return -1;
    }
    if (self->ring != NULL) {
        PyErr_SetString(PyExc_TypeError, "HitIndex is initialised once");
        return -1;
    }
    if (shared != Py_None) {
        if (PyObject_GetBuffer(shared, &self->shared, PyBUF_SIMPLE) < 0) return -1;
        if (self->shared.len < 8 || ((uintptr_t)self->shared.buf & 7) != 0) {
            PyErr_SetString(PyExc_ValueError, "shared must be 8 aligned bytes");
            return -1;
        }
        self->seen = *(uint64_t *)self->shared.buf;
    }
    self->ring = PyMem_Calloc((size_t)capacity, sizeof(PyObject *));
    if (self->ring == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->capacity = (size_t)capacity;
    self->every = 1;
    self->turn = NEVER;
    self->entries = Py_NewRef(entries);
    self->below = Py_NewRef(below);
    self->clock = clock == Py_None ? NULL : Py_NewRef(clock);
    self->catch_up = catch_up == Py_None ? NULL : Py_NewRef(catch_up);
    return 0;
}

static int traverse(HitIndex *self, visitproc visit, void *arg)
{
    Py_VISIT(self->entries);
    Py_VISIT(self->below);
    Py_VISIT(self->catch_up);
    Py_VISIT(self->clock);
    Py_VISIT(self->sink);
    for (size_t i = 0; i < self->capacity; i++) Py_VISIT(self->ring[i]);
    return 0;
}

static int clear(HitIndex *self)
{
    Py_CLEAR(self->entries);
    Py_CLEAR(self->below);
    Py_CLEAR(self->catch_up);
    Py_CLEAR(self->clock);
    self->turn = NEVER;
    Py_CLEAR(self->sink);
    for (size_t i = 0; i < self->capacity; i++) Py_CLEAR(self->ring[i]);
    return 0;
}

static void dealloc(HitIndex *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    if (self->shared.obj != NULL) PyBuffer_Release(&self->shared);
    PyMem_Free(self->ring);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *new_index(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    HitIndex *self = (HitIndex *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (init(self, args, kwargs) < 0) { /* here, not in tp_init: a half-made index must never be callable */
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"peek", (PyCFunction)(void (*)(void))peek, METH_FASTCALL | METH_KEYWORDS, "peek(key, default=None): the value held, or default."},
    {"fresh", (PyCFunction)(void (*)(void))fresh, METH_FASTCALL | METH_KEYWORDS, "fresh(key, default=None): the value held and not due for a refresh, or default."},
    {"get", (PyCFunction)(void (*)(void))get, METH_FASTCALL | METH_KEYWORDS, "get(key, default=None): the value held, or below(key, default)."},
    {"touched", (PyCFunction)touched, METH_O, "Record and count a hit of key; no sink is told."},
    {"sample", (PyCFunction)sample, METH_VARARGS, "sample(every, sink): call sink((key, unix_ns, context)) for one in `every` hits."},
    {"drain", (PyCFunction)drain, METH_NOARGS, "Keys hit since the last drain, oldest first; the excess is lost."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"hits", T_ULONGLONG, offsetof(HitIndex, hits), READONLY, "Exact number of hits."},
    {"seen", T_ULONGLONG, offsetof(HitIndex, seen), 0, "The shared sequence number that this process caught up with."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject HitIndexType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mmcache.tiers._hit_index.HitIndex",
    .tp_basicsize = sizeof(HitIndex),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The memory tier's read path; see mmcache.tiers.hit_index for the plain-Python twin.",
    .tp_new = new_index,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_methods = methods,
    .tp_members = members,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_hit_index", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__hit_index(void)
{
    PyObject *made;
    if (PyType_Ready(&HitIndexType) < 0) return NULL;
    made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    if (PyModule_AddObjectRef(made, "HitIndex", (PyObject *)&HitIndexType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
