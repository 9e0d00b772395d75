/* The softmax of one head: two columns at a time where there are DSP instructions. The arrays by
 * column are aligned to four bytes. */
#ifndef DK_SOFTMAX_H
#define DK_SOFTMAX_H

#include "rows.h"

/* The highest of n > 0 values. */
static inline int32_t dk_highest_of(const int16_t *x, uint32_t n) {
    int32_t top = x[0];
    uint32_t i = 1;
#ifdef DK_DSP
    int16x2_t two = (int16x2_t)((uint32_t)top * 0x10001u);
    for (i = 0; i + 2 <= n; i += 2) {
        int16x2_t next;
        memcpy(&next, x + i, sizeof next);
        (void)__ssub16(next, two); /* sets the flags */
        two = (int16x2_t)__sel((uint8x4_t)next, (uint8x4_t)two);
    }
    top = (int16_t)two > two >> 16 ? (int16_t)two : two >> 16;
#endif
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* The sum of n powers, each as often as its column has tokens. */
static inline uint32_t dk_sum_powers(const int16_t *powers, const uint16_t *times, uint32_t n) {
    uint32_t total = 0, i = 0;
#ifdef DK_DSP
    for (; i + 2 <= n; i += 2) {
        int16x2_t a, b;
        memcpy(&a, powers + i, sizeof a);
        memcpy(&b, times + i, sizeof b);
        total = (uint32_t)__smlad(a, b, (int32_t)total);
    }
#endif
    for (; i < n; i++) total += times[i] * (uint32_t)powers[i];
    return total;
}

/* What the softmax of a token is computed with: (power inverse + rounding) >> shift. */
typedef struct {
    int32_t inverse, rounding;
    uint32_t shift;
} dk_softmax_scale;

/* q15(power, inverse), then rounded and shifted by k: one shift of the sum of both roundings. */
static inline dk_softmax_scale dk_scale_of(uint32_t total) {
    dk_softmax_scale scale;
    uint32_t k;
    scale.inverse = dk_inverse(total, &k);
    scale.rounding = (1 << 14) + (k ? 1 << (14 + k) : 0);
    scale.shift = 15 + k;
    return scale;
}

/* Adds a change of the softmax of column c beyond theta to the terms, once for each token of the
 * column: the product of each is rounded. */
static inline dk_term *dk_list_column(dk_work *work, dk_head_state *s, uint32_t c,
                                      const dk_softmax_scale *scale, uint32_t theta,
                                      const int16_t *values, dk_term *term) {
    int32_t now = (s->powers[c] * scale->inverse + scale->rounding) >> scale->shift;
    int32_t change = now - s->softmax[c];
    if ((uint32_t)change + theta <= 2 * theta) return term;
    s->softmax[c] = (int16_t)now;
    for (uint32_t i = work->times[c]; i; i--, term++) {
        term->value = change;
        term->row = values + (size_t)c * DK_DIM;
    }
    return term;
}

/* Lists the changes of the softmax beyond theta. Returns their number. */
static inline uint32_t dk_list_softmax(dk_work *work, dk_head_state *s, uint32_t theta,
                                       const int16_t *values) {
    const dk_softmax_scale scale = dk_scale_of(s->total);
    const uint32_t columns = work->columns;
    dk_term *term = work->row.terms;
    for (uint32_t c = 0; c < columns; c++)
        term = dk_list_column(work, s, c, &scale, theta, values, term);
    return (uint32_t)(term - work->row.terms);
}

#endif
