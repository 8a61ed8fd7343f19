/* INT4 symmetric quantisation per channel, and fp32 -> fp16.
 *
 * Rows of `channels` values; every `group` consecutive rows share one float scale per channel:
 *     scale = max|x| / 7        q = clamp(round_half_even(x * (1 / scale)), -7, 7)        x' = q * scale
 * A byte holds q+8 of two neighbours of a row, the first in its low half; a row of odd length ends in a half byte.
 *
 * Three levels give bit-equal results: 0 = portable C, 1 = AVX2+F16C, 2 = AVX-512. The best one that the processor
 * has is chosen at run time. Maxima are taken on the bit patterns of |x|, which order like the values and
 * put infinities and NaN on top, so finiteness costs nothing.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
#define X86 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#else
#define X86 0
#endif
#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#define SMALLEST_SCALE 0x1p-120f /* below it 1/scale nears overflow; such channels become zero */

/* ---- conversions ---------------------------------------------------------------------------------------------- */

INLINE float from_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
INLINE uint32_t to_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

INLINE float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x400) return from_bits(sign | ((magnitude << 13) + 0x38000000));
    float subnormal = (float)magnitude * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

INLINE uint16_t float_to_half(float f) { /* rounds half to even, like the hardware */
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (magnitude < 0x38800000) { /* subnormal: adding 0.5 leaves the rounded result in the low bits */
        return (uint16_t)(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* ---- one row, portable ---------------------------------------------------------------------------------------- */

INLINE void peaks_half(const uint16_t *row, uint16_t *peak, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        uint16_t magnitude = row[i] & 0x7fff;
        peak[i] = magnitude > peak[i] ? magnitude : peak[i];
    }
}
INLINE void peaks_float(const uint32_t *row, uint32_t *peak, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t magnitude = row[i] & 0x7fffffff;
        peak[i] = magnitude > peak[i] ? magnitude : peak[i];
    }
}
INLINE float load(const void *row, Py_ssize_t i, int half) {
    return half ? half_to_float(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}
INLINE uint8_t quantised(float x, float inverse) {
    float q = rintf(x * inverse);
    return (uint8_t)((int)(q > 7 ? 7 : q < -7 ? -7 : q) + 8);
}
INLINE void quantise_tail(const void *row, const float *inverse, uint8_t *out, Py_ssize_t i, Py_ssize_t n, int half) {
    for (; i + 1 < n; i += 2)
        out[i / 2] = quantised(load(row, i, half), inverse[i]) |
                     (uint8_t)(quantised(load(row, i + 1, half), inverse[i + 1]) << 4);
    if (i < n) out[i / 2] = quantised(load(row, i, half), inverse[i]);
}
INLINE void restore_tail(const uint8_t *row, const float *scale, void *out, Py_ssize_t i, Py_ssize_t n, int half) {
    for (; i < n; i++) {
        float x = (float)((row[i / 2] >> (i & 1 ? 4 : 0) & 15) - 8) * scale[i];
        if (half) ((uint16_t *)out)[i] = float_to_half(x);
        else ((float *)out)[i] = x;
    }
}
INLINE void narrow_tail(const float *from, uint16_t *to, Py_ssize_t i, Py_ssize_t n) {
    for (; i < n; i++) to[i] = float_to_half(from[i]);
}

static void peaks_half_0(const uint16_t *row, uint16_t *peak, Py_ssize_t n) { peaks_half(row, peak, n); }
static void peaks_float_0(const uint32_t *row, uint32_t *peak, Py_ssize_t n) { peaks_float(row, peak, n); }
static void quantise_half_0(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_tail(r, v, o, 0, n, 1); }
static void quantise_float_0(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_tail(r, v, o, 0, n, 0); }
static void restore_half_0(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_tail(r, s, o, 0, n, 1); }
static void restore_float_0(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_tail(r, s, o, 0, n, 0); }
static void narrow_0(const float *from, uint16_t *to, Py_ssize_t n) { narrow_tail(from, to, 0, n); }

/* ---- one row, AVX2 and AVX-512 -------------------------------------------------------------------------------- */

#if X86
AVX2 static void peaks_half_1(const uint16_t *row, uint16_t *peak, Py_ssize_t n) { peaks_half(row, peak, n); }
AVX2 static void peaks_float_1(const uint32_t *row, uint32_t *peak, Py_ssize_t n) { peaks_float(row, peak, n); }
AVX512 static void peaks_half_2(const uint16_t *row, uint16_t *peak, Py_ssize_t n) { peaks_half(row, peak, n); }
AVX512 static void peaks_float_2(const uint32_t *row, uint32_t *peak, Py_ssize_t n) { peaks_float(row, peak, n); }

AVX2 INLINE __m256i quantise8(const void *row, const float *inverse, Py_ssize_t i, int half) {
    __m256 x = half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)row + i)))
                    : _mm256_loadu_ps((const float *)row + i);
    __m256 q = _mm256_mul_ps(x, _mm256_loadu_ps(inverse + i));
    q = _mm256_min_ps(_mm256_max_ps(q, _mm256_set1_ps(-7)), _mm256_set1_ps(7));
    return _mm256_cvtps_epi32(q);
}
AVX2 INLINE void quantise_avx2(const void *row, const float *inverse, uint8_t *out, Py_ssize_t n, int half) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    Py_ssize_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i low = _mm256_packs_epi32(quantise8(row, inverse, i, half), quantise8(row, inverse, i + 8, half));
        __m256i high = _mm256_packs_epi32(quantise8(row, inverse, i + 16, half), quantise8(row, inverse, i + 24, half));
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        bytes = _mm256_add_epi8(bytes, _mm256_set1_epi8(8));
        __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
        _mm_storeu_si128((__m128i *)(out + i / 2), _mm256_castsi256_si128(packed));
    }
    quantise_tail(row, inverse, out, i, n, half);
}
AVX2 static void quantise_half_1(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_avx2(r, v, o, n, 1); }
AVX2 static void quantise_float_1(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_avx2(r, v, o, n, 0); }

AVX2 INLINE void restore8(__m128i nibbles, const float *scale, void *out, Py_ssize_t i, int half) {
    __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(nibbles)), _mm256_loadu_ps(scale + i));
    if (half) _mm_storeu_si128((__m128i *)((uint16_t *)out + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    else _mm256_storeu_ps((float *)out + i, x);
}
AVX2 INLINE void restore_avx2(const uint8_t *row, const float *scale, void *out, Py_ssize_t n, int half) {
    const __m128i mask = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    Py_ssize_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(row + i / 2));
        __m128i even = _mm_sub_epi8(_mm_and_si128(bytes, mask), eight);
        __m128i odd = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask), eight);
        __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
        restore8(first, scale, out, i, half);
        restore8(_mm_srli_si128(first, 8), scale, out, i + 8, half);
        restore8(second, scale, out, i + 16, half);
        restore8(_mm_srli_si128(second, 8), scale, out, i + 24, half);
    }
    restore_tail(row, scale, out, i, n, half);
}
AVX2 static void restore_half_1(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_avx2(r, s, o, n, 1); }
AVX2 static void restore_float_1(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_avx2(r, s, o, n, 0); }

AVX2 static void narrow_1(const float *from, uint16_t *to, Py_ssize_t n) {
    Py_ssize_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_tail(from, to, i, n);
}

AVX512 INLINE __m128i quantise16(const void *row, const float *inverse, Py_ssize_t i, int half) {
    __m512 x = half ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)row + i)))
                    : _mm512_loadu_ps((const float *)row + i);
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_loadu_ps(inverse + i)));
    return _mm512_cvtsepi32_epi8(q); /* saturates far outside ±7; clamped below */
}
AVX512 INLINE void quantise_avx512(const void *row, const float *inverse, uint8_t *out, Py_ssize_t n, int half) {
    Py_ssize_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i bytes = _mm256_set_m128i(quantise16(row, inverse, i + 16, half), quantise16(row, inverse, i, half));
        bytes = _mm256_min_epi8(_mm256_max_epi8(bytes, _mm256_set1_epi8(-7)), _mm256_set1_epi8(7));
        bytes = _mm256_add_epi8(bytes, _mm256_set1_epi8(8));
        __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
        _mm_storeu_si128((__m128i *)(out + i / 2), _mm256_cvtepi16_epi8(pairs));
    }
    quantise_tail(row, inverse, out, i, n, half);
}
AVX512 static void quantise_half_2(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_avx512(r, v, o, n, 1); }
AVX512 static void quantise_float_2(const void *r, const float *v, uint8_t *o, Py_ssize_t n) { quantise_avx512(r, v, o, n, 0); }

AVX512 INLINE void restore16(__m128i nibbles, const float *scale, void *out, Py_ssize_t i, int half) {
    __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(nibbles)), _mm512_loadu_ps(scale + i));
    if (half) _mm256_storeu_si256((__m256i *)((uint16_t *)out + i), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    else _mm512_storeu_ps((float *)out + i, x);
}
AVX512 INLINE void restore_avx512(const uint8_t *row, const float *scale, void *out, Py_ssize_t n, int half) {
    const __m128i mask = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    Py_ssize_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(row + i / 2));
        __m128i even = _mm_sub_epi8(_mm_and_si128(bytes, mask), eight);
        __m128i odd = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask), eight);
        restore16(_mm_unpacklo_epi8(even, odd), scale, out, i, half);
        restore16(_mm_unpackhi_epi8(even, odd), scale, out, i + 16, half);
    }
    restore_tail(row, scale, out, i, n, half);
}
AVX512 static void restore_half_2(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_avx512(r, s, o, n, 1); }
AVX512 static void restore_float_2(const uint8_t *r, const float *s, void *o, Py_ssize_t n) { restore_avx512(r, s, o, n, 0); }

AVX512 static void narrow_2(const float *from, uint16_t *to, Py_ssize_t n) {
    Py_ssize_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_tail(from, to, i, n);
}
#endif

/* ---- dispatch ------------------------------------------------------------------------------------------------- */

typedef struct {
    void (*peaks_half)(const uint16_t *, uint16_t *, Py_ssize_t);
    void (*peaks_float)(const uint32_t *, uint32_t *, Py_ssize_t);
    void (*quantise[2])(const void *, const float *, uint8_t *, Py_ssize_t); /* [half] */
    void (*restore[2])(const uint8_t *, const float *, void *, Py_ssize_t);
    void (*narrow)(const float *, uint16_t *, Py_ssize_t);
} Level;

static const Level LEVELS[] = {
    {peaks_half_0, peaks_float_0, {quantise_float_0, quantise_half_0}, {restore_float_0, restore_half_0}, narrow_0},
#if X86
    {peaks_half_1, peaks_float_1, {quantise_float_1, quantise_half_1}, {restore_float_1, restore_half_1}, narrow_1},
    {peaks_half_2, peaks_float_2, {quantise_float_2, quantise_half_2}, {restore_float_2, restore_half_2}, narrow_2},
#endif
};

static int best_level(void) {
#if X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 2; /* every such processor has F16C */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return 1;
#endif
    return 0;
}

static const Level *chosen(int level) {
    int best = best_level();
    if (level < -1 || level > best) {
        PyErr_Format(PyExc_ValueError, "level %d is not available here; the best is %d", level, best);
        return NULL;
    }
    return &LEVELS[level < 0 ? best : level];
}

/* ---- Python --------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t rows, channels, group, groups, width; /* width = bytes of a packed row */
} Shape;

/* a * b * size, or -1 when that does not fit */
static Py_ssize_t bytes_of(Py_ssize_t a, Py_ssize_t b, Py_ssize_t size) {
    if (a < 0 || b < 0) return -1;
    if (a == 0 || b == 0) return 0;
    return a > PY_SSIZE_T_MAX / b || a * b > PY_SSIZE_T_MAX / size ? -1 : a * b * size;
}

static int sized(const Py_buffer *buffer, Py_ssize_t bytes, Py_ssize_t alignment, const char *what) {
    if (bytes < 0 || buffer->len != bytes) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes, its shape needs %zd", what, buffer->len, bytes);
        return 0;
    }
    if ((uintptr_t)buffer->buf % (size_t)alignment) {
        PyErr_Format(PyExc_ValueError, "%s is not aligned to %zd bytes", what, alignment);
        return 0;
    }
    return 1;
}

static int shaped(Shape *s, const Py_buffer *plain, const Py_buffer *scales, const Py_buffer *packed, int half) {
    if (s->rows < 0 || s->channels < 1 || s->group < 1) {
        PyErr_SetString(PyExc_ValueError, "rows must be 0 or more, channels and group 1 or more");
        return 0;
    }
    s->groups = s->rows ? (s->rows - 1) / s->group + 1 : 0;
    s->width = s->channels / 2 + s->channels % 2;
    return sized(plain, bytes_of(s->rows, s->channels, half ? 2 : 4), half ? 2 : 4, "the array") &&
           sized(scales, bytes_of(s->groups, s->channels, 4), 4, "the scales") &&
           sized(packed, bytes_of(s->rows, s->width, 1), 1, "the packed form");
}

/* Encodes; 0 = ran, 1 = not finite, 2 = no memory. Holds no Python object. */
static int encode(const Level *level, const Shape *s, const char *plain, float *scales, uint8_t *packed, int half) {
    Py_ssize_t n = s->channels, row_bytes = n * (half ? 2 : 4);
    float *inverse = PyMem_RawMalloc((size_t)n * 4);
    void *peak = PyMem_RawMalloc((size_t)n * 4);
    int status = inverse && peak ? 0 : 2;
    for (Py_ssize_t start = 0; status == 0 && start < s->rows; start += s->group) {
        Py_ssize_t end = s->rows - start > s->group ? start + s->group : s->rows;
        memset(peak, 0, (size_t)n * 4);
        for (Py_ssize_t r = start; r < end; r++) {
            if (half) level->peaks_half((const uint16_t *)(plain + r * row_bytes), peak, n);
            else level->peaks_float((const uint32_t *)(plain + r * row_bytes), peak, n);
        }
        float *scale = scales + start / s->group * n;
        for (Py_ssize_t i = 0; i < n; i++) {
            float largest = half ? half_to_float(((uint16_t *)peak)[i]) : from_bits(((uint32_t *)peak)[i]);
            if (!(largest < INFINITY)) status = 1;
            float one = largest / 7;
            scale[i] = one < SMALLEST_SCALE ? 0 : one;
            inverse[i] = one < SMALLEST_SCALE ? 0 : 1 / one;
        }
        for (Py_ssize_t r = start; status == 0 && r < end; r++)
            level->quantise[half](plain + r * row_bytes, inverse, packed + r * s->width, n);
        if (s->rows - start <= s->group) break; /* start + group might overflow */
    }
    PyMem_RawFree(inverse);
    PyMem_RawFree(peak);
    return status;
}

static PyObject *int4_encode(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer plain, scales, packed;
    Shape s;
    int half, number, status = -1;
    if (!PyArg_ParseTuple(args, "y*w*w*nnnpi", &plain, &scales, &packed, &s.rows, &s.channels, &s.group, &half, &number))
        return NULL;
    const Level *level = chosen(number);
    if (level && shaped(&s, &plain, &scales, &packed, half)) {
        Py_BEGIN_ALLOW_THREADS
        status = encode(level, &s, plain.buf, scales.buf, packed.buf, half);
        Py_END_ALLOW_THREADS
        if (status == 2) PyErr_NoMemory();
    }
    PyBuffer_Release(&plain);
    PyBuffer_Release(&scales);
    PyBuffer_Release(&packed);
    return status == 0 || status == 1 ? PyBool_FromLong(status == 0) : NULL;
}

static PyObject *int4_decode(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer packed, scales, plain;
    Shape s;
    int half, number, ok = 0;
    if (!PyArg_ParseTuple(args, "y*y*w*nnnpi", &packed, &scales, &plain, &s.rows, &s.channels, &s.group, &half, &number))
        return NULL;
    const Level *level = chosen(number);
    if (level && shaped(&s, &plain, &scales, &packed, half)) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t r = 0; r < s.rows; r++)
            level->restore[half]((const uint8_t *)packed.buf + r * s.width,
                                 (const float *)scales.buf + r / s.group * s.channels,
                                 (char *)plain.buf + r * s.channels * (half ? 2 : 4), s.channels);
        Py_END_ALLOW_THREADS
        ok = 1;
    }
    PyBuffer_Release(&packed);
    PyBuffer_Release(&scales);
    PyBuffer_Release(&plain);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *fp32_to_fp16(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer from, to;
    int number, ok = 0;
    if (!PyArg_ParseTuple(args, "y*w*i", &from, &to, &number)) return NULL;
    const Level *level = chosen(number);
    if (level && from.len % 4) PyErr_SetString(PyExc_ValueError, "the source is no array of fp32");
    else if (level && sized(&from, from.len, 4, "the source") && sized(&to, from.len / 2, 2, "the target")) {
        Py_BEGIN_ALLOW_THREADS
        level->narrow(from.buf, to.buf, from.len / 4);
        Py_END_ALLOW_THREADS
        ok = 1;
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"int4_encode", int4_encode, METH_VARARGS,
     "int4_encode(array, scales, packed, rows, channels, group, half, level) -> bool: False when not all is finite"},
    {"int4_decode", int4_decode, METH_VARARGS, "int4_decode(packed, scales, array, rows, channels, group, half, level)"},
    {"fp32_to_fp16", fp32_to_fp16, METH_VARARGS, "fp32_to_fp16(source, target, level)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_kernels", "Kernels of the codecs; see the head of the source.", 0, METHODS, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__kernels(void) {
    if (sizeof(int) != 4 || *(const uint8_t *)&(const uint16_t){1} != 1) {
        PyErr_SetString(PyExc_ImportError, "the kernels are for little-endian machines"); /* numpy serves instead */
        return NULL;
    }
    PyObject *module = PyModule_Create(&MODULE);
    if (module && PyModule_AddIntConstant(module, "BEST_LEVEL", best_level()) < 0) Py_CLEAR(module);
    return module;
}
