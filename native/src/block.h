/* One transformer block, dense and delta alike. */
#ifndef DK_BLOCK_H
#define DK_BLOCK_H

#include "plan.h"

typedef struct {
    const dk_model *model;
    const float *thresholds; /* (layers, DK_SITES) or NULL */
    const dk_watch *watch;   /* never NULL */
    dk_plan *plan;
} dk_run_state;

/* x (T, d) in the plan -> x after block `layer`; the last layer computes only the class token. */
void dk_block(const dk_run_state *run, uint32_t layer);

#endif
