/* The fixed-point kernels of every vector instruction set, written once.
 *
 * The including file defines KERNEL(name), LANES (which divides 16), the types
 *   vi, vs, vq   LANES values of 16 bits, LANES / 2 of 32 bits, a sum in 64 bits
 * and a few inline functions
 *   v_load v_store v_set v_zero
 *   v_adds v_subs          saturating
 *   v_add                  modulo 2^16: a sum of up to 65535 that is shifted down next
 *   v_q15(a, b)            rounded product with 15 fraction bits
 *   v_max v_min            signed
 *   v_max_size(p, a)       the larger of p and |a|, unsigned
 *   v_least_size(a, b)     the smaller of |a| and b, unsigned
 *   v_largest v_largest_size   over all lanes, signed and unsigned
 *   v_within(d, theta)     lanes that are all ones where |d| <= theta, also for d = -32768
 *   v_select(m, a, b) v_drop(m, a)     a where m, else b; zero where m, else a
 *   v_kept_bits(ma, mb)    2 LANES bits: where the masks are zero
 *   v_first(n)             lanes 0 .. n-1 all ones
 *   v_and v_left v_right   bits; v_right fills up with zeros
 *   v_right_signed(a, bits)  fills up with the sign
 *   v_halve(q, n)          q >= 0 divided by 2^n, each lane by its own n in 0..15, rounded
 *   s_zero s_add_sum(s, a) s_total(s)      sum of all values, 32 bits
 *   q_zero q_add_squares(q, a) q_total(q)  sum of all squares, 64 bits
 *   s_pair(p) s_add_products(s, x, w) s_narrow(low, high, shift)   see embed
 *   v_scaled(a, b, shift)  a b / 2^shift, rounded and saturated
 */
#include "../fixed/fixed.h"
#include "unroll.h"

enum { PER_16 = DK_VECTOR / LANES, MOST_VECTORS = DK_PANEL / LANES, TILE = 4 * PER_16 };

static void note(uint32_t *peak, vi sizes) {
    uint32_t size = v_largest_size(sizes);
    if (size > *peak) *peak = size;
}

#include "fixed_products.inc.h"

/* ---- deltas ---------------------------------------------------------------------------------- */

/* One vector of a row against its reference. Returns the lanes that are not kept. */
INLINE vi scan_vector(const int16_t *x, vi *reference, vi theta, int16_t *delta, vi *most) {
    vi now = v_load(x), change = v_subs(now, *reference), within = v_within(change, theta);
    vi kept = v_drop(within, change);
    *reference = v_select(within, *reference, now);
    *most = v_max_size(*most, kept);
    v_store(delta, kept);
    return within;
}

/* NV > 0: the reference of NV vectors stays in registers; else it has nv vectors in memory. */
INLINE void scan_rows(const uint32_t NV, uint32_t nv, const int16_t *x, size_t ldx,
                      const uint8_t *fresh, int32_t theta, int16_t *reference, dk_changes *c,
                      uint32_t *peak) {
    const vi limit = v_set((int16_t)theta), none = v_within(v_zero(), v_zero());
    vi held[4 * PER_16], most = v_zero();
    UNROLL for (uint32_t v = 0; v < NV; v++) held[v] = v_load(reference + v * LANES);
    for (uint32_t t = c->first; t < c->rows; t++) {
        int is_fresh = !fresh || fresh[t]; /* `fresh` may be c->changed itself */
        c->changed[t] = 0;
        if (!is_fresh) continue;
        const int16_t *row = x + t * ldx;
        int16_t *delta = c->delta + (size_t)t * c->stride;
        uint64_t *mask = c->mask + (size_t)t * c->words, word = 0, any = 0;
        for (uint32_t v = 0; v < (NV ? NV : nv); v += 2) {
            vi within[2] = {none, none};
            UNROLL for (uint32_t k = 0; k < 2; k++) {
                uint32_t at = (v + k) * LANES;
                if (v + k >= (NV ? NV : nv)) continue;
                vi old = NV ? held[NV ? v + k : 0] : v_load(reference + at);
                within[k] = scan_vector(row + at, &old, limit, delta + at, &most);
                if (NV)
                    held[NV ? v + k : 0] = old;
                else
                    v_store(reference + at, old);
            }
            word |= (uint64_t)v_kept_bits(within[0], within[1]) << v * LANES % 64;
            if ((v + 2) * LANES % 64 == 0 || v + 2 >= (NV ? NV : nv)) {
                mask[v * LANES / 64] = word;
                any |= word;
                word = 0;
            }
        }
        c->changed[t] = any != 0;
    }
    UNROLL for (uint32_t v = 0; v < NV; v++) v_store(reference + v * LANES, held[v]);
    note(peak, most);
}

static void KERNEL(scan)(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh,
                         int32_t theta, int16_t *reference, dk_changes *c, uint32_t *peak) {
    if (n == 64)
        scan_rows(4 * PER_16, 0, x, ldx, fresh, theta, reference, c, peak);
    else
        scan_rows(0, n / LANES, x, ldx, fresh, theta, reference, c, peak);
}

static int KERNEL(hold)(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta,
                        uint64_t *mask) {
    const vi limit = v_set((int16_t)theta), none = v_within(v_zero(), v_zero());
    uint64_t word = 0, any = 0;
    for (uint32_t i = 0; i < n; i += 2 * LANES) {
        vi within[2] = {none, none};
        for (uint32_t k = 0, at = i; k < 2 && at < n; k++, at += LANES) {
            vi now = v_load(x + at), old = v_load(previous + at);
            within[k] = v_within(v_subs(now, old), limit);
            v_store(x + at, v_select(within[k], old, now));
        }
        word |= (uint64_t)v_kept_bits(within[0], within[1]) << i % 64;
        if ((i + 2 * LANES) % 64 == 0 || i + 2 * LANES >= n) {
            mask[i / 64] = word;
            any |= word;
            word = 0;
        }
    }
    return any != 0;
}

/* ---- softmax, GELU, LayerNorm, embedding ------------------------------------------------------
 */

/* 2^-y for y >= 0 with so many fraction bits. */
INLINE vi power_of_half(vi y, uint32_t bits) {
    vi f = v_and(v_left(y, 15 - bits), v_set(DK_MOST));
    vi power = v_adds(v_q15(v_set(-1278), f), v_set(7539));
    power = v_adds(v_q15(power, f), v_set(-22643));
    power = v_adds(v_q15(power, f), v_set(32766));
    return v_halve(power, v_right(y, bits));
}

static void KERNEL(softmax)(int16_t *x, uint32_t n, uint32_t bits) {
    const uint32_t padded = dk_padded(n);
    const vi least = v_set(DK_LEAST), limit = v_set((int16_t)((16 << (bits - 1)) - 1));
    vi top = least;
    for (uint32_t i = 0; i < padded; i += LANES) { /* what pads the row is no score */
        vi scores = i + LANES <= n ? v_load(x + i)
                                   : v_select(v_first(n > i ? n - i : 0), v_load(x + i), least);
        top = v_max(top, scores);
    }
    top = v_set((int16_t)v_largest(top));
    vs sum = s_zero();
    for (uint32_t i = 0; i < padded; i += LANES) {
        vi y = v_min(v_q15(v_subs(top, v_load(x + i)), v_set(23637)), limit);
        vi power = power_of_half(v_max(y, v_zero()), bits - 1);
        if (i + LANES > n) power = v_and(power, v_first(n > i ? n - i : 0));
        v_store(x + i, power);
        sum = s_add_sum(sum, power);
    }
    uint32_t k;
    const vi inverse = v_set((int16_t)dk_inverse((uint32_t)s_total(sum), &k));
    const vi half = v_set((int16_t)(1 << k >> 1));
    for (uint32_t i = 0; i < padded; i += LANES)
        v_store(x + i, v_right(v_add(v_q15(v_load(x + i), inverse), half), k));
}

static void KERNEL(gelu)(int16_t *x, uint32_t n, uint32_t bits) {
    const vi limit = v_set((int16_t)((4 << bits) - 1)), half = v_set((int16_t)(1 << (13 - bits)));
    for (uint32_t i = 0; i < n; i += LANES) {
        vi a = v_load(x + i), u = v_left(v_least_size(a, limit), 13 - bits);
        vi p = v_adds(v_q15(v_set(-4492), u), v_set(22398));
        p = v_adds(v_q15(p, u), v_set(-20160));
        p = v_adds(v_q15(p, u), v_set(-12563));
        p = v_adds(v_q15(p, u), v_set(16366));
        p = v_adds(p, p);
        p = v_q15(p, p);
        p = v_q15(p, p);
        vi tail = v_right(v_add(v_q15(u, p), half), 14 - bits);
        v_store(x + i, v_subs(v_max(a, v_zero()), tail));
    }
}

/* One row of NV > 0 vectors in registers, or of nv vectors in memory. */
INLINE void norm_row(const uint32_t NV, uint32_t nv, int16_t *x, vi factor, const int16_t *r,
                     int is_shifted, const dk_fixed_norm *norm, vi *sum_most, vi *most) {
    vi held[4 * PER_16];
    vs sum = s_zero();
    vq squares = q_zero();
    for (uint32_t v = 0; v < (NV ? NV : nv); v++) {
        vi a = v_load(x + v * LANES);
        a = v_adds(is_shifted ? v_q15(a, factor) : a, v_load(r + v * LANES));
        sum = s_add_sum(sum, a);
        *sum_most = v_max_size(*sum_most, a);
        if (NV)
            held[NV ? v : 0] = a;
        else
            v_store(x + v * LANES, a);
    }
    int32_t mean = dk_mean(s_total(sum), norm->n);
    const vi centre = v_set((int16_t)mean);
    for (uint32_t v = 0; v < (NV ? NV : nv); v++) {
        vi c = v_subs(NV ? held[NV ? v : 0] : v_load(x + v * LANES), centre);
        squares = q_add_squares(squares, c);
        if (NV)
            held[NV ? v : 0] = c;
        else
            v_store(x + v * LANES, c);
    }
    int64_t pad = dk_saturate(-mean), padding = dk_padded(norm->n) - norm->n;
    uint64_t total = q_total(squares) - (uint64_t)(padding * pad * pad) + norm->epsilon;
    uint32_t root;
    int32_t p = dk_normalise(total, &root);
    const vi scale = v_set((int16_t)root);
    for (uint32_t v = 0; v < (NV ? NV : nv); v++) {
        vi c = NV ? held[NV ? v : 0] : v_load(x + v * LANES);
        c = p >= 0 ? v_left(c, (uint32_t)p) : v_right_signed(c, (uint32_t)-p);
        vi y = v_scaled(c, v_q15(v_load(norm->gain + v * LANES), scale), norm->shift);
        y = v_adds(y, v_load(norm->bias + v * LANES));
        v_store(x + v * LANES, y);
        *most = v_max_size(*most, y);
    }
}

static void KERNEL(add_norm)(int16_t *x, size_t ldx, uint32_t shift, const int16_t *r, size_t ldr,
                             const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                             uint32_t *sum_peak, uint32_t *peak) {
    const vi factor = v_set((int16_t)(shift ? 1 << (15 - shift) : 0));
    vi sum_most = v_zero(), most = v_zero();
    for (uint32_t t = 0; t < rows; t++) {
        const int16_t *add = r + where[t] * ldr;
        if (norm->n == 64)
            norm_row(4 * PER_16, 0, x + t * ldx, factor, add, shift > 0, norm, &sum_most, &most);
        else
            norm_row(0, dk_padded(norm->n) / LANES, x + t * ldx, factor, add, shift > 0, norm,
                     &sum_most, &most);
    }
    note(sum_peak, sum_most);
    note(peak, most);
}

static void KERNEL(embed)(const int16_t *x, uint32_t pairs, const int16_t *w, uint32_t shift,
                          const int16_t *add, uint32_t n, int16_t *out, uint32_t *peak) {
    vi most = v_zero();
    for (uint32_t j = 0; j < n; j += LANES) {
        vs low = s_zero(), high = s_zero();
        for (uint32_t i = 0; i < pairs; i++) {
            vi two = s_pair(x + 2 * i);
            const int16_t *row = w + ((size_t)i * n + j) * 2;
            low = s_add_products(low, two, v_load(row));
            high = s_add_products(high, two, v_load(row + LANES));
        }
        vi y = v_adds(s_narrow(low, high, shift), v_load(add + j));
        v_store(out + j, y);
        most = v_max_size(most, y);
    }
    note(peak, most);
}

#define KERNEL_TABLE                                                                               \
    {KERNEL(multiply), KERNEL(accumulate), KERNEL(scan),      KERNEL(hold), KERNEL(softmax),       \
     KERNEL(gelu),     KERNEL(add_norm),   KERNEL(transpose), KERNEL(embed)}
