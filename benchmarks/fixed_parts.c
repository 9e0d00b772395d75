/* Time stamps of the parts of the fixed-point engine: every kernel is called through a table of
 * functions that count. Run by `python benchmarks/fixed_point.py parts`, which writes the file.
 *   fixed_parts FILE ROUNDS
 * The file: 9 sizes (dim .. features, clips, settings), tensors, head bias, numbers, thresholds of
 * each setting, clips. Prints, for each setting, ticks a clip and part, the fewest of all rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "../native/src/fixed/fixed.h"

enum { MULTIPLY, ACCUMULATE, SCAN, HOLD, SOFTMAX, GELU, NORM, TRANSPOSE, EMBED, TOTAL, PARTS };

static const dk_fixed_kernels *real;
static uint64_t ticks[PARTS];

#define TIMED(part, call)                                                                          \
    do {                                                                                           \
        uint64_t began = __rdtsc();                                                                \
        call;                                                                                      \
        ticks[part] += __rdtsc() - began;                                                          \
    } while (0)

static void multiply(const int16_t *x, size_t ldx, uint32_t rows, uint32_t k, const int16_t *w,
                     size_t ldw, uint32_t n, const int16_t *bias, int16_t *out, size_t ldo,
                     uint32_t *peak) {
    TIMED(MULTIPLY, real->multiply(x, ldx, rows, k, w, ldw, n, bias, out, ldo, peak));
}
static void accumulate(const dk_changes *c, const int16_t *w, size_t ldw, uint32_t n,
                       const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    TIMED(ACCUMULATE, real->accumulate(c, w, ldw, n, start, out, ldo, peak));
}
static void scan(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh, int32_t theta,
                 int16_t *reference, dk_changes *c, uint32_t *peak) {
    TIMED(SCAN, real->scan(x, ldx, n, fresh, theta, reference, c, peak));
}
static int hold(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta, uint64_t *mask) {
    int any;
    TIMED(HOLD, any = real->hold(x, previous, n, theta, mask));
    return any;
}
static void softmax(int16_t *x, size_t ldx, uint32_t rows, const uint8_t *changed, uint32_t n,
                    uint32_t bits) {
    TIMED(SOFTMAX, real->softmax(x, ldx, rows, changed, n, bits));
}
static void gelu(int16_t *x, uint32_t n, uint32_t bits) { TIMED(GELU, real->gelu(x, n, bits)); }
static void add_norm(int16_t *x, size_t ldx, uint32_t shift, const int16_t *r, size_t ldr,
                     const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                     uint32_t *sum_peak, uint32_t *peak) {
    TIMED(NORM, real->add_norm(x, ldx, shift, r, ldr, where, rows, norm, sum_peak, peak));
}
static void transpose(const int16_t *a, size_t lda, uint32_t rows, uint32_t cols, uint32_t shift,
                      int16_t *out, size_t ldo) {
    TIMED(TRANSPOSE, real->transpose(a, lda, rows, cols, shift, out, ldo));
}
static void embed(const int16_t *x, uint32_t pairs, const int16_t *w, uint32_t shift,
                  const int16_t *add, uint32_t n, int16_t *out, uint32_t *peak) {
    TIMED(EMBED, real->embed(x, pairs, w, shift, add, n, out, peak));
}

static const dk_fixed_kernels counting = {multiply, accumulate, scan,      hold, softmax,
                                          gelu,     add_norm,   transpose, embed};

static FILE *file;

static void *take(size_t count, size_t size) {
    void *p = malloc(count * size + 1);
    if (!p || fread(p, size, count, file) != count) exit(2);
    return p;
}

static const int16_t *shorts(size_t count) { return (const int16_t *)take(count, 2); }

static dk_fixed_layer_source layer(size_t d, size_t m) {
    dk_fixed_layer_source s = {0};
    s.q = shorts(d * d), s.k = shorts(d * d), s.v = shorts(d * d);
    s.proj = shorts(d * d), s.proj_bias = shorts(d);
    s.mlp_in = shorts(d * m), s.mlp_in_bias = shorts(m);
    s.mlp_out = shorts(m * d), s.mlp_out_bias = shorts(d);
    s.norm1 = shorts(d), s.norm1_bias = shorts(d), s.norm2 = shorts(d), s.norm2_bias = shorts(d);
    return s;
}

static void set_numbers(dk_fixed_layer_source *s, const uint32_t *n) {
    s->norm1_epsilon = n[0], s->norm2_epsilon = n[1], s->norm1_shift = n[2], s->norm2_shift = n[3];
    s->key_shift = n[4], s->score_bits = n[5], s->hidden_bits = n[6];
    s->sum1_shift = n[7], s->sum2_shift = n[8];
}

int main(int argc, char **argv) {
    if (argc != 3 || !(file = fopen(argv[1], "rb"))) return 2;
    const uint32_t *n = (const uint32_t *)take(9, 4);
    const dk_config c = {n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
    dk_fixed_source source = {0};
    source.embed = shorts((size_t)c.features * c.dim);
    source.positions = shorts((size_t)(c.frames + 1) * c.dim);
    source.head = shorts((size_t)c.dim * c.labels);
    dk_fixed_layer_source *layers = (dk_fixed_layer_source *)malloc(c.layers * sizeof *layers);
    for (uint32_t l = 0; l < c.layers; l++) layers[l] = layer(c.dim, c.mlp);
    source.head_bias = (const int32_t *)take(c.labels, 4);
    const uint32_t *numbers = (const uint32_t *)take(1 + 9 * c.layers, 4);
    source.embed_shift = numbers[0];
    for (uint32_t l = 0; l < c.layers; l++) set_numbers(&layers[l], numbers + 1 + 9 * l);
    source.layers = layers;
    const int32_t *thresholds = (const int32_t *)take((size_t)n[8] * c.layers * DK_SITES, 4);
    size_t each = (size_t)c.frames * c.features, size = dk_fixed_model_size(&c);
    const int16_t *clips = shorts(n[7] * each);
    size_t scratch_size = dk_fixed_scratch_size(&c);
    void *memory = malloc(size), *scratch = malloc(scratch_size);
    int32_t *logits = (int32_t *)malloc(c.labels * sizeof *logits);
    const dk_fixed_model *ready;
    if (dk_fixed_init(memory, size, &c, &source, dk_isa_best(), &ready)) return 2;
    dk_fixed_model timed = *ready;
    real = ready->kernels;
    timed.kernels = &counting;
    for (uint32_t s = 0; s < n[8]; s++, thresholds += c.layers * DK_SITES) {
        uint64_t sum[PARTS] = {0};
        for (uint32_t i = 0; i < n[7]; i++) {
            uint64_t fewest[PARTS];
            for (int p = 0; p < PARTS; p++) fewest[p] = UINT64_MAX;
            for (int r = 0; r < 2 * atoi(argv[2]); r++) { /* the total is taken without counting */
                memset(ticks, 0, sizeof ticks);
                TIMED(TOTAL, dk_fixed_run(r % 2 ? &timed : ready, clips + i * each, thresholds,
                                          scratch, scratch_size, logits, NULL));
                for (int p = 0; p < PARTS; p++)
                    if ((p != TOTAL) == r % 2 && ticks[p] < fewest[p]) fewest[p] = ticks[p];
            }
            for (int p = 0; p < PARTS; p++) sum[p] += fewest[p];
        }
        for (int p = 0; p < PARTS; p++) printf("%.0f ", (double)sum[p] / n[7]);
        printf("\n");
    }
    return 0;
}
