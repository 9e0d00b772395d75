/* Rows of 16-bit integers: which differences are kept, and sums of products. */
#ifndef DK_ROWS_H
#define DK_ROWS_H

#include "engine.h"

#include <string.h>

/* A constant in a register, so that it is part of the multiplication: one instruction, not two. */
#ifdef __GNUC__
#define DK_KEEP_IN_REGISTER(x) __asm__("" : "+r"(x))
#else
#define DK_KEEP_IN_REGISTER(x) (void)x
#endif

#ifdef __GNUC__
#define DK_CALLED __attribute__((noinline))
#else
#define DK_CALLED
#endif

#ifdef DK_DSP
#include "products_dsp.h"
#include "scan_dsp.h"
#endif

#define DK_REPEAT_8(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)

/* sum (n) += the products of the terms; n is a multiple of eight. Eight sums stay in registers over
 * all terms. */
#define DK_DEFINE_ADD_TERMS(name, type, result, PRODUCT)                                           \
    static inline void name(const dk_term *terms, uint32_t count, uint32_t n, result *sum) {       \
        for (uint32_t c = 0; c < n; c += 8) {                                                      \
            result *out = sum + c;                                                                 \
            int32_t half = 0x4000;                                                                 \
            DK_KEEP_IN_REGISTER(half);                                                             \
            DK_REPEAT_8(DK_LOAD_SUM)                                                               \
            for (const dk_term *t = terms, *end = terms + count; t < end; t++) {                   \
                const type *row = (const type *)t->row + c;                                        \
                int32_t value = t->value;                                                          \
                DK_REPEAT_8(PRODUCT)                                                               \
            }                                                                                      \
            DK_REPEAT_8(DK_STORE_SUM)                                                              \
        }                                                                                          \
    }
#define DK_LOAD_SUM(i) uint32_t sum##i = (uint32_t)out[i];
#define DK_ADD_ROUNDED(i) sum##i += (uint32_t)((value * row[i] + half) >> 15); /* dk_q15 */

/* Rounded, modulo 2^16. */
#define DK_STORE_SUM(i) out[i] = dk_wrap((int32_t)sum##i);
DK_DEFINE_ADD_TERMS(dk_plain_shorts, int16_t, int16_t, DK_ADD_ROUNDED)

/* sum (n) += the products of the terms, which are lost. Without DSP instructions, or with values
 * that are too large for them, in plain C. */
static inline void dk_add_shorts(dk_term *terms, uint32_t count, uint32_t n, int16_t *sum) {
#ifdef DK_DSP
    if (!count) return;
    if (dk_prepare_shorts(terms, count)) {
        const int16_t *end = sum + n, *whole = sum + n / 32 * 32;
        if (sum < whole) dk_add_32s_of_shorts(terms, sum, (0 - count) & 3, whole);
        for (sum += n / 32 * 32; sum < end; sum += 8) dk_add_8_shorts(terms, sum, count);
        return;
    }
#endif
    dk_plain_shorts(terms, count, n, sum);
}

/* The same for weights of one byte. `offset` is the result of dk_set_byte_terms. */
#ifndef DK_DSP_BYTES
DK_DEFINE_ADD_TERMS(dk_plain_bytes, int8_t, int16_t, DK_ADD_ROUNDED)

static inline int32_t dk_set_byte_terms(const dk_entry *list, uint32_t count, dk_term *terms,
                                        const int8_t *data, const uint8_t *shifts, uint32_t n) {
    for (const dk_entry *end = list + count; list < end; list++, terms++) {
        const uint32_t index = list->index;
        terms->value = list->value * (1 << shifts[index]);
        terms->row = data + (size_t)index * n;
    }
    return 0;
}

static inline void dk_add_bytes(dk_term *terms, uint32_t count, int32_t offset, uint32_t n,
                                int16_t *sum) {
    (void)offset;
    dk_plain_bytes(terms, count, n, sum);
}
#endif

#ifdef DK_DSP
#define DK_NO_SUM(i) int32_t sum##i = 0;
#else
#define DK_NO_SUM(i) uint32_t sum##i = 0;
#endif
#define DK_ADD_TWO(i) sum##i += (uint32_t)(a * w[2 * i]) + (uint32_t)(b * w[2 * i + 1]);
#define DK_PUT_SUM(i) sum[i] = (int32_t)sum##i;

/* sum (8) = a row of features times eight columns of W, exactly, in 32 bits modulo 2^32. W has the
 * weights of two features side by side. */
static inline void dk_embed_8(const int16_t *row, const int16_t *w, int32_t *sum) {
    DK_REPEAT_8(DK_NO_SUM)
    for (const int16_t *end = row + DK_FEATURES; row < end; row += 2, w += 2 * DK_DIM) {
#ifdef DK_DSP
        int16x2_t two, a, b, c, d;
        const int16_t *at = w;
        memcpy(&two, row, sizeof two);
        dk_take_four(&at, &a, &b);
        dk_take_four(&at, &c, &d);
        sum0 = __smlad(two, a, sum0), sum1 = __smlad(two, b, sum1);
        sum2 = __smlad(two, c, sum2), sum3 = __smlad(two, d, sum3);
        dk_take_four(&at, &a, &b);
        dk_take_four(&at, &c, &d);
        sum4 = __smlad(two, a, sum4), sum5 = __smlad(two, b, sum5);
        sum6 = __smlad(two, c, sum6), sum7 = __smlad(two, d, sum7);
#else
        const int32_t a = row[0], b = row[1];
        DK_REPEAT_8(DK_ADD_TWO)
#endif
    }
    DK_REPEAT_8(DK_PUT_SUM)
}

#ifndef DK_DSP
/* Lists the differences beyond theta >= 0 and updates their references. */
static inline uint32_t dk_scan(const int16_t *x, int16_t *reference, uint32_t n, int32_t theta,
                               dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < n; i++) {
        int32_t change = dk_saturate(x[i] - reference[i]);
        if (change <= theta && -change <= theta) continue;
        reference[i] = x[i];
        kept->index = (uint16_t)i;
        kept++->value = (int16_t)change;
    }
    return (uint32_t)(kept - list);
}
#endif

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
