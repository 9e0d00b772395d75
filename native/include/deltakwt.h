/* deltakwt: keyword spotting with Keyword Transformers that compute only what changes.
 *
 * This is the C core: front end, model, and streaming inference. deltakwt_spotter.h adds model
 * files and words on top of it.
 *
 * The caller provides all memory. Ask for a size, pass a block of at least that many bytes (any
 * alignment), and keep the block for as long as the object is used. The core allocates nothing,
 * has no global variables and prints nothing. A model and a front end are read-only after their
 * initialisation, so many threads may share them; each thread needs its own scratch block.
 * Objects with state (dk_stream, dk_stream_runner) may be used by one thread at a time.
 *
 * This header has the engine that computes in floats. deltakwt_fixed.h, which dk_spotter uses for
 * model files in fixed point and which is not installed, has the engine that computes in 16-bit
 * integers and gives the same bits on every processor. Both run every stage over all tokens,
 * which is fast on processors with vector instructions and caches. A microcontroller has too little
 * memory for that: its engine (native/mcu/src/engine.h) takes one token at a time through a layer,
 * with the integers of deltakwt_fixed.h and the same results. All of them share the front end, the
 * stream, the window bookkeeping and the decision rule.
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
    DK_BAD_MEMORY,   /* the memory block is missing or too small */
    DK_BAD_ISA,      /* this processor or this build lacks the instructions */
    DK_BAD_VALUE,    /* an input is NaN, infinite or far too large */
    DK_BAD_ARGUMENT, /* a pointer is missing or a count is out of range */
    DK_BAD_LOGITS,   /* the logits are NaN or infinite: the weights are too large */
    DK_NO_FILE,      /* the file cannot be opened or read */
    DK_BAD_FILE,     /* the file is not a model file of this version, or it is damaged */
    DK_BAD_SOUND,    /* the file is not a WAV file of 16 kHz, mono, 16-bit PCM */
} dk_status;

/* Marks the functions of the shared library. */
#ifndef DK_API
#if defined(__GNUC__)
#define DK_API __attribute__((visibility("default")))
#else
#define DK_API
#endif
#endif

DK_API const char *dk_status_text(dk_status status);

/* ---- instruction sets ---------------------------------------------------------------------- */

typedef enum { DK_SCALAR = 0, DK_NEON, DK_AVX2, DK_AVX512, DK_WASM, DK_ISAS } dk_isa;

DK_API const char *dk_isa_name(dk_isa isa); /* "scalar", "neon", "avx2", "avx512", "wasm" */
DK_API int dk_isa_available(dk_isa isa);    /* in this build and supported by this processor */
DK_API dk_isa dk_isa_best(void);

typedef struct dk_kernels dk_kernels; /* the kernels of one instruction set */

/* ---- weights ------------------------------------------------------------------------------- */

typedef enum { DK_F32 = 0, DK_F16 } dk_type;

/* A matrix (rows = inputs, cols = outputs): the W of the paper's X W. Row f starts `stride`
 * elements after row f-1. If `stride` is smaller than `cols`, it divides `cols`, and the columns
 * are stored in panels of (rows, stride), one after the other. */
typedef struct {
    const void *data;
    uint32_t rows, cols, stride;
    dk_type type;
} dk_matrix;

/* ---- front end: sound to MFCC -------------------------------------------------------------- */

enum { DK_FRAME = 480, DK_HOP = 160, DK_BANDS = 80, DK_COEFFICIENTS = 40 };
enum { DK_MOST_STRIDE = DK_FRAME / DK_HOP }; /* with more, samples between two frames are lost */

/* How the mel energies are stabilised. All zero is the plain front end of the paper. */
typedef struct {
    int smooth;      /* 1: average over time with weights (1, 2, 1)/4, before the logarithm */
    double floor;    /* 0: off; else each band is kept above `floor` times its own quantile */
    double quantile; /* 0 to 1 */
} dk_front_end_setting;

typedef struct dk_frontend dk_frontend;

DK_API size_t dk_frontend_size(void);
DK_API dk_status dk_frontend_init(void *memory, size_t size, dk_isa isa, const dk_frontend **out);
/* The same with frames every stride * DK_HOP samples; stride is 1 to DK_MOST_STRIDE. */
DK_API dk_status dk_frontend_init_stride(void *memory, size_t size, dk_isa isa, uint32_t stride,
                                         const dk_frontend **out);

/* Complete frames in that many samples, with stride 1 and with the stride of a front end. */
DK_API uint32_t dk_frames(size_t samples);
DK_API uint32_t dk_frontend_frames(const dk_frontend *frontend, size_t samples);
DK_API size_t dk_features_scratch_size(uint32_t frames);
/* Computes features (dk_frontend_frames(frontend, samples), 40) from audio (samples) in [-1, 1].
 * The quantile of the floor is taken over all frames of this sound. */
DK_API dk_status dk_features(const dk_frontend *frontend, const float *audio, size_t samples,
                             const dk_front_end_setting *setting, void *scratch,
                             size_t scratch_size, float *features);

/* ---- feature stream: samples in blocks of any size, each frame computed once ---------------- */

typedef struct dk_stream dk_stream;

DK_API size_t dk_stream_size(void);
DK_API dk_status dk_stream_init(void *memory, size_t size, const dk_frontend *frontend,
                                const dk_front_end_setting *setting, dk_stream **out);
/* Returns the largest number of feature rows that pushing `samples` samples can give. */
DK_API uint32_t dk_stream_rows(const dk_stream *stream, size_t samples);
/* `features` must have room for dk_stream_rows(stream, samples) rows of 40; *rows is set to the
 * number of rows written. With smoothing, a row is one frame (stride * 10 ms) late. */
DK_API dk_status dk_stream_push(dk_stream *stream, const float *audio, size_t samples,
                                float *features, uint32_t *rows);

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

/* Filled by dk_model_init. */
typedef struct {
    dk_config config;
    const dk_kernels *kernels;
    const dk_layer *layers;
    dk_matrix embed, head;
    const float *embed_bias, *class_token, *positions, *head_bias;
} dk_model;

DK_API uint32_t dk_tensor_count(const dk_config *config); /* 4 + 13 * layers + 2 */
DK_API size_t dk_model_size(const dk_config *config);     /* 0 if the configuration is not valid */
/* tensors: dk_tensor_count float arrays, dense and row-major, in the order embed, embed bias,
 * class token, positions, the thirteen of each block, head, head bias. The weights are copied. */
DK_API dk_status dk_model_init(void *memory, size_t size, const dk_config *config,
                               const float *const *tensors, dk_isa isa, const dk_model **out);
DK_API size_t dk_scratch_size(const dk_config *config);

/* ---- running ------------------------------------------------------------------------------- */

/* The sites at which tokens are delta encoded. A threshold below zero makes a site dense. */
typedef enum {
    DK_SITE_X = 0,
    DK_SITE_Q,
    DK_SITE_K,
    DK_SITE_SCORES,
    DK_SITE_SOFTMAX,
    DK_SITE_HEADS,
    DK_SITE_MLP_IN,
    DK_SITE_MLP_HIDDEN,
    DK_SITE_V, /* compresses V, saves no MACs */
    DK_SITES
} dk_site;

/* Bytes of one layer that deltas keep from token to token at a site, in the layout of the scratch
 * block: the reference row, and the running result that the next token adds to. K and V keep
 * nothing more, because their references replace the tensor itself. */
typedef struct {
    size_t reference, running;
} dk_state_bytes;
DK_API dk_state_bytes dk_state_size(const dk_config *config, dk_site site);

/* The products whose MACs are counted. */
typedef enum { DK_XW = 0, DK_QKT, DK_SV, DK_PROJECT, DK_MLP1, DK_MLP2, DK_PRODUCTS } dk_product;

/* The stages that can be timed: the products, the scan of each site, and the rest. */
enum {
    DK_STAGE_PRODUCT = 0,
    DK_STAGE_SCAN = DK_PRODUCTS,
    DK_STAGE_SOFTMAX = (int)DK_PRODUCTS + (int)DK_SITES,
    DK_STAGE_GELU,
    DK_STAGE_NORM,
    DK_STAGE_LAYOUT, /* transposing K, repeating unchanged rows */
    DK_STAGES
};

/* Optional outputs of a run besides the logits. Members that are NULL are not computed. */
typedef struct {
    int64_t *macs;     /* (layers, DK_PRODUCTS), as the paper counts them */
    int64_t *nonzeros; /* (layers, DK_SITES) */
    /* References of a site, (layers, tokens, width). The width is heads * tokens for scores and
     * softmax, m for mlp_hidden, and d for the others. Rows that the last layer does not compute
     * are not written. A delta was kept where a reference differs from that of the row before. */
    float *trace[DK_SITES];
    float *output; /* (layers, tokens, d): the output of each layer */
    /* (layers, DK_SITES, tokens): the non-zeros of each token. Only models in fixed point report
     * it, and they report nothing but this, macs and nonzeros. */
    uint32_t *kept;
    uint64_t (*clock)(void);
    uint64_t *ticks; /* (layers, DK_STAGES); the clock's ticks are added */
} dk_watch;

/* Computes logits (labels) from features (frames, features). thresholds is (layers, DK_SITES), or
 * NULL for the dense model. watch may be NULL. */
DK_API dk_status dk_run(const dk_model *model, const float *features, const float *thresholds,
                        void *scratch, size_t scratch_size, float *logits, const dk_watch *watch);

/* ---- stream runner: samples in blocks of any size, logits of a window every hop ------------- */

enum { DK_MOST_SPAN = 4 }; /* windows of which one is computed while no word is possible */

typedef struct {
    dk_front_end_setting front_end;
    uint32_t hop; /* frames from one window to the next */
    /* A window is not computed again, and the last logits are used for it, if its features differ
     * by at most `reuse` from those of the last computed window. After a window without a word,
     * only the newest `onset` frames are compared, because a new word begins there, and up to
     * `outliers` features may differ by more. `onset` should be at least `hop`. With reuse 0,
     * onset = all frames and outliers 0, only an identical window is not computed. */
    float reuse;
    uint32_t onset, outliers;
    /* (labels): a window holds a word if the posterior of a label reaches this value. 2 for labels
     * that are not words. */
    const float *word_posteriors;
    /* After a window that holds no word, `span` - 1 windows wait for the one after them. If that
     * holds no word either, they are not computed and get the logits before them. The windows of
     * `span` must start within one window. 0: every window is given out as it comes. At most
     * DK_MOST_SPAN. */
    uint32_t span;
    const float *bias; /* (labels): added to the logits of every window; NULL: nothing */
} dk_stream_options;

typedef struct {
    uint32_t windows, computed; /* windows of this push, and how many of them were computed */
    int64_t macs;
    uint32_t saturated; /* tensors that reached the limit of 16 bits; 0 for the engine in floats */
} dk_stream_counts;

typedef struct dk_stream_runner dk_stream_runner;

DK_API size_t
dk_stream_runner_size(const dk_config *config); /* 0 if the configuration is not valid */
/* The thresholds and the options are copied; the model and the front end are not. */
DK_API dk_status dk_stream_runner_init(void *memory, size_t size, const dk_model *model,
                                       const dk_frontend *frontend, const float *thresholds,
                                       const dk_stream_options *options, dk_stream_runner **out);
/* Returns the largest number of windows that pushing `samples` samples can give. */
DK_API uint32_t dk_stream_runner_windows(const dk_stream_runner *runner, size_t samples);
/* `logits` must have room for dk_stream_runner_windows(runner, samples) rows of `labels`. */
DK_API dk_status dk_stream_runner_push(dk_stream_runner *runner, const float *audio, size_t samples,
                                       float *logits, dk_stream_counts *counts);

/* What a runner did for a window. The next push changes what the pointers point to. */
typedef struct {
    int is_computed;         /* 0 if the logits of an earlier window were used; all counts are 0 */
    const int64_t *macs;     /* (layers, DK_PRODUCTS) */
    const int64_t *nonzeros; /* (layers, DK_SITES) */
    const float *rows;       /* (ring, 40): the newest feature rows, as a ring */
    uint32_t ring;           /* rows of the ring, at least two windows */
    uint32_t last;           /* the row of the ring that is the last of this window */
} dk_stream_view;
/* Shows the window that came `back` windows before the last one that was given out. Windows that
 * waited for each other are given out together; the others alone. */
DK_API void dk_stream_runner_view(const dk_stream_runner *runner, uint32_t back,
                                  dk_stream_view *view);

#ifdef __cplusplus
}
#endif
#endif
