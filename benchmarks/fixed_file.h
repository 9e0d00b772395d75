/* Reads the file that benchmarks/fixed_point.py writes: a fixed-point model, settings and clips.
 * 9 sizes (dim .. features, clips, settings), tensors, head bias, numbers, thresholds of each
 * setting, clips. Nothing is freed: the program ends soon after. */
#ifndef FIXED_FILE_H
#define FIXED_FILE_H

#include <stdio.h>
#include <stdlib.h>

#include "deltakwt_fixed.h"

typedef struct {
    dk_config config;
    dk_fixed_source source;
    const int32_t *thresholds; /* (settings, layers, DK_SITES) */
    const int16_t *clips;      /* (count, frames, features) */
    uint32_t settings, count;
} fixed_file;

static void *take(FILE *file, size_t count, size_t size) {
    void *p = malloc(count * size + 1);
    if (!p || fread(p, size, count, file) != count) exit(2);
    return p;
}

static const int16_t *shorts(FILE *file, size_t count) {
    return (const int16_t *)take(file, count, 2);
}

static dk_fixed_layer_source read_layer(FILE *f, size_t d, size_t m) {
    dk_fixed_layer_source s = {0};
    s.q = shorts(f, d * d), s.k = shorts(f, d * d), s.v = shorts(f, d * d);
    s.proj = shorts(f, d * d), s.proj_bias = shorts(f, d);
    s.mlp_in = shorts(f, d * m), s.mlp_in_bias = shorts(f, m);
    s.mlp_out = shorts(f, m * d), s.mlp_out_bias = shorts(f, d);
    s.norm1 = shorts(f, d), s.norm1_bias = shorts(f, d);
    s.norm2 = shorts(f, d), s.norm2_bias = shorts(f, d);
    return s;
}

static void set_numbers(dk_fixed_layer_source *s, const uint32_t *n) {
    s->norm1_epsilon = n[0], s->norm2_epsilon = n[1], s->norm1_shift = n[2], s->norm2_shift = n[3];
    s->key_shift = n[4], s->score_bits = n[5], s->hidden_bits = n[6];
    s->sum1_shift = n[7], s->sum2_shift = n[8];
}

static fixed_file read_file(FILE *file) {
    const uint32_t *n = (const uint32_t *)take(file, 9, 4);
    fixed_file f = {{n[0], n[1], n[2], n[3], n[4], n[5], n[6]}, {0}, NULL, NULL, n[8], n[7]};
    const dk_config *c = &f.config;
    f.source.embed = shorts(file, (size_t)c->features * c->dim);
    f.source.positions = shorts(file, (size_t)(c->frames + 1) * c->dim);
    f.source.head = shorts(file, (size_t)c->dim * c->labels);
    dk_fixed_layer_source *layers = (dk_fixed_layer_source *)malloc(c->layers * sizeof *layers);
    for (uint32_t l = 0; l < c->layers; l++) layers[l] = read_layer(file, c->dim, c->mlp);
    f.source.head_bias = (const int32_t *)take(file, c->labels, 4);
    const uint32_t *numbers = (const uint32_t *)take(file, 1 + 9 * (size_t)c->layers, 4);
    f.source.embed_shift = numbers[0];
    for (uint32_t l = 0; l < c->layers; l++) set_numbers(&layers[l], numbers + 1 + 9 * l);
    f.source.layers = layers;
    size_t table = (size_t)c->layers * DK_SITES, clip = (size_t)c->frames * c->features;
    f.thresholds = (const int32_t *)take(file, f.settings * table, 4);
    f.clips = shorts(file, f.count * clip);
    return f;
}

#endif
