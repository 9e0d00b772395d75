/* The arithmetic of docs/fixed-point.md on single values and rows. The kernels in plain C, the
 * kernels with vectors and the engine for microcontrollers (mcu/src/engine.c) use this one source.
 */
#ifndef DK_FIXED_ARITHMETIC_H
#define DK_FIXED_ARITHMETIC_H

#include <stdint.h>

enum {
    DK_LEAST = -32768,
    DK_MOST = 32767,
};

#ifdef __thumb2__
static inline int32_t dk_saturate(int32_t a) {
    int32_t limited;
    __asm__("ssat %0, #16, %1" : "=r"(limited) : "r"(a));
    return limited;
}
#else
static inline int32_t dk_saturate(int32_t a) {
    return a < DK_LEAST ? (int32_t)DK_LEAST : a > DK_MOST ? (int32_t)DK_MOST : a;
}
#endif

/* The lower 16 bits of a sum: sums of products are modulo 2^16. */
static inline int16_t dk_wrap(int32_t a) { return (int16_t)(uint16_t)a; }

/* C leaves >> of a negative number to the compiler; every compiler rounds downwards. */
#ifndef __cplusplus
_Static_assert((-3 >> 1) == -2, "the fixed-point engine needs an arithmetic right shift");
#endif

/* a / 2^bits, rounded to the nearest, halves upwards. */
static inline int32_t dk_rounded_shift(int32_t a, uint32_t bits) {
    return (a + (1 << bits >> 1)) >> bits;
}

/* The rounded product of two numbers with 15 fraction bits; not both may be -32768. */
static inline int32_t dk_q15(int32_t a, int32_t b) {
    int32_t half = 0x4000;
#ifdef __thumb2__
    __asm__("" : "+r"(half)); /* in a register: product and sum are one instruction */
#endif
    return (a * b + half) >> 15;
}

#ifdef __GNUC__
static inline uint32_t dk_lowest_bit(uint64_t x) { return (uint32_t)__builtin_ctzll(x); }
static inline uint32_t dk_bit_length(uint64_t x) { return 64 - (uint32_t)__builtin_clzll(x); }
#else
static inline uint32_t dk_bit_length(uint64_t x) { /* x > 0 */
    uint32_t n = 0;
    for (; x; x >>= 1) n++;
    return n;
}
static inline uint32_t dk_lowest_bit(uint64_t x) { return dk_bit_length(x & (0 - x)) - 1; }
#endif

/* Without an instruction for it, the compiler's own function is a slow one. */
static inline uint32_t dk_bit_count(uint64_t x) {
#if defined(__POPCNT__) || (defined(__GNUC__) && defined(__aarch64__)) || defined(__wasm__)
    return (uint32_t)__builtin_popcountll(x);
#else
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    return (uint32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
#endif
}

/* 2^29 / sqrt(v) for v in [2^28, 2^30), at most 32767. */
static inline uint32_t dk_reciprocal_root(uint32_t v) {
    v = (v + (1u << 13)) >> 14;
    uint32_t y = 43760u - ((53829u - (26848u * v >> 16)) * v >> 16);
    for (int i = 0; i < 2; i++) {
        uint32_t square = (y * y + (1u << 13)) >> 14;
        y = (y * (((3u << 30) - v * square) >> 15) + (1u << 15)) >> 16;
    }
    return y < DK_MOST ? y : (uint32_t)DK_MOST;
}

/* Mean of n values that add up to `sum`, rounded to the nearest, halves upwards. */
static inline int32_t dk_mean(int32_t sum, uint32_t n) {
    int32_t above = 2 * sum + (int32_t)n, below = 2 * (int32_t)n, mean = above / below;
    return above % below < 0 ? mean - 1 : mean;
}

/* The power of four that brings `total` > 0 to [2^28, 2^30), and the result. */
static inline int32_t dk_scale_total(uint64_t total, uint32_t *scaled) {
    int32_t length = (int32_t)dk_bit_length(total);
    int32_t p = length <= 30 ? (30 - length) / 2 : -((length - 30 + 1) / 2);
    *scaled = (uint32_t)(p >= 0 ? total << 2 * p : total >> -2 * p);
    return p;
}

/* The same power, and 2^29 over the square root of the result. */
static inline int32_t dk_normalise(uint64_t total, uint32_t *factor) {
    int32_t p = dk_scale_total(total, factor);
    *factor = dk_reciprocal_root(*factor);
    return p;
}

/* Softmax: 2^30 / total, brought to 15 bits; the result is to be shifted down by *k. */
static inline int32_t dk_inverse(uint32_t total, uint32_t *k) {
    uint32_t length = dk_bit_length(total);
    *k = length > 16 ? length - 16 : 0;
    uint32_t inverse = (1u << 30) / (total >> *k);
    return inverse < DK_MOST ? (int32_t)inverse : (int32_t)DK_MOST;
}

/* ---- GELU, exponential, LayerNorm ------------------------------------------------------------ */

/* GELU of x with `bits` <= 13 fraction bits. */
static inline int32_t dk_fixed_gelu(int32_t x, uint32_t bits) {
    int32_t u = x < 0 ? -x : x, limit = (4 << bits) - 1, p = -4492;
    u = (u < limit ? u : limit) << (13 - bits);
    p = dk_q15(p, u) + 22398;
    p = dk_q15(p, u) - 20160;
    p = dk_q15(p, u) - 12563;
    p = dk_q15(p, u) + 16366;
    p = dk_q15(2 * p, 2 * p);
    p = dk_q15(p, p);
    return (x > 0 ? x : 0) - dk_rounded_shift(dk_q15(u, p), 14 - bits);
}

/* exp(-z) with 15 fraction bits; z >= 0 has `bits` fraction bits, as the scores have. */
static inline int32_t dk_fixed_power(int32_t z, uint32_t bits) {
    int32_t y = dk_q15(dk_saturate(z), 23637), most = (17 << (bits - 1)) - 1;
    y = y < most ? y : most;
    int32_t whole = y >> (bits - 1), f = (int32_t)((uint32_t)y << (16 - bits)) & DK_MOST;
    int32_t power = dk_q15(dk_q15(dk_q15(-1278, f) + 7539, f) - 22643, f) + 32766;
    return dk_rounded_shift(power, (uint32_t)whole);
}

typedef struct {
    const int16_t *gain, *bias; /* (n), padded with zeros */
    uint32_t n, epsilon, shift;
} dk_fixed_norm;

/* LayerNorm of a row, in place. */
static inline void dk_fixed_norm_row(int16_t *x, const dk_fixed_norm *norm) {
    int32_t sum = 0;
    uint64_t total = norm->epsilon;
    uint32_t root;
    for (uint32_t i = 0; i < norm->n; i++) sum += x[i];
    int32_t mean = dk_mean(sum, norm->n);
    for (uint32_t i = 0; i < norm->n; i++) {
        int32_t centred = dk_saturate(x[i] - mean);
        x[i] = (int16_t)centred;
        total += (uint64_t)((int64_t)centred * centred);
    }
    int32_t p = dk_normalise(total, &root), half = 1 << norm->shift >> 1;
    int32_t factor = p > 0 ? 1 << p : 1, down = p < 0 ? -p : 0;
    for (uint32_t i = 0; i < norm->n; i++) {
        int32_t centred = (x[i] >> down) * factor;
        int32_t y = (centred * dk_q15(norm->gain[i], (int32_t)root) + half) >> norm->shift;
        x[i] = (int16_t)dk_saturate(dk_saturate(y) + norm->bias[i]);
    }
}

#endif
