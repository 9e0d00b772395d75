/* The engine for microcontrollers: features to logits, one token at a time.
 *
 * Why there are two engines: the library's dk_run (deltakwt.h) runs each stage over all tokens,
 * which is fast where there are vector instructions and memory, and needs about 1 MB of scratch.
 * Here a token goes through all stages of a pass before the next one starts. Scores, softmax, heads
 * and the hidden layer of the MLP exist for one token only, and the output of a layer replaces its
 * input in place, so that an inference fits into 96 KB. The sizes are constants of the exported
 * model (config.h). Front end, stream, window bookkeeping and decision rule are source files of the
 * library. A fixed-point engine is meant to replace the two by one.
 */
#ifndef DK_ENGINE_H
#define DK_ENGINE_H

#include "config.h"
#include "deltakwt.h"
#include "window.h"

/* How numbers are stored: weights as exported; K^ and V in 16 bits with DK_SMALL. */
#if defined(DK_WEIGHTS_INT8)
typedef int8_t dk_weight;
#elif defined(DK_WEIGHTS_F16)
typedef uint16_t dk_weight;
#else
typedef float dk_weight;
#endif
#ifdef DK_SMALL
typedef uint16_t dk_kv; /* the upper half of a float */
#else
typedef float dk_kv;
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DK_TOKENS = DK_FRAMES + 1,
    DK_KEY_COLUMNS = (DK_TOKENS + 3) / 4 * 4, /* tokens as columns, in whole groups of four */
    DK_HEAD_DIM = DK_DIM / DK_HEADS,
    DK_COLUMN_BLOCK = DK_HEAD_DIM / 2, /* columns of a weight matrix that are unpacked together */
    DK_UNPACKED = DK_DIM * (DK_HEAD_DIM > DK_FEATURES ? DK_HEAD_DIM : DK_FEATURES),
    DK_HEAD_COLUMNS = (DK_LABELS + 3) / 4 * 4, /* of the last matrix, filled up with zeros */
    DK_MASK_WORDS = (DK_DIM + 31) / 32,
    DK_KEY_WORDS = (DK_KEY_COLUMNS + 31) / 32,
};

/* A kept delta: which feature, and how much. */
typedef struct {
    uint32_t index;
    float value;
} dk_entry;

/* State that a pass keeps from one token to the next: references, and how far the running results
 * have moved from them. */
typedef struct {
    float x[DK_DIM]; /* reference of the input */
    float q[DK_HEAD_DIM], q_moved[DK_HEAD_DIM];
    float changes[DK_KEY_COLUMNS]; /* of the scores, from column to column */
    float scores[DK_KEY_COLUMNS], scores_moved[DK_KEY_COLUMNS];
    float power[DK_KEY_COLUMNS]; /* exp(scores - top) */
    float softmax[DK_KEY_COLUMNS];
    float head[DK_HEAD_DIM], head_moved[DK_HEAD_DIM];
    float result[DK_DIM]; /* of the projection */
    float top;
} dk_attention_state;

typedef struct {
    float x[DK_DIM];
    float key[DK_COLUMN_BLOCK], key_moved[DK_COLUMN_BLOCK], stored[DK_COLUMN_BLOCK];
    float value[DK_COLUMN_BLOCK], value_moved[DK_COLUMN_BLOCK];
} dk_keys_state;

typedef struct {
    float x[DK_DIM];
    float moved[DK_COLUMN_BLOCK];  /* the hidden value, before the GELU, less the centre */
    float centre[DK_COLUMN_BLOCK]; /* near the hidden value where the GELU was last computed */
    uint32_t
        slack[DK_COLUMN_BLOCK]; /* as long as it moved no further (dk_magnitude), nothing is kept */
    float reference[DK_COLUMN_BLOCK]; /* of the GELU's output */
    float output[DK_DIM];
} dk_mlp_state;

/* All the memory of an inference. The members of a union are used in different phases.
 *
 * A token whose input did not change has the same key and value as the token before it. Such a run
 * of tokens is stored as one column with the number of its tokens. */
typedef struct {
    float x[DK_TOKENS][DK_DIM]; /* input of the layer, replaced row by row by its output */
    union {
        struct {
            dk_kv keys[DK_DIM][DK_KEY_COLUMNS]; /* K^ transposed, scaled by 1/sqrt(head_dim): deltas
                                               from column to column */
            uint32_t key_mask[DK_DIM][DK_KEY_WORDS]; /* where they are not zero */
            dk_kv values[DK_KEY_COLUMNS][DK_DIM];
        } kv;
        float partial[DK_TOKENS][DK_DIM]; /* MLP: deltas of the output, summed over the blocks of
                                             hidden features; one row for a run of tokens */
    } a;
#if DK_HEADS > 1
    float heads_partial[DK_TOKENS][DK_DIM]; /* attention: sum over the heads */
#endif
#ifndef DK_WEIGHTS_F32
    float unpacked[DK_UNPACKED]; /* two blocks of weights as floats; or W_Q of a head; or the
                                    embedding */
#endif
    uint32_t mask[DK_TOKENS][DK_MASK_WORDS]; /* which deltas of x a pass kept, for the next one */
    dk_entry list[DK_DIM > DK_KEY_COLUMNS ? DK_DIM : DK_KEY_COLUMNS];
    union {
        dk_keys_state keys;
        dk_attention_state attention;
        dk_mlp_state mlp;
    } s;
    uint16_t kept_q[DK_DIM], kept_k[DK_DIM]; /* tokens that kept a feature: for the count */
    float times[DK_KEY_COLUMNS];             /* tokens of a column */
    uint32_t columns;
} dk_work;

/* features: rows of DK_FEATURES in a ring of DK_FRAMES rows, the oldest at row `first`.
 * thresholds (DK_LAYERS, DK_SITES), or NULL for the dense model. macs may be NULL. */
void dk_infer(const dk_model *model, dk_work *work, const dk_feature *features, uint32_t first,
              const float *thresholds, float *logits, uint32_t macs[DK_PRODUCTS]);

extern const dk_model dk_flash_model;       /* weights.c */
extern const dk_frontend dk_flash_frontend; /* tables.c */

#ifdef __cplusplus
}
#endif
#endif
