/* The fixed-point kernels in plain C, as docs/fixed-point.md defines them. */
#include "../fixed/fixed.h"

#include <string.h>

#include "fixed_counts.inc.h"

static void note(uint32_t *peak, int32_t value) {
    uint32_t size = (uint32_t)(value < 0 ? -value : value);
    if (size > *peak) *peak = size;
}

/* sum (n) += x times a row of weights. */
static void add_row(int32_t x, const int16_t *w, uint32_t n, int16_t *sum) {
    for (uint32_t j = 0; j < n; j++) sum[j] = dk_wrap(sum[j] + dk_q15(x, w[j]));
}

static void store_row(const int16_t *sum, uint32_t n, int16_t *out, uint32_t *peak) {
    memcpy(out, sum, n * sizeof *out);
    for (uint32_t j = 0; j < n; j++) note(peak, sum[j]);
}

static void scalar_multiply(const int16_t *x, size_t ldx, uint32_t rows, uint32_t k,
                            const int16_t *w, size_t ldw, uint32_t n, const int16_t *bias,
                            int16_t *out, size_t ldo, uint32_t *peak) {
    int16_t sum[DK_PANEL];
    for (uint32_t t = 0; t < rows; t++) {
        memset(sum, 0, sizeof sum);
        if (bias) memcpy(sum, bias, n * sizeof *sum);
        for (uint32_t i = 0; i < k; i++) add_row(x[t * ldx + i], w + i * ldw, n, sum);
        store_row(sum, n, out + t * ldo, peak);
    }
}

static void scalar_accumulate(const dk_changes *c, const int16_t *w, size_t ldw, uint32_t n,
                              const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    int16_t sum[DK_PANEL];
    memcpy(sum, start, n * sizeof *sum);
    for (uint32_t t = c->first; t < c->rows; t++) {
        if (!c->changed[t]) continue;
        const int16_t *delta = c->delta + (size_t)t * c->stride;
        for (uint32_t word = 0; word < c->words; word++)
            for (uint64_t bits = c->mask[(size_t)t * c->words + word]; bits; bits &= bits - 1) {
                uint32_t i = 64 * word + dk_lowest_bit(bits);
                add_row(delta[i], w + i * ldw, n, sum);
            }
        store_row(sum, n, out + t * ldo, peak);
    }
}

static void scalar_scan(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh,
                        int32_t theta, int16_t *reference, dk_changes *c, uint32_t *peak) {
    for (uint32_t t = c->first; t < c->rows; t++) {
        int is_fresh = !fresh || fresh[t]; /* `fresh` may be c->changed itself */
        c->changed[t] = 0;
        if (!is_fresh) continue;
        int16_t *delta = c->delta + (size_t)t * c->stride;
        uint64_t *mask = c->mask + (size_t)t * c->words;
        memset(mask, 0, c->words * sizeof *mask);
        for (uint32_t i = 0; i < n; i++) {
            int32_t change = dk_saturate(x[t * ldx + i] - reference[i]);
            int keep = change > theta || -change > theta;
            delta[i] = (int16_t)change;
            note(peak, change);
            if (!keep) continue;
            reference[i] = x[t * ldx + i];
            mask[i / 64] |= (uint64_t)1 << i % 64;
            c->changed[t] = 1;
        }
    }
}

static int scalar_hold(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta,
                       uint64_t *mask) {
    int any = 0;
    memset(mask, 0, (n + 63) / 64 * sizeof *mask);
    for (uint32_t i = 0; i < n; i++) {
        int32_t change = dk_saturate(x[i] - previous[i]);
        int keep = change > theta || -change > theta;
        if (!keep) x[i] = previous[i];
        mask[i / 64] |= (uint64_t)keep << i % 64;
        any |= keep;
    }
    return any;
}

static void softmax_row(int16_t *x, uint32_t n, uint32_t bits) {
    int32_t top = DK_LEAST;
    uint32_t total = 0, k;
    for (uint32_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = (int16_t)dk_fixed_power(top - x[i], bits);
        total += (uint32_t)x[i];
    }
    int32_t inverse = dk_inverse(total, &k);
    for (uint32_t i = 0; i < n; i++) x[i] = (int16_t)dk_rounded_shift(dk_q15(x[i], inverse), k);
    for (uint32_t i = n; i < dk_padded(n); i++) x[i] = 0;
}

static void scalar_softmax(int16_t *x, size_t ldx, uint32_t rows, const uint8_t *changed,
                           uint32_t n, uint32_t bits) {
    for (uint32_t t = 0; t < rows; t++)
        if (changed[t]) softmax_row(x + t * ldx, n, bits);
}

static void scalar_gelu(int16_t *x, uint32_t n, uint32_t bits) {
    for (uint32_t i = 0; i < n; i++) x[i] = (int16_t)dk_fixed_gelu(x[i], bits);
}

static void scalar_add_norm(int16_t *x, size_t ldx, uint32_t shift, const int16_t *r, size_t ldr,
                            const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                            uint32_t *sum_peak, uint32_t *peak, dk_fixed_fetch *fetch) {
    (void)fetch;
    for (uint32_t t = 0; t < rows; t++) {
        int16_t *row = x + t * ldx;
        for (uint32_t i = 0; i < norm->n; i++) {
            int32_t sum = dk_saturate(dk_rounded_shift(row[i], shift) + r[where[t] * ldr + i]);
            row[i] = (int16_t)sum;
            note(sum_peak, sum);
        }
        dk_fixed_norm_row(row, norm);
        for (uint32_t i = 0; i < norm->n; i++) note(peak, row[i]);
    }
}

static void scalar_transpose(const int16_t *a, size_t lda, uint32_t rows, uint32_t cols,
                             uint32_t shift, const uint8_t *changed, uint32_t known, int16_t *out,
                             size_t ldo) {
    for (uint32_t t = 0; t < rows; t++)
        for (uint32_t j = 0; j < cols; j++) {
            int32_t value = dk_rounded_shift(a[t * lda + j], shift);
            int is_old = t && t < known && !changed[t];
            out[j * ldo + t] = is_old             ? out[j * ldo + t - 1]
                               : value < -DK_MOST ? (int16_t)-DK_MOST
                                                  : (int16_t)value;
        }
}

static int32_t embedded(const int16_t *x, uint32_t pairs, const int16_t *w, uint32_t n) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < 2 * pairs; i++) sum += x[i] * w[i / 2 * 2 * (size_t)n + i % 2];
    return sum;
}

static void scalar_embed(const int16_t *x, uint32_t rows, const uint8_t *changed, uint32_t pairs,
                         const int16_t *w, uint32_t shift, const int16_t *add, uint32_t n,
                         int16_t *out, uint32_t *peak) {
    for (uint32_t j = 0; j < n; j++) {
        int32_t sum = 0;
        for (uint32_t t = 0; t < rows; t++) {
            if (changed[t]) sum = embedded(x + t * 2 * (size_t)pairs, pairs, w + 2 * j, n);
            size_t at = t * (size_t)n + j;
            int32_t y = dk_saturate(dk_saturate(dk_rounded_shift(sum, shift)) + add[at]);
            out[at] = (int16_t)y;
            note(peak, y);
        }
    }
}

const dk_fixed_kernels dk_fixed_scalar = {
    scalar_multiply, scalar_accumulate, scalar_scan,      scalar_hold,  scalar_softmax,
    scalar_gelu,     scalar_add_norm,   scalar_transpose, scalar_embed, count_kept};
