/* The fixed-point kernels of each instruction set against the plain C ones, bit by bit: random
 * models of odd shapes, random and extreme features, dense and with deltas. */
#include "check.h"
#include "deltakwt_fixed.h"

enum { MOST_LABELS = 8, LAYERS = 2, MOST_TOKENS = 131 };

/* `count` random values of magnitude up to `limit` in a block of exactly that size. */
static int16_t *shorts(size_t count, float limit) {
    int16_t *x = (int16_t *)malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (int16_t)(uniform() * limit);
    return x;
}

typedef struct {
    int32_t logits[MOST_LABELS], peaks[(LAYERS + 1) * DK_PEAKS];
    int64_t macs[LAYERS * DK_PRODUCTS], nonzeros[LAYERS * DK_SITES];
    uint32_t kept[LAYERS * DK_SITES * MOST_TOKENS];
} result;

/* Of all results of the first kernels: the same number on every processor. */
static uint64_t checksum = 14695981039346656037u;

static void add_to_checksum(const result *r) {
    for (size_t i = 0; i < MOST_LABELS; i++)
        checksum = (checksum ^ (uint32_t)r->logits[i]) * 1099511628211u;
    for (size_t i = 0; i < sizeof r->peaks / sizeof *r->peaks; i++)
        checksum = (checksum ^ (uint32_t)r->peaks[i]) * 1099511628211u;
    for (size_t i = 0; i < sizeof r->macs / sizeof *r->macs; i++)
        checksum = (checksum ^ (uint64_t)r->macs[i]) * 1099511628211u;
}

static dk_fixed_layer_source random_layer(const dk_config *c, float size) {
    uint32_t d = c->dim, m = c->mlp;
    dk_fixed_layer_source s;
    memset(&s, 0, sizeof s);
    s.q = shorts(d * d, size), s.k = shorts(d * d, size), s.v = shorts(d * d, size);
    s.proj = shorts(d * d, size), s.proj_bias = shorts(d, 3000);
    s.mlp_in = shorts(d * m, size), s.mlp_in_bias = shorts(m, 3000);
    s.mlp_out = shorts(m * d, size), s.mlp_out_bias = shorts(d, 3000);
    s.norm1 = shorts(d, 32767), s.norm1_bias = shorts(d, 2000);
    s.norm2 = shorts(d, 32767), s.norm2_bias = shorts(d, 2000);
    s.norm1_epsilon = 1000, s.norm2_epsilon = 1;
    s.norm1_shift = 14, s.norm2_shift = 15;
    s.key_shift = 1, s.score_bits = 10, s.hidden_bits = 12, s.sum1_shift = 0, s.sum2_shift = 1;
    return s;
}

static void free_layer(dk_fixed_layer_source *s) {
    const int16_t *all[] = {
        s->q,          s->k,           s->v,         s->proj,         s->proj_bias,
        s->mlp_in,     s->mlp_in_bias, s->mlp_out,   s->mlp_out_bias, s->norm1,
        s->norm1_bias, s->norm2,       s->norm2_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free((void *)all[i]);
}

static void run(const dk_config *c, const dk_fixed_source *source, dk_isa isa,
                const int16_t *features, const int32_t *thresholds, result *out) {
    size_t size = dk_fixed_model_size(c), scratch_size = dk_fixed_scratch_size(c);
    char *memory = (char *)malloc(size + 1), *scratch = (char *)malloc(scratch_size + 1);
    memset(scratch, 0x7f, scratch_size + 1); /* nothing may rely on zeroed memory */
    const dk_fixed_model *model;
    dk_status status = dk_fixed_init(memory + 1, size, c, source, isa, &model);
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    dk_fixed_watch watch = {out->macs, out->nonzeros, out->peaks, out->kept};
    memset(out, 0, sizeof *out);
    if (status == DK_OK)
        status = dk_fixed_run(model, features, thresholds, scratch + 1, scratch_size, out->logits,
                              &watch);
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    free(memory), free(scratch);
}

/* What the tokens kept adds up to the non-zeros of the layer. */
static void check_kept(const dk_config *c, const result *got) {
    const uint32_t tokens = c->frames + 1;
    for (uint32_t i = 0; i < LAYERS * DK_SITES; i++) {
        int64_t sum = 0;
        for (uint32_t t = 0; t < tokens; t++) sum += got->kept[i * tokens + t];
        CHECK(sum == got->nonzeros[i], "dim %u, site %u: %lld against %lld", c->dim, i % DK_SITES,
              (long long)sum, (long long)got->nonzeros[i]);
    }
}

static void compare(const dk_config *c, float size, float loudness) {
    int16_t *embed = shorts(c->features * c->dim, 65535.0f / (float)c->features);
    int16_t *positions = shorts((c->frames + 1) * c->dim, 4000);
    int16_t *head = shorts(c->dim * c->labels, 32767.0f / (float)c->dim);
    int16_t *features = shorts((size_t)c->frames * c->features, loudness);
    int32_t bias[MOST_LABELS] = {1000, -1000}, thresholds[LAYERS * DK_SITES];
    dk_fixed_layer_source layers[LAYERS] = {random_layer(c, size), random_layer(c, size)};
    dk_fixed_source source = {embed, positions, head, bias, layers, 12};
    for (int kind = 0; kind < 4; kind++) { /* dense; all kept; some kept; some sites dense */
        for (int i = 0; i < LAYERS * DK_SITES; i++)
            thresholds[i] = kind < 2 ? 0 : kind == 3 && i % 3 == 0 ? -1 : (int32_t)(200 + 10 * i);
        result expected, got;
        run(c, &source, DK_SCALAR, features, kind ? thresholds : NULL, &expected);
        add_to_checksum(&expected);
        check_kept(c, &expected);
        for (int isa = DK_SCALAR + 1; isa < DK_ISAS; isa++) {
            if (!dk_isa_available((dk_isa)isa)) continue;
            run(c, &source, (dk_isa)isa, features, kind ? thresholds : NULL, &got);
            CHECK(!memcmp(&expected, &got, sizeof got), "%s, dim %u, kind %d",
                  dk_isa_name((dk_isa)isa), c->dim, kind);
        }
    }
    layers[1].score_bits = 13;
    const dk_fixed_model *model;
    size_t bytes = dk_fixed_model_size(c);
    void *memory = malloc(bytes);
    CHECK(dk_fixed_init(memory, bytes, c, &source, DK_SCALAR, &model) == DK_BAD_ARGUMENT, "bits");
    CHECK(dk_fixed_init(memory, bytes - 1, c, &source, DK_SCALAR, &model) == DK_BAD_MEMORY, "size");
    free(memory), free(embed), free(positions), free(head), free(features);
    for (int l = 0; l < LAYERS; l++) free_layer(&layers[l]);
}

int main(void) {
    static const dk_config configs[] = {
        /* dim, heads, mlp, layers, labels, frames, features */
        {64, 1, 256, LAYERS, 5, 40, 40},
        {20, 2, 36, LAYERS, 3, 37, 5},
        {96, 3, 48, LAYERS, 2, 130, 7},
        {1, 1, 1, LAYERS, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        compare(&configs[i], 4000, 3000);   /* ordinary */
        compare(&configs[i], 32767, 32767); /* saturates or wraps nearly everywhere */
    }
    printf("fixed: %d failures, checksum %016llx\n", failures, (unsigned long long)checksum);
    return failures != 0;
}
