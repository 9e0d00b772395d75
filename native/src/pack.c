/* A model's weights in the caller's memory, laid out for the kernels that will read them. */
#include "internal.h"

#include <string.h>

uint32_t dk_tensor_count(const dk_config *config) {
    return 4 + DK_BLOCK_TENSORS * config->layers + 2;
}

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
