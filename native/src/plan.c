#include "plan.h"

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

static dk_rows take_rows(dk_arena *arena, uint32_t rows, uint32_t cols, uint32_t wheres) {
    dk_rows taken;
    taken.stride = dk_stride(cols);
    taken.at = dk_take_floats(arena, rows * taken.stride);
    taken.where = (uint16_t *)dk_take(arena, (size_t)rows * wheres, sizeof(uint16_t));
    return taken;
}

/* The widest row of any site, and four entries for each token in the worst case. */
static dk_list take_list(dk_arena *arena, const dk_config *config, uint32_t chunk,
                         uint32_t tokens) {
    size_t width = larger(larger(config->dim, config->mlp), tokens);
    size_t groups = (width + DK_GROUP - 1) / DK_GROUP * chunk;
    dk_list list;
    list.value = dk_take_floats(arena, groups * DK_GROUP + DK_PAD);
    list.index = (uint16_t *)dk_take(arena, groups * DK_GROUP + 2 * DK_PAD, sizeof(uint16_t));
    list.row = (uint16_t *)dk_take(arena, chunk + 1, sizeof(uint16_t));
    list.length = (uint16_t *)dk_take(arena, chunk + 1, sizeof(uint16_t));
    list.rows = list.groups = 0;
    return list;
}

/* Floats of the reference row of a site; K and V are their own references. */
static size_t reference_floats(const dk_config *config, dk_site site) {
    uint32_t scores = config->heads * dk_stride(config->frames + 1);
    switch (site) {
    case DK_SITE_K:
    case DK_SITE_V:
        return 0;
    case DK_SITE_SCORES:
    case DK_SITE_SOFTMAX:
        return scores;
    case DK_SITE_MLP_HIDDEN:
        return config->mlp;
    default:
        return config->dim;
    }
}

/* Floats from row to row of the product that multiplies a site; 0 where no product does. */
static size_t running_floats(const dk_config *config, dk_site site) {
    switch (site) {
    case DK_SITE_X:
        return dk_stride(3 * config->dim);
    case DK_SITE_Q:
        return config->heads * dk_stride(config->frames + 1);
    case DK_SITE_SOFTMAX:
    case DK_SITE_HEADS:
    case DK_SITE_MLP_HIDDEN:
        return dk_stride(config->dim);
    case DK_SITE_MLP_IN:
        return dk_stride(config->mlp);
    default:
        return 0;
    }
}

dk_state_bytes dk_state_size(const dk_config *config, dk_site site) {
    dk_state_bytes bytes = {reference_floats(config, site) * sizeof(float),
                            running_floats(config, site) * sizeof(float)};
    return bytes;
}

static float *take_reference(dk_arena *arena, const dk_config *config, dk_site site) {
    return dk_take_floats(arena, reference_floats(config, site));
}

dk_plan dk_plan_scratch(dk_arena *arena, const dk_config *config) {
    dk_plan plan;
    uint32_t d = config->dim, m = config->mlp, heads = config->heads;
    uint32_t tokens = config->frames + 1;
    uint32_t chunk = tokens < DK_CHUNK ? tokens : DK_CHUNK;
    plan.tokens = tokens;
    plan.chunk = chunk;
    plan.x_stride = dk_stride(d);
    plan.x = dk_take_floats(arena, (size_t)(tokens + 1) * plan.x_stride);
    plan.qkv = take_rows(arena, tokens + 1, 3 * d, 1);
    plan.keys_stride = dk_stride(tokens);
    plan.keys = dk_take_floats(arena, (size_t)d * plan.keys_stride);
    plan.scores = take_rows(arena, chunk + 1, tokens, 1);
    plan.soft_where = (uint16_t *)dk_take(arena, chunk + 1, sizeof(uint16_t));
    plan.heads = take_rows(arena, chunk + 1, d, heads);
    plan.proj = take_rows(arena, chunk + 1, d, 1);
    plan.hidden = take_rows(arena, chunk + 1, m, 1);
    plan.mlp = take_rows(arena, chunk + 1, d, 1);
    plan.x_reference = take_reference(arena, config, DK_SITE_X);
    plan.q_reference = take_reference(arena, config, DK_SITE_Q);
    plan.heads_reference = take_reference(arena, config, DK_SITE_HEADS);
    plan.mlp_in_reference = take_reference(arena, config, DK_SITE_MLP_IN);
    plan.hidden_reference = take_reference(arena, config, DK_SITE_MLP_HIDDEN);
    plan.soft_reference = take_reference(arena, config, DK_SITE_SOFTMAX);
    plan.scores_running = dk_take_floats(arena, running_floats(config, DK_SITE_Q));
    plan.scores_held = take_reference(arena, config, DK_SITE_SCORES);
    plan.q_counts = (uint32_t *)dk_take(arena, d + DK_PAD, sizeof(uint32_t));
    plan.k_counts = (uint32_t *)dk_take(arena, d + DK_PAD, sizeof(uint32_t));
    plan.list = take_list(arena, config, chunk, tokens);
    return plan;
}
