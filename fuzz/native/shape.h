/* Shapes of models: small ones that can be run, and any numbers at all. */
#ifndef FUZZ_SHAPE_H
#define FUZZ_SHAPE_H

#include "input.h"

#include <deltakwt.h>

/* Of small shapes. */
enum {
    MOST_LAYERS = 3,
    MOST_LABELS = 20,
    MOST_TENSORS = 4 + 13 * MOST_LAYERS + 2,
    FLOATS = 1 << 14
};

static inline dk_config take_small_shape(input *in) {
    dk_config c;
    uint32_t head = 1 + take_byte(in) % 9;
    c.heads = 1 + take_byte(in) % 4;
    c.dim = head * c.heads;
    c.mlp = 1 + take_byte(in) % 40;
    c.layers = 1 + take_byte(in) % 3;
    c.labels = 1 + take_byte(in) % 20;
    c.frames = 1 + take_byte(in) % 140;
    c.features = 1 + take_byte(in) % 45;
    return c;
}

static inline dk_config take_any_shape(input *in) {
    dk_config c;
    take_bytes(in, &c, sizeof c);
    return c;
}

/* Every tensor begins somewhere in `values` (FLOATS): most are ordinary numbers, a few have the
 * magnitude that the input asks for. */
static inline void take_tensors(input *in, const dk_config *c, float scale, float *values,
                                const float **tensors) {
    random_floats(take_byte(in), scale, values, FLOATS);
    for (uint32_t n = take_byte(in) % 8; n; n--)
        values[take_short(in) % FLOATS] = take_any_float(in);
    EXPECT(dk_tensor_count(c) <= MOST_TENSORS);
    for (uint32_t i = 0; i < dk_tensor_count(c); i++) tensors[i] = values + i * 97;
}

#endif
