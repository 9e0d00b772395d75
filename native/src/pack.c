/* The weights of a model in the caller's memory, in the layout that the kernels read. */
#include "internal.h"

#include <math.h>
#include <string.h>

uint32_t dk_tensor_count(const dk_config *config) {
    return 4 + DK_BLOCK_TENSORS * config->layers + 2;
}

/* One tensor after the other is taken from the list and copied behind the others. */
typedef struct {
    dk_arena arena;
    const float *const *tensors; /* NULL: only compute a size that is enough for all kernels */
    const dk_kernels *kernels;
} packer;

static const float *pack_vector(packer *p, uint32_t n, size_t tensor) {
    float *out = dk_take_floats(&p->arena, n);
    if (out) memset(out, 0, (n + DK_PAD) * sizeof *out);
    if (out) memcpy(out, p->tensors[tensor], n * sizeof *out);
    return out;
}

/* Half precision of x. Returns 0 if it is not x exactly. */
static int to_half(float x, uint16_t *half) {
    float size = fabsf(x),
          scaled = size * 1.925929944387236e-34f; /* 2^-112: to a half's exponent */
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    *half = (uint16_t)(bits >> 13 | (signbit(x) ? 0x8000u : 0u));
    return scaled * 5.192296858534828e33f == size && !(bits & 0x1fffu) && bits < 0x7c00u << 13;
}

static int are_halves(const float *x, size_t n) {
    uint16_t half;
    for (size_t i = 0; i < n; i++)
        if (!to_half(x[i], &half)) return 0;
    return 1;
}

/* Large matrices are stored in panels of columns. A panel fits into the first-level cache while all
 * tokens are multiplied with it. It is stored in half precision if that changes no weight. Matrices
 * with few inputs or few columns are one panel. */
static dk_matrix shape(const packer *p, uint32_t rows, uint32_t cols, size_t tensor,
                       uint32_t count) {
    dk_matrix matrix = {NULL, rows, count * cols, dk_stride(count * cols), DK_F32};
    if (!p->kernels || rows <= 64 || cols <= 64) return matrix;
    uint32_t floats = p->kernels->panel[DK_F32], halves = p->kernels->panel[DK_F16];
    int is_half = halves && cols % halves == 0;
    for (uint32_t i = 0; is_half && i < count; i++)
        is_half = are_halves(p->tensors[tensor + i], (size_t)rows * cols);
    if (floats && cols % floats == 0) matrix.stride = floats;
    if (is_half) matrix.stride = halves;
    if (is_half) matrix.type = DK_F16;
    return matrix;
}

static void copy_weights(const float *from, uint32_t n, dk_type type, void *to) {
    if (type == DK_F32) memcpy(to, from, n * sizeof *from);
    for (uint32_t i = 0; type == DK_F16 && i < n; i++) to_half(from[i], (uint16_t *)to + i);
}

/* `count` matrices (rows, cols) side by side. */
static dk_matrix pack_matrices(packer *p, uint32_t rows, uint32_t cols, size_t tensor,
                               uint32_t count) {
    dk_matrix matrix = shape(p, rows, cols, tensor, count);
    size_t size = dk_weight_size(&matrix), n = dk_weight_count(&matrix) + DK_PAD;
    void *data = dk_take(&p->arena, n, size);
    matrix.data = data;
    if (!data) return matrix;
    memset(data, 0, n * size);
    uint32_t width = cols < matrix.stride ? cols : matrix.stride;
    for (uint32_t column = 0; column < matrix.cols; column += width) {
        const float *from = p->tensors[tensor + column / cols] + column % cols;
        char *to = (char *)dk_columns(&matrix, column, width).data;
        for (uint32_t r = 0; r < rows; r++, from += cols, to += matrix.stride * size)
            copy_weights(from, width, matrix.type, to);
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
