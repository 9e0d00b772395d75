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
    const int16_t *at = x;
    for (i = n / 4; i; i--) {
        int16x2_t a, b;
        dk_take_four(&at, &a, &b);
        (void)__ssub16(a, two); /* sets the flags */
        two = (int16x2_t)__sel((uint8x4_t)a, (uint8x4_t)two);
        (void)__ssub16(b, two);
        two = (int16x2_t)__sel((uint8x4_t)b, (uint8x4_t)two);
    }
    top = (int16_t)two > two >> 16 ? (int16_t)two : two >> 16;
    i = n / 4 * 4;
#endif
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* The sum of n powers, each as often as its column has tokens. */
static inline uint32_t dk_sum_powers(const int16_t *powers, const int16_t *times, uint32_t n) {
    int32_t total = 0;
    uint32_t i = n;
#ifdef DK_DSP
    for (i = n / 4; i; i--) {
        int16x2_t a, b, c, d;
        dk_take_four(&powers, &a, &b);
        dk_take_four(&times, &c, &d);
        total = __smlad(b, d, __smlad(a, c, total));
    }
    i = n % 4;
#endif
    for (; i; i--) total += *powers++ * *times++;
    return (uint32_t)total;
}

/* How exp(-z) is computed in a layer: dk_fixed_power, with a table for its polynomial. */
typedef struct {
    int32_t most; /* of z; beyond it the power is 0 */
    uint32_t bits, down, mask;
} dk_power_scale;

/* `bits` is the number of fraction bits of the scores: at most DK_SCORE_BITS, for which the table
 * is made. */
static inline dk_power_scale dk_power_scale_of(uint32_t bits) {
    dk_power_scale scale;
    const uint32_t up = DK_SCORE_BITS - bits;
    scale.most = bits < 12 ? 24 << (bits - 1) : (int32_t)DK_MOST;
    scale.bits = 14 + bits;
    scale.down = 15 - up;
    scale.mask = (1u << (DK_SCORE_BITS - 1)) - (1u << up);
    return scale;
}

/* z log2(e) is a whole number and a fraction; dk_powers has 2^-fraction, doubled. */
static inline int16_t dk_power(int32_t z, const dk_power_scale *scale) {
    const uint32_t y = (uint32_t)((z < scale->most ? z : scale->most) * 23637 + 0x4000);
    const uint32_t twice =
        (uint32_t)dk_powers[y >> scale->down & scale->mask] >> (y >> scale->bits);
    return (int16_t)((twice + 1) >> 1);
}

/* The powers of n scores, of which `top` is the highest. A function of its own has more
 * registers. */
DK_CALLED static void dk_set_powers(const int16_t *scores, int16_t *powers, uint32_t n, int32_t top,
                                    const dk_power_scale *scale) {
    const dk_power_scale own = *scale;
    for (const int16_t *end = scores + n; scores < end;)
        *powers++ = dk_power(top - *scores++, &own);
}

enum { DK_SOFTMAX_AT = offsetof(dk_head_state, softmax) - offsetof(dk_head_state, powers) };

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

#ifdef DK_DSP
/* The next column whose softmax has changed by more than theta: its reference is updated, the
 * change returned. 0 at the end of the columns. `power` ends behind the column; the references lie
 * DK_SOFTMAX_AT bytes behind the powers. */
static inline int32_t dk_next_change(const int16_t **power, const int16_t *end,
                                     const dk_softmax_scale *scale, uint32_t theta,
                                     uint32_t twice) {
    int32_t now, change, moved;
    __asm__ volatile(
        "1: cmp %[power], %[end]\n beq 2f\n"
        "ldrsh %[now], [%[power]], #2\n"
        "ldrsh %[change], [%[power], %[reference]]\n"
        "mla %[now], %[now], %[inverse], %[rounding]\n"
        "asr %[now], %[now], %[shift]\n"
        "sub %[change], %[now], %[change]\n"
        "add %[moved], %[change], %[theta]\n"
        "cmp %[moved], %[twice]\n bls 1b\n"
        "strh %[now], [%[power], %[reference]]\n b 3f\n"
        "2: movs %[change], #0\n"
        "3:\n"
        : [now] "=&r"(now), [change] "=&r"(change), [moved] "=&r"(moved), [power] "+r"(*power)
        : [end] "r"(end), [reference] "i"(DK_SOFTMAX_AT - 2), [inverse] "r"(scale->inverse),
          [rounding] "r"(scale->rounding), [shift] "r"(scale->shift), [theta] "r"(theta),
          [twice] "r"(twice)
        : "cc", "memory");
    return change;
}
#endif

/* Adds the changes of the softmax beyond theta, times V, to `out` (DK_HEAD_DIM): once for each
 * token of a column, because the product of each is rounded. Returns their number. */
static inline uint32_t dk_add_softmax(dk_work *work, uint32_t head, uint32_t theta, int16_t *out) {
    const dk_attention *all = &work->s.attention;
    dk_head_state *s = &work->s.attention.s.token.head[head];
    const dk_softmax_scale scale = dk_scale_of(s->total);
    const int16_t *values = all->values[0] + head * DK_HEAD_DIM;
    dk_term *const terms = work->row.terms, *term = terms;
    uint32_t count = 0;
#ifdef DK_DSP
    const int16_t *power = s->powers, *end = power + all->columns;
    for (int32_t change; change = dk_next_change(&power, end, &scale, theta, 2 * theta), change;) {
        const uint32_t c = (uint32_t)(power - s->powers) - 1;
#else
    for (uint32_t c = 0; c < all->columns; c++) {
        const int32_t now = (s->powers[c] * scale.inverse + scale.rounding) >> scale.shift;
        const int32_t change = now - s->softmax[c];
        if ((uint32_t)change + theta <= 2 * theta) continue;
        s->softmax[c] = (int16_t)now;
#endif
        for (int32_t i = all->times[c]; i > 0; i--) {
            term->value = change;
            term++->row = values + (size_t)c * DK_DIM;
            if (term < terms + DK_TERMS) continue;
            dk_add_shorts(terms, DK_TERMS, DK_HEAD_DIM, out);
            count += DK_TERMS;
            term = terms;
        }
    }
    dk_add_shorts(terms, (uint32_t)(term - terms), DK_HEAD_DIM, out);
    return count + (uint32_t)(term - terms);
}

#endif
