/* The basic operation of the delta algorithm: rows times a matrix, where only values that changed
 * from row to row are multiplied. */
#ifndef DK_DELTA_H
#define DK_DELTA_H

#include "plan.h"

/* out = in W + bias for the rows 1..rows of a chunk. The first `exact` rows are computed in full;
 * every later one as R(t) = R(t-1) + dX(t) W. theta < 0 makes the whole product dense. */
typedef struct {
    const dk_kernels *kernels;
    dk_list *list;
    uint32_t rows, exact;
    dk_deltas deltas; /* the input and its reference */

    const dk_matrix *w;
    const float *bias;
    dk_rows out;
    const float *start; /* R before the first row, where no row of the chunk is exact */

    float *trace; /* reference of token `first`, or NULL */
    size_t trace_stride;
} dk_product_job;

/* Runs the kernel of that name over all panels of W. */
void dk_gemm(const dk_kernels *kernels, const float *a, size_t lda, size_t rows, const dk_matrix *w,
             const float *bias, float *out, size_t ldo);
/* Scans the input; builds the list and out.where. Returns the non-zero deltas, exact rows and
 * dense sites counted in full. */
int64_t dk_scan_job(const dk_product_job *job);
/* Multiplies the deltas that dk_scan_job found. */
void dk_multiply_job(const dk_product_job *job);

#endif
