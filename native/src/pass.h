/* The state of one chunk of tokens in one block, shared by all stages. */
#ifndef DK_PASS_H
#define DK_PASS_H

#include "block.h"
#include "delta.h"

typedef struct {
    const dk_run_state *run;
    const dk_layer *weights;
    const dk_kernels *kernels;
    dk_plan *plan;
    uint32_t layer, first, rows, exact; /* tokens first .. first + rows - 1, `exact` never delta */
    int is_last;                        /* layer */
    const float *running;               /* the last computed row of Q, K, V */
    uint64_t lap;
} dk_pass;

static inline float *dk_row(const dk_rows *rows, uint32_t r) { return rows->at + r * rows->stride; }
/* Rows of x from token `first` on, all of them fresh. */
dk_rows dk_from_token(const float *at, size_t stride, uint32_t first);

/* Threshold of a site in this layer; below zero it is dense. */
float dk_theta(const dk_pass *p, dk_site site);
/* Trace of `site` from token `first` on, or NULL. */
float *dk_trace(const dk_pass *p, dk_site site, size_t width);
void dk_count_nonzeros(const dk_pass *p, dk_site site, int64_t count);
void dk_count_macs(const dk_pass *p, dk_product product, int64_t count);
void dk_start_clock(dk_pass *p);
/* Adds the time since the last call to `stage`. */
void dk_lap(dk_pass *p, uint32_t stage);

/* A job with everything that is the same for each product of this pass. */
dk_product_job dk_job(const dk_pass *p, dk_site site, dk_rows in, uint32_t width, float *reference,
                      size_t trace_width);
/* Scans and multiplies, with the time of each. Returns the non-zeros. */
int64_t dk_run_job(dk_pass *p, const dk_product_job *job, dk_site site, dk_product product);
/* A whole linear layer: out = in W + bias, its MACs counted. */
void dk_layer_job(dk_pass *p, dk_product_job *job, const dk_matrix *w, const float *bias,
                  dk_rows out, dk_site site, dk_product product);
/* x = LN(x + r) for the rows of the chunk. */
void dk_add_norm_rows(dk_pass *p, const dk_rows *r, const float *gain, const float *bias);

/* attention.c: Q, K, V of all tokens; then x = LN(x + MHSA(x)) for the tokens of the chunk. */
void dk_project(dk_pass *p);
void dk_attend(dk_pass *p);
/* The paper's count of the delta-delta product: pairs of kept deltas of the same feature. */
void dk_count_score_macs(const dk_pass *p);

#endif
