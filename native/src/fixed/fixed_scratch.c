/* The scratch memory of a run in integers. */
#include "fixed.h"

dk_fixed_scratch dk_fixed_plan(dk_arena *arena, const dk_config *c) {
    dk_fixed_widths w = dk_widths(c);
    uint32_t widest = w.mlp > w.keys ? w.mlp : w.keys;
    if (w.dim > widest) widest = w.dim;
    if (w.heads > widest) widest = w.heads;
    size_t rows = w.tokens, words = (widest + 63) / 64, one = sizeof(int16_t);
    dk_fixed_scratch s;
    s.widest = widest;
    s.x = (int16_t *)dk_take(arena, rows * w.dim, one);
    s.qkv = (int16_t *)dk_take(arena, (size_t)w.keys * 3 * w.heads, one);
    s.keys = (int16_t *)dk_take(arena, (size_t)w.heads * w.keys, one);
    s.scores = (int16_t *)dk_take(arena, rows * w.keys, one);
    s.heads = (int16_t *)dk_take(arena, rows * w.heads, one);
    s.hidden = (int16_t *)dk_take(arena, rows * w.mlp, one);
    s.r = (int16_t *)dk_take(arena, rows * w.dim, one);
    s.delta = (int16_t *)dk_take(arena, rows * widest, one);
    s.reference = (int16_t *)dk_take(arena, widest, one);
    s.features = (int16_t *)dk_take(arena, rows * dk_padded(c->features), one);
    s.mask = (uint64_t *)dk_take(arena, rows * words, sizeof *s.mask);
    s.changed_x = (uint8_t *)dk_take(arena, rows, 1);
    s.changed = (uint8_t *)dk_take(arena, rows, 1);
    s.changed_heads = (uint8_t *)dk_take(arena, rows, 1);
    s.where = (uint16_t *)dk_take(arena, rows, sizeof *s.where);
    s.q_counts = (uint32_t *)dk_take(arena, w.heads, sizeof *s.q_counts);
    s.k_counts = (uint32_t *)dk_take(arena, w.heads, sizeof *s.k_counts);
    return s;
}

size_t dk_fixed_scratch_size(const dk_config *config) {
    if (dk_fixed_check_config(config)) return 0;
    dk_arena arena = dk_arena_at(NULL);
    dk_fixed_plan(&arena, config);
    return dk_arena_size(&arena);
}
