/* Products of the fixed-point kernels: rows times weights, and kept deltas times weights. */

/* A row of sums: whole vectors vp, and `last` where one vector vi is left over. */
typedef struct {
    vp wide[MOST_VECTORS / PER_WIDE];
    vi last;
} sums;

enum { WIDE = PER_WIDE * LANES };

/* NV vectors vi of a row; NULL is a row of zeros. */
INLINE void load_sums(const uint32_t NV, sums *s, const int16_t *from) {
    UNROLL for (uint32_t v = 0; v < NV / PER_WIDE; v++) s->wide[v] =
        from ? p_load(from + v * WIDE) : p_zero();
    if (NV % PER_WIDE) s->last = from ? v_load(from + (NV - 1) * LANES) : v_zero();
}

/* `on_top`: they are added to what `to` holds. */
INLINE vi store_sums(const uint32_t NV, const sums *s, int on_top, int16_t *to, vi peak) {
    UNROLL for (uint32_t v = 0; v < NV / PER_WIDE; v++) {
        vp all = on_top ? p_sum(p_load(to + v * WIDE), s->wide[v]) : s->wide[v];
        p_store(to + v * WIDE, all);
        peak = p_max_size(peak, all);
    }
    if (NV % PER_WIDE) {
        vi all = on_top ? v_sum(v_load(to + (NV - 1) * LANES), s->last) : s->last;
        v_store(to + (NV - 1) * LANES, all);
        peak = v_max_size(peak, all);
    }
    return peak;
}

/* MR rows of NV vectors: out = bias + x W. */
INLINE vi multiply_tile(const uint32_t MR, const uint32_t NV, const int16_t *x, size_t ldx,
                        uint32_t k, const int16_t *w, size_t ldw, const int16_t *bias, int16_t *out,
                        size_t ldo, vi peak) {
    sums s[2];
    UNROLL for (uint32_t r = 0; r < MR; r++) load_sums(NV, &s[r], bias);
    for (uint32_t i = 0; i < k; i++, w += ldw) {
        vp a = p_set(x[i]), b = MR > 1 ? p_set(x[ldx + i]) : p_zero();
        UNROLL for (uint32_t v = 0; v < NV / PER_WIDE; v++) {
            vp weights = p_load(w + v * WIDE);
            s[0].wide[v] = p_sum(s[0].wide[v], p_q15(a, weights));
            if (MR > 1) s[1].wide[v] = p_sum(s[1].wide[v], p_q15(b, weights));
        }
        if (NV % PER_WIDE) {
            vi weights = v_load(w + (NV - 1) * LANES);
            s[0].last = v_sum(s[0].last, v_q15(p_first(a), weights));
            if (MR > 1) s[1].last = v_sum(s[1].last, v_q15(p_first(b), weights));
        }
    }
    UNROLL for (uint32_t r = 0; r < MR; r++) peak = store_sums(NV, &s[r], 0, out + r * ldo, peak);
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
        if (left > TILE_16) left = TILE_16;
#define COLUMNS(count)                                                                             \
    most =                                                                                         \
        multiply_columns((count) * PER_16, x, ldx, rows, k, w + j, ldw, start, out + j, ldo, most)
        if (TILE_16 >= 4 && left == 4)
            COLUMNS(4);
        else if (TILE_16 >= 3 && left == 3)
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
 * multiplied faster from a list: a loop over the bits of each word ends with a mispredicted
 * branch. */
static uint32_t list_bits(const uint64_t *mask, uint32_t words, uint8_t *list) {
    uint8_t *end = list;
    for (uint32_t w = 0; w < words; w++) {
        uint64_t rest = mask[w], from = w * 0x4040404040404040u;
        if (!rest) continue;
        UNROLL for (uint32_t byte = 0; byte < 8; byte++, rest >>= 8) {
            const uint64_t positions = SET_BITS[rest & 0xff] + from + byte * 0x0808080808080808u;
            memcpy(end, &positions, sizeof positions);
            end += dk_bit_count(rest & 0xff);
        }
    }
    return (uint32_t)(end - list);
}

/* s += the delta of feature i times its row of weights. */
INLINE void add_feature(const uint32_t NV, sums *s, const int16_t *delta, const int16_t *w,
                        size_t ldw, size_t i) {
    vp x = p_set(delta[i]);
    const int16_t *row = w + i * ldw;
    UNROLL for (uint32_t v = 0; v < NV / PER_WIDE; v++) s->wide[v] =
        p_sum(s->wide[v], p_q15(x, p_load(row + v * WIDE)));
    if (NV % PER_WIDE) s->last = v_sum(s->last, v_q15(p_first(x), v_load(row + (NV - 1) * LANES)));
}

/* The running result stays in registers while the changed rows pass. The processor is as busy with
 * the instructions around the products as with the products, so every one of them counts: hence
 * IN_REGISTER, and lowest_bit instead of the compiler's own function. */
INLINE void accumulate_block(const uint32_t NV, const int is_wide, const dk_changes *c,
                             const int16_t *w, size_t ldw, const int16_t *start, int16_t *out,
                             size_t ldo, uint32_t *peak) {
    sums sum;
    vi most = v_zero();
    uint8_t list[64 * LIST_WORDS + 8];
    load_sums(NV, &sum, start);
    for (uint32_t t = c->first; t < c->rows; t++) {
        if (!c->changed[t]) continue;
        const int16_t *delta = c->delta + (size_t)t * c->stride;
        const uint64_t *mask = c->mask + (size_t)t * c->words;
        if (is_wide) {
            for (uint32_t at = 0; at < c->words; at += LIST_WORDS) {
                uint32_t words = c->words - at < LIST_WORDS ? c->words - at : LIST_WORDS;
                if (at) dk_fetch_some(c->fetch); /* hardly worth it for fewer products */
                const uint32_t count = list_bits(mask + at, words, list);
                const int16_t *part = delta + 64 * at, *rows = w + 64 * at * ldw;
                IN_REGISTER(part);
                if (count % 2) add_feature(NV, &sum, part, rows, ldw, list[0]);
                for (uint32_t k = count % 2; k < count; k += 2) {
                    add_feature(NV, &sum, part, rows, ldw, list[k]);
                    add_feature(NV, &sum, part, rows, ldw, list[k + 1]);
                }
            }
        } else {
            IN_REGISTER(delta);
            for (uint64_t bits = *mask; bits; bits &= bits - 1)
                add_feature(NV, &sum, delta, w, ldw, lowest_bit(bits));
        }
        most = store_sums(NV, &sum, 0, out + t * ldo, most);
    }
    note(peak, most);
}

/* The share of one word of the masks; `start` is NULL for all words but the first. */
INLINE void accumulate_word(const uint32_t NV, uint32_t word, const dk_changes *c, const int16_t *w,
                            size_t ldw, const int16_t *start, int16_t *out, size_t ldo,
                            uint32_t *peak) {
    sums sum;
    vi most = v_zero();
    load_sums(NV, &sum, start);
    w += 64 * word * ldw;
    for (uint32_t t = c->first; t < c->rows; t++) {
        if (!c->changed[t]) continue;
        dk_fetch_some(c->fetch);
        const int16_t *delta = c->delta + (size_t)t * c->stride + 64 * word;
        IN_REGISTER(delta);
        for (uint64_t bits = c->mask[(size_t)t * c->words + word]; bits; bits &= bits - 1)
            add_feature(NV, &sum, delta, w, ldw, lowest_bit(bits));
        most = store_sums(NV, &sum, !start, out + t * ldo, most);
    }
    if (word + 1 == c->words) note(peak, most);
}

/* A wide panel of many rows is larger than the first-level cache. Sums are modulo 2^16, so the
 * shares of the words may be added one after the other, and the 64 rows of weights of a word stay
 * in that cache while all tokens pass. */
INLINE void accumulate_words(const uint32_t NV, const dk_changes *c, const int16_t *w, size_t ldw,
                             const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    accumulate_word(NV, 0, c, w, ldw, start, out, ldo, peak);
    for (uint32_t word = 1; word < c->words; word++)
        accumulate_word(NV, word, c, w, ldw, NULL, out, ldo, peak);
}

static void accumulate_columns(const dk_changes *c, const int16_t *w, size_t ldw, uint32_t n,
                               const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    switch (n / DK_VECTOR) {
#define CASE(count)                                                                                \
    case count:                                                                                    \
        if (count > BLOCK_16) break;                                                               \
        if (count == BLOCK_16 && c->words > 1 && c->words <= LIST_WORDS)                           \
            accumulate_words((count) * PER_16, c, w, ldw, start, out, ldo, peak);                  \
        else if (c->words > 1)                                                                     \
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
#if DK_PANEL > 128
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
#endif
#undef CASE
    default:
        break;
    }
}

static void KERNEL(accumulate)(const dk_changes *c, const int16_t *w, size_t ldw, uint32_t n,
                               const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak) {
    const uint32_t most = BLOCK_16 * DK_VECTOR;
    for (uint32_t j = 0; j < n; j += most)
        accumulate_columns(c, w + j, ldw, n - j < most ? n - j : most, start + j, out + j, ldo,
                           peak);
}
