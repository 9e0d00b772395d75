/* Q, K, V, and attention over them. */
#include "pass.h"
#include "prefetch.h"

#include <math.h>
#include <string.h>

/* ---- Q, K, V -------------------------------------------------------------------------------- */

/* eq:Xupdatemac of the paper: R(t) = R(t-1) + dX(t) [W_Q W_K W_V]. In the last layer only the class
 * token has a query. Row r of the chunk is row first + r of qkv. */
static void project_qkv(dk_pass *p) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, skipped = p->is_last ? d : 0;
    dk_matrix part = dk_columns(&p->weights->qkv, skipped, 3 * d - skipped);
    dk_product_job job = dk_job(p, DK_SITE_X, dk_from_token(plan->x, plan->x_stride, p->first), d,
                                plan->x_reference, d);
    job.w = &part;
    job.out.at = dk_row(&plan->qkv, p->first) + skipped;
    job.out.stride = plan->qkv.stride;
    job.out.where = plan->qkv.where + p->first;
    job.start = p->running;
    uint16_t before = job.out.where[0]; /* belongs to the chunk before */
    job.out.where[0] = 0;
    dk_count_macs(p, DK_XW, dk_run_job(p, &job, DK_SITE_X, DK_XW) * part.cols);
    uint32_t last = job.out.where[p->rows];
    if (last) p->running = dk_row(&job.out, last);
    job.out.where[0] = before;
    if (p->is_last && p->first == 0) {
        dk_matrix query = dk_columns(&p->weights->qkv, 0, d);
        dk_gemm(p->kernels, plan->x + plan->x_stride, plan->x_stride, 1, &query, NULL,
                dk_row(&plan->qkv, 1), plan->qkv.stride);
        dk_count_macs(p, DK_XW, (int64_t)d * d);
        dk_lap(p, DK_STAGE_PRODUCT + DK_XW);
    }
}

/* Replaces the rows of K (or V) by their references, in place, for all tokens. */
static void hold_rows(dk_pass *p, dk_site site, uint32_t column, uint32_t *counts) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, tokens = plan->tokens;
    float theta = dk_theta(p, site);
    int64_t nonzeros = theta < 0.0f ? (int64_t)tokens * d : 2 * (int64_t)d;
    for (uint32_t f = 0; counts && f < d; f++) counts[f] = theta < 0.0f ? tokens : 2;
    for (uint32_t t = 2; t < tokens; t++) {
        float *now = dk_row(&plan->qkv, t + 1) + column, *before = dk_row(&plan->qkv, t) + column;
        if (plan->qkv.where[t + 1] != t % plan->chunk + 1)
            memcpy(now, before, d * sizeof(float)); /* this token changed nothing */
        else if (theta >= 0.0f)
            nonzeros += p->kernels->hold(now, before, d, theta, counts);
    }
    dk_count_nonzeros(p, site, nonzeros);
    float *trace = dk_trace(p, site, d);
    for (uint32_t t = 0; trace && t < tokens; t++)
        memcpy(trace + (size_t)t * d, dk_row(&plan->qkv, t + 1) + column, d * sizeof(float));
    dk_lap(p, DK_STAGE_SCAN + (uint32_t)site);
}

void dk_project(dk_pass *p) {
    dk_plan *plan = p->plan;
    const dk_config *config = &p->run->model->config;
    uint32_t d = config->dim, tokens = plan->tokens;
    for (p->first = 0; p->first < tokens; p->first += p->rows) {
        p->rows = tokens - p->first < plan->chunk ? tokens - p->first : plan->chunk;
        p->exact = p->first ? 0 : 2;
        project_qkv(p);
    }
    p->first = 0;
    hold_rows(p, DK_SITE_K, d, p->run->watch->macs ? plan->k_counts : NULL);
    hold_rows(p, DK_SITE_V, 2 * d, NULL);
    float scale = 1.0f / sqrtf((float)(d / config->heads));
    p->kernels->transpose(dk_row(&plan->qkv, 1) + d, plan->qkv.stride, tokens, d, scale, plan->keys,
                          plan->keys_stride);
    dk_lap(p, DK_STAGE_LAYOUT);
}

/* ---- attention ------------------------------------------------------------------------------ */

/* dQ K^: the scores of one head. The paper's delta-delta recurrence gives the same numbers; a
 * sparse dQ times the dense reconstructed K needs far fewer instructions on a processor with
 * vectors (benchmarks/score_products.py). */
static void multiply_scores(dk_pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, width = d / p->run->model->config.heads;
    dk_rows in = {dk_row(&plan->qkv, p->first) + head * width, plan->qkv.stride, plan->soft_where};
    in.where[0] = 0; /* rows local to this chunk: fresh where the product X W was */
    for (uint32_t r = 1; r <= p->rows; r++) {
        int is_fresh = p->is_last || plan->qkv.where[p->first + r] == r;
        in.where[r] = is_fresh ? (uint16_t)r : in.where[r - 1];
    }
    dk_product_job job = dk_job(p, DK_SITE_Q, in, width, plan->q_reference + head * width, d);
    if (job.trace) job.trace += head * width;
    if (p->run->watch->macs) job.deltas.counts = plan->q_counts + head * width;
    float *running = plan->scores_running + (size_t)head * plan->keys_stride;
    uint32_t lanes = p->kernels->lanes; /* whole vectors: the keys end in zeros */
    dk_matrix keys = {plan->keys + (size_t)head * width * plan->keys_stride, width,
                      (plan->tokens + lanes - 1) / lanes * lanes, plan->keys_stride, DK_F32};
    job.w = &keys;
    job.out = plan->scores;
    job.out.where[0] = 0;
    job.start = running;
    dk_run_job(p, &job, DK_SITE_Q, DK_QKT);
    uint32_t last = job.out.where[p->rows];
    if (last) memcpy(running, dk_row(&plan->scores, last), keys.cols * sizeof(float));
}

/* Replaces scores by their references, then by their softmax. plan->soft_where lists the computed
 * rows. */
static void soften_scores(dk_pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    uint32_t tokens = plan->tokens, width = tokens * p->run->model->config.heads;
    float theta = dk_theta(p, DK_SITE_SCORES);
    float *held = plan->scores_held + (size_t)head * plan->keys_stride;
    float *trace = dk_trace(p, DK_SITE_SCORES, width);
    const float *previous = held;
    int64_t nonzeros = 0;
    plan->soft_where[0] = 0;
    for (uint32_t r = 1; r <= p->rows; r++) {
        float *scores = dk_row(&plan->scores, r);
        int is_fresh = plan->scores.where[r] == r;
        uint32_t kept = theta < 0.0f ? tokens : 0;
        if (r <= p->exact)
            kept = tokens;
        else if (theta >= 0.0f && is_fresh)
            kept = p->kernels->hold(scores, previous, tokens, theta, NULL);
        if (head == 0) dk_prefetch(&p->weights->mlp_in, r, p->rows);
        if (head == 0) dk_prefetch(&p->weights->proj, r, p->rows);
        nonzeros += kept;
        is_fresh = is_fresh && kept;
        plan->soft_where[r] = is_fresh ? (uint16_t)r : plan->soft_where[r - 1];
        if (is_fresh) previous = scores;
        if (trace)
            memcpy(trace + (r - 1) * (size_t)width + head * tokens, previous,
                   tokens * sizeof(float));
    }
    if (previous != held) memcpy(held, previous, tokens * sizeof(float));
    dk_count_nonzeros(p, DK_SITE_SCORES, nonzeros);
    dk_lap(p, DK_STAGE_SCAN + DK_SITE_SCORES);
    p->kernels->softmax(plan->scores.at, plan->scores.stride, plan->soft_where, p->rows, tokens);
    dk_lap(p, DK_STAGE_SOFTMAX);
}

static void multiply_values(dk_pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    const dk_config *config = &p->run->model->config;
    uint32_t d = config->dim, width = d / config->heads, tokens = plan->tokens;
    dk_rows in = {plan->scores.at, plan->scores.stride, plan->soft_where};
    dk_product_job job =
        dk_job(p, DK_SITE_SOFTMAX, in, tokens, plan->soft_reference + head * plan->keys_stride,
               (size_t)tokens * config->heads);
    if (job.trace) job.trace += head * tokens;
    dk_matrix values = {dk_row(&plan->qkv, 1) + 2 * d + head * width, tokens, width,
                        (uint32_t)plan->qkv.stride, DK_F32};
    job.w = &values;
    job.out.at = plan->heads.at + head * width;
    job.out.stride = plan->heads.stride;
    job.out.where = plan->heads.where + (size_t)head * (plan->chunk + 1);
    job.start = job.out.at;
    dk_count_macs(p, DK_SV, dk_run_job(p, &job, DK_SITE_SOFTMAX, DK_SV) * width);
}

void dk_count_score_macs(const dk_pass *p) {
    int64_t macs = 0;
    for (uint32_t f = 0; f < p->run->model->config.dim; f++)
        macs += (int64_t)p->plan->q_counts[f] * p->plan->k_counts[f];
    dk_count_macs(p, DK_QKT, macs);
}

void dk_attend(dk_pass *p) {
    dk_plan *plan = p->plan;
    const dk_config *config = &p->run->model->config;
    uint32_t d = config->dim;
    for (uint32_t head = 0; head < config->heads; head++) {
        multiply_scores(p, head);
        soften_scores(p, head);
        multiply_values(p, head);
    }
    dk_product_job job =
        dk_job(p, DK_SITE_HEADS, plan->heads, d / config->heads, plan->heads_reference, d);
    job.deltas.parts = config->heads;
    dk_layer_job(p, &job, &p->weights->proj, p->weights->proj_bias, plan->proj, DK_SITE_HEADS,
                 DK_PROJECT);
    dk_add_norm_rows(p, &plan->proj, p->weights->norm1, p->weights->norm1_bias);
}
