#include "pass.h"

#include <string.h>

float dk_theta(const dk_pass *p, dk_site site) {
    return p->run->thresholds ? p->run->thresholds[p->layer * DK_SITES + site] : -1.0f;
}

void dk_start_clock(dk_pass *p) {
    if (p->run->watch->clock) p->lap = p->run->watch->clock();
}

void dk_lap(dk_pass *p, uint32_t stage) {
    const dk_watch *watch = p->run->watch;
    if (!watch->clock) return;
    uint64_t now = watch->clock();
    watch->ticks[p->layer * DK_STAGES + stage] += now - p->lap;
    p->lap = now;
}

void dk_count_nonzeros(const dk_pass *p, dk_site site, int64_t count) {
    if (p->run->watch->nonzeros) p->run->watch->nonzeros[p->layer * DK_SITES + site] += count;
}

void dk_count_macs(const dk_pass *p, dk_product product, int64_t count) {
    if (p->run->watch->macs) p->run->watch->macs[p->layer * DK_PRODUCTS + product] += count;
}

float *dk_trace(const dk_pass *p, dk_site site, size_t width) {
    float *trace = p->run->watch->trace[site];
    return trace ? trace + ((size_t)p->layer * p->plan->tokens + p->first) * width : NULL;
}

dk_product_job dk_job(const dk_pass *p, dk_site site, dk_rows in, uint32_t width, float *reference,
                      size_t trace_width) {
    dk_product_job job;
    memset(&job, 0, sizeof job);
    job.kernels = p->kernels;
    job.list = &p->plan->list;
    job.rows = p->rows;
    job.exact = p->exact;
    job.deltas.theta = dk_theta(p, site);
    job.deltas.in = in;
    job.deltas.parts = 1;
    job.deltas.width = width;
    job.deltas.where_stride = p->plan->chunk + 1;
    job.deltas.reference = reference;
    job.trace = dk_trace(p, site, trace_width);
    job.trace_stride = trace_width;
    return job;
}

int64_t dk_run_job(dk_pass *p, const dk_product_job *job, dk_site site, dk_product product) {
    int64_t nonzeros = dk_scan_job(job);
    dk_count_nonzeros(p, site, nonzeros);
    dk_lap(p, DK_STAGE_SCAN + (uint32_t)site);
    dk_multiply_job(job);
    dk_lap(p, DK_STAGE_PRODUCT + (uint32_t)product);
    return nonzeros;
}

void dk_layer_job(dk_pass *p, dk_product_job *job, const dk_matrix *w, const float *bias,
                  dk_rows out, dk_site site, dk_product product) {
    job->w = w;
    job->bias = bias;
    job->out = out;
    job->start = out.at;
    dk_count_macs(p, product, dk_run_job(p, job, site, product) * w->cols);
}

void dk_add_norm_rows(dk_pass *p, const dk_rows *r, const float *gain, const float *bias) {
    dk_plan *plan = p->plan;
    p->kernels->add_norm(plan->x + (p->first + 1) * plan->x_stride, plan->x_stride, r->at,
                         r->stride, r->where + 1, p->rows, gain, bias, p->run->model->config.dim);
    dk_lap(p, DK_STAGE_NORM);
}

dk_rows dk_from_token(const float *at, size_t stride, uint32_t first) {
    dk_rows rows = {(float *)at + first * stride, stride, NULL};
    return rows;
}
