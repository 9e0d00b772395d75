/* Features in 16 bits. */
#include "deltakwt_fixed.h"
#include "fixed/fixed_arithmetic.h"

/* 1.5 * 2^23: a number below 2^22 that is added to it is rounded to an integer, halves to even. */
static const float ROUNDER = 12582912.0f;

static float rounded(float a) {
    a = a<(float)DK_LEAST ? (float)DK_LEAST : a>(float) DK_MOST ? (float)DK_MOST : a;
    return (a + ROUNDER) - ROUNDER;
}

void dk_fixed_features(const float *features, const float *scales, uint32_t frames, uint32_t count,
                       int16_t *out) {
    for (uint32_t t = 0; t < frames; t++, features += count, out += count)
        for (uint32_t i = 0; i < count; i++) out[i] = (int16_t)rounded(features[i] * scales[i]);
}

void dk_round_features(float *features, const float *scales, uint32_t frames, uint32_t count) {
    for (uint32_t t = 0; t < frames; t++, features += count)
        for (uint32_t i = 0; i < count; i++)
            features[i] = rounded(features[i] * scales[i]) / scales[i];
}
