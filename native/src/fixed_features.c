/* Features in 16 bits. */
#include "fixed/fixed.h"

/* 1.5 * 2^23: a number below 2^22 that is added to it is rounded to an integer, halves to even. */
static const float ROUNDER = 12582912.0f;

void dk_fixed_features(const float *features, const float *scales, uint32_t frames, uint32_t count,
                       int16_t *out) {
    for (uint32_t t = 0; t < frames; t++) {
        const float *row = features + (size_t)t * count;
        for (uint32_t i = 0; i < count; i++) {
            float a = row[i] * scales[i];
            a = a<(float)DK_LEAST ? (float)DK_LEAST : a>(float) DK_MOST ? (float)DK_MOST : a;
            out[(size_t)t * count + i] = (int16_t)((a + ROUNDER) - ROUNDER);
        }
    }
}
