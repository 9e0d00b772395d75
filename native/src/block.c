/* x = LN(x + MHSA(x)); x = LN(x + MLP(x)).
 *
 * Q, K and V of all tokens are computed first, then everything else, one chunk of tokens after the
 * other. Each product compares its input with the token before and multiplies only what changed.
 * Later stages skip a token in which nothing changed (dk_rows.where).
 */
#include "block.h"

#include "pass.h"
#include "prefetch.h"

#include <string.h>

/* Sets row 0 of the next chunk: the last row computed in this one. */
static void carry(dk_rows *rows, uint32_t last) {
    if (last) memcpy(rows->at, dk_row(rows, last), rows->stride * sizeof(float));
}

static void feed_forward(dk_pass *p) {
    dk_plan *plan = p->plan;
    uint32_t d = p->run->model->config.dim, m = p->run->model->config.mlp;
    dk_product_job job = dk_job(p, DK_SITE_MLP_IN, dk_from_token(plan->x, plan->x_stride, p->first),
                                d, plan->mlp_in_reference, d);
    dk_layer_job(p, &job, &p->weights->mlp_in, p->weights->mlp_in_bias, plan->hidden,
                 DK_SITE_MLP_IN, DK_MLP1);

    uint32_t last = plan->hidden.where[p->rows]; /* kept before GELU overwrites it */
    if (last) memcpy(plan->hidden.at, dk_row(&plan->hidden, last), m * sizeof(float));
    for (uint32_t r = 1; r <= p->rows; r++) {
        if (plan->hidden.where[r] == r)
            p->kernels->gelu(dk_row(&plan->hidden, r), dk_row(&plan->hidden, r), m);
        dk_prefetch(&p->weights->mlp_out, r, p->rows);
        if (!p->is_last) dk_prefetch(&p->weights[1].qkv, r, p->rows);
    }
    dk_lap(p, DK_STAGE_GELU);

    job = dk_job(p, DK_SITE_MLP_HIDDEN, plan->hidden, m, plan->hidden_reference, m);
    dk_layer_job(p, &job, &p->weights->mlp_out, p->weights->mlp_out_bias, plan->mlp,
                 DK_SITE_MLP_HIDDEN, DK_MLP2);
    dk_add_norm_rows(p, &plan->mlp, p->weights->norm2, p->weights->norm2_bias);
}

void dk_block(const dk_run_state *run, uint32_t layer) {
    dk_plan *plan = run->plan;
    const dk_config *config = &run->model->config;
    dk_pass p;
    memset(&p, 0, sizeof p);
    p.run = run;
    p.weights = &run->model->layers[layer];
    p.kernels = run->model->kernels;
    p.plan = plan;
    p.layer = layer;
    p.is_last = layer + 1 == config->layers;
    dk_start_clock(&p);
    dk_project(&p);
    memset(plan->q_counts, 0, config->dim * sizeof *plan->q_counts);
    uint32_t wanted = p.is_last ? 1 : plan->tokens; /* only the class token is read at the end */
    uint32_t where_stride = plan->chunk + 1;
    for (uint32_t head = 0; head < config->heads; head++)
        plan->heads.where[head * where_stride] = 0;
    plan->proj.where[0] = plan->hidden.where[0] = plan->mlp.where[0] = 0;
    for (p.first = 0; p.first < wanted; p.first += p.rows) {
        p.rows = wanted - p.first < plan->chunk ? wanted - p.first : plan->chunk;
        p.exact = p.first ? 0 : wanted < 2 ? wanted : 2;
        dk_attend(&p);
        feed_forward(&p);
        for (uint32_t head = 0; head < config->heads; head++) {
            uint32_t width = config->dim / config->heads;
            uint32_t last = plan->heads.where[head * where_stride + p.rows];
            if (last)
                memcpy(plan->heads.at + head * width, dk_row(&plan->heads, last) + head * width,
                       width * sizeof(float));
        }
        carry(&plan->proj, plan->proj.where[p.rows]);
        carry(&plan->mlp, plan->mlp.where[p.rows]);
    }
    if (run->watch->macs) dk_count_score_macs(&p);
    for (uint32_t t = 0; run->watch->output && t < wanted; t++)
        memcpy(run->watch->output + ((size_t)layer * plan->tokens + t) * config->dim,
               plan->x + (t + 1) * plan->x_stride, config->dim * sizeof(float));
}
