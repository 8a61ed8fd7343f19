/* The nearest of many: 64-bit codes by Hamming distance, float vectors by cosine.
 *
 * hamming.py and vectors.py say what is computed and why; codes_python.py and vectors_python.py are the plain twins,
 * which give the same results to the bit. So every float operation has a fixed order (no contraction: see setup.py).
 *
 * Three levels give equal results: 0 = portable C, 1 = AVX2 + F16C + POPCNT, 2 = AVX-512 + VPOPCNTDQ.
 *
 * Threads: all state changes with the interpreter lock held. A long read lets it go and counts itself in a `Gate`; who
 * wants to change what is read waits until no such reader is left, and new readers keep the lock meanwhile. So nothing
 * that is being read ever moves or changes, and a reader never waits.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
#define X86 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,f16c,popcnt")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,f16c,popcnt")))
#else
#define X86 0
#endif
#define INLINE static inline __attribute__((always_inline))

enum { PARTS = 4, PLACES = 65536, NODE = 7, MOST_FLIPS = 3, TABLES_FROM = 4096 };
enum { WORDS = 8, BITS = 64 * WORDS, BLOCK = 8, LANES = 16, ROUNDS = 2 };
enum { CANDIDATES = 512, PER_RESULT = 64, FIRST = 4 /* a part of them */, SPREADS = 3, BRUTE = 2048, RECENTRED = 16384, UNLOCKED_FROM = 8192 };
enum { MOST_DIMS = 65536 };
#define NONE UINT32_MAX
#define MOST (1u << 28)

INLINE int ones(uint64_t x) { return __builtin_popcountll(x); }

/* ---- who reads without the interpreter lock ------------------------------------------------------------------- */

typedef struct {
    int readers, waiting; /* both change with the interpreter lock held; `waiting` is also read without it */
    pid_t owner;          /* whose they are: those of the parent are not in a forked child */
} Gate;

static void forget_parent(Gate *g) {
    if ((g->readers > 0 || g->waiting > 0) && g->owner != getpid()) g->readers = g->waiting = 0;
}
static int read_unlocked(Gate *g) { /* whether the reader may let the interpreter lock go */
    forget_parent(g);
    if (g->waiting > 0) return 0;
    if (g->readers++ == 0) g->owner = getpid();
    return 1;
}
static void nap(void) { nanosleep(&(struct timespec){0, 20000}, NULL); }

static void await_readers(Gate *g) {
    for (forget_parent(g); g->readers > 0; forget_parent(g)) {
        __atomic_store_n(&g->waiting, g->waiting + 1, __ATOMIC_RELAXED);
        Py_BEGIN_ALLOW_THREADS
        nap();
        Py_END_ALLOW_THREADS
        if (g->waiting > 0) __atomic_store_n(&g->waiting, g->waiting - 1, __ATOMIC_RELAXED);
    }
}

/* ---- the best so far: a heap, the worst on top ---------------------------------------------------------------- */

typedef struct {
    float far; /* Hamming distance, or minus the cosine */
    uint32_t bits; /* of a vector: the distance of its sketch */
    int64_t label;
} Found;

typedef struct {
    Found *of;
    size_t count, most;
} Best;

INLINE int worse(Found a, Found b) { return a.far > b.far || (a.far == b.far && a.label > b.label); }

static void sift(Found *heap, size_t count, size_t at) {
    Found moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && worse(heap[child + 1], heap[child])) child++;
        if (!worse(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}
static void offer(Best *b, Found found) {
    if (b->count < b->most) {
        size_t at = b->count++;
        for (; at > 0 && worse(found, b->of[(at - 1) / 2]); at = (at - 1) / 2) b->of[at] = b->of[(at - 1) / 2];
        b->of[at] = found;
    } else if (worse(b->of[0], found)) {
        b->of[0] = found;
        sift(b->of, b->count, 0);
    }
}
INLINE float bound(const Best *b, float none) { return b->count < b->most ? none : b->of[0].far; }

static int by_distance(const void *a, const void *b) {
    return worse(*(const Found *)a, *(const Found *)b) ? 1 : worse(*(const Found *)b, *(const Found *)a) ? -1 : 0;
}
static PyObject *as_list(Found *of, size_t count, int cosine) { /* sorts */
    if (count > 1) qsort(of, count, sizeof *of, by_distance);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *label = PyLong_FromLongLong(of[i].label);
        PyObject *far = cosine ? PyFloat_FromDouble(-(double)of[i].far) : PyLong_FromLong((long)of[i].far);
        PyObject *pair = label && far ? PyTuple_New(2) : NULL;
        if (!pair) {
            Py_XDECREF(label);
            Py_XDECREF(far);
            Py_CLEAR(list);
            break;
        }
        PyTuple_SET_ITEM(pair, 0, label);
        PyTuple_SET_ITEM(pair, 1, far);
        PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    return list;
}

/* ---- label -> slot: open addressing, at most three quarters full ---------------------------------------------- */

typedef struct {
    uint32_t *places, mask; /* NONE = free; NULL = no place yet */
} Map;

INLINE uint32_t home(int64_t label) {
    uint64_t hash = (uint64_t)label * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ hash >> 32) * 0xBF58476D1CE4E5B9ull;
    return (uint32_t)(hash >> 32);
}
static uint32_t place_of(const Map *m, const int64_t *labels, int64_t label) { /* its place, or the free one for it */
    uint32_t at = home(label) & m->mask;
    while (m->places[at] != NONE && labels[m->places[at]] != label) at = (at + 1) & m->mask;
    return at;
}
static uint32_t slot_of(const Map *m, const int64_t *labels, int64_t label) {
    return m->places ? m->places[place_of(m, labels, label)] : NONE;
}
static int map_room(Map *m, const int64_t *labels, uint32_t count) { /* for one more than `count` */
    size_t size = m->places ? (size_t)m->mask + 1 : 0;
    if ((size_t)count + 1 <= size / 4 * 3) return 1;
    size = size ? size * 2 : 16;
    uint32_t *places = PyMem_RawMalloc(size * sizeof *places);
    if (!places) return 0;
    memset(places, 0xFF, size * sizeof *places);
    PyMem_RawFree(m->places);
    m->places = places;
    m->mask = (uint32_t)(size - 1);
    for (uint32_t slot = 0; slot < count; slot++) places[place_of(m, labels, labels[slot])] = slot;
    return 1;
}
static void map_drop(Map *m, const int64_t *labels, uint32_t at) { /* closes the gap */
    for (uint32_t next = (at + 1) & m->mask; m->places[next] != NONE; next = (next + 1) & m->mask) {
        uint32_t from = home(labels[m->places[next]]) & m->mask;
        if (((next - from) & m->mask) < ((next - at) & m->mask)) continue;
        m->places[at] = m->places[next];
        at = next;
    }
    m->places[at] = NONE;
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

static int as_label(PyObject *given, int64_t *label, PyObject *refused) {
    PyObject *number = PyNumber_Index(given);
    if (number) *label = PyLong_AsLongLong(number);
    Py_XDECREF(number);
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    PyErr_Format(refused, "a label is a whole number of 64 bits, got %R", given);
    return 0;
}
static int as_code(PyObject *given, uint64_t *code, PyObject *refused) {
    PyObject *number = PyNumber_Index(given);
    if (number) *code = PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    PyErr_Format(refused, "a code is a whole number from 0 to 2**64 - 1, got %R", given);
    return 0;
}
static int as_count(PyObject *given, Py_ssize_t least, Py_ssize_t *count, const char *what, PyObject *refused) {
    *count = PyNumber_AsSsize_t(given, PyExc_OverflowError);
    if (*count >= least && !PyErr_Occurred()) return 1;
    PyErr_Clear();
    PyErr_Format(refused, "%s is a whole number from %zd, got %R", what, least, given);
    return 0;
}
static int sized(const Py_buffer *buffer, size_t bytes, size_t alignment) {
    if ((size_t)buffer->len == bytes && (uintptr_t)buffer->buf % alignment == 0) return 1;
    PyErr_Format(PyExc_ValueError, "a buffer has %zd bytes, it needs %zu, aligned to %zu", buffer->len, bytes, alignment);
    return 0;
}
static int resized(void **buffer, size_t count, size_t each) { /* PyMem_RawRealloc that leaves the old one on failure */
    void *moved = count > PY_SSIZE_T_MAX / each ? NULL : PyMem_RawRealloc(*buffer, count * each);
    if (moved) *buffer = moved;
    return moved != NULL;
}
static int best_level(void) {
#if X86
    __builtin_cpu_init();
    int first = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("f16c");
    if (first && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq"))
        return 2;
    return first;
#else
    return 0;
#endif
}
static int chosen(int level) {
    int best = best_level();
    if (level >= -1 && level <= best) return level < 0 ? best : level;
    PyErr_Format(PyExc_ValueError, "level %d is not available here; the best is %d", level, best);
    return -1;
}

/* ---- codes ---------------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t next, slots[NODE]; /* 32 bytes; all but a list's first node are full */
} Node;

typedef struct {
    PyObject_HEAD
    PyObject *refused; /* what is raised for bad input */
    Gate gate;
    Map map;
    uint64_t *codes;
    int64_t *labels;
    uint32_t count, room;
    uint32_t *heads; /* [PARTS][PLACES], node << 3 | slots in it, 0 = empty; NULL below TABLES_FROM codes */
    Node *nodes;     /* node 0 is none */
    uint32_t made, node_room, spare, spares;
    int level;
} Codes;

static uint16_t FLIPS[1 + 16 + 120 + 560]; /* 16-bit masks of 0, 1, 2, 3 ones */
static const int FLIPS_FROM[MOST_FLIPS + 2] = {0, 1, 17, 137, 697};

INLINE uint32_t part(uint64_t code, int p) { return (uint32_t)p * PLACES + (uint32_t)(code >> 16 * p & 0xFFFF); }

static int node_room(Codes *c, size_t more) {
    size_t needed = (size_t)c->made + more;
    if (c->spares >= more || needed <= c->node_room) return 1;
    size_t room = needed + needed / 4 + 64;
    if (room > 1u << 29 || !resized((void **)&c->nodes, room, sizeof(Node))) return 0;
    c->node_room = (uint32_t)room;
    return 1;
}
static void list_add(Codes *c, uint32_t place, uint32_t slot) { /* node_room was asked for */
    uint32_t head = c->heads[place], used = head & 7;
    if (head && used < NODE) {
        c->nodes[head >> 3].slots[used] = slot;
        c->heads[place] = head + 1;
        return;
    }
    uint32_t node = c->spare;
    if (c->spares > 0) {
        c->spare = c->nodes[node].next;
        c->spares--;
    } else node = c->made++;
    c->nodes[node].next = head >> 3;
    c->nodes[node].slots[0] = slot;
    c->heads[place] = node << 3 | 1;
}
static uint32_t *list_find(Codes *c, uint32_t place, uint32_t slot) {
    uint32_t used = c->heads[place] & 7;
    for (uint32_t node = c->heads[place] >> 3; node; node = c->nodes[node].next, used = NODE)
        for (uint32_t i = 0; i < used; i++)
            if (c->nodes[node].slots[i] == slot) return &c->nodes[node].slots[i];
    return NULL; /* never: every slot is in one list a part */
}
static void list_drop(Codes *c, uint32_t place, uint32_t slot) {
    uint32_t *at = list_find(c, place, slot), node = c->heads[place] >> 3, used = c->heads[place] & 7;
    if (!at) return;
    *at = c->nodes[node].slots[used - 1];
    if (used > 1) {
        c->heads[place]--;
        return;
    }
    uint32_t next = c->nodes[node].next;
    c->heads[place] = next ? next << 3 | NODE : 0;
    c->nodes[node].next = c->spare;
    c->spare = node;
    c->spares++;
}
static int build_tables(Codes *c) {
    uint32_t *heads = PyMem_RawCalloc((size_t)PARTS * PLACES, sizeof *heads);
    if (!heads) return 0;
    c->made = 1;
    if (!node_room(c, (size_t)c->count * PARTS)) {
        PyMem_RawFree(heads);
        return 0;
    }
    c->heads = heads;
    for (uint32_t slot = 0; slot < c->count; slot++)
        for (int p = 0; p < PARTS; p++) list_add(c, part(c->codes[slot], p), slot);
    return 1;
}

static PyObject *codes_add(Codes *c, PyObject *const *args, Py_ssize_t given) {
    int64_t label = 0;
    uint64_t code = 0;
    if (given != 2) return PyErr_Format(PyExc_TypeError, "add(label, code)");
    if (!as_label(args[0], &label, c->refused) || !as_code(args[1], &code, c->refused)) return NULL;
    await_readers(&c->gate);
    if (slot_of(&c->map, c->labels, label) != NONE)
        return PyErr_Format(c->refused, "label %lld is there already; drop it first", (long long)label);
    if (c->count == MOST) return PyErr_Format(c->refused, "%u codes are the most; split them", MOST);
    if (c->count == c->room) {
        size_t room = (size_t)c->room + c->room / 2 + 64;
        if (!resized((void **)&c->codes, room, 8) || !resized((void **)&c->labels, room, 8)) return PyErr_NoMemory();
        c->room = (uint32_t)room;
    }
    if (!map_room(&c->map, c->labels, c->count)) return PyErr_NoMemory();
    if (!c->heads && c->count >= TABLES_FROM && !build_tables(c)) return PyErr_NoMemory();
    if (c->heads && !node_room(c, PARTS)) return PyErr_NoMemory();
    uint32_t slot = c->count;
    c->map.places[place_of(&c->map, c->labels, label)] = slot;
    c->codes[slot] = code;
    c->labels[slot] = label;
    c->count++;
    for (int p = 0; c->heads && p < PARTS; p++) list_add(c, part(code, p), slot);
    Py_RETURN_NONE;
}

static PyObject *codes_drop(Codes *c, PyObject *given) {
    int64_t label = 0;
    if (!as_label(given, &label, c->refused)) return NULL;
    await_readers(&c->gate);
    uint32_t slot = slot_of(&c->map, c->labels, label), last = c->count - 1;
    if (slot == NONE) Py_RETURN_FALSE;
    map_drop(&c->map, c->labels, place_of(&c->map, c->labels, label));
    for (int p = 0; c->heads && p < PARTS; p++) list_drop(c, part(c->codes[slot], p), slot);
    if (slot != last) { /* the last one takes its slot */
        c->map.places[place_of(&c->map, c->labels, c->labels[last])] = slot;
        for (int p = 0; c->heads && p < PARTS; p++) {
            uint32_t *at = list_find(c, part(c->codes[last], p), last);
            if (at) *at = slot;
        }
        c->codes[slot] = c->codes[last];
        c->labels[slot] = c->labels[last];
    }
    c->count--;
    Py_RETURN_TRUE;
}

/* A search: what is within `radius`, or the nearest ones as a heap narrows it. */
typedef struct {
    Best best;
    int all; /* everything within the radius: `best` grows */
    int radius, failed;
} Search;

INLINE void take(Search *s, int distance, int64_t label) {
    Best *b = &s->best;
    if (s->all && b->count == b->most) {
        size_t most = b->most * 2 + 64;
        if (!resized((void **)&b->of, most, sizeof *b->of)) {
            s->failed = 1;
            return;
        }
        b->most = most;
    }
    if (s->all) b->of[b->count++] = (Found){(float)distance, 0, label};
    else {
        offer(b, (Found){(float)distance, 0, label});
        s->radius = (int)bound(b, 64);
    }
}

INLINE void scan_plain(const Codes *c, uint64_t code, Search *s, uint32_t from) {
    for (uint32_t slot = from; slot < c->count; slot++) {
        int distance = ones(c->codes[slot] ^ code);
        if (distance <= s->radius) take(s, distance, c->labels[slot]);
    }
}
#define TOUCH 10.0f /* of a list, or of a code out of order */
/* Multi-index hashing: whether it found all. Else looking at every code is cheaper; costs are in nanoseconds. */
INLINE int probe(const Codes *c, uint64_t code, Search *s, float scan_cost) {
    float spent = 0, limit = scan_cost * (float)c->count;
    if (s->all && s->radius >= 4 * (MOST_FLIPS + 1)) return 0;
    for (int flips = 0; flips <= MOST_FLIPS; flips++) {
        const uint16_t *masks = FLIPS + FLIPS_FROM[flips];
        int many = FLIPS_FROM[flips + 1] - FLIPS_FROM[flips];
        for (int p = 0; p < PARTS; p++) {
            int ends = s->radius <= 4 * flips + 3; /* with so many flips, as far as is known yet */
            float parts = (float)(ends ? s->radius - 4 * flips - p + 1 : PARTS - p);
            float next = parts * (float)many * (TOUCH + TOUCH * (float)c->count / PLACES);
            if (spent + next > (ends ? limit : limit / 4)) return 0;
            const uint32_t *heads = c->heads + p * PLACES;
            uint32_t here = (uint32_t)(code >> 16 * p & 0xFFFF);
            for (int m = 0; m < many; m++) {
                if (m + 8 < many) __builtin_prefetch(&c->nodes[heads[here ^ masks[m + 8]] >> 3]);
                uint32_t head = heads[here ^ masks[m]], used = head & 7;
                for (uint32_t node = head >> 3; node; node = c->nodes[node].next, used = NODE) {
                    const uint32_t *slots = c->nodes[node].slots;
                    for (uint32_t i = 0; i < used; i++) {
                        uint64_t differ = c->codes[slots[i]] ^ code;
                        int distance = ones(differ), first = 1;
                        if (distance > s->radius) continue;
                        for (int q = 0; q < PARTS; q++) { /* a code is met in several parts: count it where it comes first */
                            int there = ones(differ >> 16 * q & 0xFFFF);
                            first &= there > flips || (there == flips && q >= p);
                        }
                        if (first) take(s, distance, c->labels[slots[i]]);
                    }
                    spent += TOUCH * (float)used;
                    if (spent > limit) return 0;
                }
            }
            spent += TOUCH * (float)many;
            /* Whatever was not met differs in more than `flips` bits up to this part, and in `flips` in each other. */
            if ((s->all || s->best.count == s->best.most) && s->radius <= 4 * flips + p) return 1;
        }
    }
    return 0;
}

static void scan_0(const Codes *c, uint64_t code, Search *s) { scan_plain(c, code, s, 0); }
static int probe_0(const Codes *c, uint64_t code, Search *s) { return probe(c, code, s, 2.0f); }
#if X86
AVX2 static void scan_1(const Codes *c, uint64_t code, Search *s) { scan_plain(c, code, s, 0); }
AVX2 static int probe_1(const Codes *c, uint64_t code, Search *s) { return probe(c, code, s, 0.7f); }
AVX512 static void scan_2(const Codes *c, uint64_t code, Search *s) {
    const __m512i same = _mm512_set1_epi64((long long)code);
    uint32_t slot = 0;
    for (; slot + 32 <= c->count; slot += 32) {
        __m512i far[4];
        __mmask8 near[4];
        for (int i = 0; i < 4; i++) {
            far[i] = _mm512_popcnt_epi64(_mm512_xor_si512(same, _mm512_loadu_si512(c->codes + slot + 8 * i)));
            near[i] = _mm512_cmple_epi64_mask(far[i], _mm512_set1_epi64(s->radius));
        }
        if (!(near[0] | near[1] | near[2] | near[3])) continue;
        for (int i = 0; i < 4; i++) {
            uint64_t distances[8];
            if (near[i]) _mm512_storeu_si512(distances, far[i]);
            for (unsigned left = near[i]; left; left &= left - 1) {
                int at = __builtin_ctz(left);
                if ((int)distances[at] <= s->radius) take(s, (int)distances[at], c->labels[slot + 8 * (uint32_t)i + (uint32_t)at]);
            }
        }
    }
    scan_plain(c, code, s, slot);
}
AVX512 static int probe_2(const Codes *c, uint64_t code, Search *s) { return probe(c, code, s, 0.4f); }
#endif

static void search_codes(const Codes *c, uint64_t code, Search *s) {
    static int (*const probes[])(const Codes *, uint64_t, Search *) = {
        probe_0,
#if X86
        probe_1, probe_2,
#endif
    };
    static void (*const scans[])(const Codes *, uint64_t, Search *) = {
        scan_0,
#if X86
        scan_1, scan_2,
#endif
    };
    int radius = s->radius;
    if (c->heads && s->best.most <= c->count && probes[c->level](c, code, s)) return;
    s->best.count = 0; /* from the beginning */
    s->radius = radius;
    scans[c->level](c, code, s);
}

static PyObject *codes_nearest(Codes *c, PyObject *const *args, Py_ssize_t given) {
    uint64_t code = 0;
    Py_ssize_t k;
    Found few[32];
    if (given != 2) return PyErr_Format(PyExc_TypeError, "nearest(code, k)");
    if (!as_code(args[0], &code, c->refused) || !as_count(args[1], 1, &k, "k", c->refused)) return NULL;
    Search s = {{few, 0, (size_t)k < c->count ? (size_t)k : c->count}, 0, 64, 0};
    if (s.best.most == 0) return PyList_New(0);
    if (s.best.most > 32 && !(s.best.of = PyMem_RawMalloc(s.best.most * sizeof(Found)))) return PyErr_NoMemory();
    search_codes(c, code, &s);
    PyObject *list = as_list(s.best.of, s.best.count, 0);
    if (s.best.of != few) PyMem_RawFree(s.best.of);
    return list;
}
static PyObject *codes_within(Codes *c, PyObject *const *args, Py_ssize_t given) {
    uint64_t code = 0;
    Py_ssize_t radius;
    if (given != 2) return PyErr_Format(PyExc_TypeError, "within(code, radius)");
    if (!as_code(args[0], &code, c->refused) || !as_count(args[1], 0, &radius, "a radius", c->refused)) return NULL;
    Search s = {{NULL, 0, 0}, 1, radius < 64 ? (int)radius : 64, 0};
    search_codes(c, code, &s);
    PyObject *list = s.failed ? PyErr_NoMemory() : as_list(s.best.of, s.best.count, 0);
    PyMem_RawFree(s.best.of);
    return list;
}
/* nearest_many(codes, k, labels, distances): fills two arrays [n][k]; the interpreter lock is free meanwhile */
static PyObject *codes_nearest_many(Codes *c, PyObject *args) {
    Py_buffer codes, labels, distances;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "y*nw*w*", &codes, &k, &labels, &distances)) return NULL;
    size_t n = (size_t)codes.len / 8, done = 0;
    int ok = k >= 1 && (n == 0 || (size_t)k <= PY_SSIZE_T_MAX / 8 / n);
    if (!ok) PyErr_SetString(PyExc_ValueError, "k does not fit");
    ok = ok && sized(&codes, n * 8, 8) && sized(&labels, n * (size_t)k * 8, 8) && sized(&distances, n * (size_t)k, 1);
    Found *of = ok ? PyMem_RawMalloc((size_t)k * sizeof(Found)) : NULL;
    if (ok && !of) PyErr_NoMemory();
    while (of && done < n) {
        int unlocked = read_unlocked(&c->gate);
        PyThreadState *thread = unlocked ? PyEval_SaveThread() : NULL;
        do {
            size_t most = (size_t)k < c->count ? (size_t)k : c->count;
            Search s = {{of, 0, most}, 0, 64, 0};
            if (most) search_codes(c, ((const uint64_t *)codes.buf)[done], &s);
            if (s.best.count > 1) qsort(of, s.best.count, sizeof *of, by_distance);
            for (size_t i = 0; i < s.best.count; i++) {
                ((int64_t *)labels.buf)[done * (size_t)k + i] = of[i].label;
                ((uint8_t *)distances.buf)[done * (size_t)k + i] = (uint8_t)of[i].far;
            }
            done++;
        } while (unlocked && done < n && !__atomic_load_n(&c->gate.waiting, __ATOMIC_RELAXED));
        if (unlocked) {
            PyEval_RestoreThread(thread);
            c->gate.readers--;
        }
        if (done < n && c->gate.waiting > 0) {
            Py_BEGIN_ALLOW_THREADS
            nap(); /* somebody wants to add or drop: let them */
            Py_END_ALLOW_THREADS
        }
    }
    PyMem_RawFree(of);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&labels);
    PyBuffer_Release(&distances);
    if (!of) return NULL;
    Py_RETURN_NONE;
}

static PyObject *codes_has(Codes *c, PyObject *given) {
    int64_t label = 0;
    if (!as_label(given, &label, c->refused)) return NULL;
    return PyBool_FromLong(slot_of(&c->map, c->labels, label) != NONE);
}
static size_t map_bytes(const Map *m) { return m->places ? ((size_t)m->mask + 1) * sizeof *m->places : 0; }

static PyObject *codes_nbytes(Codes *c, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(sizeof *c + map_bytes(&c->map) + (size_t)c->room * 16 +
                             (c->heads ? (size_t)PARTS * PLACES * 4 : 0) + (size_t)c->node_room * sizeof(Node));
}
static Py_ssize_t codes_length(PyObject *c) { return (Py_ssize_t)((Codes *)c)->count; }

static PyObject *codes_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"refused", "level", NULL};
    PyObject *refused;
    int level = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i", names, &refused, &level) || (level = chosen(level)) < 0)
        return NULL;
    Codes *c = (Codes *)type->tp_alloc(type, 0);
    if (!c) return NULL;
    c->refused = Py_NewRef(refused);
    c->level = level;
    return (PyObject *)c;
}
static void codes_dealloc(Codes *c) {
    PyMem_RawFree(c->map.places);
    PyMem_RawFree(c->codes);
    PyMem_RawFree(c->labels);
    PyMem_RawFree(c->heads);
    PyMem_RawFree(c->nodes);
    Py_XDECREF(c->refused);
    Py_TYPE(c)->tp_free((PyObject *)c);
}

#define CALL(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef CODES_METHODS[] = {
    {"add", CALL(codes_add), METH_FASTCALL, "add(label, code)"},
    {"drop", (PyCFunction)codes_drop, METH_O, "drop(label) -> bool: whether it was there"},
    {"has", (PyCFunction)codes_has, METH_O, "has(label) -> bool"},
    {"nearest", CALL(codes_nearest), METH_FASTCALL, "nearest(code, k) -> [(label, distance)]"},
    {"within", CALL(codes_within), METH_FASTCALL, "within(code, radius) -> [(label, distance)]"},
    {"nearest_many", (PyCFunction)codes_nearest_many, METH_VARARGS, "nearest_many(codes, k, labels, distances)"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef CODES_FIELDS[] = {{"nbytes", (getter)codes_nbytes, NULL, "Bytes held.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PySequenceMethods CODES_SEQUENCE = {.sq_length = codes_length};
static PyTypeObject CodesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mmcache.near._near.Codes",
    .tp_basicsize = sizeof(Codes),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Codes(refused, level=-1): see mmcache.near.hamming.",
    .tp_new = codes_new,
    .tp_dealloc = (destructor)codes_dealloc,
    .tp_methods = CODES_METHODS,
    .tp_getset = CODES_FIELDS,
    .tp_as_sequence = &CODES_SEQUENCE,
};

/* ---- vectors -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *refused;
    Gate gate;
    Map map;
    int64_t *labels;
    uint16_t *rows;     /* [room][width] fp16, padded with zeros to whole lanes */
    uint64_t *sketches; /* [room / BLOCK][WORDS][BLOCK]: the words of 8 rows side by side; NULL until there are BRUTE */
    uint32_t count, room, centred;
    Py_ssize_t dims, width, spread, turns; /* spread = width of a rotation, turns = rotations */
    float *signs;                          /* [turns][ROUNDS][spread] of 1 and -1 */
    double *sum;                           /* [dims] of all rows */
    float *mean;                           /* [dims], fixed when sketches are made */
    int level;
} Rows;

INLINE float from_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
INLINE uint32_t to_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

INLINE float widened(uint16_t half) { /* finite */
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x400) return from_bits(sign | ((magnitude << 13) + 0x38000000));
    float subnormal = (float)magnitude * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}
INLINE uint16_t narrowed(float f) { /* of at most 1; rounds half to even, like the hardware */
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude < 0x38800000) return (uint16_t)(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* Dot products add up in 16 lanes, which are then added in halves: the same at every level, and in numpy. */
INLINE float folded(float *lanes) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}
static float dot_0(const uint16_t *row, const float *query, Py_ssize_t width) {
    float lanes[LANES] = {0};
    for (Py_ssize_t i = 0; i < width; i += LANES)
        for (int lane = 0; lane < LANES; lane++) lanes[lane] += widened(row[i + lane]) * query[i + lane];
    return folded(lanes);
}
/* Distances of 8 rows to `sketch`; a bit each that is below `limit`. */
INLINE unsigned block_plain(const uint64_t *block, const uint64_t *sketch, uint64_t limit, uint64_t *far) {
    unsigned near = 0;
    for (int row = 0; row < BLOCK; row++) {
        far[row] = 0;
        for (int word = 0; word < WORDS; word++) far[row] += (uint64_t)ones(block[word * BLOCK + row] ^ sketch[word]);
        near |= (unsigned)(far[row] < limit) << row;
    }
    return near;
}

/* The rows whose sketches are nearest, the earlier first among equals: at most `most`, in the order of slots. */
typedef struct {
    uint32_t slot, far;
} Pick;
typedef struct {
    Pick *of; /* room for 2 * most */
    size_t count, most;
    uint64_t limit; /* only what is below it is of interest */
} Picks;

static void arrange(Picks *p) { /* nearest first, the rest as it is; there is room for a copy */
    uint32_t at[BITS + 2] = {0};
    memcpy(p->of + p->most, p->of, p->count * sizeof *p->of);
    for (size_t i = 0; i < p->count; i++) at[p->of[i].far + 1]++;
    for (int far = 0; far < BITS; far++) at[far + 1] += at[far];
    for (size_t i = 0; i < p->count; i++) p->of[at[p->of[p->most + i].far]++] = p->of[p->most + i];
}
static void narrow(Picks *p) {
    uint32_t at[BITS + 1] = {0}, limit = 0;
    size_t nearer = 0, kept = 0;
    for (size_t i = 0; i < p->count; i++) at[p->of[i].far]++;
    while (nearer + at[limit] < p->most) nearer += at[limit++];
    size_t equal = p->most - nearer; /* of those at the limit */
    for (size_t i = 0; i < p->count; i++) {
        if (p->of[i].far > limit || (p->of[i].far == limit && equal == 0)) continue;
        equal -= p->of[i].far == limit;
        p->of[kept++] = p->of[i];
    }
    p->count = kept;
    p->limit = limit;
}

typedef unsigned (*BlockKernel)(const uint64_t *, const uint64_t *, uint64_t, uint64_t *);

INLINE void pick_plain(const Rows *r, const uint64_t *sketch, const uint8_t *marked, Picks *p, BlockKernel kernel) {
    uint64_t far[BLOCK];
    for (uint32_t slot = 0; slot < r->count; slot += BLOCK) {
        unsigned near = kernel(r->sketches + (size_t)slot * WORDS, sketch, p->limit, far);
        for (; near; near &= near - 1) {
            uint32_t at = (uint32_t)__builtin_ctz(near), here = slot + at;
            if (here >= r->count || far[at] >= p->limit || (marked && !(marked[here / 8] >> here % 8 & 1))) continue;
            p->of[p->count++] = (Pick){here, (uint32_t)far[at]};
            if (p->count == 2 * p->most) narrow(p);
        }
    }
    if (p->count > p->most) narrow(p);
}
static void pick_0(const Rows *r, const uint64_t *q, const uint8_t *m, Picks *p) { pick_plain(r, q, m, p, block_plain); }

#if X86
AVX2 static float dot_1(const uint16_t *row, const float *query, Py_ssize_t width) {
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += LANES) {
        __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + i)));
        __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + i + 8)));
        low = _mm256_add_ps(low, _mm256_mul_ps(a, _mm256_loadu_ps(query + i)));
        high = _mm256_add_ps(high, _mm256_mul_ps(b, _mm256_loadu_ps(query + i + 8)));
    }
    float lanes[LANES];
    _mm256_storeu_ps(lanes, low);
    _mm256_storeu_ps(lanes + 8, high);
    return folded(lanes);
}
AVX512 static float dot_2(const uint16_t *row, const float *query, Py_ssize_t width) {
    __m512 sum = _mm512_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += LANES) {
        __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(row + i)));
        sum = _mm512_add_ps(sum, _mm512_mul_ps(x, _mm512_loadu_ps(query + i)));
    }
    float lanes[LANES];
    _mm512_storeu_ps(lanes, sum);
    return folded(lanes);
}
AVX2 INLINE unsigned block_avx2(const uint64_t *block, const uint64_t *sketch, uint64_t limit, uint64_t *far) {
    const __m256i four = _mm256_set1_epi8(15);
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2,
                                           3, 2, 3, 3, 4);
    unsigned near = 0;
    for (int half = 0; half < 2; half++) {
        __m256i bytes = _mm256_setzero_si256(); /* at most 64 each */
        for (int word = 0; word < WORDS; word++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(block + word * BLOCK + 4 * half));
            x = _mm256_xor_si256(x, _mm256_set1_epi64x((long long)sketch[word]));
            bytes = _mm256_add_epi8(bytes, _mm256_shuffle_epi8(table, _mm256_and_si256(x, four)));
            bytes = _mm256_add_epi8(bytes, _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi64(x, 4), four)));
        }
        __m256i sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
        __m256i less = _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)limit), sums);
        _mm256_storeu_si256((__m256i *)(far + 4 * half), sums);
        near |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(less)) << 4 * half;
    }
    return near;
}
AVX512 INLINE unsigned block_avx512(const uint64_t *block, const uint64_t *sketch, uint64_t limit, uint64_t *far) {
    __m512i sums = _mm512_setzero_si512();
    for (int word = 0; word < WORDS; word++) {
        __m512i x = _mm512_xor_si512(_mm512_loadu_si512(block + word * BLOCK), _mm512_set1_epi64((long long)sketch[word]));
        sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(x));
    }
    unsigned near = _mm512_cmplt_epu64_mask(sums, _mm512_set1_epi64((long long)limit));
    if (near) _mm512_storeu_si512(far, sums);
    return near;
}
AVX2 static void pick_1(const Rows *r, const uint64_t *q, const uint8_t *m, Picks *p) { pick_plain(r, q, m, p, block_avx2); }
AVX512 static void pick_2(const Rows *r, const uint64_t *q, const uint8_t *m, Picks *p) { pick_plain(r, q, m, p, block_avx512); }
#endif

static const struct {
    float (*dot)(const uint16_t *, const float *, Py_ssize_t);
    void (*pick)(const Rows *, const uint64_t *, const uint8_t *, Picks *);
} LEVELS[] = {
    {dot_0, pick_0},
#if X86
    {dot_1, pick_1},
    {dot_2, pick_2},
#endif
};

/* ---- sketches: signs after a random rotation (signs and Hadamard transforms) about the mean ------------------- */

static void hadamard(float *x, Py_ssize_t n) {
    for (Py_ssize_t h = 1; h < n; h *= 2)
        for (Py_ssize_t i = 0; i < n; i += 2 * h)
            for (Py_ssize_t j = i; j < i + h; j++) {
                float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}
static void sketch_of(const Rows *r, const float *vector, float *scratch, uint64_t *sketch) { /* scratch[spread] */
    memset(sketch, 0, WORDS * sizeof *sketch);
    Py_ssize_t bits = r->spread < BITS ? r->spread : BITS;
    for (Py_ssize_t turn = 0; turn < r->turns; turn++) {
        const float *signs = r->signs + turn * ROUNDS * r->spread;
        memset(scratch + r->dims, 0, (size_t)(r->spread - r->dims) * sizeof *scratch);
        for (Py_ssize_t i = 0; i < r->dims; i++) scratch[i] = vector[i] - r->mean[i];
        for (int round = 0; round < ROUNDS; round++, signs += r->spread) {
            for (Py_ssize_t i = 0; i < r->spread; i++) scratch[i] *= signs[i];
            hadamard(scratch, r->spread);
        }
        for (Py_ssize_t i = 0; i < bits; i++) {
            Py_ssize_t bit = turn * bits + i;
            sketch[bit / 64] |= (uint64_t)(scratch[i] > 0) << bit % 64;
        }
    }
}
static void store_sketch(Rows *r, uint32_t slot, const uint64_t *sketch) {
    for (int word = 0; word < WORDS; word++)
        r->sketches[(size_t)(slot / BLOCK * BLOCK) * WORDS + (size_t)word * BLOCK + slot % BLOCK] = sketch[word];
}
static void sketch_row(Rows *r, uint32_t slot, float *scratch) { /* scratch[spread + width] */
    uint64_t sketch[WORDS];
    float *row = scratch + r->spread;
    for (Py_ssize_t i = 0; i < r->width; i++) row[i] = widened(r->rows[(size_t)slot * (size_t)r->width + (size_t)i]);
    sketch_of(r, row, scratch, sketch);
    store_sketch(r, slot, sketch);
}
/* At BRUTE rows, and once more at RECENTRED: the mean of what there is, and everybody's sketch about it. */
static int centre(Rows *r, float *scratch) {
    if (!r->sketches) {
        Py_ssize_t n = r->turns * ROUNDS * r->spread;
        uint64_t state = 0;
        r->sketches = PyMem_RawCalloc((size_t)r->room * WORDS, sizeof *r->sketches);
        r->signs = PyMem_RawMalloc((size_t)n * sizeof *r->signs);
        if (!r->sketches || !r->signs) {
            PyMem_RawFree(r->sketches);
            PyMem_RawFree(r->signs);
            r->sketches = NULL;
            r->signs = NULL;
            return 0;
        }
        for (Py_ssize_t i = 0; i < n; i++) { /* splitmix64 */
            uint64_t z = state += 0x9E3779B97F4A7C15ull;
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
            z = (z ^ z >> 27) * 0x94D049BB133111EBull;
            r->signs[i] = (z ^ z >> 31) >> 63 ? -1.0f : 1.0f;
        }
    }
    for (Py_ssize_t i = 0; i < r->dims; i++) r->mean[i] = (float)(r->sum[i] / r->count);
    for (uint32_t slot = 0; slot < r->count; slot++) sketch_row(r, slot, scratch);
    r->centred = r->count;
    return 1;
}

/* ---- Rows in Python ------------------------------------------------------------------------------------------- */

/* fp32 [dims] from Python -> length 1 in `unit` [width], zeros behind */
static int as_unit(const Rows *r, PyObject *given, float *unit) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0) return 0;
    int ok = sized(&buffer, (size_t)r->dims * 4, 4);
    if (ok) {
        const float *x = buffer.buf;
        double lanes[LANES] = {0};
        for (Py_ssize_t i = 0; i < r->dims; i++) lanes[i % LANES] += (double)x[i] * x[i];
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
        double norm = sqrt(lanes[0]);
        ok = norm > 0 && norm < INFINITY;
        if (ok) {
            for (Py_ssize_t i = 0; i < r->dims; i++) unit[i] = (float)(x[i] / norm);
            memset(unit + r->dims, 0, (size_t)(r->width - r->dims) * sizeof *unit);
        } else
            PyErr_SetString(r->refused, norm == 0 ? "a vector of zeros has no direction" : "a vector must be finite");
    }
    PyBuffer_Release(&buffer);
    return ok;
}

static int rows_room(Rows *r) { /* for one more */
    if (r->count < r->room) return 1;
    size_t room = ((size_t)r->room + r->room / 2 + BLOCK) / BLOCK * BLOCK;
    if (!resized((void **)&r->labels, room, 8) || !resized((void **)&r->rows, room, (size_t)r->width * 2)) return 0;
    if (r->sketches) {
        if (!resized((void **)&r->sketches, room, WORDS * 8)) return 0;
        memset(r->sketches + (size_t)r->room * WORDS, 0, (room - r->room) * WORDS * 8);
    }
    r->room = (uint32_t)room;
    return 1;
}

static PyObject *rows_add(Rows *r, PyObject *const *args, Py_ssize_t given) {
    int64_t label = 0;
    if (given != 2) return PyErr_Format(PyExc_TypeError, "add(label, vector)");
    if (!as_label(args[0], &label, r->refused)) return NULL;
    float *scratch = PyMem_RawMalloc((size_t)(r->spread + r->width) * sizeof *scratch);
    if (!scratch) return PyErr_NoMemory();
    float *unit = scratch + r->spread;
    int ok = as_unit(r, args[1], unit);
    if (ok) await_readers(&r->gate);
    if (ok && slot_of(&r->map, r->labels, label) != NONE) {
        PyErr_Format(r->refused, "label %lld is there already; drop it first", (long long)label);
        ok = 0;
    } else if (ok && r->count == MOST) {
        PyErr_Format(r->refused, "%u vectors are the most; split them", MOST);
        ok = 0;
    } else if (ok && !(rows_room(r) && map_room(&r->map, r->labels, r->count))) {
        PyErr_NoMemory();
        ok = 0;
    }
    if (ok) {
        uint32_t slot = r->count;
        uint16_t *row = r->rows + (size_t)slot * (size_t)r->width;
        for (Py_ssize_t i = 0; i < r->width; i++) row[i] = narrowed(unit[i]);
        for (Py_ssize_t i = 0; i < r->dims; i++) r->sum[i] += widened(row[i]);
        r->map.places[place_of(&r->map, r->labels, label)] = slot;
        r->labels[slot] = label;
        r->count++;
        if ((r->count >= BRUTE && r->centred < BRUTE) || (r->count >= RECENTRED && r->centred < RECENTRED))
            centre(r, scratch); /* without memory for sketches all rows are read */
        else if (r->sketches) sketch_row(r, slot, scratch);
    }
    PyMem_RawFree(scratch);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *rows_drop(Rows *r, PyObject *given) {
    int64_t label = 0;
    if (!as_label(given, &label, r->refused)) return NULL;
    await_readers(&r->gate);
    uint32_t slot = slot_of(&r->map, r->labels, label), last = r->count - 1;
    if (slot == NONE) Py_RETURN_FALSE;
    uint16_t *row = r->rows + (size_t)slot * (size_t)r->width;
    for (Py_ssize_t i = 0; i < r->dims; i++) r->sum[i] -= widened(row[i]);
    map_drop(&r->map, r->labels, place_of(&r->map, r->labels, label));
    if (slot != last) { /* the last one takes its slot */
        r->map.places[place_of(&r->map, r->labels, r->labels[last])] = slot;
        r->labels[slot] = r->labels[last];
        memcpy(row, r->rows + (size_t)last * (size_t)r->width, (size_t)r->width * 2);
        if (r->sketches) {
            uint64_t sketch[WORDS];
            for (int word = 0; word < WORDS; word++)
                sketch[word] = r->sketches[(size_t)(last / BLOCK * BLOCK) * WORDS + (size_t)word * BLOCK + last % BLOCK];
            store_sketch(r, slot, sketch);
        }
    }
    r->count--;
    Py_RETURN_TRUE;
}

/* Which slots `labels` are: marks them, and lists each once. */
static uint32_t mark(const Rows *r, const Py_buffer *labels, uint8_t *marked, uint32_t *slots) {
    uint32_t found = 0;
    for (Py_ssize_t i = 0; i < labels->len / 8; i++) {
        uint32_t slot = slot_of(&r->map, r->labels, ((const int64_t *)labels->buf)[i]);
        if (slot == NONE || marked[slot / 8] >> slot % 8 & 1) continue;
        marked[slot / 8] |= (uint8_t)(1 << slot % 8);
        slots[found++] = slot;
    }
    return found;
}

/* The end of the second round: whose sketches may be as far as those of the best so far, and SPREADS deviations of the
   difference of two (each of 512 bits that differ with the same chance) farther. */
static uint32_t second(const Picks *p, const Best *best, uint32_t count) {
    uint64_t bits = 0, more;
    uint32_t end = (uint32_t)(p->most / FIRST);
    for (size_t i = 0; i < best->count; i++)
        if (best->of[i].bits > bits) bits = best->of[i].bits;
    for (; end < count; end++) {
        more = p->of[end].far > bits ? p->of[end].far - bits : 0;
        if (more * more * BITS > SPREADS * SPREADS * 2 * bits * (BITS - bits)) break;
    }
    return end;
}

/* Interpreter lock held, but for the scan of a large set. */
static int search_rows(Rows *r, const float *unit, const Py_buffer *among, Best *best) {
    float (*dot)(const uint16_t *, const float *, Py_ssize_t) = LEVELS[r->level].dot;
    uint32_t count = r->count, *slots = NULL;
    uint8_t *marked = NULL;
    float *scratch = NULL;
    Picks picks = {NULL, 0, best->most > CANDIDATES / PER_RESULT ? best->most * PER_RESULT : CANDIDATES, BITS + 1};
    int ok = 1, picked = 0, unlocked = 0;
    enum { AHEAD = 6 };
    if (among) {
        marked = PyMem_RawCalloc((size_t)r->count / 8 + 1, 1);
        slots = PyMem_RawMalloc(((size_t)r->count + 1) * sizeof *slots);
        ok = marked && slots;
        count = ok ? mark(r, among, marked, slots) : 0;
    }
    if (ok && r->sketches && count > BRUTE && picks.most < count) {
        uint64_t sketch[WORDS];
        picked = 1;
        scratch = PyMem_RawMalloc((size_t)r->spread * sizeof *scratch);
        picks.of = PyMem_RawMalloc(2 * picks.most * sizeof *picks.of);
        ok = scratch && picks.of;
        if (ok) {
            unlocked = r->count >= UNLOCKED_FROM && read_unlocked(&r->gate);
            PyThreadState *thread = unlocked ? PyEval_SaveThread() : NULL;
            sketch_of(r, unit, scratch, sketch);
            LEVELS[r->level].pick(r, sketch, marked, &picks);
            arrange(&picks);
            if (unlocked) PyEval_RestoreThread(thread); /* still counted as a reader: slots are what they were */
            count = (uint32_t)picks.count;
        }
    }
    uint32_t first = picked ? (uint32_t)picks.most / FIRST : count, last = first < count ? first : count;
    for (uint32_t i = 0; ok && i < last; i++) {
        uint32_t slot = picked ? picks.of[i].slot : slots ? slots[i] : i;
        if (picked && i + AHEAD < last)
            for (Py_ssize_t at = 0; at < r->width; at += 32)
                __builtin_prefetch(r->rows + (size_t)picks.of[i + AHEAD].slot * (size_t)r->width + at);
        float cosine = dot(r->rows + (size_t)slot * (size_t)r->width, unit, r->width);
        cosine = cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
        offer(best, (Found){-cosine, picked ? picks.of[i].far : 0, r->labels[slot]});
        if (picked && i + 1 == first) last = second(&picks, best, count);
    }
    if (unlocked) r->gate.readers--;
    PyMem_RawFree(marked);
    PyMem_RawFree(slots);
    PyMem_RawFree(scratch);
    PyMem_RawFree(picks.of);
    return ok;
}

static PyObject *rows_nearest(Rows *r, PyObject *const *args, Py_ssize_t given) {
    Py_ssize_t k;
    Py_buffer among = {0};
    Found few[32];
    if (given != 4) return PyErr_Format(PyExc_TypeError, "nearest(vector, k, least, among)");
    double least = PyFloat_AsDouble(args[2]);
    if ((least == -1 && PyErr_Occurred()) || !as_count(args[1], 1, &k, "k", r->refused)) return NULL;
    int some = args[3] != Py_None;
    if (some && PyObject_GetBuffer(args[3], &among, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *list = NULL;
    float *unit = NULL;
    Best best = {few, 0, (size_t)k < r->count ? (size_t)k : r->count};
    if (some && !sized(&among, (size_t)among.len / 8 * 8, 8)) goto done;
    if (!(unit = PyMem_RawMalloc((size_t)r->width * sizeof *unit))) {
        PyErr_NoMemory();
        goto done;
    }
    if (!as_unit(r, args[0], unit)) goto done;
    if (best.most == 0) {
        list = PyList_New(0);
        goto done;
    }
    if (best.most > 32) best.of = PyMem_RawMalloc(best.most * sizeof(Found));
    if (best.of && search_rows(r, unit, some ? &among : NULL, &best)) {
        size_t kept = 0;
        for (size_t i = 0; i < best.count; i++)
            if (-(double)best.of[i].far >= least) best.of[kept++] = best.of[i];
        list = as_list(best.of, kept, 1);
    }
    else if (!PyErr_Occurred()) PyErr_NoMemory();
done:
    if (best.of != few) PyMem_RawFree(best.of);
    PyMem_RawFree(unit);
    if (some) PyBuffer_Release(&among);
    return list;
}

static PyObject *rows_get(Rows *r, PyObject *const *args, Py_ssize_t given) { /* get(label, out) -> whether it is there */
    int64_t label = 0;
    Py_buffer out;
    if (given != 2) return PyErr_Format(PyExc_TypeError, "get(label, out)");
    if (!as_label(args[0], &label, r->refused) || PyObject_GetBuffer(args[1], &out, PyBUF_WRITABLE) < 0) return NULL;
    int ok = sized(&out, (size_t)r->dims * 4, 4);
    uint32_t slot = ok ? slot_of(&r->map, r->labels, label) : NONE;
    for (Py_ssize_t i = 0; slot != NONE && i < r->dims; i++)
        ((float *)out.buf)[i] = widened(r->rows[(size_t)slot * (size_t)r->width + (size_t)i]);
    PyBuffer_Release(&out);
    return ok ? PyBool_FromLong(slot != NONE) : NULL;
}
static PyObject *rows_has(Rows *r, PyObject *given) {
    int64_t label = 0;
    if (!as_label(given, &label, r->refused)) return NULL;
    return PyBool_FromLong(slot_of(&r->map, r->labels, label) != NONE);
}
static PyObject *rows_nbytes(Rows *r, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(sizeof *r + map_bytes(&r->map) + (size_t)r->dims * 12 +
                             (size_t)r->room * ((size_t)r->width * 2 + 8 + (r->sketches ? WORDS * 8 : 0)) +
                             (r->signs ? (size_t)(r->turns * ROUNDS * r->spread) * 4 : 0));
}
static Py_ssize_t rows_length(PyObject *r) { return (Py_ssize_t)((Rows *)r)->count; }

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dims", "refused", "level", NULL};
    PyObject *refused;
    Py_ssize_t dims;
    int level = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO|i", names, &dims, &refused, &level)) return NULL;
    if (dims < 1 || dims > MOST_DIMS) return PyErr_Format(refused, "a vector has 1 to %d dimensions, not %zd", MOST_DIMS, dims);
    if ((level = chosen(level)) < 0) return NULL;
    Rows *r = (Rows *)type->tp_alloc(type, 0);
    if (!r) return NULL;
    r->refused = Py_NewRef(refused);
    r->level = level;
    r->dims = dims;
    r->width = (dims + LANES - 1) / LANES * LANES;
    for (r->spread = LANES; r->spread < dims;) r->spread *= 2;
    r->turns = r->spread < BITS ? BITS / r->spread : 1;
    r->sum = PyMem_RawCalloc((size_t)dims, sizeof *r->sum);
    r->mean = PyMem_RawCalloc((size_t)dims, sizeof *r->mean);
    if (r->sum && r->mean) return (PyObject *)r;
    Py_DECREF(r);
    return PyErr_NoMemory();
}
static void rows_dealloc(Rows *r) {
    PyMem_RawFree(r->map.places);
    PyMem_RawFree(r->labels);
    PyMem_RawFree(r->rows);
    PyMem_RawFree(r->sketches);
    PyMem_RawFree(r->signs);
    PyMem_RawFree(r->sum);
    PyMem_RawFree(r->mean);
    Py_XDECREF(r->refused);
    Py_TYPE(r)->tp_free((PyObject *)r);
}

static PyMethodDef ROWS_METHODS[] = {
    {"add", CALL(rows_add), METH_FASTCALL, "add(label, vector)"},
    {"drop", (PyCFunction)rows_drop, METH_O, "drop(label) -> bool: whether it was there"},
    {"has", (PyCFunction)rows_has, METH_O, "has(label) -> bool"},
    {"get", CALL(rows_get), METH_FASTCALL, "get(label, out) -> bool: whether it is there"},
    {"nearest", CALL(rows_nearest), METH_FASTCALL, "nearest(vector, k, least, among) -> [(label, cosine)]"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef ROWS_FIELDS[] = {{"nbytes", (getter)rows_nbytes, NULL, "Bytes held.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PySequenceMethods ROWS_SEQUENCE = {.sq_length = rows_length};
static PyTypeObject RowsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mmcache.near._near.Rows",
    .tp_basicsize = sizeof(Rows),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Rows(dims, refused, level=-1): see mmcache.near.vectors.",
    .tp_new = rows_new,
    .tp_dealloc = (destructor)rows_dealloc,
    .tp_methods = ROWS_METHODS,
    .tp_getset = ROWS_FIELDS,
    .tp_as_sequence = &ROWS_SEQUENCE,
};

static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "mmcache.near._near", .m_size = -1};

PyMODINIT_FUNC PyInit__near(void) {
    if (sizeof(int) != 4 || *(const uint8_t *)&(const uint16_t){1} != 1) {
        PyErr_SetString(PyExc_ImportError, "the kernels are for little-endian machines"); /* numpy serves instead */
        return NULL;
    }
    for (int flips = 0, at = 0; flips <= MOST_FLIPS; flips++)
        for (uint32_t mask = 0; mask < PLACES; mask++)
            if (ones(mask) == flips) FLIPS[at++] = (uint16_t)mask;
    if (PyType_Ready(&CodesType) < 0 || PyType_Ready(&RowsType) < 0) return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (module && (PyModule_AddObjectRef(module, "Codes", (PyObject *)&CodesType) < 0 ||
                   PyModule_AddObjectRef(module, "Rows", (PyObject *)&RowsType) < 0 ||
                   PyModule_AddIntConstant(module, "BEST_LEVEL", best_level()) < 0))
        Py_CLEAR(module);
    return module;
}
