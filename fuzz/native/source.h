/* Integers of fixed-point models. */
#ifndef FUZZ_SOURCE_H
#define FUZZ_SOURCE_H

#include "shape.h"

#include <deltakwt_fixed.h>

enum { INTEGERS = 1 << 13 };

/* A source with the memory that it points to: every tensor begins somewhere in `values`. */
typedef struct {
    dk_fixed_source source;
    dk_fixed_layer_source layers[MOST_LAYERS];
    int32_t head_bias[MOST_LABELS];
    int16_t values[INTEGERS], narrow[INTEGERS];
    uint32_t at;
} integers;

static inline const int16_t *piece(integers *from) {
    from->at = (from->at + 211) % (INTEGERS / 4);
    return from->values + from->at;
}

static inline void take_layer(input *in, integers *from, dk_fixed_layer_source *l) {
    const int16_t **all[] = {
        &l->q,          &l->k,           &l->v,         &l->proj,         &l->proj_bias,
        &l->mlp_in,     &l->mlp_in_bias, &l->mlp_out,   &l->mlp_out_bias, &l->norm1,
        &l->norm1_bias, &l->norm2,       &l->norm2_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = piece(from);
    l->norm1_epsilon = number(in, 1, 200);
    l->norm2_epsilon = number(in, 1, 200);
    l->norm1_shift = number(in, 1, 30);
    l->norm2_shift = number(in, 1, 30);
    l->key_shift = number(in, 0, 14);
    l->score_bits = number(in, 4, 12);
    l->hidden_bits = number(in, 4, 13);
    l->sum1_shift = number(in, 0, 14);
    l->sum2_shift = number(in, 0, 14);
}

static inline void take_source(input *in, const dk_config *c, integers *out) {
    uint32_t state = take_byte(in) * 2654435761u | 1u, bits = take_byte(in) % 16;
    for (uint32_t i = 0; i < INTEGERS; i++) {
        int16_t value = (int16_t)(next_random(&state) >> 16);
        out->values[i] = value == INT16_MIN ? 0 : (int16_t)(value >> bits);
        out->narrow[i] = (int16_t)(value >> 9);
    }
    for (uint32_t n = take_byte(in) % 8; n; n--) {
        uint32_t place = take_short(in) % INTEGERS;
        out->values[place] = (int16_t)take_short(in);
    }
    for (uint32_t i = 0; i < c->labels; i++) out->head_bias[i] = (int32_t)number(in, 0, 200);
    out->at = 0;
    out->source.embed = out->narrow;
    out->source.head = out->narrow + 1000;
    out->source.positions = piece(out);
    out->source.head_bias = out->head_bias;
    out->source.layers = out->layers;
    out->source.embed_shift = number(in, 0, 15);
    for (uint32_t l = 0; l < c->layers; l++) take_layer(in, out, &out->layers[l]);
}

#endif
