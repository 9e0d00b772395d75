#include "delta.h"

#include <string.h>

static const float *row_at(const dk_rows *rows, uint32_t r) { return rows->at + r * rows->stride; }

static int any_fresh(const dk_deltas *d, uint32_t r) {
    for (uint32_t part = 0; part < d->parts; part++)
        if (dk_fresh(d, part, r)) return 1;
    return 0;
}

/* Rows of several parts hold only the fresh parts; copy the others from the row before. */
static void gather_parts(const dk_deltas *d, uint32_t r) {
    for (uint32_t part = 0; d->parts > 1 && part < d->parts; part++) {
        uint32_t from = d->in.where[part * d->where_stride + r], column = part * d->width;
        if (from != r)
            memcpy(d->in.at + r * d->in.stride + column, row_at(&d->in, from) + column,
                   d->width * sizeof(float));
    }
}

static void trace_row(const dk_product_job *job, uint32_t r, const float *reference) {
    if (job->trace)
        memcpy(job->trace + (r - 1) * job->trace_stride, reference,
               (size_t)job->deltas.parts * job->deltas.width * sizeof(float));
}

static int64_t scan_dense(const dk_product_job *job) {
    const dk_deltas *d = &job->deltas;
    for (uint32_t r = 1; r <= job->rows; r++) {
        int computed = any_fresh(d, r);
        if (computed) gather_parts(d, r);
        job->out.where[r] = computed ? (uint16_t)r : job->out.where[r - 1];
        if (job->trace) /* an unchanged row may have been carried over: its trace is at hand */
            trace_row(job, r,
                      computed ? row_at(&d->in, r)
                               : job->trace + (r - 1) * job->trace_stride - job->trace_stride);
    }
    uint32_t features = d->parts * d->width;
    for (uint32_t f = 0; d->counts && f < features; f++) d->counts[f] += job->rows;
    return (int64_t)job->rows * features;
}

int64_t dk_scan_job(const dk_product_job *job) {
    const dk_deltas *d = &job->deltas;
    job->list->groups = job->list->rows = 0;
    if (d->theta < 0.0f) return scan_dense(job);
    uint32_t features = d->parts * d->width;
    int64_t nonzeros = (int64_t)job->exact * features;
    for (uint32_t r = 1; r <= job->exact; r++) {
        job->out.where[r] = (uint16_t)r;
        trace_row(job, r, row_at(&d->in, r));
    }
    if (job->exact) memcpy(d->reference, row_at(&d->in, job->exact), features * sizeof(float));
    for (uint32_t f = 0; d->counts && f < features; f++) d->counts[f] += job->exact;
    uint32_t step = job->trace ? 1 : job->rows; /* a trace wants the reference of every row */
    for (uint32_t r = job->exact + 1; r <= job->rows; r += step) {
        uint32_t last = step > 1 ? job->rows : r;
        nonzeros += job->kernels->scan(d, r, last, job->list, job->out.where);
        trace_row(job, r, d->reference);
    }
    return nonzeros;
}

void dk_gemm(const dk_kernels *kernels, const float *a, size_t lda, size_t rows, const dk_matrix *w,
             const float *bias, float *out, size_t ldo) {
    uint32_t width = dk_panel_width(w);
    for (uint32_t column = 0; column < w->cols; column += width) {
        dk_matrix panel = dk_columns(w, column, width);
        kernels->gemm(a, lda, rows, &panel, bias ? bias + column : NULL, out + column, ldo);
    }
}

/* All rows of the list go through one panel before the next: its weights stay in the cache. */
static void accumulate(const dk_product_job *job, const float *start) {
    const dk_matrix *w = job->w;
    uint32_t width = dk_panel_width(w);
    for (uint32_t column = 0; column < w->cols; column += width) {
        dk_matrix panel = dk_columns(w, column, width);
        job->kernels->accumulate(job->list, &panel, start + column, job->out.at + column,
                                 job->out.stride);
    }
}

/* Rows first..last in full. */
static void multiply_run(const dk_product_job *job, uint32_t first, uint32_t last) {
    if (first > last) return;
    dk_gemm(job->kernels, row_at(&job->deltas.in, first), job->deltas.in.stride, last - first + 1,
            job->w, job->bias, job->out.at + first * job->out.stride, job->out.stride);
}

void dk_multiply_job(const dk_product_job *job) {
    if (job->deltas.theta >= 0.0f) {
        multiply_run(job, 1, job->exact);
        const float *start = job->exact ? row_at(&job->out, job->exact) : job->start;
        accumulate(job, start);
        return;
    }
    uint32_t first = 1;
    for (uint32_t r = 1; r <= job->rows; r++) { /* dense, in runs of fresh rows */
        if (job->out.where[r] == r) continue;
        multiply_run(job, first, r - 1);
        first = r + 1;
    }
    multiply_run(job, first, job->rows);
}
