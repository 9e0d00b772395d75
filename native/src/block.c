/* x = LN(x + MHSA(x)); x = LN(x + MLP(x)).
 *
 * First Q, K, V of all tokens; then, chunk of tokens after chunk, everything else. Each product
 * scans its input for what changed since the token before and multiplies only that; a token in
 * which nothing changed is not touched at all further down (dk_rows.where).
 */
#include "block.h"
#include "delta.h"

#include <math.h>
#include <string.h>

/* A chunk of tokens on its way through one block. */
typedef struct {
    const dk_run_state *run;
    const dk_layer *weights;
    const dk_kernels *kernels;
    dk_plan *plan;
    uint32_t layer, first, rows, exact; /* tokens first .. first + rows - 1, `exact` never delta */
    int is_last;                        /* layer */
    const float *running;               /* the last computed row of Q, K, V */
    uint64_t lap;
} pass;

static float theta_of(const pass *p, dk_site site) {
    return p->run->thresholds ? p->run->thresholds[p->layer * DK_SITES + site] : -1.0f;
}

static void start_clock(pass *p) {
    if (p->run->watch->clock) p->lap = p->run->watch->clock();
}

/* Time since the last call belongs to `stage`. */
static void lap(pass *p, uint32_t stage) {
    const dk_watch *watch = p->run->watch;
    if (!watch->clock) return;
    uint64_t now = watch->clock();
    watch->ticks[p->layer * DK_STAGES + stage] += now - p->lap;
    p->lap = now;
}

static void count_nonzeros(const pass *p, dk_site site, int64_t count) {
    if (p->run->watch->nonzeros) p->run->watch->nonzeros[p->layer * DK_SITES + site] += count;
}

static void count_macs(const pass *p, dk_product product, int64_t count) {
    if (p->run->watch->macs) p->run->watch->macs[p->layer * DK_PRODUCTS + product] += count;
}

/* Trace of `site` from token `first` on, or NULL. */
static float *trace_of(const pass *p, dk_site site, size_t width) {
    float *trace = p->run->watch->trace[site];
    return trace ? trace + ((size_t)p->layer * p->plan->tokens + p->first) * width : NULL;
}

static float *row(const dk_rows *rows, uint32_t r) { return rows->at + r * rows->stride; }

/* A job with everything that is the same for each product of this pass. */
static dk_product_job job_for(const pass *p, dk_site site, dk_rows in, uint32_t width,
                              float *reference, size_t trace_width) {
    dk_product_job job;
    memset(&job, 0, sizeof job);
    job.kernels = p->kernels;
    job.list = &p->plan->list;
    job.rows = p->rows;
    job.exact = p->exact;
    job.theta = theta_of(p, site);
    job.in = in;
    job.parts = 1;
    job.width = width;
    job.where_stride = p->plan->chunk + 1;
    job.reference = reference;
    job.trace = trace_of(p, site, trace_width);
    job.trace_stride = trace_width;
    return job;
}

/* Scans and multiplies, with the time of each. Returns the non-zeros. */
static int64_t run_job(pass *p, const dk_product_job *job, dk_site site, dk_product product) {
    int64_t nonzeros = dk_scan(job);
    count_nonzeros(p, site, nonzeros);
    lap(p, DK_STAGE_SCAN + (uint32_t)site);
    dk_multiply(job);
    lap(p, DK_STAGE_PRODUCT + (uint32_t)product);
    return nonzeros;
}

static dk_matrix columns(const dk_matrix *w, uint32_t first, uint32_t count) {
    static const size_t sizes[] = {sizeof(float), sizeof(uint16_t), sizeof(int8_t)};
    dk_matrix part = *w;
    part.data = (const char *)w->data + first * sizes[w->type];
    part.cols = count;
    return part;
}

static dk_rows from_token(const float *at, size_t stride, uint32_t first) {
    dk_rows rows = {(float *)at + first * stride, stride, NULL};
    return rows;
}

/* ---- Q, K, V -------------------------------------------------------------------------------- */

/* Eq. 7 and 9: R(t) = R(t-1) + dX(t) [W_Q W_K W_V]. In the last layer only the class token asks
 * for a query. Row r of the chunk is row first + r of qkv. */
static void project_qkv(pass *p) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, skipped = p->is_last ? d : 0;
    dk_matrix part = columns(&p->weights->qkv, skipped, 3 * d - skipped);
    dk_product_job job = job_for(p, DK_SITE_X, from_token(plan->x, plan->x_stride, p->first), d,
                                 plan->x_reference, d);
    job.w = &part;
    job.out.at = row(&plan->qkv, p->first) + skipped;
    job.out.stride = plan->qkv.stride;
    job.out.where = plan->qkv.where + p->first;
    job.start = p->running;
    uint16_t before = job.out.where[0]; /* belongs to the chunk before */
    job.out.where[0] = 0;
    count_macs(p, DK_XW, run_job(p, &job, DK_SITE_X, DK_XW) * part.cols);
    uint32_t last = job.out.where[p->rows];
    if (last) p->running = row(&job.out, last);
    job.out.where[0] = before;
    if (p->is_last && p->first == 0) {
        dk_matrix query = columns(&p->weights->qkv, 0, d);
        p->kernels->gemm(plan->x + plan->x_stride, plan->x_stride, 1, &query, NULL,
                         row(&plan->qkv, 1), plan->qkv.stride);
        count_macs(p, DK_XW, (int64_t)d * d);
        lap(p, DK_STAGE_PRODUCT + DK_XW);
    }
}

/* The rows of K (or V) become their references, in place; all tokens' rows are filled in. */
static void hold_rows(pass *p, dk_site site, uint32_t column, uint32_t *counts) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, tokens = plan->tokens;
    float theta = theta_of(p, site);
    int64_t nonzeros = theta < 0.0f ? (int64_t)tokens * d : 2 * (int64_t)d;
    for (uint32_t f = 0; counts && f < d; f++) counts[f] = theta < 0.0f ? tokens : 2;
    for (uint32_t t = 2; t < tokens; t++) {
        float *now = row(&plan->qkv, t + 1) + column, *before = row(&plan->qkv, t) + column;
        if (plan->qkv.where[t + 1] != t % plan->chunk + 1)
            memcpy(now, before, d * sizeof(float)); /* this token changed nothing */
        else if (theta >= 0.0f)
            nonzeros += p->kernels->hold(now, before, d, theta, counts);
    }
    count_nonzeros(p, site, nonzeros);
    float *trace = trace_of(p, site, d);
    for (uint32_t t = 0; trace && t < tokens; t++)
        memcpy(trace + (size_t)t * d, row(&plan->qkv, t + 1) + column, d * sizeof(float));
    lap(p, DK_STAGE_SCAN + (uint32_t)site);
}

static void project_all(pass *p) {
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
    p->kernels->transpose(row(&plan->qkv, 1) + d, plan->qkv.stride, tokens, d, scale, plan->keys,
                          plan->keys_stride);
    lap(p, DK_STAGE_LAYOUT);
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Row 0 for the next chunk: the last one computed in this. */
static void carry(dk_rows *rows, uint32_t last) {
    if (last) memcpy(rows->at, row(rows, last), rows->stride * sizeof(float));
}

/* dQ K^: the scores of one head. The paper's delta-delta recurrence gives the same numbers; a
 * sparse dQ times the dense reconstructed K is the cheapest exact shape for a processor. */
static void multiply_scores(pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, width = d / p->run->model->config.heads;
    dk_rows in = {row(&plan->qkv, p->first) + head * width, plan->qkv.stride, plan->soft_where};
    in.where[0] = 0; /* rows local to this chunk: fresh where the product X W was */
    for (uint32_t r = 1; r <= p->rows; r++) {
        int is_fresh = p->is_last || plan->qkv.where[p->first + r] == r;
        in.where[r] = is_fresh ? (uint16_t)r : in.where[r - 1];
    }
    dk_product_job job = job_for(p, DK_SITE_Q, in, width, plan->q_reference + head * width, d);
    if (job.trace) job.trace += head * width;
    if (p->run->watch->macs) job.counts = plan->q_counts + head * width;
    float *running = plan->scores_running + (size_t)head * plan->keys_stride;
    dk_matrix keys = {plan->keys + (size_t)head * width * plan->keys_stride,
                      NULL,
                      width,
                      plan->tokens,
                      plan->keys_stride,
                      DK_F32};
    job.w = &keys;
    job.out = plan->scores;
    job.out.where[0] = 0;
    job.start = running;
    run_job(p, &job, DK_SITE_Q, DK_QKT);
    uint32_t last = job.out.where[p->rows];
    if (last) memcpy(running, row(&plan->scores, last), keys.cols * sizeof(float));
}

/* Scores become their references, then their softmax. plan->soft_where tells which rows did. */
static void soften_scores(pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    uint32_t tokens = plan->tokens, width = tokens * p->run->model->config.heads;
    float theta = theta_of(p, DK_SITE_SCORES);
    float *held = plan->scores_held + (size_t)head * plan->keys_stride;
    float *trace = trace_of(p, DK_SITE_SCORES, width);
    const float *previous = held;
    int64_t nonzeros = 0;
    plan->soft_where[0] = 0;
    for (uint32_t r = 1; r <= p->rows; r++) {
        float *scores = row(&plan->scores, r);
        int is_fresh = plan->scores.where[r] == r;
        uint32_t kept = theta < 0.0f ? tokens : 0;
        if (r <= p->exact)
            kept = tokens;
        else if (theta >= 0.0f && is_fresh)
            kept = p->kernels->hold(scores, previous, tokens, theta, NULL);
        nonzeros += kept;
        is_fresh = is_fresh && kept;
        plan->soft_where[r] = is_fresh ? (uint16_t)r : plan->soft_where[r - 1];
        if (is_fresh) previous = scores;
        if (trace)
            memcpy(trace + (r - 1) * (size_t)width + head * tokens, previous,
                   tokens * sizeof(float));
    }
    if (previous != held) memcpy(held, previous, tokens * sizeof(float));
    count_nonzeros(p, DK_SITE_SCORES, nonzeros);
    lap(p, DK_STAGE_SCAN + DK_SITE_SCORES);
    p->kernels->softmax(plan->scores.at, plan->scores.stride, plan->soft_where, p->rows, tokens);
    lap(p, DK_STAGE_SOFTMAX);
}

static void multiply_values(pass *p, uint32_t head) {
    dk_plan *plan = p->plan;
    const dk_config *config = &p->run->model->config;
    uint32_t d = config->dim, width = d / config->heads, tokens = plan->tokens;
    dk_rows in = {plan->scores.at, plan->scores.stride, plan->soft_where};
    dk_product_job job =
        job_for(p, DK_SITE_SOFTMAX, in, tokens, plan->soft_reference + head * plan->keys_stride,
                (size_t)tokens * config->heads);
    if (job.trace) job.trace += head * tokens;
    dk_matrix values = {row(&plan->qkv, 1) + 2 * d + head * width,
                        NULL,
                        tokens,
                        width,
                        (uint32_t)plan->qkv.stride,
                        DK_F32};
    job.w = &values;
    job.out.at = plan->heads.at + head * width;
    job.out.stride = plan->heads.stride;
    job.out.where = plan->heads.where + (size_t)head * (plan->chunk + 1);
    job.start = job.out.at;
    count_macs(p, DK_SV, run_job(p, &job, DK_SITE_SOFTMAX, DK_SV) * width);
}

/* The paper's count of the delta-delta product: pairs of kept deltas of the same feature. */
static void count_score_macs(const pass *p) {
    int64_t macs = 0;
    for (uint32_t f = 0; f < p->run->model->config.dim; f++)
        macs += (int64_t)p->plan->q_counts[f] * p->plan->k_counts[f];
    count_macs(p, DK_QKT, macs);
}

static void add_norm(pass *p, const dk_rows *r, const float *gain, const float *bias) {
    dk_plan *plan = p->plan;
    p->kernels->add_norm(plan->x + (p->first + 1) * plan->x_stride, plan->x_stride, r->at,
                         r->stride, r->where + 1, p->rows, gain, bias, p->run->model->config.dim);
    lap(p, DK_STAGE_NORM);
}

static void attend(pass *p) {
    dk_plan *plan = p->plan;
    const dk_config *config = &p->run->model->config;
    uint32_t d = config->dim;
    for (uint32_t head = 0; head < config->heads; head++) {
        multiply_scores(p, head);
        soften_scores(p, head);
        multiply_values(p, head);
    }
    dk_product_job job =
        job_for(p, DK_SITE_HEADS, plan->heads, d / config->heads, plan->heads_reference, d);
    job.parts = config->heads;
    job.w = &p->weights->proj;
    job.bias = p->weights->proj_bias;
    job.out = plan->proj;
    job.start = plan->proj.at;
    count_macs(p, DK_PROJECT, run_job(p, &job, DK_SITE_HEADS, DK_PROJECT) * d);
    add_norm(p, &plan->proj, p->weights->norm1, p->weights->norm1_bias);
}

/* ---- MLP ------------------------------------------------------------------------------------ */

static void feed_forward(pass *p) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, m = p->run->model->config.mlp;
    dk_product_job job = job_for(p, DK_SITE_MLP_IN, from_token(plan->x, plan->x_stride, p->first),
                                 d, plan->mlp_in_reference, d);
    job.w = &p->weights->mlp_in;
    job.bias = p->weights->mlp_in_bias;
    job.out = plan->hidden;
    job.start = plan->hidden.at;
    count_macs(p, DK_MLP1, run_job(p, &job, DK_SITE_MLP_IN, DK_MLP1) * m);

    uint32_t last = plan->hidden.where[p->rows]; /* kept before GELU overwrites it */
    if (last) memcpy(plan->hidden.at, row(&plan->hidden, last), m * sizeof(float));
    for (uint32_t r = 1; r <= p->rows; r++)
        if (plan->hidden.where[r] == r)
            p->kernels->gelu(row(&plan->hidden, r), row(&plan->hidden, r), m);
    lap(p, DK_STAGE_GELU);

    job = job_for(p, DK_SITE_MLP_HIDDEN, plan->hidden, m, plan->hidden_reference, m);
    job.w = &p->weights->mlp_out;
    job.bias = p->weights->mlp_out_bias;
    job.out = plan->mlp;
    job.start = plan->mlp.at;
    count_macs(p, DK_MLP2, run_job(p, &job, DK_SITE_MLP_HIDDEN, DK_MLP2) * d);
    add_norm(p, &plan->mlp, p->weights->norm2, p->weights->norm2_bias);
}

void dk_block(const dk_run_state *run, uint32_t layer) {
    dk_plan *plan = run->plan;
    const dk_config *config = &run->model->config;
    pass p;
    memset(&p, 0, sizeof p);
    p.run = run;
    p.weights = &run->model->layers[layer];
    p.kernels = run->model->kernels;
    p.plan = plan;
    p.layer = layer;
    p.is_last = layer + 1 == config->layers;
    start_clock(&p);
    project_all(&p);
    memset(plan->q_counts, 0, config->dim * sizeof *plan->q_counts);
    uint32_t wanted = p.is_last ? 1 : plan->tokens; /* only the class token is read at the end */
    uint32_t where_stride = plan->chunk + 1;
    for (uint32_t head = 0; head < config->heads; head++)
        plan->heads.where[head * where_stride] = 0;
    plan->proj.where[0] = plan->hidden.where[0] = plan->mlp.where[0] = 0;
    for (p.first = 0; p.first < wanted; p.first += p.rows) {
        p.rows = wanted - p.first < plan->chunk ? wanted - p.first : plan->chunk;
        p.exact = p.first ? 0 : wanted < 2 ? wanted : 2;
        attend(&p);
        feed_forward(&p);
        for (uint32_t head = 0; head < config->heads; head++) {
            uint32_t width = config->dim / config->heads;
            uint32_t last = plan->heads.where[head * where_stride + p.rows];
            if (last)
                memcpy(plan->heads.at + head * width, row(&plan->heads, last) + head * width,
                       width * sizeof(float));
        }
        carry(&plan->proj, plan->proj.where[p.rows]);
        carry(&plan->mlp, plan->mlp.where[p.rows]);
    }
    if (run->watch->macs) count_score_macs(&p);
    for (uint32_t t = 0; run->watch->output && t < wanted; t++)
        memcpy(run->watch->output + ((size_t)layer * plan->tokens + t) * config->dim,
               plan->x + (t + 1) * plan->x_stride, config->dim * sizeof(float));
}
