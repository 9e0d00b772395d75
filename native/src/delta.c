#include "delta.h"

#include <string.h>

static const float *row_at(const dk_rows *rows, uint32_t r) { return rows->at + r * rows->stride; }

static int fresh(const dk_product_job *job, uint32_t part, uint32_t r) {
    return !job->in.where || job->in.where[part * job->where_stride + r] == r;
}

static int any_fresh(const dk_product_job *job, uint32_t r) {
    for (uint32_t part = 0; part < job->parts; part++)
        if (fresh(job, part, r)) return 1;
    return 0;
}

/* Fills the row's last group with zeros and files its groups under row r. */
static void close_row(dk_list *list, uint32_t r, uint32_t kept) {
    size_t at = (size_t)list->groups * DK_GROUP + kept;
    if (!kept) return;
    memset(list->value + at, 0, DK_GROUP * sizeof *list->value);
    memset(list->index + at, 0, DK_GROUP * sizeof *list->index);
    uint32_t groups = (kept + DK_GROUP - 1) / DK_GROUP;
    list->row[list->rows] = (uint16_t)r;
    list->length[list->rows++] = (uint16_t)groups;
    list->groups += groups;
}

static uint32_t scan_row(const dk_product_job *job, uint32_t r) {
    dk_list *list = job->list;
    size_t at = (size_t)list->groups * DK_GROUP;
    uint32_t kept = 0;
    for (uint32_t part = 0; part < job->parts; part++) {
        uint32_t column = part * job->width;
        if (!fresh(job, part, r)) continue; /* the same row again: no delta can be kept */
        kept += job->kernels->scan(row_at(&job->in, r) + column, job->reference + column,
                                   job->width, job->theta, (uint16_t)column,
                                   list->value + at + kept, list->index + at + kept, job->counts);
    }
    close_row(list, r, kept);
    return kept;
}

/* Rows of several parts hold only the parts that are fresh; bring the others along. */
static void gather_parts(const dk_product_job *job, uint32_t r) {
    for (uint32_t part = 0; job->parts > 1 && part < job->parts; part++) {
        uint32_t from = job->in.where[part * job->where_stride + r], column = part * job->width;
        if (from != r)
            memcpy(job->in.at + r * job->in.stride + column, row_at(&job->in, from) + column,
                   job->width * sizeof(float));
    }
}

static void trace_row(const dk_product_job *job, uint32_t r, const float *reference) {
    if (job->trace)
        memcpy(job->trace + (r - 1) * job->trace_stride, reference,
               (size_t)job->parts * job->width * sizeof(float));
}

static int64_t scan_dense(const dk_product_job *job) {
    for (uint32_t r = 1; r <= job->rows; r++) {
        int computed = any_fresh(job, r);
        if (computed) gather_parts(job, r);
        job->out.where[r] = computed ? (uint16_t)r : job->out.where[r - 1];
        if (job->trace) /* an unchanged row may have been carried over: its trace is at hand */
            trace_row(job, r,
                      computed ? row_at(&job->in, r)
                               : job->trace + (r - 1) * job->trace_stride - job->trace_stride);
    }
    uint32_t features = job->parts * job->width;
    for (uint32_t f = 0; job->counts && f < features; f++) job->counts[f] += job->rows;
    return (int64_t)job->rows * features;
}

int64_t dk_scan(const dk_product_job *job) {
    job->list->groups = job->list->rows = 0;
    if (job->theta < 0.0f) return scan_dense(job);
    uint32_t features = job->parts * job->width;
    int64_t nonzeros = (int64_t)job->exact * features;
    for (uint32_t r = 1; r <= job->exact; r++) {
        job->out.where[r] = (uint16_t)r;
        trace_row(job, r, row_at(&job->in, r));
    }
    if (job->exact) memcpy(job->reference, row_at(&job->in, job->exact), features * sizeof(float));
    for (uint32_t f = 0; job->counts && f < features; f++) job->counts[f] += job->exact;
    for (uint32_t r = job->exact + 1; r <= job->rows; r++) {
        uint32_t kept = any_fresh(job, r) ? scan_row(job, r) : 0;
        job->out.where[r] = kept ? (uint16_t)r : job->out.where[r - 1];
        nonzeros += kept;
        trace_row(job, r, job->reference);
    }
    return nonzeros;
}

/* Rows first..last in full. */
static void multiply_run(const dk_product_job *job, uint32_t first, uint32_t last) {
    if (first > last) return;
    job->kernels->gemm(row_at(&job->in, first), job->in.stride, last - first + 1, job->w, job->bias,
                       job->out.at + first * job->out.stride, job->out.stride);
}

void dk_multiply(const dk_product_job *job) {
    if (job->theta >= 0.0f) {
        multiply_run(job, 1, job->exact);
        const float *start = job->exact ? row_at(&job->out, job->exact) : job->start;
        job->kernels->accumulate(job->list, job->w, start, job->out.at, job->out.stride);
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
