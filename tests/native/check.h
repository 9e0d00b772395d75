/* A small test framework: named checks, seeded random numbers, buffers of exact size. */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

static uint32_t seed = 1;

/* uniform in [-1, 1] */
static inline float uniform(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / (float)(1 << 23) - 1.0f;
}

static inline float largest_difference(const float *a, const float *b, size_t n) {
    float largest = 0.0f;
    for (size_t i = 0; i < n; i++) {
        float difference = fabsf(a[i] - b[i]);
        if (!(difference <= largest)) largest = difference; /* NaN counts */
    }
    return largest;
}

#endif
