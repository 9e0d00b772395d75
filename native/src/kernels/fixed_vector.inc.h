/* The fixed-point kernels of every vector instruction set, written once.
 *
 * The including file defines KERNEL(name), LANES (which divides 16), the types
 *   vi, vs, vq   LANES values of 16 bits, LANES / 2 of 32 bits, a sum in 64 bits
 * and a few inline functions
 *   v_load v_store v_set v_zero
 *   v_adds v_subs          saturating
 *   v_add v_sub            modulo 2^16
 *   v_sum(s, p)            v_add, of a running sum that stays in its register
 *   v_q15(a, b)            rounded product with 15 fraction bits
 *   v_max v_min            signed
 *   v_max_size(p, a)       the larger of p and |a|, unsigned
 *   v_least_size(a, b)     the smaller of |a| and b, unsigned
 *   v_largest v_largest_size   over all lanes, signed and unsigned
 *   v_within(d, theta)     lanes that are all ones where |d| <= theta, also for d = -32768
 *   v_select(m, a, b)      a where m, else b
 *   v_kept_bits(ma, mb)    2 LANES bits: where the masks are zero
 *   v_first(n)             lanes 0 .. n-1 all ones
 *   v_and v_left v_right   bits; v_right fills up with zeros
 *   v_right_signed(a, bits)  fills up with the sign
 *   v_halve(q, n)          q >= 0 divided by 2^n, each lane by its own n in 0..16, rounded
 *   s_zero s_add_sum(s, a) s_total(s)      sum of all values, 32 bits
 *   q_zero q_add_squares(q, a) q_total(q)  sum of all squares, 64 bits
 *   s_pair(p) s_add_products(s, x, w) s_narrow(low, high, shift)   see embed
 *   v_scaled(a, b, shift)  a b / 2^shift, rounded and saturated
 *   p_load p_store p_set p_zero p_q15 p_sum   the same for products, in vectors vp of PER_WIDE vi
 *   p_first(a)             its first LANES values
 *   p_max_size(p, a)       v_max_size for all of its values
 *   v_zip_low(a, b) v_zip_high(a, b)   of each eight lanes, a0 b0 a1 b1 .. b3 and a4 b4 .. b7
 *   v_store_eights(p, step, a)   the first eight lanes at p, the others, if any, at p + 8 step
 *   fill_eight(p, a)       a eight times
 */
#include "../fixed/fixed.h"
#include "unroll.h"

/* Columns in sixteens that a product of two rows, and of kept deltas, keeps in registers. */
#ifndef TILE_16
#define TILE_16 4
#define BLOCK_16 (DK_PANEL / DK_VECTOR)
#endif

#ifdef __GNUC__
#define IN_REGISTER(pointer) __asm__("" : "+r"(pointer))
#else
#define IN_REGISTER(pointer) ((void)0)
#endif

#ifndef LOWEST_BIT
static inline size_t lowest_bit(uint64_t x) { return dk_lowest_bit(x); }
#endif

#ifndef PER_WIDE /* no wider vectors */
#define PER_WIDE 1
typedef vi vp;
#define p_load v_load
#define p_store v_store
#define p_set v_set
#define p_zero v_zero
#define p_q15 v_q15
#define p_sum v_sum
#define p_first(a) (a)
#define p_max_size v_max_size
#endif

enum { PER_16 = DK_VECTOR / LANES, MOST_VECTORS = BLOCK_16 * PER_16, TILE = TILE_16 * PER_16 };

static void note(uint32_t *peak, vi sizes) {
    uint32_t size = v_largest_size(sizes);
    if (size > *peak) *peak = size;
}

#include "fixed_counts.inc.h"
#include "fixed_deltas.inc.h"
#include "fixed_products.inc.h"

/* ---- softmax, GELU, LayerNorm, embedding ------------------------------------------------------
 */

/* 2^-y for y >= 0 with so many fraction bits. */
INLINE vi power_of_half(vi y, uint32_t bits) {
    vi f = v_and(v_left(y, 15 - bits), v_set(DK_MOST));
    vi power = v_add(v_q15(v_set(-1278), f), v_set(7539));
    power = v_add(v_q15(power, f), v_set(-22643));
    power = v_add(v_q15(power, f), v_set(32766));
    return v_halve(power, v_right(y, bits));
}

/* The steps of one row wait for each other, those of different rows do not: so every step of
 * softmax and LayerNorm is done for a few rows before the next step. */
enum { TOGETHER = 8 };

/* x (n), of a row that is padded with other values: where it is padded, `fill`. */
INLINE vi load_real(const int16_t *x, uint32_t i, uint32_t n, vi fill) {
    if (i + LANES <= n) return v_load(x + i);
    return v_select(v_first(n > i ? n - i : 0), v_load(x + i), fill);
}

INLINE int32_t largest_score(const int16_t *x, uint32_t n) {
    const vi least = v_set(DK_LEAST);
    vi top = least;
    for (uint32_t i = 0; i < dk_padded(n); i += LANES) top = v_max(top, load_real(x, i, n, least));
    return v_largest(top);
}

/* x = 2^15 exp(x - top); returns the sum. */
INLINE uint32_t exponentials(int16_t *x, uint32_t n, int32_t top, uint32_t bits) {
    const vi from = v_set((int16_t)top), log2_e_half = v_set(23637);
    const vi limit = v_set((int16_t)(bits < 12 ? (17 << (bits - 1)) - 1 : DK_MOST));
    vs sum = s_zero();
    for (uint32_t i = 0; i < dk_padded(n); i += LANES) {
        vi y = v_min(v_q15(v_subs(from, v_load(x + i)), log2_e_half), limit);
        vi power = power_of_half(y, bits - 1);
        if (i + LANES > n) power = v_and(power, v_first(n > i ? n - i : 0));
        v_store(x + i, power);
        sum = s_add_sum(sum, power);
    }
    return (uint32_t)s_total(sum);
}

INLINE void softmax_rows(const uint32_t n, int16_t *const *rows, uint32_t count, uint32_t bits) {
    int32_t top[TOGETHER], inverse[TOGETHER];
    uint32_t total[TOGETHER], k[TOGETHER];
    for (uint32_t t = 0; t < count; t++) top[t] = largest_score(rows[t], n);
    for (uint32_t t = 0; t < count; t++) total[t] = exponentials(rows[t], n, top[t], bits);
    for (uint32_t t = 0; t < count; t++) inverse[t] = dk_inverse(total[t], &k[t]);
    for (uint32_t t = 0; t < count; t++) {
        const vi factor = v_set((int16_t)inverse[t]), half = v_set((int16_t)(1 << k[t] >> 1));
        for (int16_t *x = rows[t], *end = x + dk_padded(n); x < end; x += LANES)
            v_store(x, v_right(v_add(v_q15(v_load(x), factor), half), k[t]));
    }
}

INLINE void softmax_all(const uint32_t n, int16_t *x, size_t ldx, uint32_t rows,
                        const uint8_t *changed, uint32_t bits) {
    int16_t *some[TOGETHER];
    uint32_t count = 0;
    for (uint32_t t = 0; t < rows; t++) {
        if (changed[t]) some[count++] = x + t * ldx;
        if (count < TOGETHER && t + 1 < rows) continue;
        softmax_rows(n, some, count, bits);
        count = 0;
    }
}

static void KERNEL(softmax)(int16_t *x, size_t ldx, uint32_t rows, const uint8_t *changed,
                            uint32_t n, uint32_t bits) {
    if (n == 99) /* the usual number, as a constant */
        softmax_all(99, x, ldx, rows, changed, bits);
    else
        softmax_all(n, x, ldx, rows, changed, bits);
}

/* STEP vectors side by side, for the same reason. */
INLINE void gelu_vectors(const uint32_t STEP, int16_t *x, uint32_t bits) {
    const vi limit = v_set((int16_t)((4 << bits) - 1));
    const vi down = v_set((int16_t)(2 << bits)); /* v_q15 with it is a rounded right shift */
    static const int16_t terms[] = {22398, -20160, -12563, 16366};
    vi u[4], p[4];
    UNROLL for (uint32_t k = 0; k < STEP; k++) {
        u[k] = v_left(v_least_size(v_load(x + k * LANES), limit), 13 - bits);
        p[k] = v_set(-4492);
    }
    UNROLL for (uint32_t i = 0; i < 4; i++) {
        UNROLL for (uint32_t k = 0; k < STEP; k++) p[k] = v_add(v_q15(p[k], u[k]), v_set(terms[i]));
    }
    UNROLL for (uint32_t k = 0; k < STEP; k++) p[k] = v_add(p[k], p[k]);
    UNROLL for (uint32_t k = 0; k < STEP; k++) p[k] = v_q15(p[k], p[k]);
    UNROLL for (uint32_t k = 0; k < STEP; k++) p[k] = v_q15(p[k], p[k]);
    UNROLL for (uint32_t k = 0; k < STEP; k++) {
        vi tail = v_q15(v_q15(u[k], p[k]), down);
        v_store(x + k * LANES, v_sub(v_max(v_load(x + k * LANES), v_zero()), tail));
    }
}

static void KERNEL(gelu)(int16_t *x, uint32_t n, uint32_t bits) {
    uint32_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) gelu_vectors(4, x + i, bits);
    for (; i < n; i += LANES) gelu_vectors(1, x + i, bits);
}

#include "fixed_norm.inc.h"

static void KERNEL(embed)(const int16_t *x, uint32_t rows, const uint8_t *changed, uint32_t pairs,
                          const int16_t *w, uint32_t shift, const int16_t *add, uint32_t n,
                          int16_t *out, uint32_t *peak) {
    vi most = v_zero();
    for (uint32_t j = 0; j < n; j += LANES) {
        vi token = v_zero();
        for (uint32_t t = 0; t < rows; t++) {
            const int16_t *from = x + t * 2 * (size_t)pairs, *row = w + 2 * j;
            vs low = s_zero(), high = s_zero();
            for (uint32_t i = 0; changed[t] && i < pairs; i++, row += 2 * n) {
                vi two = s_pair(from + 2 * i);
                low = s_add_products(low, two, v_load(row));
                high = s_add_products(high, two, v_load(row + LANES));
            }
            if (changed[t]) token = s_narrow(low, high, shift);
            vi y = v_adds(token, v_load(add + t * (size_t)n + j));
            v_store(out + t * (size_t)n + j, y);
            most = v_max_size(most, y);
        }
    }
    note(peak, most);
}

/* Eight rows and columns, or two such squares. Three times, row i is zipped with row i + 4. */
INLINE void transpose_square(vi *r) {
    UNROLL for (uint32_t round = 0; round < 3; round++) {
        vi zipped[8];
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            zipped[2 * i] = v_zip_low(r[i], r[i + 4]);
            zipped[2 * i + 1] = v_zip_high(r[i], r[i + 4]);
        }
        UNROLL for (uint32_t i = 0; i < 8; i++) r[i] = zipped[i];
    }
}

/* Whether one of eight rows differs from the row before. */
static int any_changed(const uint8_t *changed) {
    uint64_t eight;
    memcpy(&eight, changed, sizeof eight);
    return eight != 0;
}

static void KERNEL(transpose)(const int16_t *a, size_t lda, uint32_t rows, uint32_t cols,
                              uint32_t shift, const uint8_t *changed, uint32_t known, int16_t *out,
                              size_t ldo) {
    const vi factor = v_set((int16_t)(shift ? 1 << (15 - shift) : 0)), least = v_set(-DK_MOST);
    for (uint32_t t = 0, end; t < rows; t = end) {
        for (end = t; end && end + 8 <= known && !any_changed(changed + end);) end += 8;
        for (int16_t *row = out; end > t && row < out + cols * ldo; row += ldo) {
            const int16_t last = row[t - 1];
            for (uint32_t i = t; i < end; i += 8) fill_eight(row + i, last);
        }
        if (end > t) continue;
        end = t + 8;
        for (uint32_t j = 0; j < cols; j += LANES) {
            vi r[8];
            UNROLL for (uint32_t i = 0; i < 8; i++) {
                r[i] = v_load(a + (t + (size_t)i) * lda + j);
                if (shift) r[i] = v_q15(r[i], factor);
                r[i] = v_max(r[i], least);
            }
            transpose_square(r);
            UNROLL for (uint32_t i = 0; i < 8; i++)
                v_store_eights(out + (j + (size_t)i) * ldo + t, ldo, r[i]);
        }
    }
}

#define KERNEL_TABLE                                                                               \
    {KERNEL(multiply), KERNEL(accumulate), KERNEL(scan),      KERNEL(hold),  KERNEL(softmax),      \
     KERNEL(gelu),     KERNEL(add_norm),   KERNEL(transpose), KERNEL(embed), count_kept}
