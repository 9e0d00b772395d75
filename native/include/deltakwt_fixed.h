/* deltakwt in 16-bit integers: the same bits on every processor.
 *
 * docs/fixed-point.md defines the arithmetic. Memory is the caller's, as in deltakwt.h: a model is
 * read-only once initialised, so many threads may share it, each with scratch memory of its own.
 */
#ifndef DELTAKWT_FIXED_H
#define DELTAKWT_FIXED_H

#include "deltakwt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The integers of one layer, dense and row-major. No weight is -32768. */
typedef struct {
    const int16_t *q, *k, *v;              /* (d, d); q is divided by sqrt(head dim) */
    const int16_t *proj, *proj_bias;       /* (d, d), (d) */
    const int16_t *mlp_in, *mlp_in_bias;   /* (d, m), (m) */
    const int16_t *mlp_out, *mlp_out_bias; /* (m, d), (d) */
    const int16_t *norm1, *norm1_bias;     /* (d): gain * sqrt(d), bias */
    const int16_t *norm2, *norm2_bias;
    uint32_t norm1_epsilon, norm2_epsilon; /* at least 1 */
    uint32_t norm1_shift, norm2_shift;     /* 1..30 */
    uint32_t key_shift;                    /* 0..14 */
    uint32_t score_bits;                   /* 4..12 */
    uint32_t hidden_bits;                  /* 4..13 */
    uint32_t sum1_shift, sum2_shift;       /* 0..14 */
} dk_fixed_layer_source;

typedef struct {
    const int16_t *embed;     /* (features, d): the magnitudes of a column add up to <= 65535 */
    const int16_t *positions; /* (frames + 1, d): with the embedding's bias and the class token */
    const int16_t *head;      /* (d, labels): the magnitudes of a column add up to <= 32767 */
    const int32_t *head_bias; /* (labels): magnitudes below 2^30 */
    const dk_fixed_layer_source *layers;
    uint32_t embed_shift; /* 0..15 */
} dk_fixed_source;

typedef struct dk_fixed_model dk_fixed_model;

size_t dk_fixed_model_size(const dk_config *config); /* 0 if the configuration is not valid */
/* Copies everything `source` points to, in the layout of the kernels. */
dk_status dk_fixed_init(void *memory, size_t size, const dk_config *config,
                        const dk_fixed_source *source, dk_isa isa, const dk_fixed_model **out);
size_t dk_fixed_scratch_size(const dk_config *config);

/* Tensors whose largest magnitude a run reports. 32767 or more means that a value was limited. */
enum {
    DK_PEAK_X = 0, /* input of the layer */
    DK_PEAK_QKV,
    DK_PEAK_SCORES,
    DK_PEAK_HEADS,
    DK_PEAK_PROJ,
    DK_PEAK_SUM1,
    DK_PEAK_MLP_IN,
    DK_PEAK_HIDDEN,
    DK_PEAK_MLP_OUT,
    DK_PEAK_SUM2,
    DK_PEAK_DELTAS, /* differences that are multiplied */
    DK_PEAKS
};

/* What a run reports besides the logits. NULL members cost nothing. */
typedef struct {
    int64_t *macs;     /* (layers, DK_PRODUCTS), as the paper counts them */
    int64_t *nonzeros; /* (layers, DK_SITES) */
    int32_t *peaks;    /* (layers + 1, DK_PEAKS); the last row has only X, the head's input */
    uint32_t *kept;    /* (layers, DK_SITES, tokens): the non-zeros of each token */
} dk_fixed_watch;

/* features (frames, features) -> logits (labels). thresholds (layers, DK_SITES), -1 where a site
 * is dense, else 0..32767; NULL for the dense model. watch may be NULL. */
dk_status dk_fixed_run(const dk_fixed_model *model, const int16_t *features,
                       const int32_t *thresholds, void *scratch, size_t scratch_size,
                       int32_t *logits, const dk_fixed_watch *watch);

/* The number of tensors whose peak (layers + 1, DK_PEAKS) reached the limit of 16 bits, or 7/8 of
 * it for sums of products: 0 in a correct run. */
uint32_t dk_fixed_saturated(const dk_config *config, const int32_t *peaks);

/* out (frames, features) = features times the scale of their coefficient, rounded to the nearest,
 * halves to even, and saturated. */
void dk_fixed_features(const float *features, const float *scales, uint32_t frames, uint32_t count,
                       int16_t *out);
/* The same in place: features become what their 16 bits stand for. */
void dk_round_features(float *features, const float *scales, uint32_t frames, uint32_t count);

/* A model, how it is run, and what joins its integers to floats. */
typedef struct {
    const dk_fixed_model *model;
    const int32_t *thresholds;   /* (layers, DK_SITES), or NULL: dense */
    const float *feature_scales; /* (features): powers of two */
    float logit_step;            /* the value of the integer 1 in the logits */
} dk_fixed_setup;

/* A stream runner (deltakwt.h) that computes its windows in integers. It is pushed as the other
 * one is. Thresholds and scales are copied, the model is not. */
size_t dk_fixed_stream_runner_size(const dk_config *config);
dk_status dk_fixed_stream_runner_init(void *memory, size_t size, const dk_fixed_setup *fixed,
                                      const dk_frontend *frontend, const dk_stream_options *options,
                                      dk_stream_runner **out);

#ifdef __cplusplus
}
#endif
#endif
