/* Products of the fixed-point kernels: rows times weights, and kept deltas times weights. */

/* MR rows of NV vectors: out = bias + x W. */
INLINE vi multiply_tile(const uint32_t MR, const uint32_t NV, const int16_t *x, size_t ldx,
                        uint32_t k, const int16_t *w, size_t ldw, const int16_t *bias, int16_t *out,
                        size_t ldo, vi peak) {
    vi sum[2][TILE];
    UNROLL for (uint32_t v = 0; v < NV; v++) {
        sum[0][v] = bias ? v_load(bias + v * LANES) : v_zero();
        if (MR > 1) sum[1][v] = sum[0][v];
    }
    for (uint32_t i = 0; i < k; i++, w += ldw) {
        vi a = v_set(x[i]), b = MR > 1 ? v_set(x[ldx + i]) : v_zero();
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            vi weights = v_load(w + v * LANES);
            sum[0][v] = v_sum(sum[0][v], v_q15(a, weights));
            if (MR > 1) sum[1][v] = v_sum(sum[1][v], v_q15(b, weights));
        }
    }
    UNROLL for (uint32_t r = 0; r < MR; r++) {
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            v_store(out + r * ldo + v * LANES, sum[r][v]);
            peak = v_max_size(peak, sum[r][v]);
        }
    }
    return peak;
}

INLINE vi multiply_columns(const uint32_t NV, const int16_t *x, size_t ldx, uint32_t rows,
                           uint32_t k, const int16_t *w, size_t ldw, const int16_t *bias,
                           int16_t *out, size_t ldo, vi peak) {
    uint32_t t = 0;
    for (; t + 2 <= rows; t += 2)
        peak = multiply_tile(2, NV, x + t * ldx, ldx, k, w, ldw, bias, out + t * ldo, ldo, peak);
    if (t < rows)
        peak = multiply_tile(1, NV, x + t * ldx, ldx, k, w, ldw, bias, out + t * ldo, ldo, peak);
    return peak;
}

static void KERNEL(multiply)(const int16_t *x, size_t ldx, uint32_t rows, uint32_t k,
                             const int16_t *w, size_t ldw, uint32_t n, const int16_t *bias,
                             int16_t *out, size_t ldo, uint32_t *peak) {
    vi most = v_zero();
    for (uint32_t j = 0; j < n; j += TILE * LANES) {
        const int16_t *start = bias ? bias + j : NULL;
        uint32_t left = (n - j) / DK_VECTOR;
#define COLUMNS(count)                                                                             \
    most =                                                                                         \
        multiply_columns((count) * PER_16, x, ldx, rows, k, w + j, ldw, start, out + j, ldo, most)
        if (left >= 4)
            COLUMNS(4);
        else if (left == 3)
            COLUMNS(3);
        else if (left == 2)
            COLUMNS(2);
        else
            COLUMNS(1);
#undef COLUMNS
    }
    note(peak, most);
}

/* Entry b lists the set bits of b from the low end, a byte each. */
static const uint64_t SET_BITS[256] = {
#include "set_bits.inc.h"
};

enum { LIST_WORDS = 4 }; /* words of a mask whose features a byte can number */

/* The positions of the set bits of some words. A row of few kept features in many words is
 * multiplied faster from a list: a loop over the bits of each word ends with a wrong guess of the
 * branch. */
static uint32_t list_bits(const uint64_t *mask, uint32_t words, uint8_t *list) {
    uint8_t *end = list;
    for (uint32_t w = 0; w < words; w++) {
        for (uint32_t byte = 0; mask[w] && byte < 64; byte += 8) {
            uint32_t bits = mask[w] >> byte & 0xff;
            uint64_t positions = SET_BITS[bits] + (64 * w + byte) * 0x0101010101010101u;
            for (uint32_t k = 0; k < 8; k++) end[k] = (uint8_t)(positions >> 8 * k);
            end += dk_bit_count(bits);
        }
    }
    return (uint32_t)(end - list);
}

/* sum += the delta of feature i times its row of weights. */
INLINE void add_feature(const uint32_t NV, vi *sum, const int16_t *delta, const int16_t *w,
                        size_t ldw, size_t i) {
    vi x = v_set(delta[i]);
    const int16_t *row = w + i * ldw;
    UNROLL for (uint32_t v = 0; v < NV; v++) sum[v] =
        v_sum(sum[v], v_q15(x, v_load(row + v * LANES)));
}

/* The running result stays in registers while the changed rows pass. */
INLINE void accumulate_block(const uint32_t NV, const int is_wide, const dk_changes *c,
                             const int16_t *w, size_t ldw, const int16_t *start, int16_t *out,
                             size_t ldo, uint32_t *peak) {
    vi sum[MOST_VECTORS], most = v_zero();
    uint8_t list[64 * LIST_WORDS + 8];
    UNROLL for (uint32_t v = 0; v < NV; v++) sum[v] = v_load(start + v * LANES);
    for (uint32_t t = c->first; t < c->rows; t++) {
        if (!c->changed[t]) continue;
        const int16_t *delta = c->delta + (size_t)t * c->stride;
        const uint64_t *mask = c->mask + (size_t)t * c->words;
        if (is_wide) {
            for (uint32_t at = 0; at < c->words; at += LIST_WORDS) {
                uint32_t words = c->words - at < LIST_WORDS ? c->words - at : LIST_WORDS;
                const uint32_t count = list_bits(mask + at, words, list);
                const int16_t *part = delta + 64 * at, *rows = w + 64 * at * ldw;
                if (count % 2) add_feature(NV, sum, part, rows, ldw, list[0]);
                for (uint32_t k = count % 2; k < count; k += 2) {
                    add_feature(NV, sum, part, rows, ldw, list[k]);
                    add_feature(NV, sum, part, rows, ldw, list[k + 1]);
                }
            }
        } else {
            for (uint64_t bits = *mask; bits; bits &= bits - 1)
                add_feature(NV, sum, delta, w, ldw, dk_lowest_bit(bits));
        }
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            v_store(out + t * ldo + v * LANES, sum[v]);
            most = v_max_size(most, sum[v]);
        }
    }
    note(peak, most);
}

static void KERNEL(accumulate)(const dk_changes *c, const int16_t *w, size_t ldw, uint32_t n,
                               const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    switch (n / DK_VECTOR) {
#define CASE(count)                                                                                \
    case count:                                                                                    \
        if (c->words > 1)                                                                          \
            accumulate_block((count) * PER_16, 1, c, w, ldw, start, out, ldo, peak);               \
        else                                                                                       \
            accumulate_block((count) * PER_16, 0, c, w, ldw, start, out, ldo, peak);               \
        break;
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
#undef CASE
    default:
        break;
    }
}
