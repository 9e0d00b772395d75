/* deltakwt: Keyword Transformers whose compute follows the sound.
 *
 * All memory is the caller's: ask for a size, hand in a block of at least that many bytes (any
 * alignment), and keep it for as long as the object is used. Nothing is allocated, nothing is
 * global, nothing is printed. A model and a front end are read-only once initialised, so many
 * threads may share them, each with a scratch block of its own.
 */
#ifndef DELTAKWT_H
#define DELTAKWT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    DK_OK = 0,
    DK_BAD_CONFIG,   /* a size of the model is zero, too large or does not divide */
    DK_BAD_MEMORY,   /* the block handed in is missing or too small */
    DK_BAD_ISA,      /* this processor or this build lacks those instructions */
    DK_BAD_VALUE,    /* a number is NaN, infinite or absurdly large */
    DK_BAD_ARGUMENT, /* a pointer is missing or a count is out of range */
} dk_status;

const char *dk_status_text(dk_status status);

/* ---- instruction sets ---------------------------------------------------------------------- */

typedef enum { DK_SCALAR = 0, DK_NEON, DK_AVX2, DK_AVX512, DK_ISAS } dk_isa;

const char *dk_isa_name(dk_isa isa); /* "scalar", "neon", "avx2", "avx512" */
int dk_isa_available(dk_isa isa);    /* built in, and this processor has it */
dk_isa dk_isa_best(void);

typedef struct dk_kernels dk_kernels; /* the table of one instruction set */

/* ---- weights ------------------------------------------------------------------------------- */

typedef enum { DK_F32 = 0, DK_F16, DK_INT8 } dk_type;

/* A matrix (rows = inputs, cols = outputs), the paper's W in X W. Row f starts `stride` elements
 * after row f-1; an element is worth data[f * stride + j] * (scales ? scales[f] : 1). One scale a
 * row costs one multiplication a row, since a row is always multiplied by one input. With a stride
 * smaller than cols, which it divides, the columns lie in panels, one (rows, stride) after the
 * other. */
typedef struct {
    const void *data;
    const float *scales;
    uint32_t rows, cols, stride;
    dk_type type;
} dk_matrix;

/* ---- front end: sound to MFCC -------------------------------------------------------------- */

enum { DK_FRAME = 480, DK_HOP = 160, DK_BANDS = 80, DK_COEFFICIENTS = 40 };

/* Steady features: zero everywhere is plain, as in the paper. */
typedef struct {
    int smooth;      /* mel energies weighted (1, 2, 1)/4 over time, before the logarithm */
    double floor;    /* 0 is off; else each band is floored at `floor` times its quantile */
    double quantile; /* 0..1 */
} dk_steady;

typedef struct dk_frontend dk_frontend;

size_t dk_frontend_size(void);
dk_status dk_frontend_init(void *memory, size_t size, dk_isa isa, const dk_frontend **out);

uint32_t dk_frames(size_t samples); /* finished frames in that many samples */
size_t dk_features_scratch_size(uint32_t frames);
/* audio (samples) in [-1, 1] -> features (dk_frames(samples), 40). The floor's quantile is taken
 * over all of these frames. */
dk_status dk_features(const dk_frontend *frontend, const float *audio, size_t samples,
                      const dk_steady *steady, void *scratch, size_t scratch_size, float *features);

/* ---- streams: samples in blocks of any size, each frame computed once, causally ------------- */

typedef struct dk_stream dk_stream;

size_t dk_stream_size(void);
dk_status dk_stream_init(void *memory, size_t size, const dk_frontend *frontend,
                         const dk_steady *steady, dk_stream **out);
/* At most this many feature rows come out of pushing that many samples. */
uint32_t dk_stream_rows(const dk_stream *stream, size_t samples);
/* features must hold dk_stream_rows(stream, samples) rows of 40; *rows says how many were made.
 * With smoothing a row comes out one frame (10 ms) late. */
dk_status dk_stream_push(dk_stream *stream, const float *audio, size_t samples, float *features,
                         uint32_t *rows);

/* ---- model: features to logits ------------------------------------------------------------- */

typedef struct {
    uint32_t dim, heads, mlp, layers, labels, frames, features;
} dk_config;

/* The thirteen tensors of a block, in the order in which dk_model_init expects them. */
enum {
    DK_Q,
    DK_K,
    DK_V,
    DK_PROJ,
    DK_PROJ_BIAS,
    DK_NORM1,
    DK_NORM1_BIAS,
    DK_MLP_IN,
    DK_MLP_IN_BIAS,
    DK_MLP_OUT,
    DK_MLP_OUT_BIAS,
    DK_NORM2,
    DK_NORM2_BIAS,
    DK_BLOCK_TENSORS
};

typedef struct {
    dk_matrix qkv; /* (d, 3d): W_Q, W_K, W_V side by side */
    dk_matrix proj, mlp_in, mlp_out;
    const float *proj_bias, *norm1, *norm1_bias, *mlp_in_bias, *mlp_out_bias, *norm2, *norm2_bias;
} dk_layer;

/* Filled by dk_model_init, or by hand where the weights are constants in flash. */
typedef struct {
    dk_config config;
    const dk_kernels *kernels;
    const dk_layer *layers;
    dk_matrix embed, head;
    const float *embed_bias, *class_token, *positions, *head_bias;
} dk_model;

uint32_t dk_tensor_count(const dk_config *config); /* 4 + 13 * layers + 2 */
size_t dk_model_size(const dk_config *config);     /* 0 if the configuration is not valid */
/* tensors: dk_tensor_count float arrays, dense and row-major, in the order embed, embed bias,
 * class token, positions, the thirteen of each block, head, head bias. They are copied. */
dk_status dk_model_init(void *memory, size_t size, const dk_config *config,
                        const float *const *tensors, dk_isa isa, const dk_model **out);
size_t dk_scratch_size(const dk_config *config);

/* ---- running ------------------------------------------------------------------------------- */

/* Where tokens are delta encoded. A threshold below zero makes a site dense. */
typedef enum {
    DK_SITE_X = 0,
    DK_SITE_Q,
    DK_SITE_K,
    DK_SITE_SCORES,
    DK_SITE_SOFTMAX,
    DK_SITE_HEADS,
    DK_SITE_MLP_IN,
    DK_SITE_MLP_HIDDEN,
    DK_SITE_V, /* for storage only: saves no MAC */
    DK_SITES
} dk_site;

/* The products whose MACs are counted. */
typedef enum { DK_XW = 0, DK_QKT, DK_SV, DK_PROJECT, DK_MLP1, DK_MLP2, DK_PRODUCTS } dk_product;

/* What a receipt can time: the products, the scan of each site, and the rest. */
enum {
    DK_STAGE_PRODUCT = 0,
    DK_STAGE_SCAN = DK_PRODUCTS,
    DK_STAGE_SOFTMAX = (int)DK_PRODUCTS + (int)DK_SITES,
    DK_STAGE_GELU,
    DK_STAGE_NORM,
    DK_STAGE_LAYOUT, /* transposing K, repeating unchanged rows */
    DK_STAGES
};

/* Everything one may ask of a run besides the logits. NULL members cost nothing. */
typedef struct {
    int64_t *macs;     /* (layers, DK_PRODUCTS), as the paper counts them */
    int64_t *nonzeros; /* (layers, DK_SITES) */
    /* References of a site, (layers, tokens, width): width is d, but heads * tokens for scores
     * and softmax and m for mlp_hidden. Rows that the last layer does not compute stay as they
     * were. A delta was kept where a reference differs from the row before it. */
    float *trace[DK_SITES];
    float *output; /* (layers, tokens, d): what each layer hands on */
    uint64_t (*clock)(void);
    uint64_t *ticks; /* (layers, DK_STAGES), added to */
} dk_watch;

/* features (frames, features) -> logits (labels). thresholds (layers, DK_SITES), or NULL for the
 * dense model. watch may be NULL. */
dk_status dk_run(const dk_model *model, const float *features, const float *thresholds,
                 void *scratch, size_t scratch_size, float *logits, const dk_watch *watch);

/* ---- listening: samples in blocks of any size, a window through the model every hop --------- */

typedef struct {
    dk_steady steady;
    uint32_t hop; /* frames from window to window */
    /* A window of which no feature differs by more than `reuse` from the last computed one is not
     * computed. While no word is heard, only its newest `onset` frames are compared, where a word
     * would begin (at least a hop, or some are never compared), and up to `stray` features may
     * differ more. With 0, all frames and 0, only a window that is equal is not computed. */
    float reuse;
    uint32_t onset, stray;
    const float *heard; /* (labels): posterior at which a word counts as heard; 2: it is no word */
} dk_listening;

typedef struct {
    uint32_t windows, computed;
    int64_t macs;
} dk_heard;

typedef struct dk_hearing dk_hearing;

size_t dk_hearing_size(const dk_config *config); /* 0 if the configuration is not valid */
/* thresholds and what `how` points to are copied; the model and the front end are not. */
dk_status dk_hearing_init(void *memory, size_t size, const dk_model *model,
                          const dk_frontend *frontend, const float *thresholds,
                          const dk_listening *how, dk_hearing **out);
/* At most this many windows come out of pushing that many samples. */
uint32_t dk_hearing_windows(const dk_hearing *hearing, size_t samples);
/* logits must hold dk_hearing_windows(hearing, samples) rows; *heard says how many were made. */
dk_status dk_hearing_push(dk_hearing *hearing, const float *audio, size_t samples, float *logits,
                          dk_heard *heard);

#ifdef __cplusplus
}
#endif
#endif
