/* The layout of the scratch block: where every tensor of a run is. */
#ifndef DK_PLAN_H
#define DK_PLAN_H

#include "internal.h"

typedef struct {
    uint32_t tokens; /* T */
    uint32_t chunk;  /* tokens that go through a block together */

    float *x; /* (1 + T, d): tokens from row 1 */
    uint32_t x_stride;
    dk_rows qkv; /* (1 + T, 3d): Q, then the reconstructed K and V, in place */
    float *keys; /* (d, T): K transposed and scaled, head after head */
    uint32_t keys_stride;

    dk_rows scores; /* (1 + chunk, T) of one head; becomes its softmax */
    uint16_t *soft_where;
    dk_rows heads;  /* (1 + chunk, d), a `where` for each head */
    dk_rows proj;   /* (1 + chunk, d) */
    dk_rows hidden; /* (1 + chunk, m); becomes its GELU */
    dk_rows mlp;    /* (1 + chunk, d) */

    /* State from chunk to chunk: references, and the running and held scores per head. */
    float *x_reference, *q_reference, *heads_reference, *mlp_in_reference, *hidden_reference;
    float *soft_reference, *scores_running, *scores_held; /* (heads, T) */
    uint32_t *q_counts, *k_counts;                        /* (d) kept deltas per feature */

    dk_list list;
} dk_plan;

/* With an arena over NULL this only adds up the size. */
dk_plan dk_plan_scratch(dk_arena *arena, const dk_config *config);

#endif
