/* Auto: the core of `mmcache.policies.auto`, which says what it computes and why.

   The plain-Python twin in auto_python.py takes the same decisions, to the bit: the same draws, and the same double
   operations in the same order (so no contraction to fused multiply-adds, see setup.py). Tests hold the two together.

   Memory: a block takes 8 bytes for its key, 12 for its entry, 3 x 10 for ghosts, each with a sixteenth to spare where
   blocks only come; the map takes 4 bytes a place. No Python code runs while the state changes: keys are bytes, hashed and compared here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { USES = 8, GAPS = 6, GAP_OCTAVES = 4, CLASSES = USES * GAPS, OCTAVES = 26 };
enum { POOL = 16, SAMPLES = 64, WAYS = 8, GHOSTS = 3, MOST_USES = 1023 };
enum { SCANS = 16, SCAN_LEAST = 128, MEMORY = 5, MEMORY_LEAST = 10000, MEMORY_YOUNG = 3 };
static const double PRIOR = 0.55, AGE_HITS = 1.0, MARGIN_HITS = 5.0, CLASS_HITS = 6.0, SLOPE = 0.01, SHIELD = 1e60, LEAST = 1e-30;
static const double LEAST_COST = 1e-6, MOST_COST = 1e9, MOST_SIZE = 1e18;
static const double BOOST[USES] = {1.0, 1.32, 1.55, 1.9, 2.51, 3.31, 4.37, 5.8}; /* about uses ** 0.4 */
#define NONE UINT32_MAX
#define WRAP 0x80000000u /* at this clock, all times go back by half of it */
#define MOST_BLOCKS (1u << 27)

enum { POOLED = 1, NEEDED = 2 };

typedef struct { /* apart from the key, so that a sample reads less */
    float weight;  /* seconds per byte */
    uint32_t last; /* clock of the last use */
    uint16_t uses;
    uint8_t group; /* class, of CLASSES */
    uint8_t flags;
} Entry;

typedef struct {
    double score;
    uint32_t slot;
} Ranked;

typedef struct {
    PyObject_HEAD
    PyObject **keys;
    Entry *entries;
    uint32_t count, room;
    uint32_t *map, mask; /* open addressing: hash -> slot, NONE = free; mask + 1 places */
    uint32_t *ghost_hash, *ghost_last;
    uint16_t *ghost_meta; /* uses * 64 + class; a ghost whose last use is 0 is free */
    uint32_t sets, ghosts;
    uint32_t clock, scanned, next_scan; /* in requests */
    Ranked pool[POOL];                  /* of the lowest scores seen, lowest first */
    uint32_t pooled, pool_clock;
    uint32_t newest;
    uint32_t version; /* counts changes of slots */
    uint64_t random;
    double exposed[CLASSES][OCTAVES], hits[CLASSES][OCTAVES], density[CLASSES][OCTAVES];
} Core;

/* ---- keys ---- */

static uint32_t hash_of(PyObject *key) /* the same in every process, unlike Python's */
{
    const char *bytes = PyBytes_AS_STRING(key);
    size_t left = (size_t)PyBytes_GET_SIZE(key);
    uint64_t hash = left;
    for (; left > 0; bytes += 8) {
        uint64_t word = 0;
        size_t take = left < 8 ? left : 8;
        memcpy(&word, bytes, take);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
        left -= take;
    }
    return (uint32_t)(hash * 0xBF58476D1CE4E5B9ull >> 32);
}

static int same(PyObject *a, PyObject *b)
{
    return a == b || (PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
                      memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), (size_t)PyBytes_GET_SIZE(a)) == 0);
}

static int not_a_key(PyObject *key)
{
    if (PyBytes_Check(key)) return 0;
    PyErr_SetString(PyExc_TypeError, "a key is bytes");
    return 1;
}

static uint32_t find(const Core *c, PyObject *key, uint32_t hash) /* slot or NONE */
{
    if (c->map == NULL) return NONE;
    for (uint32_t at = hash & c->mask; c->map[at] != NONE; at = (at + 1) & c->mask)
        if (same(c->keys[c->map[at]], key)) return c->map[at];
    return NONE;
}

static uint32_t place_of(const Core *c, uint32_t slot, uint32_t hash) /* of a slot that is there */
{
    uint32_t at = hash & c->mask;
    while (c->map[at] != slot) at = (at + 1) & c->mask;
    return at;
}

static void map_put(Core *c, uint32_t slot, uint32_t hash)
{
    uint32_t at = hash & c->mask;
    while (c->map[at] != NONE) at = (at + 1) & c->mask;
    c->map[at] = slot;
}

static void map_remove(Core *c, uint32_t at)
{
    for (uint32_t next = (at + 1) & c->mask; c->map[next] != NONE; next = (next + 1) & c->mask) {
        uint32_t home = hash_of(c->keys[c->map[next]]) & c->mask;
        if (((next - home) & c->mask) >= ((next - at) & c->mask)) { /* its home is not after the hole: move it there */
            c->map[at] = c->map[next];
            at = next;
        }
    }
    c->map[at] = NONE;
}

/* ---- scores ---- */

static inline uint32_t octave(uint32_t age)
{
    uint32_t b = 0;
    if (age < 2) return 0;
#if defined(__GNUC__)
    b = 31u - (uint32_t)__builtin_clz(age);
#else
    while (age >>= 1) b++;
#endif
    return b < OCTAVES ? b : OCTAVES - 1;
}

static uint8_t group_of(uint32_t uses, uint32_t gap)
{
    uint32_t u = uses < 4 ? uses - 1 : octave(uses) + 1;
    if (u >= USES) u = USES - 1;
    uint32_t g = gap == 0 ? 0 : 1 + octave(gap) / GAP_OCTAVES;
    return (uint8_t)(u * GAPS + (g < GAPS ? g : GAPS - 1));
}

#define PARTS4(b) 1.0 / (1u << (b)), 1.0 / (2u << (b)), 1.0 / (4u << (b)), 1.0 / (8u << (b))
static const double PART[28] = {PARTS4(0), PARTS4(4), PARTS4(8), PARTS4(12), PARTS4(16), PARTS4(20), PARTS4(24)};

static double score(const Core *c, uint32_t slot)
{
    const Entry *e = &c->entries[slot];
    uint32_t age = c->clock - e->last, b = octave(age), start = 1u << b;
    double within = age > start ? (double)(age - start) * PART[b] : 0.0;
    double value = (double)e->weight * c->density[e->group][b] * (1.0 - SLOPE * (within < 1.0 ? within : 1.0));
    return e->flags & NEEDED ? value * SHIELD : value;
}

static inline int before(double score, uint32_t slot, const Ranked *other)
{
    return score < other->score || (score == other->score && slot < other->slot);
}

/* ---- learning ---- */

/* Time that a block of this class spent at ages from `from` to `to`. */
static void expose(Core *c, uint32_t group, uint32_t from, uint32_t to)
{
    if (from < 1) from = 1;
    for (uint32_t b = octave(from); from < to; b++) {
        uint32_t end = b == OCTAVES - 1 || to < 2u << b ? to : 2u << b;
        c->exposed[group][b] += (double)(end - from);
        from = end;
    }
}

/* The same, since the last scan or since its last use, whichever is later. */
static void elapsed(Core *c, uint32_t group, uint32_t last)
{
    expose(c, group, last > c->scanned ? 0 : c->scanned - last, c->clock - last);
}

static void reused(Core *c, uint32_t group, uint32_t last)
{
    elapsed(c, group, last);
    c->hits[group][octave(c->clock - last)] += 1.0;
}

static void learn(Core *c)
{
    double hits[OCTAVES] = {0}, time[OCTAVES] = {0};
    double use_rate[USES][OCTAVES] = {{0}}, use_time[USES][OCTAVES] = {{0}};
    double gap_rate[GAPS][OCTAVES] = {{0}}, gap_time[GAPS][OCTAVES] = {{0}};
    for (int k = 0; k < CLASSES; k++)
        for (int b = 0; b < OCTAVES; b++) {
            double h = c->hits[k][b], t = c->exposed[k][b];
            hits[b] += h;
            time[b] += t;
            use_rate[k / GAPS][b] += h;
            use_time[k / GAPS][b] += t;
            gap_rate[k % GAPS][b] += h;
            gap_time[k % GAPS][b] += t;
        }
    for (int b = 0; b < OCTAVES; b++) {
        double prior = PRIOR / ((double)(1u << b) + 1.0);
        hits[b] = (hits[b] + AGE_HITS) / (time[b] + AGE_HITS / prior); /* from here on the rate of all */
        for (int u = 0; u < USES; u++)
            use_rate[u][b] = (use_rate[u][b] + MARGIN_HITS) / (use_time[u][b] + MARGIN_HITS / (hits[b] * BOOST[u]));
        for (int g = 0; g < GAPS; g++)
            gap_rate[g][b] = (gap_rate[g][b] + MARGIN_HITS) / (gap_time[g][b] + MARGIN_HITS / hits[b]);
    }
    for (int k = 0; k < CLASSES; k++) {
        double hit[OCTAVES], held[OCTAVES], stay[OCTAVES]; /* of the run of octaves that starts at b */
        int next[OCTAVES];
        for (int b = OCTAVES - 1; b >= 0; b--) {
            double width = (double)(1u << b);
            double pull = CLASS_HITS * hits[b] / (use_rate[k / GAPS][b] * gap_rate[k % GAPS][b]); /* requests */
            double p = (c->hits[k][b] + CLASS_HITS) / (c->exposed[k][b] + pull) * width;
            stay[b] = 1.0 / (1.0 + p);
            hit[b] = p * stay[b];
            held[b] = width * stay[b];
            next[b] = b + 1;
            while (next[b] < OCTAVES && hit[next[b]] * held[b] > hit[b] * held[next[b]]) { /* worth waiting for */
                int n = next[b];
                hit[b] += stay[b] * hit[n];
                held[b] += stay[b] * held[n];
                stay[b] *= stay[n];
                next[b] = next[n];
            }
            c->density[k][b] = hit[b] / held[b];
        }
    }
}

static double faded(double value, double kept) /* to 0 in the end: denormal numbers would be slow for ever */
{
    value *= kept;
    return value < LEAST ? 0.0 : value;
}

static void scan(Core *c)
{
    uint32_t known = c->count + c->ghosts, wait = known / SCANS;
    double memory = MEMORY * (double)known, young = 0.5 * (double)c->clock, kept;
    for (uint32_t i = 0; i < c->count; i++) elapsed(c, c->entries[i].group, c->entries[i].last);
    for (uint32_t i = 0; i < c->sets * WAYS; i++)
        if (c->ghost_last[i]) elapsed(c, c->ghost_meta[i] & 63, c->ghost_last[i]);
    if (memory < MEMORY_LEAST) memory = MEMORY_LEAST;
    if (young < MEMORY_YOUNG * (double)known) young = MEMORY_YOUNG * (double)known;
    if (memory > young) memory = young; /* what is young may forget its first half */
    kept = memory / (memory + (double)(c->clock - c->scanned));
    for (int k = 0; k < CLASSES; k++)
        for (int b = 0; b < OCTAVES; b++) {
            c->exposed[k][b] = faded(c->exposed[k][b], kept);
            c->hits[k][b] = faded(c->hits[k][b], kept);
        }
    learn(c);
    c->scanned = c->clock;
    c->next_scan = c->clock + (wait < SCAN_LEAST ? SCAN_LEAST : wait);
}

static inline uint32_t earlier(uint32_t time, uint32_t by) { return time > by ? time - by : 1; }

static void tick(Core *c)
{
    c->clock++;
    if (c->clock >= c->next_scan) scan(c);
    if (c->clock >= WRAP) {
        uint32_t by = WRAP / 2;
        for (uint32_t i = 0; i < c->count; i++) c->entries[i].last = earlier(c->entries[i].last, by);
        for (uint32_t i = 0; i < c->sets * WAYS; i++)
            if (c->ghost_last[i]) c->ghost_last[i] = earlier(c->ghost_last[i], by);
        c->clock -= by;
        c->scanned = earlier(c->scanned, by);
        c->next_scan -= by;
        c->pool_clock = NONE;
    }
}

/* ---- ghosts: what was here lately, in sets of 8 ---- */

static uint32_t set_of(const Core *c, uint32_t hash) { return (uint32_t)((uint64_t)hash * c->sets >> 32) * WAYS; }

static uint32_t ghost_find(const Core *c, uint32_t hash)
{
    if (c->sets == 0) return NONE;
    for (uint32_t i = set_of(c, hash), end = i + WAYS; i < end; i++)
        if (c->ghost_hash[i] == hash && c->ghost_last[i]) return i;
    return NONE;
}

static void ghost_put(Core *c, uint32_t hash, uint32_t last, uint16_t meta)
{
    if (c->sets == 0) return;
    uint32_t first = set_of(c, hash), at = first;
    for (uint32_t i = first; i < first + WAYS; i++) { /* the same, else a free place, else the oldest */
        if (c->ghost_hash[i] == hash && c->ghost_last[i]) {
            at = i;
            break;
        }
        if (c->ghost_last[i] < c->ghost_last[at]) at = i;
    }
    if (c->ghost_last[at] == 0) c->ghosts++;
    else elapsed(c, c->ghost_meta[at] & 63, c->ghost_last[at]);
    c->ghost_hash[at] = hash;
    c->ghost_last[at] = last;
    c->ghost_meta[at] = meta;
}

static void ghosts_fit(Core *c) /* to the number of blocks; without memory they stay as they are */
{
    uint32_t sets = (c->count * GHOSTS + WAYS - 1) / WAYS, old = c->sets * WAYS;
    if (sets < 8) sets = 8;
    if (sets <= c->sets && sets >= c->sets / 4 * 3) return;
    sets += sets / 16;
    uint32_t *hash = PyMem_Calloc((size_t)sets * WAYS, sizeof *hash), *old_hash = c->ghost_hash;
    uint32_t *last = PyMem_Calloc((size_t)sets * WAYS, sizeof *last), *old_last = c->ghost_last;
    uint16_t *meta = PyMem_Calloc((size_t)sets * WAYS, sizeof *meta), *old_meta = c->ghost_meta;
    if (hash == NULL || last == NULL || meta == NULL) {
        PyMem_Free(hash);
        PyMem_Free(last);
        PyMem_Free(meta);
        return;
    }
    c->ghost_hash = hash;
    c->ghost_last = last;
    c->ghost_meta = meta;
    c->sets = sets;
    c->ghosts = 0;
    for (uint32_t i = 0; i < old; i++)
        if (old_last[i]) ghost_put(c, old_hash[i], old_last[i], old_meta[i]);
    PyMem_Free(old_hash);
    PyMem_Free(old_last);
    PyMem_Free(old_meta);
}

/* ---- the pool ---- */

static uint32_t draw(uint64_t *state, uint32_t count)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 32) * count >> 32);
}

static void pool_insert(Core *c, uint32_t slot, double value)
{
    uint32_t at = c->pooled;
    if (at == POOL) {
        if (!before(value, slot, &c->pool[--at])) return;
        c->entries[c->pool[at].slot].flags &= (uint8_t)~POOLED;
    } else {
        c->pooled++;
    }
    for (; at > 0 && before(value, slot, &c->pool[at - 1]); at--) c->pool[at] = c->pool[at - 1];
    c->pool[at].slot = slot;
    c->pool[at].score = value;
    c->entries[slot].flags |= POOLED;
}

static void pool_refresh(Core *c) /* the same members, with their scores as of now */
{
    if (c->pool_clock == c->clock) return;
    uint32_t count = c->pooled;
    c->pooled = 0;
    for (uint32_t i = 0; i < count; i++) pool_insert(c, c->pool[i].slot, score(c, c->pool[i].slot));
    c->pool_clock = c->clock;
}

static void pool_refill(Core *c)
{
    uint32_t slots[SAMPLES];
    if (c->count <= 2 * POOL) return;
    for (int i = 0; i < SAMPLES; i++) {
        slots[i] = draw(&c->random, c->count);
#if defined(__GNUC__)
        __builtin_prefetch(&c->entries[slots[i]]);
#endif
    }
    for (int i = 0; i < SAMPLES; i++)
        if (!(c->entries[slots[i]].flags & POOLED)) pool_insert(c, slots[i], score(c, slots[i]));
}

static uint32_t pool_place(const Core *c, uint32_t slot)
{
    uint32_t i = 0;
    while (c->pool[i].slot != slot) i++;
    return i;
}

/* ---- the four methods ---- */

static PyObject *size_name, *cost_name, *references_name;

static int fields(PyObject *facts, float *weight, int *needed)
{
    PyObject *size = PyObject_GetAttr(facts, size_name), *cost = NULL, *references = NULL;
    if (size != NULL) cost = PyObject_GetAttr(facts, cost_name);
    if (cost != NULL) references = PyObject_GetAttr(facts, references_name);
    int failed = references == NULL;
    if (!failed) {
        double bytes = PyFloat_AsDouble(size), seconds;
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            bytes = MOST_SIZE;
        }
        seconds = PyErr_Occurred() ? 0.0 : PyFloat_AsDouble(cost);
        *needed = PyErr_Occurred() ? 0 : PyObject_IsTrue(references);
        failed = PyErr_Occurred() != NULL;
        bytes = bytes >= 1.0 ? bytes : 1.0;
        bytes = bytes <= MOST_SIZE ? bytes : MOST_SIZE;
        seconds = seconds >= LEAST_COST ? seconds : LEAST_COST;
        seconds = seconds <= MOST_COST ? seconds : MOST_COST;
        *weight = (float)(seconds / bytes);
    }
    Py_XDECREF(size);
    Py_XDECREF(cost);
    Py_XDECREF(references);
    return failed ? -1 : 0;
}

static int resize(Core *c, uint32_t room)
{
    PyObject **keys = PyMem_Realloc(c->keys, room * sizeof *keys);
    if (keys != NULL) c->keys = keys;
    Entry *entries = PyMem_Realloc(c->entries, room * sizeof *entries);
    if (entries != NULL) c->entries = entries;
    if (keys == NULL || entries == NULL) {
        if (room < c->room) c->room = room; /* one of them may be that short */
        return -1;
    }
    c->room = room;
    return 0;
}

static int make_room(Core *c) /* for one more entry */
{
    if (c->count == MOST_BLOCKS) {
        PyErr_SetString(PyExc_MemoryError, "too many blocks for one policy");
        return -1;
    }
    if (c->count == c->room && resize(c, c->room + c->room / 16 + 16) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (c->map == NULL || (c->count + 1) * 10ull > (c->mask + 1) * 7ull) {
        uint32_t places = c->map == NULL ? 64 : (c->mask + 1) * 2;
        uint32_t *map = PyMem_Malloc(places * sizeof *map);
        if (map == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(map, 0xFF, places * sizeof *map);
        PyMem_Free(c->map);
        c->map = map;
        c->mask = places - 1;
        for (uint32_t i = 0; i < c->count; i++) map_put(c, i, hash_of(c->keys[i]));
    }
    return 0;
}

static PyObject *add(Core *c, PyObject *const *args, Py_ssize_t count)
{
    float weight = 0.0f;
    int needed = 0;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "add(key, facts, now)");
        return NULL;
    }
    PyObject *key = args[0];
    if (not_a_key(key) || fields(args[1], &weight, &needed) < 0) return NULL; /* may run Python code: before all else */
    uint32_t hash = hash_of(key), slot = find(c, key, hash);
    if (slot != NONE) {
        Entry *e = &c->entries[slot];
        e->weight = weight;
        e->flags = (uint8_t)((e->flags & ~NEEDED) | (needed ? NEEDED : 0));
        c->pool_clock = NONE;
        Py_RETURN_NONE;
    }
    if (make_room(c) < 0) return NULL;
    tick(c);
    uint32_t ghost = ghost_find(c, hash), uses = 1, gap = 0;
    if (ghost != NONE) {
        uint32_t last = c->ghost_last[ghost], meta = c->ghost_meta[ghost];
        reused(c, meta & 63, last);
        uses = (meta >> 6) + (meta >> 6 < MOST_USES);
        gap = c->clock - last;
        c->ghost_last[ghost] = 0;
        c->ghosts--;
    }
    slot = c->newest = c->count++;
    c->keys[slot] = Py_NewRef(key);
    c->entries[slot] = (Entry){weight, c->clock, (uint16_t)uses, group_of(uses, gap), needed ? NEEDED : 0};
    map_put(c, slot, hash);
    c->version++;
    Py_RETURN_NONE;
}

static PyObject *touch(Core *c, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "touch(key, now)");
        return NULL;
    }
    if (not_a_key(args[0])) return NULL;
    uint32_t slot = find(c, args[0], hash_of(args[0]));
    if (slot == NONE) Py_RETURN_NONE;
    tick(c);
    Entry *e = &c->entries[slot];
    reused(c, e->group, e->last);
    e->uses = (uint16_t)(e->uses + (e->uses < MOST_USES));
    e->group = group_of(e->uses, c->clock - e->last);
    e->last = c->clock;
    Py_RETURN_NONE;
}

static PyObject *drop(Core *c, PyObject *key)
{
    if (not_a_key(key)) return NULL;
    uint32_t hash = hash_of(key), slot = find(c, key, hash);
    if (slot == NONE) Py_RETURN_NONE;
    pool_refresh(c);
    Entry gone = c->entries[slot];
    PyObject *gone_key = c->keys[slot];
    if (gone.flags & POOLED) {
        c->pooled--;
        for (uint32_t i = pool_place(c, slot); i < c->pooled; i++) c->pool[i] = c->pool[i + 1];
    }
    ghosts_fit(c);
    ghost_put(c, hash, gone.last, (uint16_t)(gone.uses << 6 | gone.group));
    map_remove(c, place_of(c, slot, hash));
    if (c->newest == slot) c->newest = NONE;
    uint32_t last = --c->count;
    if (last != slot) { /* the last entry takes its place */
        c->map[place_of(c, last, hash_of(c->keys[last]))] = slot;
        c->entries[slot] = c->entries[last];
        c->keys[slot] = c->keys[last];
        if (c->newest == last) c->newest = slot;
        if (c->entries[slot].flags & POOLED) c->pool[pool_place(c, last)].slot = slot;
    }
    if (c->count < c->room / 2 && c->room > 64) resize(c, c->count + c->count / 16 + 16);
    pool_refill(c);
    c->version++;
    Py_DECREF(gone_key);
    Py_RETURN_NONE;
}

static PyObject *explain(Core *c, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "explain(key, now)");
        return NULL;
    }
    if (not_a_key(args[0])) return NULL;
    uint32_t slot = find(c, args[0], hash_of(args[0]));
    if (slot == NONE) return PyDict_New();
    const Entry *e = &c->entries[slot];
    uint32_t age = c->clock - e->last;
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:d}", "seconds_per_byte", (double)e->weight, "hits_per_request",
                         c->density[e->group][octave(age)], "uses", (double)e->uses, "age_requests", (double)age,
                         "needed", e->flags & NEEDED ? 1.0 : 0.0, "score", score(c, slot));
}

/* ---- victims ---- */

typedef struct {
    PyObject_HEAD
    Core *core;
    Ranked *heap; /* this round's candidates, the lowest first; a slot may be there twice */
    Ranked few[2 * POOL]; /* the heap of most first rounds */
    uint32_t count, left; /* candidates; how many of them may be given, as the rest are not low */
    uint32_t given;
    uint32_t early[2 * POOL]; /* slots given in the first round */
    uint8_t *marked;          /* after it: a bit a slot, set when given */
    uint64_t random;
    uint32_t version;
    int last; /* this round holds all that are left */
} Victims;

static int was_given(const Victims *v, uint32_t slot)
{
    if (v->marked != NULL) return v->marked[slot >> 3] >> (slot & 7) & 1;
    for (uint32_t i = 0; i < v->given; i++)
        if (v->early[i] == slot) return 1;
    return 0;
}

static void set_given(Victims *v, uint32_t slot)
{
    if (v->marked != NULL) v->marked[slot >> 3] |= (uint8_t)(1 << (slot & 7));
    else v->early[v->given] = slot;
}

static void sift(Ranked *heap, uint32_t count, uint32_t at)
{
    Ranked moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child + 1].score, heap[child + 1].slot, &heap[child])) child++;
        if (!before(heap[child].score, heap[child].slot, &moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void heapify(Victims *v)
{
    for (uint32_t i = v->count / 2; i-- > 0;) sift(v->heap, v->count, i);
}

static void consider(Victims *v, uint32_t slot)
{
    if (!was_given(v, slot)) v->heap[v->count++] = (Ranked){score(v->core, slot), slot};
}

/* The pool and the newest, or all of few; 0, or -1 without memory. */
static int first_round(Victims *v)
{
    Core *c = v->core;
    v->heap = v->few;
    v->last = c->count <= 2 * POOL;
    if (v->last) {
        for (uint32_t i = 0; i < c->count; i++) consider(v, i);
    } else {
        pool_refresh(c);
        memcpy(v->heap, c->pool, c->pooled * sizeof *v->heap);
        v->count = c->pooled;
        if (c->newest != NONE) consider(v, c->newest);
        if (c->pooled < POOL) { /* nothing was dropped lately */
            v->heap = PyMem_Malloc((POOL + SAMPLES) * sizeof *v->heap);
            if (v->heap == NULL) return -1;
            memcpy(v->heap, v->few, v->count * sizeof *v->heap);
            for (int i = 0; i < SAMPLES; i++) consider(v, draw(&v->random, c->count));
        }
    }
    v->left = v->last ? v->count : POOL;
    heapify(v);
    return 0;
}

/* Samples 32 times as many as were given, or all others when those are few; 0, or -1 without memory. */
static int next_round(Victims *v)
{
    Core *c = v->core;
    if (v->marked == NULL) {
        v->marked = PyMem_Calloc(c->count / 8 + 1, 1);
        if (v->marked == NULL) return -1;
        for (uint32_t i = 0; i < v->given; i++) set_given(v, v->early[i]);
    }
    v->last = v->given >= c->count / 64;
    uint32_t samples = v->last ? c->count : v->given * 32;
    Ranked *heap = PyMem_Realloc(v->heap == v->few ? NULL : v->heap, samples * sizeof *heap);
    if (heap == NULL) return -1;
    v->heap = heap;
    v->count = 0;
    for (uint32_t i = 0; i < samples; i++) consider(v, v->last ? i : draw(&v->random, c->count));
    v->left = v->last ? v->count : v->given;
    heapify(v);
    return 0;
}

static PyObject *victims_next(Victims *v)
{
    while (v->version == v->core->version && v->given < v->core->count) { /* else the order is over */
        if ((v->count == 0 || v->left == 0) && next_round(v) < 0) return PyErr_NoMemory();
        if (v->count == 0) continue; /* a sample of nothing new */
        uint32_t slot = v->heap[0].slot;
        v->heap[0] = v->heap[--v->count];
        sift(v->heap, v->count, 0);
        if (was_given(v, slot)) continue;
        set_given(v, slot);
        v->left--;
        v->given++;
        return Py_NewRef(v->core->keys[slot]);
    }
    return NULL;
}

static void victims_dealloc(Victims *v)
{
    if (v->heap != v->few) PyMem_Free(v->heap);
    PyMem_Free(v->marked);
    Py_DECREF(v->core);
    PyObject_Free(v);
}

static PyTypeObject VictimsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mmcache.policies._auto.Victims",
    .tp_basicsize = sizeof(Victims),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, /* in no cycle: a core knows only bytes */
    .tp_dealloc = (destructor)victims_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)victims_next,
};

static PyObject *victims(Core *c, PyObject *now)
{
    Victims *v = PyObject_New(Victims, &VictimsType);
    if (v == NULL) return NULL;
    v->core = (Core *)Py_NewRef(c);
    v->marked = NULL;
    v->count = v->left = v->given = 0;
    v->random = c->random;
    v->version = c->version;
    if (first_round(v) < 0) {
        Py_DECREF(v);
        return PyErr_NoMemory();
    }
    return (PyObject *)v;
}

/* ---- the type ---- */

static PyObject *new_core(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"seed", "clock", NULL};
    unsigned long long seed = 1;
    unsigned int clock = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KI", names, &seed, &clock)) return NULL;
    if (clock >= WRAP) {
        PyErr_SetString(PyExc_ValueError, "clock must be below 2**31");
        return NULL;
    }
    Core *c = (Core *)type->tp_alloc(type, 0);
    if (c == NULL) return NULL;
    c->random = seed;
    c->clock = c->scanned = clock;
    c->next_scan = clock + SCAN_LEAST;
    c->newest = c->pool_clock = NONE;
    learn(c);
    return (PyObject *)c;
}

static int traverse(Core *c, visitproc visit, void *arg)
{
    for (uint32_t i = 0; i < c->count; i++) Py_VISIT(c->keys[i]);
    return 0;
}

static int clear(Core *c)
{
    PyObject **keys = c->keys; /* taken away first: what a key's end may run finds none of them */
    Entry *entries = c->entries;
    uint32_t count = c->count;
    c->keys = NULL;
    c->entries = NULL;
    c->count = c->room = c->pooled = 0;
    c->newest = NONE;
    c->version++;
    if (c->map != NULL) memset(c->map, 0xFF, ((size_t)c->mask + 1) * sizeof *c->map);
    for (uint32_t i = 0; i < count; i++) Py_DECREF(keys[i]);
    PyMem_Free(keys);
    PyMem_Free(entries);
    return 0;
}

static void dealloc(Core *c)
{
    PyObject_GC_UnTrack(c);
    clear(c);
    PyMem_Free(c->map);
    PyMem_Free(c->ghost_hash);
    PyMem_Free(c->ghost_last);
    PyMem_Free(c->ghost_meta);
    Py_TYPE(c)->tp_free((PyObject *)c);
}

static PyObject *size_of(Core *c, PyObject *unused)
{
    size_t map = c->map == NULL ? 0 : ((size_t)c->mask + 1) * sizeof *c->map;
    return PyLong_FromSize_t(sizeof *c + map + c->room * (sizeof *c->entries + sizeof *c->keys) + (size_t)c->sets * WAYS * 10);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))add, METH_FASTCALL, "add(key, facts, now): a block was stored, or its facts changed."},
    {"touch", (PyCFunction)(void (*)(void))touch, METH_FASTCALL, "touch(key, now): a block was used."},
    {"drop", (PyCFunction)drop, METH_O, "drop(key): a block is gone."},
    {"victims", (PyCFunction)victims, METH_O, "victims(now): known keys, each once, the first to go first."},
    {"explain", (PyCFunction)(void (*)(void))explain, METH_FASTCALL, "explain(key, now): the parts of a block's score."},
    {"__sizeof__", (PyCFunction)size_of, METH_NOARGS, "Bytes held, keys excluded."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject CoreType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mmcache.policies._auto.Core",
    .tp_basicsize = sizeof(Core),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Core(seed=1, clock=0): see mmcache.policies.auto; the plain-Python twin is auto_python.PythonCore.",
    .tp_new = new_core,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_methods = methods,
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "mmcache.policies._auto", .m_size = -1};

PyMODINIT_FUNC PyInit__auto(void)
{
    if (PyType_Ready(&CoreType) < 0 || PyType_Ready(&VictimsType) < 0) return NULL;
    size_name = PyUnicode_InternFromString("size");
    cost_name = PyUnicode_InternFromString("cost");
    references_name = PyUnicode_InternFromString("references");
    if (size_name == NULL || cost_name == NULL || references_name == NULL) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    if (PyModule_AddObjectRef(made, "Core", (PyObject *)&CoreType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
