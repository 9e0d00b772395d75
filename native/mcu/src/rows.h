/* Rows of 16-bit integers: which differences are kept, and sums of products. */
#ifndef DK_ROWS_H
#define DK_ROWS_H

#include "engine.h"

#include <string.h>

#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && __ARM_ARCH >= 7
#define DK_DSP
#include "products_dsp.h"
#endif

/* A constant in a register, so that it is part of the multiplication: one instruction, not two. */
#ifdef __GNUC__
#define DK_KEEP_IN_REGISTER(x) __asm__("" : "+r"(x))
#else
#define DK_KEEP_IN_REGISTER(x) (void)x
#endif

#define DK_REPEAT_8(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)

/* sum (n) += the products of the terms, rounded, modulo 2^16; n is a multiple of eight. Eight sums
 * stay in registers over all terms. */
#define DK_DEFINE_ADD_TERMS(name, type)                                                            \
    static inline void name(const dk_term *terms, uint32_t count, uint32_t n, int16_t *sum) {      \
        for (uint32_t c = 0; c < n; c += 8) {                                                      \
            int16_t *out = sum + c;                                                                \
            int32_t half = 0x4000;                                                                 \
            DK_KEEP_IN_REGISTER(half);                                                             \
            DK_REPEAT_8(DK_LOAD_SUM)                                                               \
            for (const dk_term *t = terms, *end = terms + count; t < end; t++) {                   \
                const type *row = (const type *)t->row + c;                                        \
                int32_t value = t->value;                                                          \
                DK_REPEAT_8(DK_ADD_PRODUCT)                                                        \
            }                                                                                      \
            DK_REPEAT_8(DK_STORE_SUM)                                                              \
        }                                                                                          \
    }
#define DK_LOAD_SUM(i) int32_t sum##i = out[i];
#define DK_ADD_PRODUCT(i) sum##i += (value * row[i] + half) >> 15; /* dk_q15 */
#define DK_STORE_SUM(i) out[i] = dk_wrap(sum##i);

DK_DEFINE_ADD_TERMS(dk_plain_shorts, int16_t)

/* sum (n) += the products of the terms, which are lost. Without DSP instructions, or with values
 * that are too large for them, in plain C. */
static inline void dk_add_shorts(dk_term *terms, uint32_t count, uint32_t n, int16_t *sum) {
#ifdef DK_DSP
    if (!count) return;
    if (dk_prepare_shorts(terms, count)) {
        for (uint32_t c = 0; c < n; c += 8) dk_add_8_shorts(terms, sum + c);
        return;
    }
#endif
    dk_plain_shorts(terms, count, n, sum);
}

/* The same for bytes. The values of the terms are shifted by DK_BYTES_SHIFT more than the row. */
#if defined(DK_DSP) && DK_DIM % 16 == 0 && DK_MLP % 16 == 0
enum { DK_BYTES_SHIFT = 1 };
static inline void dk_add_bytes(dk_term *terms, uint32_t count, uint32_t n, int16_t *sum) {
    terms[count].value = 0;
    for (uint32_t c = 0; count && c < n; c += 16) dk_add_16_bytes(terms, sum + c);
}
#else
enum { DK_BYTES_SHIFT = 0 };
DK_DEFINE_ADD_TERMS(dk_add_bytes, int8_t)
#endif

/* Two values at once: whether one of them is more than theta away from its reference, and whether
 * one of them is not in low .. low + width. `once` and `twice` have theta and 2 theta in both
 * halves. Without DSP instructions the answer is always yes, and each is looked at. */
#ifdef DK_DSP
static inline uint32_t dk_two(const void *at) {
    uint32_t two;
    memcpy(&two, at, sizeof two);
    return two;
}

static inline int dk_two_beyond(const int16_t *x, const int16_t *reference, uint32_t once,
                                uint32_t twice) {
    int16x2_t change = __qsub16((int16x2_t)dk_two(x), (int16x2_t)dk_two(reference));
    (void)__usub16(twice, (uint16x2_t)__sadd16(change, (int16x2_t)once)); /* sets the flags */
    return __sel(0, 0x00010001) != 0;
}

static inline int dk_two_outside(const int16_t *x, const int16_t *low, const uint16_t *width) {
    int16x2_t moved = __ssub16((int16x2_t)dk_two(x), (int16x2_t)dk_two(low));
    (void)__usub16(dk_two(width), (uint16x2_t)moved);
    return __sel(0, 0x00010001) != 0;
}
#else
#define dk_two_beyond(x, reference, once, twice) ((void)(once), (void)(twice), 1)
#define dk_two_outside(x, low, width) 1
#endif

/* Lists the differences beyond theta >= 0 and updates their references. */
static inline uint32_t dk_scan(const int16_t *x, int16_t *reference, uint32_t n, int32_t theta,
                               dk_entry *list) {
    dk_entry *kept = list;
    const uint32_t once = (uint32_t)theta * 0x10001u, twice = 2 * once;
    for (uint32_t i = 0; i < n; i += 2) {
        if (!dk_two_beyond(x + i, reference + i, once, twice)) continue;
        for (uint32_t j = i; j < i + 2 && j < n; j++) {
            int32_t change = dk_saturate(x[j] - reference[j]);
            if (change <= theta && -change <= theta) continue;
            reference[j] = x[j];
            kept->index = (uint16_t)j;
            kept++->value = (int16_t)change;
        }
    }
    return (uint32_t)(kept - list);
}

/* The same for an exact row: lists its values. */
static inline uint32_t dk_list_all(const int16_t *x, int16_t *reference, uint32_t n,
                                   dk_entry *list) {
    dk_entry *kept = list;
    memcpy(reference, x, n * sizeof *x);
    for (uint32_t i = 0; i < n; i++) {
        if (!x[i]) continue; /* it adds nothing */
        kept->index = (uint16_t)i;
        kept++->value = x[i];
    }
    return (uint32_t)(kept - list);
}

#endif
