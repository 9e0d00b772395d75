/* The arithmetic of the token-at-a-time engine. Every operation is written out, fused or not, so
 * that all machines with a fused multiply-add compute the same bits. */
#ifndef DK_ARITHMETIC_H
#define DK_ARITHMETIC_H

#include "engine.h"

#include <math.h>
#include <string.h>

#if defined(__FP_FAST_FMAF) || defined(FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
static inline float dk_mac(float a, float b, float sum) { return fmaf(a, b, sum); }
#else
static inline float dk_mac(float a, float b, float sum) { return a * b + sum; }
#endif

static inline uint32_t dk_bits(float a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

static inline float dk_float(uint32_t bits) {
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* Twice the bit pattern: it orders |a|, so comparing magnitudes needs no float compare. */
static inline uint32_t dk_magnitude(float a) { return dk_bits(a) << 1; }

static inline float dk_least(float a, float b) { return a < b ? a : b; }
static inline float dk_most(float a, float b) { return a > b ? a : b; }

/* e^x to 1e-7: 2^n times a polynomial on [-ln2/2, ln2/2]; n is clamped, so no infinity. */
static inline float dk_exp(float x) {
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = dk_most(-87.0f, dk_least(x, 87.0f));
    float n = dk_mac(x, 1.44269504f, rounder);
    uint32_t power = (dk_bits(n) - 0x4b400000u + 127u) << 23;
    n -= rounder;
    float f = dk_mac(n, 2.12194440e-4f, dk_mac(n, -0.693359375f, x));
    float p = dk_mac(1.9875691500e-4f, f, 1.3981999507e-3f);
    p = dk_mac(p, f, 8.3334519073e-3f);
    p = dk_mac(p, f, 4.1665795894e-2f);
    p = dk_mac(p, f, 1.6666665459e-1f);
    p = dk_mac(p, f, 5.0000001201e-1f);
    p = dk_mac(p, f * f, f + 1.0f);
    return p * dk_float(power);
}

/* e^x to 5e-07 where |x| < 1/4. */
static inline float dk_exp_small(float x) {
    float p = dk_mac(4.159057991e-02f, x, 1.673022793e-01f);
    p = dk_mac(p, x, 5.000080052e-01f);
    p = dk_mac(p, x, 9.999906479e-01f);
    return dk_mac(p, x, 1.0f);
}

/* x/2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
static inline float dk_gelu(float x) {
    float twice = x * dk_mac(0.0713548163f * x, x, 1.5957691216f);
    return x / (1.0f + dk_exp(-twice));
}

/* Loops are written four steps at a time: on a small processor counting is a third of the work. */
#define DK_REPEAT_4(M) M(0) M(1) M(2) M(3)

/* x (n) = LayerNorm(x + r) * gain + bias. */
static inline void dk_add_norm_token(float *x, const float *r, const float *gain,
                                     const float *bias) {
    float mean = 0.0f, variance = 0.0f;
    for (float *v = x, *end = x + DK_DIM; v < end; v += 4, r += 4) {
#define DK_ADD(k)                                                                                  \
    v[k] += r[k];                                                                                  \
    mean += v[k];
        DK_REPEAT_4(DK_ADD)
    }
    mean *= 1.0f / DK_DIM;
    for (float *v = x, *end = x + DK_DIM; v < end; v += 4) {
#define DK_CENTRE(k)                                                                               \
    v[k] -= mean;                                                                                  \
    variance = dk_mac(v[k], v[k], variance);
        DK_REPEAT_4(DK_CENTRE)
    }
    float scale = 1.0f / sqrtf(dk_mac(variance, 1.0f / DK_DIM, 1e-6f));
    for (float *v = x, *end = x + DK_DIM; v < end; v += 4, gain += 4, bias += 4) {
#define DK_SCALE(k) v[k] = dk_mac(v[k] * scale, gain[k], bias[k]);
        DK_REPEAT_4(DK_SCALE)
    }
}

/* ---- numbers in storage ---------------------------------------------------------------------- */

static inline float dk_from_f32(float a) { return a; }

/* IEEE half precision by its bits: no compiler support needed. */
static inline float dk_from_f16(uint16_t half) {
    float size = dk_float((uint32_t)(half & 0x7fffu) << 13);
    size *= 5.192296858534828e33f; /* 2^112: from the half's exponent bias to the float's */
    return half & 0x8000u ? -size : size;
}

static inline float dk_from_weight(dk_weight w) {
#if defined(DK_WEIGHTS_F16)
    return dk_from_f16(w);
#else
    return (float)w;
#endif
}

#ifdef DK_SMALL
static inline dk_kv dk_to_kv(float a) { return (dk_kv)((dk_bits(a) + 0x8000u) >> 16); }
static inline float dk_from_kv(dk_kv a) { return dk_float((uint32_t)a << 16); }
#else
static inline dk_kv dk_to_kv(float a) { return a; }
static inline float dk_from_kv(dk_kv a) { return a; }
#endif

#endif
