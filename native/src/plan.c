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
    plan.x_reference = dk_take_floats(arena, d);
    plan.q_reference = dk_take_floats(arena, d);
    plan.heads_reference = dk_take_floats(arena, d);
    plan.mlp_in_reference = dk_take_floats(arena, d);
    plan.hidden_reference = dk_take_floats(arena, m);
    plan.soft_reference = dk_take_floats(arena, (size_t)heads * plan.keys_stride);
    plan.scores_running = dk_take_floats(arena, (size_t)heads * plan.keys_stride);
    plan.scores_held = dk_take_floats(arena, (size_t)heads * plan.keys_stride);
    plan.q_counts = (uint32_t *)dk_take(arena, d + DK_PAD, sizeof(uint32_t));
    plan.k_counts = (uint32_t *)dk_take(arena, d + DK_PAD, sizeof(uint32_t));
    plan.list = take_list(arena, config, chunk, tokens);
    return plan;
}
