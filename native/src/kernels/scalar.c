/* The kernels in plain C. Tests compare every other instruction set with them, and the front end
 * of a microcontroller uses them. */
#include "../internal.h"

#include <math.h>
#include <string.h>

typedef float vf;
#define LANES 1
#define KERNEL(name) scalar_##name

static inline vf v_load(const float *p) { return *p; }
static inline void v_store(float *p, vf a) { *p = a; }
static inline vf v_set(float a) { return a; }
static inline vf v_add(vf a, vf b) { return a + b; }
static inline vf v_sub(vf a, vf b) { return a - b; }
static inline vf v_mul(vf a, vf b) { return a * b; }
static inline vf v_sqrt(vf a) { return sqrtf(a); }
static inline void v_transpose(vf *rows) { (void)rows; }

#include "energies.inc.h"

/* ---- products ------------------------------------------------------------------------------- */

static inline float from_f32(float w) { return w; }

/* IEEE half precision by its bits: no compiler support needed. */
static inline float from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    uint32_t bits = rest << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 5.192296858534828e33f; /* 2^112: from the half's exponent bias to the float's */
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* out (n) += a[0] w[0] + ... + a[3] w[3], four rows of the weights at once so that `out` is read
 * and written once for four MACs; and the same for two rows and for one. */
#define DEFINE_ROWS(suffix, type)                                                                  \
    static void add_four_##suffix(const float a[4], const void *data, const size_t at[4],          \
                                  float *out, uint32_t n) {                                        \
        const type *w0 = (const type *)data + at[0], *w1 = (const type *)data + at[1];             \
        const type *w2 = (const type *)data + at[2], *w3 = (const type *)data + at[3];             \
        float a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];                                          \
        for (uint32_t j = 0; j < n; j++)                                                           \
            out[j] += a0 * from_##suffix(w0[j]) + a1 * from_##suffix(w1[j]) +                      \
                      a2 * from_##suffix(w2[j]) + a3 * from_##suffix(w3[j]);                       \
    }                                                                                              \
    static void add_two_##suffix(const float a[2], const void *data, const size_t at[2],           \
                                 float *out, uint32_t n) {                                         \
        const type *w0 = (const type *)data + at[0], *w1 = (const type *)data + at[1];             \
        float a0 = a[0], a1 = a[1];                                                                \
        for (uint32_t j = 0; j < n; j++)                                                           \
            out[j] += a0 * from_##suffix(w0[j]) + a1 * from_##suffix(w1[j]);                       \
    }                                                                                              \
    static void add_one_##suffix(const float a[1], const void *data, const size_t at[1],           \
                                 float *out, uint32_t n) {                                         \
        const type *w = (const type *)data + at[0];                                                \
        float a0 = a[0];                                                                           \
        for (uint32_t j = 0; j < n; j++) out[j] += a0 * from_##suffix(w[j]);                       \
    }

DEFINE_ROWS(f32, float)
DEFINE_ROWS(f16, uint16_t)

/* out (w.cols) += sum of a[i] * row index[i], for up to four rows. */
static void add_rows(const float *a, const uint16_t *index, uint32_t rows, const dk_matrix *w,
                     float *out) {
    size_t at[DK_GROUP];
    for (uint32_t i = 0; i < rows; i++) at[i] = (size_t)index[i] * w->stride;
#define ADD(count, suffix) add_##count##_##suffix(a + done, w->data, at + done, out, w->cols)
#define ADD_TYPE(count)                                                                            \
    do {                                                                                           \
        if (w->type == DK_F32) ADD(count, f32);                                                    \
        if (w->type == DK_F16) ADD(count, f16);                                                    \
    } while (0)
    uint32_t done = 0;
    if (rows == DK_GROUP) {
        ADD_TYPE(four);
        return;
    }
    if (rows >= 2) {
        ADD_TYPE(two);
        done = 2;
    }
    if (rows > done) ADD_TYPE(one);
#undef ADD
#undef ADD_TYPE
}

static void scalar_gemm(const float *a, size_t lda, size_t rows, const dk_matrix *w,
                        const float *bias, float *out, size_t ldo) {
    for (size_t t = 0; t < rows; t++, a += lda, out += ldo) {
        for (uint32_t j = 0; j < w->cols; j++) out[j] = bias ? bias[j] : 0.0f;
        for (uint32_t f = 0; f < w->rows; f += DK_GROUP) {
            uint16_t index[DK_GROUP];
            for (uint32_t i = 0; i < DK_GROUP; i++) index[i] = (uint16_t)(f + i);
            uint32_t left = w->rows - f;
            add_rows(a + f, index, left < DK_GROUP ? left : (uint32_t)DK_GROUP, w, out);
        }
    }
}

/* A microcontroller uses the kernels of the front end only. */
#ifdef DK_SMALL
#define ENGINE(kernel) NULL
#else
#define ENGINE(kernel) kernel

static void scalar_accumulate(const dk_list *list, const dk_matrix *w, const float *start,
                              float *out, size_t ldo) {
    const float *value = list->value, *previous = start;
    const uint16_t *index = list->index;
    for (uint32_t r = 0; r < list->rows; r++) {
        float *row = out + list->row[r] * ldo;
        memcpy(row, previous, w->cols * sizeof *row);
        for (uint32_t g = list->length[r]; g; g--, value += DK_GROUP, index += DK_GROUP) {
            uint32_t filled = DK_GROUP; /* the last group of a row ends in zeros */
            while (filled && value[filled - 1] == 0.0f) filled--;
            add_rows(value, index, filled, w, row);
        }
        previous = row;
    }
}

/* ---- deltas --------------------------------------------------------------------------------- */

static uint32_t scan_part(const float *x, float *reference, uint32_t n, float theta, uint32_t base,
                          float *value, uint16_t *index, uint32_t *counts) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        float delta = x[i] - reference[i];
        if (!(fabsf(delta) > theta)) continue;
        reference[i] = x[i];
        value[kept] = delta;
        index[kept] = (uint16_t)(base + i);
        kept++;
        if (counts) counts[i]++;
    }
    return kept;
}

static uint32_t scalar_scan(const dk_deltas *d, uint32_t first, uint32_t last, dk_list *list,
                            uint16_t *where) {
    uint32_t total = 0;
    for (uint32_t r = first; r <= last; r++) {
        const float *x = d->in.at + r * d->in.stride;
        size_t at = (size_t)list->groups * DK_GROUP;
        uint32_t kept = 0;
        for (uint32_t part = 0, column = 0; part < d->parts; part++, column += d->width)
            if (dk_fresh(d, part, r)) /* else the same row again: no delta can be kept */
                kept += scan_part(x + column, d->reference + column, d->width, d->theta, column,
                                  list->value + at + kept, list->index + at + kept, d->counts);
        dk_close_row(list, r, kept);
        where[r] = kept ? (uint16_t)r : where[r - 1];
        total += kept;
    }
    return total;
}

static uint32_t scalar_hold(float *x, const float *previous, uint32_t n, float theta,
                            uint32_t *counts) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (fabsf(x[i] - previous[i]) > theta) {
            kept++;
            if (counts) counts[i]++;
        } else {
            x[i] = previous[i];
        }
    }
    return kept;
}

/* ---- functions ------------------------------------------------------------------------------ */

/* 2^x to 2e-7: 2^n times a polynomial on [-1/2, 1/2]; x is clamped, so no infinity. */
static inline float power_of_two(float x) {
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = x > -126.0f ? x : -126.0f;
    x = x < 126.0f ? x : 126.0f;
    float shifted = x + rounder, f = x - (shifted - rounder);
    float p = 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    uint32_t n, bits; /* the integer in the low bits of `shifted` is added to the exponent of p */
    memcpy(&n, &shifted, sizeof n);
    memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

#define LOG2_E 1.44269504f

static void softmax_row(float *x, uint32_t n) {
    float largest = x[0], sum = 0.0f;
    for (uint32_t i = 1; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (uint32_t i = 0; i < n; i++) sum += x[i] = power_of_two(LOG2_E * (x[i] - largest));
    float scale = 1.0f / sum;
    for (uint32_t i = 0; i < n; i++) x[i] *= scale;
}

static void scalar_softmax(float *x, size_t ldx, const uint16_t *where, uint32_t rows, uint32_t n) {
    for (uint32_t r = 1; r <= rows; r++)
        if (where[r] == r) softmax_row(x + r * ldx, n);
}

/* x/2 (1 + tanh(u)) = x / (1 + 2^-z), z = 2 log2(e) sqrt(2/pi) (x + 0.044715 x^3). */
static void scalar_gelu(const float *x, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float a = x[i], z = a * (1.5957691216f * LOG2_E + 0.0713548163f * LOG2_E * a * a);
        out[i] = a / (1.0f + power_of_two(-z));
    }
}

static void norm_row(float *x, const float *r, const float *gain, const float *bias, uint32_t n) {
    float mean = 0.0f, variance = 0.0f;
    for (uint32_t i = 0; i < n; i++) mean += x[i] += r[i];
    mean /= (float)n;
    for (uint32_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean);
    float scale = 1.0f / sqrtf(variance / (float)n + 1e-6f);
    for (uint32_t i = 0; i < n; i++) x[i] = (x[i] - mean) * scale * gain[i] + bias[i];
}

static void scalar_add_norm(float *x, size_t ldx, const float *r, size_t ldr, const uint16_t *where,
                            uint32_t rows, const float *gain, const float *bias, uint32_t n) {
    for (uint32_t i = 0; i < rows; i++) norm_row(x + i * ldx, r + where[i] * ldr, gain, bias, n);
}

static void scalar_transpose(const float *a, size_t lda, uint32_t rows, uint32_t cols, float scale,
                             float *out, size_t ldo) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) out[c * ldo + r] = scale * a[r * lda + c];
}

#endif

/* log(m 2^e) = log(m) + e ln2, log(m) a polynomial in m - 1, m in [sqrt(1/2), sqrt(2)). Not the C
 * library's, so that every machine computes the same bits. */
static float logarithm(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t above = bits - 0x3f3504f3u; /* sqrt(1/2) */
    float e = (float)((int32_t)above >> 23), f;
    bits = (above & 0x007fffffu) + 0x3f3504f3u;
    memcpy(&f, &bits, sizeof f);
    f -= 1.0f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float square = f * f;
    p = p * f * square - e * 2.12194440e-4f - 0.5f * square;
    return e * 0.693359375f + (f + p);
}

static void scalar_log_floor(const float *x, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) out[i] = logarithm(x[i] > 1e-12f ? x[i] : 1e-12f);
}

static void scalar_dct(const dk_frontend *frontend, const float *logs, uint32_t frames,
                       float *out) {
    scalar_gemm(logs, DK_BANDS, frames, &frontend->dct, NULL, out, DK_COEFFICIENTS);
}

const dk_kernels dk_scalar = {"scalar",
                              LANES,
                              {0, 0},
                              scalar_gemm,
                              ENGINE(scalar_accumulate),
                              ENGINE(scalar_scan),
                              ENGINE(scalar_hold),
                              ENGINE(scalar_softmax),
                              ENGINE(scalar_gelu),
                              ENGINE(scalar_add_norm),
                              ENGINE(scalar_transpose),
                              scalar_energies,
                              scalar_log_floor,
                              scalar_dct};
