/* x = LN(x / 2^shift + r): the norm of fixed_arithmetic.h, two values at a time where there are DSP
 * instructions. */
#ifndef DK_NORM_H
#define DK_NORM_H

#include "rows.h"

#if defined(DK_DSP) && DK_DIM % 4 == 0

static inline int16x2_t dk_get_two(const int16_t *at) {
    int16x2_t two;
    memcpy(&two, at, sizeof two);
    return two;
}

static inline int16x2_t dk_pack(int32_t low, int32_t high) {
    int16x2_t two;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(two) : "r"(low), "r"(high));
    return two;
}

/* x += r, saturated. Returns the sum of the row. */
static inline int32_t dk_add_rows(int16_t *x, const int16_t *r) {
    const int16_t *from = x, *end = x + DK_DIM;
    int32_t sum = 0;
    while (x < end) {
        int16x2_t a, b, c, d;
        dk_take_four(&from, &a, &b);
        dk_take_four(&r, &c, &d);
        a = __qadd16(a, c);
        b = __qadd16(b, d);
        sum = __smlad(b, 0x00010001, __smlad(a, 0x00010001, sum));
        dk_put_four(&x, a, b);
    }
    return sum;
}

/* Subtracts the mean. Returns the sum of squares. */
static inline uint64_t dk_centre(int16_t *x, int32_t mean) {
    const int16x2_t both = dk_pack(mean, mean);
    const int16_t *from = x, *end = x + DK_DIM;
    int64_t squares = 0;
    while (x < end) {
        int16x2_t a, b;
        dk_take_four(&from, &a, &b);
        a = __qsub16(a, both);
        b = __qsub16(b, both);
        squares = __smlald(b, b, __smlald(a, a, squares));
        dk_put_four(&x, a, b);
    }
    return (uint64_t)squares;
}

/* What a row is scaled with: y = (c q15(gain, root) + 2^(shift - 1)) >> shift, in two products that
 * are shifted down by 16. The first is q15(gain, root) 2^m with m = 17 - shift, for which its lower
 * bits are cleared; the second 2 y and a bit. For 3 <= shift <= 16 nothing overflows. */
typedef struct {
    int32_t root, half, mask;
} dk_norm_scale;

static inline dk_norm_scale dk_scale_for(uint32_t root, uint32_t shift) {
    const uint32_t m = 17 - shift;
    dk_norm_scale scale;
    scale.root = (int32_t)(root << (m + 1));
    scale.half = 1 << m >> 1;
    scale.mask = -(1 << m);
    return scale;
}

/* Halves a value and saturates it to 16 bits. The caller has added 1 for rounding. */
static inline int32_t dk_saturate_half(int32_t a) {
    int32_t limited;
    __asm__("ssat %0, #16, %1, asr #1" : "=r"(limited) : "r"(a));
    return limited;
}

static inline int16x2_t dk_scale_two(int16x2_t c, const dk_norm_scale *scale, int16x2_t gains,
                                     int16x2_t biases) {
    int32_t low = __smlawb(scale->root, gains, scale->half) & scale->mask;
    int32_t high = __smlawt(scale->root, gains, scale->half) & scale->mask;
    low = dk_saturate_half(__smlawb(low, c, 1));
    high = dk_saturate_half(__smlawt(high, c, 1));
    return __qadd16(dk_pack(low, high), biases);
}

/* x = x / 2^down scaled, + bias. `down` is a constant where this is called. */
static inline void dk_scale(int16_t *x, uint32_t down, dk_norm_scale scale,
                            const dk_fixed_norm *norm) {
    const int16_t *gain = norm->gain, *bias = norm->bias, *end = x + DK_DIM;
    while (x < end) {
        int16x2_t a = dk_get_two(x), b = dk_get_two(x + 2), c, d, e, f;
        for (uint32_t k = down; k; k--) a = __shadd16(a, 0), b = __shadd16(b, 0);
        dk_take_four(&gain, &c, &d);
        dk_take_four(&bias, &e, &f);
        a = dk_scale_two(a, &scale, c, e);
        b = dk_scale_two(b, &scale, d, f);
        dk_put_four(&x, a, b);
    }
}

/* The row is brought to 16 bits by 2^p. For p > 0 the shift of the result is less by p, which gives
 * the same: (c 2^p g + 2^(s-1)) >> s = (c g + 2^(s-p-1)) >> (s-p). */
static inline void dk_scale_row(int16_t *x, int32_t p, uint32_t root, const dk_fixed_norm *norm) {
    uint32_t shift = norm->shift;
    for (; p > 0 && shift > 3; p--) shift--;
    for (; p > 0; p--)
        for (uint32_t i = 0; i < DK_DIM; i++) x[i] = (int16_t)(x[i] * 2);
    for (; p < -1; p++)
        for (uint32_t i = 0; i < DK_DIM; i++) x[i] = (int16_t)(x[i] >> 1);
    const dk_norm_scale scale = dk_scale_for(root, shift);
    if (p)
        dk_scale(x, 1, scale, norm);
    else
        dk_scale(x, 0, scale, norm);
}

static inline void dk_add_norm(int16_t *x, uint32_t shift, const int16_t *r,
                               const dk_fixed_norm *norm) {
    uint32_t root;
    for (uint32_t i = 0; shift && i < DK_DIM; i++) x[i] = (int16_t)dk_rounded_shift(x[i], shift);
    int32_t sum = dk_add_rows(x, r);
    if (norm->shift < 3 || norm->shift > 16) {
        dk_fixed_norm_row(x, norm);
        return;
    }
    int32_t p = dk_normalise(dk_centre(x, dk_mean(sum, DK_DIM)) + norm->epsilon, &root);
    dk_scale_row(x, p, root, norm);
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
