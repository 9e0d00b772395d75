/* Products of a sparse row with a matrix, and the unpacking of weights. */
#ifndef DK_PRODUCTS_H
#define DK_PRODUCTS_H

#include "arithmetic.h"

/* A block of a weight matrix as floats. */
typedef struct {
    const float *at;
    uint32_t stride;
} dk_floats;

/* Returns rows first_row.. and columns first_col.. of w. Floats are used in place; other types are
 * unpacked into `room` once per layer, because many tokens use each weight. */
static inline dk_floats dk_unpack(const dk_matrix *w, uint32_t first_row, uint32_t rows,
                                  uint32_t first_col, uint32_t cols, float *room) {
    size_t start = (size_t)first_row * w->stride + first_col;
    dk_floats block;
#ifdef DK_WEIGHTS_F32
    (void)rows, (void)cols, (void)room;
    block.at = (const float *)w->data + start;
    block.stride = w->stride;
#else
    const dk_weight *from = (const dk_weight *)w->data + start;
    float *to = room;
    for (uint32_t r = 0; r < rows; r++, from += w->stride) {
        float scale = w->scales ? w->scales[first_row + r] : 1.0f;
        for (const dk_weight *v = from, *end = from + cols; v < end; v += 4, to += 4) {
#define DK_UNPACK(k) to[k] = dk_from_weight(v[k]) * scale;
            DK_REPEAT_4(DK_UNPACK)
        }
    }
    block.at = room;
    block.stride = cols;
#endif
    return block;
}

#define DK_REPEAT_16(M)                                                                            \
    DK_REPEAT_4(M)                                                                                 \
    M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)

/* out (n) += sum of list[i].value * row list[i].index of w; n is a multiple of four. Sixteen
 * results stay in registers over the whole list. */
#define DK_DEFINE_ADD_ROWS(name, type, load)                                                       \
    static void name(const dk_entry *list, uint32_t count, const type *w, size_t stride,           \
                     float *out, uint32_t n) {                                                     \
        uint32_t c = 0;                                                                            \
        for (; c + 16 <= n; c += 16) {                                                             \
            DK_ROWS_BODY(DK_REPEAT_16, type, load)                                                 \
        }                                                                                          \
        for (; c < n; c += 4) {                                                                    \
            DK_ROWS_BODY(DK_REPEAT_4, type, load)                                                  \
        }                                                                                          \
    }
#define DK_ROWS_BODY(REPEAT, type, load)                                                           \
    float *o = out + c;                                                                            \
    REPEAT(DK_ROWS_START)                                                                          \
    for (const dk_entry *e = list, *end = list + count; e < end; e++) {                            \
        const type *row = w + e->index * stride + c;                                               \
        float value = e->value;                                                                    \
        REPEAT(DK_ROWS_MAC_##load)                                                                 \
    }                                                                                              \
    REPEAT(DK_ROWS_STORE)
#define DK_ROWS_START(i) float a##i = o[i];
#define DK_ROWS_MAC_dk_from_f32(i) a##i = dk_mac(value, row[i], a##i);
#define DK_ROWS_MAC_dk_from_kv(i) a##i = dk_mac(value, dk_from_kv(row[i]), a##i);
#define DK_ROWS_MAC_dk_from_weight(i) a##i = dk_mac(value, dk_from_weight(row[i]), a##i);
#define DK_ROWS_STORE(i) o[i] = a##i;

/* ---- which deltas are kept ---- */

/* Keeps the deltas beyond theta and updates their references; all values of an exact row are kept,
 * as differences from zero. n is a multiple of four. */
static inline uint32_t dk_scan_row(const float *x, float *reference, uint32_t n, float theta,
                                   int exact, dk_entry *list) {
    dk_entry *kept = list;
    uint32_t limit = dk_magnitude(theta);
    if (exact) {
        for (uint32_t i = 0; i < n; i++) {
            reference[i] = x[i];
            list[i].index = i;
            list[i].value = x[i];
        }
        return n;
    }
    for (uint32_t i = 0; i < n; i += 4) {
        const float *v = x + i;
        float *known = reference + i;
#define DK_COMPARE(k)                                                                              \
    {                                                                                              \
        float delta = v[k] - known[k];                                                             \
        if (dk_magnitude(delta) > limit) {                                                         \
            known[k] = v[k];                                                                       \
            kept->index = i + k;                                                                   \
            kept++->value = delta;                                                                 \
        }                                                                                          \
    }
        DK_REPEAT_4(DK_COMPARE)
    }
    return (uint32_t)(kept - list);
}

/* The same for a running result that is stored as its reference and its distance from it, so that
 * finding kept deltas takes one load and one comparison. A fresh result has no reference: `moved`
 * is the whole value. */
static inline uint32_t dk_keep(float *moved, float *reference, uint32_t n, float theta, int fresh,
                               int exact, dk_entry *list) {
    dk_entry *kept = list;
    uint32_t limit = dk_magnitude(theta);
    if (exact) {
        for (uint32_t i = 0; i < n && !fresh; i++) moved[i] += reference[i];
        for (uint32_t i = 0; i < n; i++) {
            reference[i] = moved[i];
            list[i].index = i;
            list[i].value = moved[i];
            moved[i] = 0.0f;
        }
        return n;
    }
    for (uint32_t i = 0; i < n && fresh; i++) moved[i] -= reference[i];
    for (uint32_t i = 0; i < n; i += 4) {
        float *v = moved + i;
#define DK_KEEP(k)                                                                                 \
    if (dk_magnitude(v[k]) > limit) {                                                              \
        float delta = v[k];                                                                        \
        kept->index = i + k;                                                                       \
        kept++->value = delta;                                                                     \
        reference[i + k] += delta;                                                                 \
        v[k] = 0.0f;                                                                               \
    }
        DK_REPEAT_4(DK_KEEP)
    }
    return (uint32_t)(kept - list);
}

/* Runs dk_scan_row for the tokens of a layer and stores in `mask` which deltas were kept. */
static inline uint32_t dk_scan_token(const float *x, float *reference, float theta, int exact,
                                     dk_entry *list, uint32_t mask[DK_MASK_WORDS]) {
    uint32_t kept = dk_scan_row(x, reference, DK_DIM, theta, exact, list);
    if (exact) return kept;
    memset(mask, 0, DK_MASK_WORDS * sizeof *mask);
    for (uint32_t i = 0; i < kept; i++) mask[list[i].index / 32] |= 1u << list[i].index % 32;
    return kept;
}

/* Position of the lowest bit that is set; there is one. */
static inline uint32_t dk_lowest(uint32_t bits) {
#ifdef __GNUC__
    return (uint32_t)__builtin_ctz(bits);
#else
    uint32_t at = 0;
    while (!(bits >> at & 1u)) at++;
    return at;
#endif
}

/* The same from the mask: only the kept features are read. */
static inline uint32_t dk_recall_token(const float *x, float *reference, int exact, dk_entry *list,
                                       const uint32_t mask[DK_MASK_WORDS]) {
    if (exact) return dk_scan_row(x, reference, DK_DIM, 0.0f, exact, list);
    dk_entry *kept = list;
    for (uint32_t word = 0; word < DK_MASK_WORDS; word++) {
        for (uint32_t bits = mask[word]; bits; bits &= bits - 1) {
            uint32_t index = word * 32 + dk_lowest(bits);
            float now = x[index];
            kept->index = index;
            kept++->value = now - reference[index];
            reference[index] = now;
        }
    }
    return (uint32_t)(kept - list);
}

#endif
