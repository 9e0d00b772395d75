/* The kernels of every vector instruction set, written once.
 *
 * The including file names itself with KERNEL(name) and gives the shape of its registers
 *   vf, vm              a vector of LANES floats, a mask of lanes
 *   LANES
 *   TILE_VECTORS(rows)  vectors of columns that a gemm tile of so many rows keeps in registers
 *   TILE_ROWS           rows of the largest tile
 *   BLOCK_VECTORS       vectors of running results that `accumulate` keeps in registers
 *   MANY_VECTORS        sums that may be under way at once
 * and a few inline functions
 *   v_load v_store v_load_n v_store_n v_set v_add v_sub v_mul v_div v_fma v_sqrt v_min v_max
 *   v_sum v_largest     over all lanes
 *   v_beyond(a, t)      mask: |a| > t
 *   v_select(m, a, b)   a where m, else b
 *   v_bits(m)           bit l is lane l
 *   v_tally(counts, m)  counts[l] += 1 where m
 *   v_first(n)          mask: lanes 0 .. n-1
 *   v_set_four(p, x)    p[0..3], each in all lanes of a vector of its own
 *   vn, v_number, v_next  the numbers base + lane, and those LANES further on
 *   v_keep(a, numbers, bits, value, index)   lanes of `bits`, packed, and their numbers
 *   v_scale(p, n)       p 2^n for n = integer + ROUNDER
 *   v_split(x, &e)      x > 0 as m 2^e with m in [sqrt(1/2), sqrt(2))
 *   v_transpose(rows)   LANES x LANES in place
 * v_load_n and v_store_n touch only the first n < LANES floats; other lanes read as `fill`.
 */
#include "../internal.h"

#if defined(DK_QUICK_BUILD) /* a test build: the same code, not unrolled */
#define INLINE static inline
#define UNROLL
#elif defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#else
#define INLINE static __forceinline
#define UNROLL
#endif

enum { MOST_VECTORS = 16 }; /* of any block or tile below */

#include "energies.inc.h"

/* ---- dense products ------------------------------------------------------------------------- */

/* out (MR, NV vectors) = a (MR, k) b (k, NV vectors) + bias, accumulated in registers. `tail` > 0:
 * only so many floats of a single vector. */
INLINE void tile(const uint32_t MR, const uint32_t NV, const uint32_t tail, const float *a,
                 size_t lda, const float *b, size_t ldb, uint32_t k, const float *bias, float *out,
                 size_t ldo) {
    vf sum[TILE_ROWS][MOST_VECTORS];
    UNROLL for (uint32_t v = 0; v < NV; v++) {
        vf from = v_set(0.0f);
        if (bias) from = tail ? v_load_n(bias, tail, 0.0f) : v_load(bias + v * LANES);
        UNROLL for (uint32_t r = 0; r < MR; r++) sum[r][v] = from;
    }
    for (uint32_t i = 0; i < k; i++, b += ldb) {
        vf row[MOST_VECTORS];
        UNROLL for (uint32_t v = 0; v < NV; v++) row[v] =
            tail ? v_load_n(b, tail, 0.0f) : v_load(b + v * LANES);
        UNROLL for (uint32_t r = 0; r < MR; r++) {
            vf x = v_set(a[r * lda + i]);
            UNROLL for (uint32_t v = 0; v < NV; v++) sum[r][v] = v_fma(x, row[v], sum[r][v]);
        }
    }
    UNROLL for (uint32_t r = 0; r < MR; r++) {
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            if (tail)
                v_store_n(out + r * ldo, sum[r][v], tail);
            else
                v_store(out + r * ldo + v * LANES, sum[r][v]);
        }
    }
}

typedef struct {
    const float *a, *bias;
    const dk_matrix *w;
    float *out;
    size_t lda, ldo, tiles; /* tiles of MR rows each */
} strip;

/* All tiles that share a column panel come after each other: the panel stays in the cache. */
INLINE void panel(const uint32_t MR, const uint32_t NV, const uint32_t tail, const strip *s,
                  uint32_t column) {
    const float *b = (const float *)s->w->data + column, *bias = s->bias ? s->bias + column : 0;
    for (size_t t = 0; t < s->tiles; t++)
        tile(MR, NV, tail, s->a + t * MR * s->lda, s->lda, b, s->w->stride, s->w->rows, bias,
             s->out + t * MR * s->ldo + column, s->ldo);
}

INLINE void run_strip(const uint32_t MR, const strip *s) {
    const uint32_t NV = TILE_VECTORS(MR);
    uint32_t column = 0, cols = s->w->cols;
    for (; column + NV * LANES <= cols; column += NV * LANES) panel(MR, NV, 0, s, column);
    for (; column + LANES <= cols; column += LANES) panel(MR, 1, 0, s, column);
    if (column < cols) panel(MR, 1, cols - column, s, column);
}

#define DEFINE_STRIP(MR)                                                                           \
    static void strip_##MR(const strip *s) { run_strip(MR, s); }
DEFINE_STRIP(1)
DEFINE_STRIP(2)
DEFINE_STRIP(3)
DEFINE_STRIP(4)
DEFINE_STRIP(5)
DEFINE_STRIP(6)

static void KERNEL(gemm)(const float *a, size_t lda, size_t rows, const dk_matrix *w,
                         const float *bias, float *out, size_t ldo) {
    static void (*const strips[])(const strip *) = {strip_1, strip_2, strip_3,
                                                    strip_4, strip_5, strip_6};
    size_t whole = rows / TILE_ROWS, rest = rows % TILE_ROWS;
    strip s = {a, bias, w, out, lda, ldo, whole};
    if (whole) strips[TILE_ROWS - 1](&s);
    s.a += whole * TILE_ROWS * lda;
    s.out += whole * TILE_ROWS * ldo;
    s.tiles = 1;
    if (rest) strips[rest - 1](&s);
}

/* ---- sparse products ------------------------------------------------------------------------ */

/* Running results of NV vectors of columns, in registers over all rows of the list. What limits it
 * is loads, one for each vector of weights; so the four deltas of a group come in one. Few columns
 * would wait for each other's additions: two sums, joined at the end of a row, do not. */
INLINE void accumulate_block(const uint32_t NV, const uint32_t tail, const dk_list *list,
                             const float *w, size_t ldw, const float *start, float *out,
                             size_t ldo) {
    const uint32_t chains = 2 * NV <= MANY_VECTORS ? 2 : 1;
    vf sum[2][MOST_VECTORS];
    UNROLL for (uint32_t v = 0; v < NV; v++) {
        sum[0][v] = tail ? v_load_n(start, tail, 0.0f) : v_load(start + v * LANES);
        sum[1][v] = v_set(0.0f);
    }
    const float *value = list->value;
    const uint16_t *index = list->index;
    for (uint32_t r = 0; r < list->rows; r++) {
        for (uint32_t g = list->length[r]; g; g--, value += DK_GROUP, index += DK_GROUP) {
            vf delta[DK_GROUP];
            v_set_four(value, delta);
            UNROLL for (uint32_t i = 0; i < DK_GROUP; i++) {
                const float *row = w + index[i] * ldw;
                vf *to = sum[i % chains];
                UNROLL for (uint32_t v = 0; v < NV; v++) to[v] = v_fma(
                    delta[i], tail ? v_load_n(row, tail, 0.0f) : v_load(row + v * LANES), to[v]);
            }
        }
        float *to = out + list->row[r] * ldo;
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            if (chains == 2) sum[0][v] = v_add(sum[0][v], sum[1][v]);
            sum[1][v] = v_set(0.0f);
            if (tail)
                v_store_n(to, sum[0][v], tail);
            else
                v_store(to + v * LANES, sum[0][v]);
        }
    }
}

static void KERNEL(accumulate)(const dk_list *list, const dk_matrix *w, const float *start,
                               float *out, size_t ldo) {
    if (!list->rows) return;
    uint32_t vectors = w->cols / LANES, tail = w->cols % LANES, column = 0;
    uint32_t passes = (vectors + BLOCK_VECTORS - 1) / BLOCK_VECTORS;
    for (; passes; passes--) {
        uint32_t count = (vectors + passes - 1) / passes; /* as even as it gets */
        const float *from = (const float *)w->data + column;
        switch (count) {
#define CASE(NV)                                                                                   \
    case NV:                                                                                       \
        accumulate_block(NV, 0, list, from, w->stride, start + column, out + column, ldo);         \
        break;
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
            CASE(7)
            CASE(8)
#if BLOCK_VECTORS > 8
            CASE(9)
            CASE(10)
            CASE(11)
            CASE(12)
            CASE(13)
#endif
#undef CASE
        }
        column += count * LANES;
        vectors -= count;
    }
    if (tail)
        accumulate_block(1, tail, list, (const float *)w->data + column, w->stride, start + column,
                         out + column, ldo);
}

/* ---- deltas --------------------------------------------------------------------------------- */

INLINE uint32_t scan_with(const float *x, float *reference, uint32_t n, float theta, uint16_t base,
                          float *value, uint16_t *index, uint32_t *counts) {
    const vf limit = v_set(theta);
    vn numbers = v_number(base);
    uint32_t kept = 0;
    for (uint32_t i = 0; i + LANES <= n; i += LANES) {
        vf now = v_load(x + i), old = v_load(reference + i), delta = v_sub(now, old);
        vm keep = v_beyond(delta, limit);
        v_store(reference + i, v_select(keep, now, old));
        if (counts) v_tally(counts + i, keep);
        kept += v_keep(delta, numbers, v_bits(keep), value + kept, index + kept);
        numbers = v_next(numbers);
    }
    return kept;
}

/* The last few features, one by one. */
static uint32_t scan_rest(const float *x, float *reference, uint32_t i, uint32_t n, float theta,
                          uint16_t base, float *value, uint16_t *index, uint32_t *counts) {
    uint32_t kept = 0;
    for (; i < n; i++) {
        float delta = x[i] - reference[i];
        if (!(delta > theta || -delta > theta)) continue;
        reference[i] = x[i];
        value[kept] = delta;
        index[kept++] = (uint16_t)(base + i);
        if (counts) counts[i]++;
    }
    return kept;
}

static uint32_t KERNEL(scan)(const float *x, float *reference, uint32_t n, float theta,
                             uint16_t base, float *value, uint16_t *index, uint32_t *counts) {
    uint32_t kept = counts ? scan_with(x, reference, n, theta, base, value, index, counts)
                           : scan_with(x, reference, n, theta, base, value, index, 0);
    return kept + scan_rest(x, reference, n - n % LANES, n, theta, base, value + kept, index + kept,
                            counts);
}

static uint32_t KERNEL(hold)(float *x, const float *previous, uint32_t n, float theta,
                             uint32_t *counts) {
    const vf limit = v_set(theta);
    uint32_t kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf now = v_load(x + i), old = v_load(previous + i);
        vm keep = v_beyond(v_sub(now, old), limit);
        v_store(x + i, v_select(keep, now, old));
        if (counts) v_tally(counts + i, keep);
        kept += v_count(v_bits(keep));
    }
    for (; i < n; i++) {
        float delta = x[i] - previous[i];
        int keep = delta > theta || -delta > theta;
        if (!keep) x[i] = previous[i];
        if (counts) counts[i] += (uint32_t)keep;
        kept += (uint32_t)keep;
    }
    return kept;
}

/* ---- functions ------------------------------------------------------------------------------ */

#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

#define LOG2_E 1.44269504f

/* 2^x for -126 <= x <= 126, to 2e-7: 2^n times a polynomial on [-1/2, 1/2]. */
INLINE vf power_of_two(vf x) {
    vf shifted = v_add(x, v_set(ROUNDER));
    vf f = v_sub(x, v_sub(shifted, v_set(ROUNDER)));
    vf p = v_fma(f, v_set(1.3333558e-3f), v_set(9.6181291e-3f));
    p = v_fma(p, f, v_set(5.5504109e-2f));
    p = v_fma(p, f, v_set(2.4022651e-1f));
    p = v_fma(p, f, v_set(6.9314718e-1f));
    p = v_fma(p, f, v_set(1.0f));
    return v_scale(p, shifted);
}

/* ROWS rows at once: a single one would wait most of the time for its own sums. */
INLINE void softmax_rows(const uint32_t ROWS, float *const x[2], uint32_t n) {
    const uint32_t whole = n - n % LANES, tail = n % LANES;
    const vf unit = v_set(LOG2_E), least = v_set(-126.0f);
    vf top[2], rest[2], shift[2], sum[2];
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        rest[r] = tail ? v_load_n(x[r] + whole, tail, x[r][0]) : v_set(x[r][0]);
        top[r] = rest[r];
        sum[r] = v_set(0.0f);
    }
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++) top[r] = v_max(top[r], v_load(x[r] + i));
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) /* the largest becomes 2^0 */
        shift[r] = v_set(-LOG2_E * v_largest(top[r]));
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++) {
            vf power = power_of_two(v_max(v_fma(v_load(x[r] + i), unit, shift[r]), least));
            v_store(x[r] + i, power);
            sum[r] = v_add(sum[r], power);
        }
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        rest[r] = power_of_two(v_max(v_fma(rest[r], unit, shift[r]), least));
        sum[r] = v_add(sum[r], v_select(v_first(tail), rest[r], v_set(0.0f)));
        shift[r] = v_set(1.0f / v_sum(sum[r]));
    }
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++)
            v_store(x[r] + i, v_mul(v_load(x[r] + i), shift[r]));
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        if (tail) v_store_n(x[r] + whole, v_mul(rest[r], shift[r]), tail);
    }
}

static void KERNEL(softmax)(float *x, size_t ldx, const uint16_t *where, uint32_t rows,
                            uint32_t n) {
    float *pair[2];
    uint32_t waiting = 0;
    for (uint32_t r = 1; r <= rows; r++) {
        if (where[r] != r) continue;
        pair[waiting++] = x + r * ldx;
        if (waiting == 2) softmax_rows(2, pair, n);
        waiting %= 2;
    }
    if (waiting) softmax_rows(1, pair, n);
}

/* x/2 (1 + tanh(u)) = x / (1 + 2^-z), z = 2 log2(e) sqrt(2/pi) (x + 0.044715 x^3). */
INLINE vf gelu_of(vf x) {
    vf inner = v_fma(v_mul(x, x), v_set(-0.0713548163f * LOG2_E), v_set(-1.5957691216f * LOG2_E));
    vf exponent = v_min(v_max(v_mul(x, inner), v_set(-126.0f)), v_set(126.0f));
    return v_div(x, v_add(v_set(1.0f), power_of_two(exponent)));
}

static void KERNEL(gelu)(const float *x, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(out + i, gelu_of(v_load(x + i)));
    if (i < n) v_store_n(out + i, gelu_of(v_load_n(x + i, n - i, 0.0f)), n - i);
}

/* Sums over the lanes of each of LANES vectors, one a lane. */
INLINE vf sum_each(vf rows[LANES]) {
    v_transpose(rows);
    UNROLL for (uint32_t step = LANES / 2; step; step /= 2) {
        UNROLL for (uint32_t i = 0; i < step; i++) rows[i] = v_add(rows[i], rows[i + step]);
    }
    return rows[0];
}

/* Up to LANES rows at once, so that means, square roots and divisions are shared. */
INLINE void norm_rows(float *const x[LANES], const float *const r[LANES], uint32_t rows,
                      const float *gain, const float *bias, uint32_t n) {
    uint32_t whole = n - n % LANES, tail = n % LANES, i;
    float mean[LANES], scale[LANES];
    vf sums[LANES];
    const vf zero = v_set(0.0f), share = v_set(1.0f / (float)n);
    for (uint32_t l = 0; l < LANES; l++) sums[l] = zero;
    for (uint32_t l = 0; l < rows; l++) {
        vf sum = zero;
        for (i = 0; i < whole; i += LANES) {
            vf added = v_add(v_load(x[l] + i), v_load(r[l] + i));
            v_store(x[l] + i, added);
            sum = v_add(sum, added);
        }
        if (tail) {
            vf added = v_add(v_load_n(x[l] + i, tail, 0.0f), v_load_n(r[l] + i, tail, 0.0f));
            v_store_n(x[l] + i, added, tail);
            sum = v_add(sum, added);
        }
        sums[l] = sum;
    }
    v_store(mean, v_mul(sum_each(sums), share));
    for (uint32_t l = 0; l < LANES; l++) sums[l] = zero;
    for (uint32_t l = 0; l < rows; l++) {
        vf middle = v_set(mean[l]), squares = zero;
        for (i = 0; i < whole; i += LANES) {
            vf centred = v_sub(v_load(x[l] + i), middle);
            squares = v_fma(centred, centred, squares);
        }
        if (tail) {
            vf centred = v_sub(v_load_n(x[l] + i, tail, mean[l]), middle);
            squares = v_fma(centred, centred, squares);
        }
        sums[l] = squares;
    }
    v_store(scale, v_div(v_set(1.0f), v_sqrt(v_fma(sum_each(sums), share, v_set(1e-6f)))));
    for (uint32_t l = 0; l < rows; l++) {
        vf middle = v_set(mean[l]), factor = v_set(scale[l]);
        for (i = 0; i < whole; i += LANES) {
            vf centred = v_mul(v_sub(v_load(x[l] + i), middle), factor);
            v_store(x[l] + i, v_fma(centred, v_load(gain + i), v_load(bias + i)));
        }
        if (tail) {
            vf centred = v_mul(v_sub(v_load_n(x[l] + i, tail, 0.0f), middle), factor);
            vf scaled =
                v_fma(centred, v_load_n(gain + i, tail, 0.0f), v_load_n(bias + i, tail, 0.0f));
            v_store_n(x[l] + i, scaled, tail);
        }
    }
}

static void KERNEL(add_norm)(float *x, size_t ldx, const float *r, size_t ldr,
                             const uint16_t *where, uint32_t rows, const float *gain,
                             const float *bias, uint32_t n) {
    for (uint32_t first = 0; first < rows; first += LANES) {
        uint32_t count = rows - first < LANES ? rows - first : LANES;
        float *at[LANES];
        const float *added[LANES];
        for (uint32_t l = 0; l < count; l++) {
            at[l] = x + (first + l) * ldx;
            added[l] = r + where[first + l] * ldr;
        }
        norm_rows(at, added, count, gain, bias, n);
    }
}

static void KERNEL(transpose)(const float *a, size_t lda, uint32_t rows, uint32_t cols, float scale,
                              float *out, size_t ldo) {
    const vf factor = v_set(scale);
    uint32_t whole_rows = rows - rows % LANES, whole_cols = cols - cols % LANES;
    for (uint32_t r = 0; r < whole_rows; r += LANES)
        for (uint32_t c = 0; c < whole_cols; c += LANES) {
            vf block[LANES];
            UNROLL for (uint32_t i = 0; i < LANES; i++) block[i] = v_load(a + (r + i) * lda + c);
            v_transpose(block);
            UNROLL for (uint32_t i = 0; i < LANES; i++)
                v_store(out + (c + i) * ldo + r, v_mul(block[i], factor));
        }
    for (uint32_t r = 0; r < rows; r++) /* the edges */
        for (uint32_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            out[c * ldo + r] = scale * a[r * lda + c];
}

/* log(m 2^e) = log(m) + e ln2, log(m) a polynomial in m - 1. */
INLINE vf log_of(vf x) {
    vf e, m = v_split(v_max(x, v_set(1e-12f)), &e);
    vf f = v_sub(m, v_set(1.0f)), square = v_mul(f, f);
    vf p = v_fma(v_set(7.0376836292e-2f), f, v_set(-1.1514610310e-1f));
    p = v_fma(p, f, v_set(1.1676998740e-1f));
    p = v_fma(p, f, v_set(-1.2420140846e-1f));
    p = v_fma(p, f, v_set(1.4249322787e-1f));
    p = v_fma(p, f, v_set(-1.6668057665e-1f));
    p = v_fma(p, f, v_set(2.0000714765e-1f));
    p = v_fma(p, f, v_set(-2.4999993993e-1f));
    p = v_fma(p, f, v_set(3.3333331174e-1f));
    p = v_mul(v_mul(p, f), square);
    p = v_fma(e, v_set(-2.12194440e-4f), p);
    p = v_fma(square, v_set(-0.5f), p);
    return v_fma(e, v_set(0.693359375f), v_add(f, p));
}

static void KERNEL(log_floor)(const float *x, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(out + i, log_of(v_load(x + i)));
    if (i < n) v_store_n(out + i, log_of(v_load_n(x + i, n - i, 1.0f)), n - i);
}

#define KERNEL_TABLE(name)                                                                         \
    {name,                                                                                         \
     LANES,                                                                                        \
     KERNEL(gemm),                                                                                 \
     KERNEL(accumulate),                                                                           \
     KERNEL(scan),                                                                                 \
     KERNEL(hold),                                                                                 \
     KERNEL(softmax),                                                                              \
     KERNEL(gelu),                                                                                 \
     KERNEL(add_norm),                                                                             \
     KERNEL(transpose),                                                                            \
     KERNEL(energies),                                                                             \
     KERNEL(log_floor)}
