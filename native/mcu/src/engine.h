/* The engine for microcontrollers: 16-bit features to logits, one token at a time.
 *
 * It computes the arithmetic of docs/fixed-point.md, from the same source as the library
 * (fixed_arithmetic.h), and gives the same bits. Why it is not the library's dk_fixed_run: that one
 * runs each stage over all tokens, which is fast where there are vector instructions, and holds the
 * scores, the hidden layer and the differences of all tokens, several hundred KB. Here scores,
 * softmax, heads and the hidden layer exist for one token only, and the output of a layer replaces
 * its input in place. The weights stay in flash, and all sizes are constants of the exported model
 * (config.h). Front end, stream, window bookkeeping and decision rule are files of the library.
 */
#ifndef DK_ENGINE_H
#define DK_ENGINE_H

#include "config.h"
#include "deltakwt.h"
#include "fixed_arithmetic.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DK_TOKENS = DK_FRAMES + 1,
    DK_COLUMNS = (DK_TOKENS + 1) / 2 * 2, /* tokens as columns: whole words */
    DK_PADDED = (DK_TOKENS + 7) / 8 * 8,  /* in whole groups of eight, as products are computed */
    DK_HEAD_DIM = DK_DIM / DK_HEADS,
    DK_TERMS = DK_DIM < 64 ? 32 : 64, /* products that are added at a time */
};

/* The DSP instructions of Cortex-M4, M7 and M33. */
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && __ARM_ARCH >= 7
#define DK_DSP
#endif

/* How the matrices of the layers are stored: 16 bits, or 8 bits with a shift per row. */
#ifdef DK_WEIGHTS_INT8
typedef int8_t dk_weight;
#ifdef DK_DSP
#define DK_DSP_BYTES
#endif
#else
typedef int16_t dk_weight;
#endif

/* Arrays that are read as words. */
#ifdef __GNUC__
#define DK_WORDS __attribute__((aligned(4)))
#else
#define DK_WORDS
#endif

/* A matrix (rows = inputs, columns = outputs). Weight = data << shifts[row]. */
typedef struct {
    const dk_weight *data;
    const uint8_t *shifts; /* (rows), or NULL: 0 */
} dk_flash_matrix;

typedef struct {
    dk_flash_matrix q, k, v, proj, mlp_in, mlp_out;
    const int16_t *proj_bias, *mlp_in_bias, *mlp_out_bias;
    dk_fixed_norm norm1, norm2;
    uint32_t key_shift, score_bits, hidden_bits, sum1_shift, sum2_shift;
} dk_flash_layer;

/* The members are those of dk_fixed_source (deltakwt_fixed.h). */
typedef struct {
    const int16_t *embed;     /* (features / 2, d, 2): the weights of two features side by side */
    const int16_t *positions; /* (tokens, d): with the embedding's bias and the class token */
    const int16_t *head;      /* (d, labels) */
    const int32_t *head_bias; /* (labels) */
    const dk_flash_layer *layers;
    uint32_t embed_shift;
} dk_flash_model;

/* A kept difference: which feature, and how much. */
typedef struct {
    int16_t value;
    uint16_t index;
} dk_entry;

/* A product to add: a value times a row of weights, keys or values. */
typedef struct {
    int32_t value; /* of int8_t weights, shifted as the row is */
    const void *row;
#ifdef DK_DSP_BYTES
    uint32_t rounding; /* products_dsp.h */
#endif
} dk_term;

/* What each pass keeps from one token to the next: references and running results. */
typedef struct {
    int16_t x[DK_DIM]; /* reference */
    int16_t key[DK_DIM], key_reference[DK_DIM];
    int16_t value[DK_DIM], value_reference[DK_DIM];
} dk_keys_state;

/* Of one head; by column. */
typedef struct {
    int16_t scores[DK_PADDED];   /* running */
    int16_t held[DK_COLUMNS];    /* their references */
    int16_t powers[DK_COLUMNS];  /* exp(held - top) */
    int16_t softmax[DK_COLUMNS]; /* reference */
    int32_t top;
    uint32_t total; /* of the powers, over the tokens */
} dk_head_state;

typedef struct {
    int16_t x[DK_DIM];
    int16_t q[DK_DIM], q_reference[DK_DIM];
    dk_head_state head[DK_HEADS];
    int16_t heads[DK_DIM], heads_reference[DK_DIM];
    int16_t result[DK_DIM];
} dk_token_state;

/* Keys and values, first filled, then attended to.
 *
 * A token whose input did not change has the same key and value as the token before it. Such a run
 * of tokens is one column of the scores, with the number of its tokens. */
typedef struct {
    int16_t keys[DK_DIM * DK_COLUMNS + 8]; /* references of K, shifted, as columns; 8: read only */
    int16_t values[DK_TOKENS][DK_DIM];     /* references of V */
    int16_t times[DK_COLUMNS];             /* tokens of a column */
    uint16_t kept_k[DK_DIM];               /* tokens that kept a feature: for the count */
    uint32_t columns;
    union {
        dk_keys_state keys;
        dk_token_state token;
    } s;
} dk_attention;

typedef struct {
    int16_t x[DK_DIM];
    int16_t hidden[DK_MLP]; /* before the GELU */
    int16_t low[DK_MLP];    /* from low to low + width, the GELU stays within its threshold */
    uint16_t width[DK_MLP];
    int16_t reference[DK_MLP]; /* of the GELU */
    int16_t result[DK_DIM];
    dk_entry list[DK_MLP]; /* kept differences of the GELU */
} dk_mlp_state;

/* All the memory of an inference. The MLP lies over keys and values. */
typedef struct {
    int16_t x[DK_TOKENS][DK_DIM]; /* input of the layer, replaced row by row by its output */
    dk_entry list[DK_DIM];        /* kept differences of a row */
    union {
        dk_term terms[DK_TERMS + 1]; /* what they are multiplied with */
        dk_entry scores[DK_COLUMNS]; /* kept differences of scores */
    } row;
    union {
        int32_t embedded[DK_DIM];
        dk_attention attention;
        dk_mlp_state mlp;
    } s;
} dk_work;

/* features (DK_FRAMES, DK_FEATURES): a ring that begins with row `first`. thresholds (DK_LAYERS,
 * DK_SITES), or NULL for the dense model. macs may be NULL. */
void dk_infer(const dk_flash_model *model, dk_work *work, const int16_t *features, uint32_t first,
              const int16_t *thresholds, int32_t *logits, uint32_t macs[DK_PRODUCTS]);

/* 2^-f for f in steps of 2^(1 - DK_SCORE_BITS), doubled: the polynomial of dk_fixed_power. */
extern const uint16_t dk_powers[1 << (DK_SCORE_BITS - 1)]; /* weights.c */
extern const dk_flash_model dk_model_weights;              /* weights.c */
extern const dk_frontend dk_flash_frontend;                /* tables.c */

#ifdef __cplusplus
}
#endif
#endif
