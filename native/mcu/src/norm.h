/* x = LN(x / 2^shift + r): the norm of fixed_arithmetic.h, two values at a time where there are DSP
 * instructions. */
#ifndef DK_NORM_H
#define DK_NORM_H

#include "rows.h"

#if defined(DK_DSP) && DK_DIM % 2 == 0

static inline void dk_put_two(int16_t *at, int16x2_t two) { memcpy(at, &two, sizeof two); }

static inline int16x2_t dk_get_two(const int16_t *at) {
    int16x2_t two;
    memcpy(&two, at, sizeof two);
    return two;
}

static inline int16x2_t dk_pack(int32_t low, int32_t high) {
    return (int16x2_t)(((uint32_t)low & 0xffff) | (uint32_t)high << 16);
}

/* x = x / 2^shift + r, rounded and saturated. Returns the sum of the row. */
static inline int32_t dk_add_rows(int16_t *x, uint32_t shift, const int16_t *r) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < DK_DIM; i += 2) {
        int16x2_t a = dk_get_two(x + i);
        if (shift)
            a = dk_pack(dk_rounded_shift((int16_t)a, shift), dk_rounded_shift(a >> 16, shift));
        a = __qadd16(a, dk_get_two(r + i));
        sum = __smlad(a, 0x00010001, sum);
        dk_put_two(x + i, a);
    }
    return sum;
}

/* Subtracts the mean. Returns the sum of squares. */
static inline uint64_t dk_centre(int16_t *x, int32_t mean) {
    const int16x2_t both = dk_pack(mean, mean);
    int64_t squares = 0;
    for (uint32_t i = 0; i < DK_DIM; i += 2) {
        int16x2_t c = __qsub16(dk_get_two(x + i), both);
        squares = __smlald(c, c, squares);
        dk_put_two(x + i, c);
    }
    return (uint64_t)squares;
}

/* x = x / 2^down gain root / 2^shift + bias; shift > 0. */
static inline void dk_scale(int16_t *x, uint32_t down, int32_t root, uint32_t shift,
                            const dk_fixed_norm *norm) {
    const int32_t half = 1 << shift >> 1, rounding = 0x4000;
    const int16_t *gain = norm->gain, *bias = norm->bias;
    for (int16_t *end = x + DK_DIM; x < end; x += 2, gain += 2, bias += 2) {
        int16x2_t c = dk_get_two(x), gains = dk_get_two(gain);
        for (uint32_t k = down; k; k--) c = __shadd16(c, 0);
        int32_t low = __smlabb(gains, root, rounding) >> 15;
        int32_t high = __smlatb(gains, root, rounding) >> 15;
        low = dk_saturate(__smlabb(c, low, half) >> shift);
        high = dk_saturate(__smlatb(c, high, half) >> shift);
        dk_put_two(x, __qadd16(dk_pack(low, high), dk_get_two(bias)));
    }
}

/* The row is brought to 16 bits by 2^p. For p > 0 the shift of the result is less by p, which gives
 * the same: (c 2^p g + 2^(s-1)) >> s = (c g + 2^(s-p-1)) >> (s-p). */
static inline void dk_add_norm(int16_t *x, uint32_t shift, const int16_t *r,
                               const dk_fixed_norm *norm) {
    uint32_t root;
    int32_t mean = dk_mean(dk_add_rows(x, shift, r), DK_DIM);
    int32_t p = dk_normalise(dk_centre(x, mean) + norm->epsilon, &root);
    int32_t up = p > 0 ? p : 0, most = (int32_t)norm->shift - 1;
    for (; up > most; up--)
        for (uint32_t i = 0; i < DK_DIM; i++) x[i] = (int16_t)(x[i] * 2);
    dk_scale(x, p < 0 ? (uint32_t)-p : 0, (int32_t)root, norm->shift - (uint32_t)up, norm);
}

#else

static inline void dk_add_norm(int16_t *x, uint32_t shift, const int16_t *r,
                               const dk_fixed_norm *norm) {
    const int32_t half = 1 << shift >> 1;
    for (uint32_t i = 0; i < DK_DIM; i++)
        x[i] = (int16_t)dk_saturate(((x[i] + half) >> shift) + r[i]);
    dk_fixed_norm_row(x, norm);
}

#endif

#endif
