/* The integers of a model, checked and copied into the layout of the kernels. */
#include "fixed.h"

#include <string.h>

/* Scores of all tokens are held at once, unlike in the float engine. */
enum { MAX_TOKENS = 1024 };

dk_status dk_fixed_check_config(const dk_config *c) {
    if (dk_check_config(c) || c->frames >= MAX_TOKENS) return DK_BAD_CONFIG;
    return DK_OK;
}

static int has_least(const int16_t *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (x[i] == DK_LEAST) return 1;
    return 0;
}

/* Whether the magnitudes of every column add up to no more than the limit. */
static int columns_within(const int16_t *w, uint32_t rows, uint32_t cols, int64_t limit) {
    for (uint32_t j = 0; j < cols; j++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < rows; i++) {
            int32_t value = w[(size_t)i * cols + j];
            sum += value < 0 ? -value : value;
        }
        if (sum > limit) return 0;
    }
    return 1;
}

static dk_status check_layer(const dk_config *c, const dk_fixed_layer_source *l) {
    size_t square = (size_t)c->dim * c->dim, wide = (size_t)c->dim * c->mlp;
    const int16_t *all[] = {
        l->q,          l->k,           l->v,         l->proj,         l->proj_bias,
        l->mlp_in,     l->mlp_in_bias, l->mlp_out,   l->mlp_out_bias, l->norm1,
        l->norm1_bias, l->norm2,       l->norm2_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]) return DK_BAD_ARGUMENT;
    if (l->norm1_shift - 1 >= 30 || l->norm2_shift - 1 >= 30 || l->key_shift > 14 ||
        l->score_bits - 4 > 8 || l->hidden_bits - 4 > 9 || l->sum1_shift > 14 ||
        l->sum2_shift > 14 || l->norm1_epsilon - 1 >= 1u << 30 || l->norm2_epsilon - 1 >= 1u << 30)
        return DK_BAD_ARGUMENT;
    if (has_least(l->q, square) || has_least(l->k, square) || has_least(l->v, square) ||
        has_least(l->proj, square) || has_least(l->mlp_in, wide) || has_least(l->mlp_out, wide) ||
        has_least(l->norm1, c->dim) || has_least(l->norm2, c->dim))
        return DK_BAD_VALUE;
    return DK_OK;
}

static dk_status check_source(const dk_config *c, const dk_fixed_source *s) {
    if (!s->embed || !s->positions || !s->head || !s->head_bias || !s->layers ||
        s->embed_shift > 15)
        return DK_BAD_ARGUMENT;
    if (has_least(s->embed, (size_t)c->features * c->dim) ||
        !columns_within(s->embed, c->features, c->dim, 65535) ||
        !columns_within(s->head, c->dim, c->labels, 32767))
        return DK_BAD_VALUE;
    for (uint32_t i = 0; i < c->labels; i++)
        if (s->head_bias[i] >= 1 << 30 || s->head_bias[i] <= -(1 << 30)) return DK_BAD_VALUE;
    for (uint32_t l = 0; l < c->layers; l++) {
        dk_status status = check_layer(c, &s->layers[l]);
        if (status) return status;
    }
    return DK_OK;
}

/* ---- layout --------------------------------------------------------------------------------- */

typedef struct {
    dk_arena arena;
    const dk_fixed_source *source; /* NULL: only measure */
} packer;

static int16_t *take(packer *p, size_t count) {
    int16_t *out = (int16_t *)dk_take(&p->arena, count, sizeof *out);
    if (out) memset(out, 0, count * sizeof *out);
    return out;
}

static const int16_t *pack_vector(packer *p, const int16_t *from, uint32_t n) {
    int16_t *out = take(p, dk_padded(n));
    if (out) memcpy(out, from, n * sizeof *out);
    return out;
}

/* Where feature i of a row is when every `width` features are padded to whole vectors. */
static uint32_t place(uint32_t i, uint32_t width) {
    return i / width * dk_padded(width) + i % width;
}

/* A matrix (rows, count * cols): `count` matrices (rows, cols) side by side. Rows and columns are
 * padded in groups (heads) of row_width and col_width. */
static dk_fixed_matrix pack_matrix(packer *p, const int16_t *const *from, uint32_t count,
                                   uint32_t rows, uint32_t cols, uint32_t row_width,
                                   uint32_t col_width) {
    uint32_t one = cols / col_width * dk_padded(col_width), vectors = count * one / DK_VECTOR;
    uint32_t most = DK_PANEL / DK_VECTOR, panels = (vectors + most - 1) / most;
    dk_fixed_matrix m;
    m.is_weights = 1;
    m.rows = rows / row_width * dk_padded(row_width);
    m.cols = vectors * DK_VECTOR;
    m.panel = m.stride = (vectors + panels - 1) / panels * DK_VECTOR;
    m.step = (size_t)m.rows * m.panel;
    int16_t *data = take(p, panels * m.step);
    m.data = data;
    if (!data) return m;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < cols; j++) {
                uint32_t row = place(i, row_width), col = k * one + place(j, col_width);
                data[col / m.panel * m.step + (size_t)row * m.panel + col % m.panel] =
                    from[k][(size_t)i * cols + j];
            }
    return m;
}

/* Some columns of a matrix that is one panel. */
static dk_fixed_matrix columns_of(const dk_fixed_matrix *w, uint32_t first, uint32_t cols) {
    dk_fixed_matrix part = *w;
    if (w->data) part.data = w->data + first;
    part.cols = part.panel = cols;
    return part;
}

/* Q, K and V read the same deltas: in one panel, each is read once. */
static void pack_qkv(packer *p, const dk_config *c, const dk_fixed_layer_source *s,
                     dk_fixed_layer *layer) {
    const int16_t *all[3] = {s->q, s->k, s->v};
    uint32_t d = c->dim, head = d / c->heads, width = c->heads * dk_padded(head);
    if (3 * width <= DK_PANEL) {
        layer->qkv = pack_matrix(p, all, 3, d, d, d, head);
        layer->q = columns_of(&layer->qkv, 0, width);
        layer->kv = columns_of(&layer->qkv, width, 2 * width);
    } else {
        layer->kv = pack_matrix(p, all + 1, 2, d, d, d, head);
        layer->q = pack_matrix(p, all, 1, d, d, d, head);
        layer->qkv = columns_of(&layer->q, 0, 0);
    }
}

static dk_fixed_layer pack_layer(packer *p, const dk_config *c, const dk_fixed_layer_source *s) {
    uint32_t d = c->dim, m = c->mlp, head = d / c->heads;
    dk_fixed_layer layer;
    pack_qkv(p, c, s, &layer);
    layer.proj = pack_matrix(p, &s->proj, 1, d, d, head, d);
    layer.mlp_in = pack_matrix(p, &s->mlp_in, 1, d, m, d, m);
    layer.mlp_out = pack_matrix(p, &s->mlp_out, 1, m, d, m, d);
    layer.proj_bias = pack_vector(p, s->proj_bias, d);
    layer.mlp_in_bias = pack_vector(p, s->mlp_in_bias, m);
    layer.mlp_out_bias = pack_vector(p, s->mlp_out_bias, d);
    const dk_fixed_norm norm1 = {pack_vector(p, s->norm1, d), pack_vector(p, s->norm1_bias, d), d,
                                 s->norm1_epsilon, s->norm1_shift};
    const dk_fixed_norm norm2 = {pack_vector(p, s->norm2, d), pack_vector(p, s->norm2_bias, d), d,
                                 s->norm2_epsilon, s->norm2_shift};
    layer.norm1 = norm1;
    layer.norm2 = norm2;
    layer.key_shift = s->key_shift;
    layer.score_bits = s->score_bits;
    layer.hidden_bits = s->hidden_bits;
    layer.sum1_shift = s->sum1_shift;
    layer.sum2_shift = s->sum2_shift;
    return layer;
}

static const int16_t *pack_embed(packer *p, const dk_config *c) {
    uint32_t pairs = (c->features + 1) / 2, n = dk_padded(c->dim);
    int16_t *out = take(p, (size_t)pairs * n * 2);
    for (uint32_t i = 0; out && i < c->features; i++)
        for (uint32_t j = 0; j < c->dim; j++)
            out[((size_t)(i / 2) * n + j) * 2 + i % 2] = p->source->embed[(size_t)i * c->dim + j];
    return out;
}

static const int16_t *pack_positions(packer *p, const dk_config *c) {
    uint32_t n = dk_padded(c->dim);
    int16_t *out = take(p, (size_t)(c->frames + 1) * n);
    for (uint32_t t = 0; out && t <= c->frames; t++)
        memcpy(out + (size_t)t * n, p->source->positions + (size_t)t * c->dim,
               c->dim * sizeof *out);
    return out;
}

static dk_fixed_model *pack_model(packer *p, const dk_config *c) {
    static const dk_fixed_layer_source nothing;
    dk_fixed_model *model = (dk_fixed_model *)dk_take(&p->arena, 1, sizeof *model);
    dk_fixed_layer *layers = (dk_fixed_layer *)dk_take(&p->arena, c->layers, sizeof *layers);
    int16_t *head = take(p, (size_t)c->dim * c->labels);
    int32_t *head_bias = (int32_t *)dk_take(&p->arena, c->labels, sizeof *head_bias);
    const int16_t *embed = pack_embed(p, c), *positions = pack_positions(p, c);
    for (uint32_t l = 0; l < c->layers; l++) {
        dk_fixed_layer layer = pack_layer(p, c, p->source ? &p->source->layers[l] : &nothing);
        if (layers) layers[l] = layer;
    }
    if (!model) return NULL;
    memcpy(head, p->source->head, (size_t)c->dim * c->labels * sizeof *head);
    memcpy(head_bias, p->source->head_bias, c->labels * sizeof *head_bias);
    model->config = *c;
    model->layers = layers;
    model->embed = embed;
    model->positions = positions;
    model->head = head;
    model->head_bias = head_bias;
    model->end = (const int16_t *)(p->arena.base + p->arena.used);
    model->embed_shift = p->source->embed_shift;
    return model;
}

size_t dk_fixed_model_size(const dk_config *config) {
    if (dk_fixed_check_config(config)) return 0;
    packer p = {dk_arena_at(NULL), NULL};
    pack_model(&p, config);
    return dk_arena_size(&p.arena);
}

/* Kernels of an instruction set. A WebAssembly module has either vectors or none: DK_HAVE_WASM
 * chooses when it is built. */
static const dk_fixed_kernels *kernels_for(dk_isa isa) {
    switch (isa) {
#ifdef DK_HAVE_X86
    case DK_AVX2:
        return &dk_fixed_avx2;
    case DK_AVX512:
        return &dk_fixed_avx512;
#endif
#ifdef DK_HAVE_NEON
    case DK_NEON:
        return &dk_fixed_neon;
#endif
    default:
#ifdef DK_HAVE_WASM
        return &dk_fixed_wasm;
#else
        return &dk_fixed_scalar;
#endif
    }
}

/* The peak from which a tensor counts as saturated: core/fixed_weights.py, PEAK_LIMITS. */
static int32_t peak_limit(uint32_t peak) {
    switch (peak) {
    case DK_PEAK_QKV:
    case DK_PEAK_SCORES:
    case DK_PEAK_HEADS:
    case DK_PEAK_PROJ:
    case DK_PEAK_HIDDEN:
    case DK_PEAK_MLP_OUT:
        return DK_MOST * 7 / 8;
    default:
        return DK_MOST;
    }
}

uint32_t dk_fixed_saturated(const dk_config *config, const int32_t *peaks) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < (config->layers + 1) * DK_PEAKS; i++)
        count += peaks[i] >= peak_limit(i % DK_PEAKS);
    return count;
}

dk_status dk_fixed_init(void *memory, size_t size, const dk_config *config,
                        const dk_fixed_source *source, dk_isa isa, const dk_fixed_model **out) {
    if (!source || !out) return DK_BAD_ARGUMENT;
    if (dk_fixed_check_config(config)) return DK_BAD_CONFIG;
    if (!memory || size < dk_fixed_model_size(config)) return DK_BAD_MEMORY;
    if (!dk_isa_available(isa)) return DK_BAD_ISA;
    dk_status status = check_source(config, source);
    if (status) return status;
    packer p = {dk_arena_at(memory), source};
    dk_fixed_model *model = pack_model(&p, config);
    model->kernels = kernels_for(isa);
    *out = model;
    return DK_OK;
}
