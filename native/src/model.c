/* A model in the caller's memory, and the way from features to logits. */
#include "block.h"
#include "delta.h"
#include "internal.h"

#include <math.h>
#include <string.h>

/* Far beyond any Keyword Transformer, and small enough that no size below can overflow. */
enum {
    MAX_DIM = 1024,
    MAX_MLP = 4096,
    MAX_LAYERS = 64,
    MAX_LABELS = 1024,
    MAX_FRAMES = 8191,
    MAX_FEATURES = 1024,
};
static const float MAX_FEATURE = 1e6f;

const char *dk_status_text(dk_status status) {
    switch (status) {
    case DK_OK:
        return "ok";
    case DK_BAD_CONFIG:
        return "a size of the model is zero, too large or does not divide";
    case DK_BAD_MEMORY:
        return "the memory block is missing or too small";
    case DK_BAD_ISA:
        return "this processor or this build lacks these instructions";
    case DK_BAD_VALUE:
        return "a number is NaN, infinite or absurdly large";
    case DK_BAD_ARGUMENT:
        return "a pointer is missing or a count is out of range";
    }
    return "unknown status";
}

dk_status dk_check_config(const dk_config *c) {
    if (!c || c->dim - 1 >= MAX_DIM || c->mlp - 1 >= MAX_MLP || c->layers - 1 >= MAX_LAYERS ||
        c->labels - 1 >= MAX_LABELS || c->frames - 1 >= MAX_FRAMES ||
        c->features - 1 >= MAX_FEATURES || c->heads - 1 >= c->dim || c->dim % c->heads)
        return DK_BAD_CONFIG;
    return DK_OK;
}

uint32_t dk_tensor_count(const dk_config *config) {
    return 4 + DK_BLOCK_TENSORS * config->layers + 2;
}

/* ---- packing -------------------------------------------------------------------------------- */

/* One tensor after the other is taken from the list and copied behind the others. */
typedef struct {
    dk_arena arena;
    const float *const *tensors; /* NULL: only measure, what is enough for any kernels */
    const dk_kernels *kernels;
} packer;

static const float *pack_vector(packer *p, uint32_t n, size_t tensor) {
    float *out = dk_take_floats(&p->arena, n);
    if (out) memset(out, 0, (n + DK_PAD) * sizeof *out);
    if (out) memcpy(out, p->tensors[tensor], n * sizeof *out);
    return out;
}

/* Large matrices lie in panels of so few columns that a first-level cache holds one while all
 * tokens pass. With few inputs it holds many columns at once, and few columns are one panel anyway.
 */
static uint32_t stride_for(const packer *p, uint32_t rows, uint32_t cols, uint32_t count) {
    uint32_t panel = p->kernels ? p->kernels->panel : 0;
    int is_large = panel && rows > 64 && cols > 64 && cols % panel == 0;
    return is_large ? panel : dk_stride(count * cols);
}

/* `count` matrices (rows, cols) side by side. */
static dk_matrix pack_matrices(packer *p, uint32_t rows, uint32_t cols, size_t tensor,
                               uint32_t count) {
    uint32_t all = count * cols, stride = stride_for(p, rows, cols, count);
    size_t n = (size_t)(all + stride - 1) / stride * rows * stride;
    float *out = dk_take_floats(&p->arena, n);
    if (out) memset(out, 0, (n + DK_PAD) * sizeof *out);
    dk_matrix matrix = {out, NULL, rows, all, stride, DK_F32};
    uint32_t width = cols < stride ? cols : stride;
    for (uint32_t column = 0; out && column < all; column += width) {
        const float *from = p->tensors[tensor + column / cols] + column % cols;
        float *to = (float *)dk_columns(&matrix, column, width).data;
        for (uint32_t r = 0; r < rows; r++)
            memcpy(to + (size_t)r * stride, from + (size_t)r * cols, width * sizeof *to);
    }
    return matrix;
}

static dk_layer pack_layer(packer *p, const dk_config *c, size_t at) {
    dk_layer layer;
    layer.qkv = pack_matrices(p, c->dim, c->dim, at + DK_Q, 3);
    layer.proj = pack_matrices(p, c->dim, c->dim, at + DK_PROJ, 1);
    layer.proj_bias = pack_vector(p, c->dim, at + DK_PROJ_BIAS);
    layer.norm1 = pack_vector(p, c->dim, at + DK_NORM1);
    layer.norm1_bias = pack_vector(p, c->dim, at + DK_NORM1_BIAS);
    layer.mlp_in = pack_matrices(p, c->dim, c->mlp, at + DK_MLP_IN, 1);
    layer.mlp_in_bias = pack_vector(p, c->mlp, at + DK_MLP_IN_BIAS);
    layer.mlp_out = pack_matrices(p, c->mlp, c->dim, at + DK_MLP_OUT, 1);
    layer.mlp_out_bias = pack_vector(p, c->dim, at + DK_MLP_OUT_BIAS);
    layer.norm2 = pack_vector(p, c->dim, at + DK_NORM2);
    layer.norm2_bias = pack_vector(p, c->dim, at + DK_NORM2_BIAS);
    return layer;
}

static dk_model *pack_model(packer *p, const dk_config *c) {
    dk_model *model = (dk_model *)dk_take(&p->arena, 1, sizeof *model);
    dk_layer *layers = (dk_layer *)dk_take(&p->arena, c->layers, sizeof *layers);
    dk_model packed;
    memset(&packed, 0, sizeof packed);
    packed.config = *c;
    packed.layers = layers;
    packed.embed = pack_matrices(p, c->features, c->dim, 0, 1);
    packed.embed_bias = pack_vector(p, c->dim, 1);
    packed.class_token = pack_vector(p, c->dim, 2);
    packed.positions = pack_vector(p, (c->frames + 1) * c->dim, 3);
    size_t at = 4;
    for (uint32_t l = 0; l < c->layers; l++, at += DK_BLOCK_TENSORS) {
        dk_layer layer = pack_layer(p, c, at);
        if (layers) layers[l] = layer;
    }
    packed.head = pack_matrices(p, c->dim, c->labels, at, 1);
    packed.head_bias = pack_vector(p, c->labels, at + 1);
    if (model) *model = packed;
    return model;
}

size_t dk_model_size(const dk_config *config) {
    if (dk_check_config(config)) return 0;
    packer p = {dk_arena_at(NULL), NULL, NULL};
    pack_model(&p, config);
    return dk_arena_size(&p.arena);
}

dk_status dk_model_init(void *memory, size_t size, const dk_config *config,
                        const float *const *tensors, dk_isa isa, const dk_model **out) {
    if (!tensors || !out) return DK_BAD_ARGUMENT;
    if (dk_check_config(config)) return DK_BAD_CONFIG;
    if (!memory || size < dk_model_size(config)) return DK_BAD_MEMORY;
    if (!dk_isa_available(isa)) return DK_BAD_ISA;
    for (uint32_t i = 0; i < dk_tensor_count(config); i++)
        if (!tensors[i]) return DK_BAD_ARGUMENT;
    packer p = {dk_arena_at(memory), tensors, dk_kernels_for(isa)};
    dk_model *model = pack_model(&p, config);
    model->kernels = p.kernels;
    *out = model;
    return DK_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

size_t dk_scratch_size(const dk_config *config) {
    if (dk_check_config(config)) return 0;
    dk_arena arena = dk_arena_at(NULL);
    dk_plan_scratch(&arena, config);
    return dk_arena_size(&arena);
}

/* Eq. 1: X = [class; features W0 + b0] + positions. */
static void embed(const dk_model *model, const float *features, const dk_plan *plan) {
    const dk_config *c = &model->config;
    float *x = plan->x + plan->x_stride;
    memcpy(x, model->class_token, c->dim * sizeof *x);
    dk_gemm(model->kernels, features, c->features, c->frames, &model->embed, model->embed_bias,
            x + plan->x_stride, plan->x_stride);
    for (uint32_t t = 0; t < plan->tokens; t++)
        for (uint32_t i = 0; i < c->dim; i++)
            x[t * plan->x_stride + i] += model->positions[t * c->dim + i];
}

static void clear_watch(const dk_watch *watch, uint32_t layers) {
    if (watch->macs) memset(watch->macs, 0, layers * DK_PRODUCTS * sizeof *watch->macs);
    if (watch->nonzeros) memset(watch->nonzeros, 0, layers * DK_SITES * sizeof *watch->nonzeros);
}

dk_status dk_run(const dk_model *model, const float *features, const float *thresholds,
                 void *scratch, size_t scratch_size, float *logits, const dk_watch *watch) {
    static const dk_watch nothing;
    if (!model || !features || !logits) return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    if (!scratch || scratch_size < dk_scratch_size(c)) return DK_BAD_MEMORY;
    if (!dk_all_within(features, (size_t)c->frames * c->features, MAX_FEATURE)) return DK_BAD_VALUE;
    if (!watch) watch = &nothing;
    if (watch->clock && !watch->ticks) return DK_BAD_ARGUMENT;
    dk_arena arena = dk_arena_at(scratch);
    dk_plan plan = dk_plan_scratch(&arena, c);
    clear_watch(watch, c->layers);
    memset(plan.keys, 0, (size_t)c->dim * plan.keys_stride * sizeof *plan.keys);
    embed(model, features, &plan);
    dk_run_state run = {model, thresholds, watch, &plan};
    for (uint32_t layer = 0; layer < c->layers; layer++) dk_block(&run, layer);
    dk_gemm(model->kernels, plan.x + plan.x_stride, plan.x_stride, 1, &model->head,
            model->head_bias, logits, c->labels);
    return DK_OK;
}
