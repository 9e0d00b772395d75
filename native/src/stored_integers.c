/* Models in fixed point from model files. src/deltakwt/export/binary.py writes what is read here.
 */
#include "stored_integers.h"

#include <math.h>
#include <string.h>

enum {
    OUTER = 3,  /* tensors before the layers: embedding, positions, head */
    INNER = 13, /* tensors of a layer */
    NUMBERS = 9 /* numbers of a layer */
};

static size_t filled(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t tensor_size(const dk_config *c, uint32_t tensor) {
    const size_t d = c->dim, m = c->mlp;
    const size_t outer[OUTER] = {c->features * d, (c->frames + (size_t)1) * d, d * c->labels};
    const size_t inner[INNER] = {d * d, d * d, d * d, d * d, d, d * m, m, m * d, d, d, d, d, d};
    return tensor < OUTER ? outer[tensor] : inner[(tensor - OUTER) % INNER];
}

static size_t tensor_step(const dk_config *c, uint32_t tensor) {
    return filled(tensor_size(c, tensor) * sizeof(int16_t)) / sizeof(int16_t);
}

/* Sets the parts that precede the tensors, relative to `at`; returns their size. */
static size_t lay_out_scales(const dk_config *c, const char *at, dk_stored_integers *out) {
    const size_t sites = filled((size_t)c->layers * DK_SITES * sizeof(double));
    const size_t features = filled((c->features + (size_t)1) * sizeof(float));
    const size_t bias = filled(c->labels * sizeof(int32_t));
    const size_t numbers = filled((1 + (size_t)NUMBERS * c->layers) * sizeof(int32_t));
    if (out) {
        out->threshold_scales = (const double *)at;
        out->feature_scales = (const float *)(at + sites);
        out->logit_step = out->feature_scales[c->features];
        out->head_bias = (const int32_t *)(at + sites + features);
        out->numbers = (const int32_t *)(at + sites + features + bias);
    }
    return sites + features + bias + numbers;
}

size_t dk_integers_size(const dk_config *c) {
    size_t size = lay_out_scales(c, NULL, NULL);
    for (uint32_t i = 0; i < OUTER + INNER * c->layers; i++)
        size += tensor_step(c, i) * sizeof(int16_t);
    return size;
}

void dk_integers_find(const dk_config *c, const void *data, dk_stored_integers *out) {
    const char *at = (const char *)data;
    at += lay_out_scales(c, at, out);
    out->tensors = (const int16_t *)at;
}

int dk_integers_valid(const dk_config *c, const dk_stored_integers *stored) {
    int good = stored->logit_step > 0.0f && stored->logit_step <= 1.0f;
    for (uint32_t i = 0; i < c->features; i++)
        good &= stored->feature_scales[i] > 0.0f && stored->feature_scales[i] <= 32768.0f;
    for (uint32_t i = 0; i < c->layers * DK_SITES; i++)
        good &= stored->threshold_scales[i] > 0.0 && stored->threshold_scales[i] <= 32768.0;
    return good;
}

void dk_integers_lay_out(dk_integers *own, dk_arena *arena, const dk_config *c) {
    own->thresholds = (int32_t *)dk_take(arena, (size_t)c->layers * DK_SITES, sizeof(int32_t));
    own->features = (int16_t *)dk_take(arena, (size_t)c->frames * c->features, sizeof(int16_t));
    own->logits = (int32_t *)dk_take(arena, c->labels, sizeof(int32_t));
    own->layers = (dk_fixed_layer_source *)dk_take(arena, c->layers, sizeof *own->layers);
    own->memory = dk_take(arena, 1, dk_fixed_model_size(c));
}

static void find_layer(const dk_config *c, uint32_t layer, const int16_t **at,
                       const int32_t *numbers, dk_fixed_layer_source *s) {
    const int16_t **tensor[INNER] = {
        &s->q,          &s->k,           &s->v,         &s->proj,         &s->proj_bias,
        &s->mlp_in,     &s->mlp_in_bias, &s->mlp_out,   &s->mlp_out_bias, &s->norm1,
        &s->norm1_bias, &s->norm2,       &s->norm2_bias};
    uint32_t *number[NUMBERS] = {&s->norm1_epsilon, &s->norm2_epsilon, &s->norm1_shift,
                                 &s->norm2_shift,   &s->key_shift,     &s->score_bits,
                                 &s->hidden_bits,   &s->sum1_shift,    &s->sum2_shift};
    for (uint32_t i = 0; i < INNER; i++) {
        *tensor[i] = *at;
        *at += tensor_step(c, OUTER + layer * INNER + i);
    }
    for (uint32_t i = 0; i < NUMBERS; i++) *number[i] = (uint32_t)numbers[i];
}

/* The largest integer that is not above theta times its scale; -1 where a site is dense. */
static int32_t whole_threshold(float theta, double scale) {
    if (theta < 0.0f) return -1;
    double scaled = floor((double)theta * scale);
    return scaled < 32767.0 ? (int32_t)scaled : 32767;
}

dk_status dk_integers_init(dk_integers *own, const dk_stored_model *stored, dk_isa isa) {
    const dk_config *c = &stored->config;
    const dk_stored_integers *in = &stored->integers;
    const int16_t *at = in->tensors;
    dk_fixed_source source = {NULL,          NULL,        NULL,
                              in->head_bias, own->layers, (uint32_t)in->numbers[0]};
    const int16_t **outer[OUTER] = {&source.embed, &source.positions, &source.head};
    for (uint32_t i = 0; i < OUTER; i++) {
        *outer[i] = at;
        at += tensor_step(c, i);
    }
    for (uint32_t l = 0; l < c->layers; l++)
        find_layer(c, l, &at, in->numbers + 1 + (size_t)l * NUMBERS, &own->layers[l]);
    for (uint32_t i = 0; stored->thresholds && i < c->layers * DK_SITES; i++)
        own->thresholds[i] = whole_threshold(stored->thresholds[i], in->threshold_scales[i]);
    return dk_fixed_init(own->memory, dk_fixed_model_size(c), c, &source, isa, &own->model);
}

dk_fixed_setup dk_integers_setup(const dk_integers *own, const dk_stored_model *stored) {
    dk_fixed_setup setup = {own->model, stored->thresholds ? own->thresholds : NULL,
                            stored->integers.feature_scales, stored->integers.logit_step};
    return setup;
}

static int asks_for_more(const dk_watch *watch) {
    for (int site = 0; site < DK_SITES; site++)
        if (watch->trace[site]) return 1;
    return watch->output || watch->ticks;
}

dk_status dk_integers_run(const dk_integers *own, const dk_stored_model *stored,
                          const float *features, void *scratch, size_t size, float *logits,
                          const dk_watch *watch) {
    const dk_config *c = &stored->config;
    dk_fixed_watch counts = {NULL, NULL, NULL, NULL};
    if (watch && asks_for_more(watch)) return DK_BAD_ARGUMENT;
    if (watch) {
        counts.macs = watch->macs;
        counts.nonzeros = watch->nonzeros;
        counts.kept = watch->kept;
    }
    dk_fixed_features(features, stored->integers.feature_scales, c->frames, c->features,
                      own->features);
    dk_status status =
        dk_fixed_run(own->model, own->features, stored->thresholds ? own->thresholds : NULL,
                     scratch, size, own->logits, &counts);
    for (uint32_t i = 0; !status && i < c->labels; i++)
        logits[i] = (float)own->logits[i] * stored->integers.logit_step;
    return status;
}
