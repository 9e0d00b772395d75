/* Shapes of models: small ones that can be run, and any numbers at all. */
#ifndef FUZZ_SHAPE_H
#define FUZZ_SHAPE_H

#include "input.h"

#include <deltakwt.h>

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

#endif
