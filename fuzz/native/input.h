/* Helpers of the C fuzz targets: the input as a sequence of numbers, checks that end the process,
 * and memory of exactly the requested size, so that the address sanitizer sees one byte too many.
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* Freed memory is kept from use for a few executions, not for thousands: fresh pages cost time. */
const char *__asan_default_options(void) { return "quarantine_size_mb=8"; }

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct {
    const uint8_t *at;
    size_t left;
} input;

/* Copies the next bytes. Behind the end of the input there are zeros. */
static inline void take_bytes(input *in, void *out, size_t count) {
    size_t have = count < in->left ? count : in->left;
    memset(out, 0, count);
    if (have) memcpy(out, in->at, have);
    in->at += have;
    in->left -= have;
}

static inline uint8_t take_byte(input *in) {
    uint8_t value;
    take_bytes(in, &value, sizeof value);
    return value;
}

static inline uint16_t take_short(input *in) {
    uint16_t value;
    take_bytes(in, &value, sizeof value);
    return value;
}

static inline uint32_t take_word(input *in) {
    uint32_t value;
    take_bytes(in, &value, sizeof value);
    return value;
}

/* Any float, NaN and infinity included. */
static inline float take_any_float(input *in) {
    float value;
    take_bytes(in, &value, sizeof value);
    return value;
}

static inline double take_any_double(input *in) {
    double value;
    take_bytes(in, &value, sizeof value);
    return value;
}

/* A number from 0 to 1, from one byte. */
static inline float take_share(input *in) { return (float)take_byte(in) / 255.0f; }

/* A number of the right range, except where the input asks for another one. */
static inline uint32_t number(input *in, uint32_t low, uint32_t high) {
    uint8_t byte = take_byte(in);
    return byte == 255 ? take_word(in) : low + byte % (high - low + 1);
}

static inline uint32_t next_random(uint32_t *state) { /* xorshift */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Fills an array with values in [-scale, scale] that depend on the seed only. */
static inline void random_floats(uint32_t seed, float scale, float *out, size_t count) {
    uint32_t state = seed * 2654435761u | 1u;
    for (size_t i = 0; i < count; i++)
        out[i] = scale * ((float)(next_random(&state) >> 8) / 8388608.0f - 1.0f);
}

static inline void *exactly(size_t size) {
    void *memory = malloc(size ? size : 1);
    EXPECT(memory);
    return memory;
}

#endif
