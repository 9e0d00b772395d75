/* Time stamps of the parts of the fixed-point engine: every kernel is called through a table of
 * functions that count. Run by `python benchmarks/fixed_point.py parts`, which writes the file.
 *   fixed_parts FILE ROUNDS
 * Prints, for each setting, ticks a clip and part, the fewest of all rounds.
 */
#include <string.h>
#include <x86intrin.h>

#include "../native/src/fixed/fixed.h"
#include "fixed_file.h"

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
                     uint32_t *sum_peak, uint32_t *peak, dk_fixed_fetch *fetch) {
    TIMED(NORM, real->add_norm(x, ldx, shift, r, ldr, where, rows, norm, sum_peak, peak, fetch));
}
static void transpose(const int16_t *a, size_t lda, uint32_t rows, uint32_t cols, uint32_t shift,
                      const uint8_t *changed, uint32_t known, int16_t *out, size_t ldo) {
    TIMED(TRANSPOSE, real->transpose(a, lda, rows, cols, shift, changed, known, out, ldo));
}
static void embed(const int16_t *x, uint32_t rows, const uint8_t *changed, uint32_t pairs,
                  const int16_t *w, uint32_t shift, const int16_t *add, uint32_t n, int16_t *out,
                  uint32_t *peak) {
    TIMED(EMBED, real->embed(x, rows, changed, pairs, w, shift, add, n, out, peak));
}

static const dk_fixed_kernels counting = {multiply, accumulate, scan,      hold,  softmax,
                                          gelu,     add_norm,   transpose, embed, NULL};

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file) return 2;
    const fixed_file f = read_file(file);
    const dk_config c = f.config;
    const int32_t *thresholds = f.thresholds;
    size_t each = (size_t)c.frames * c.features, size = dk_fixed_model_size(&c);
    size_t scratch_size = dk_fixed_scratch_size(&c);
    void *memory = malloc(size), *scratch = malloc(scratch_size);
    int32_t *logits = (int32_t *)malloc(c.labels * sizeof *logits);
    const dk_fixed_model *ready;
    if (dk_fixed_init(memory, size, &c, &f.source, dk_isa_best(), &ready)) return 2;
    dk_fixed_model timed = *ready;
    real = ready->kernels;
    timed.kernels = &counting;
    for (uint32_t s = 0; s < f.settings; s++, thresholds += c.layers * DK_SITES) {
        uint64_t sum[PARTS] = {0};
        for (uint32_t i = 0; i < f.count; i++) {
            uint64_t fewest[PARTS];
            for (int p = 0; p < PARTS; p++) fewest[p] = UINT64_MAX;
            for (int r = 0; r < 2 * atoi(argv[2]); r++) { /* the total is taken without counting */
                memset(ticks, 0, sizeof ticks);
                TIMED(TOTAL, dk_fixed_run(r % 2 ? &timed : ready, f.clips + i * each, thresholds,
                                          scratch, scratch_size, logits, NULL));
                for (int p = 0; p < PARTS; p++)
                    if ((p != TOTAL) == r % 2 && ticks[p] < fewest[p]) fewest[p] = ticks[p];
            }
            for (int p = 0; p < PARTS; p++) sum[p] += fewest[p];
        }
        for (int p = 0; p < PARTS; p++) printf("%.0f ", (double)sum[p] / f.count);
        printf("\n");
    }
    return 0;
}
