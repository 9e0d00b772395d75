/* Sums of products with the DSP instructions of Cortex-M4, M7 and M33: the bits of rows.h.
 *
 * Each function adds the products of all terms to the sums that it keeps in registers, so all
 * registers are in use and the functions are written in assembly. A term with value 0 ends the
 * terms. The pointers of the terms move on to the next columns. */
#ifndef DK_PRODUCTS_DSP_H
#define DK_PRODUCTS_DSP_H

#include "engine.h"

#include <arm_acle.h>

#ifdef DK_DSP_BYTES
#define DK_TERM_SIZE "12"
#define DK_ROW_BACK "-8"

/* Four columns of bytes. smlaw adds value times a 16-bit half, shifted down by 16, to a sum. To
 * round, sxtab16 adds to each byte what makes the product greater by a half, and by a number that
 * is the same for all columns (dk_set_byte_term). */
#define DK_FOUR_BYTES(word, a, b, c, d)                                                            \
    "sxtab16 r2, r3, " word "\n smlawb " a ", r1, r2, " a "\n smlawt " c ", r1, r2, " c "\n"       \
    "sxtab16 r2, r3, " word ", ror #8\n smlawb " b ", r1, r2, " b "\n smlawt " d ", r1, r2, " d    \
    "\n"

/* A term times eight bytes, which moves its pointer on. */
#define DK_EIGHT_BYTES                                                                             \
    "ldrd r12, lr, [r2], #8\n str r2, [r0, #" DK_ROW_BACK                                          \
    "]\n" DK_FOUR_BYTES("r12", "r4", "r5", "r6", "r7")                                             \
        DK_FOUR_BYTES("lr", "r8", "r9", "r10", "r11")

/* Adds `count` > 0 terms to eight sums, two terms in each turn. `offset` is subtracted from both
 * halves of a word. The upper halves of the sums in registers hold anything. */
__attribute__((naked, noinline, unused)) static void
dk_add_8_bytes(dk_term *terms, int16_t *sum, uint32_t offset, uint32_t count) {
    (void)terms, (void)sum, (void)offset, (void)count; /* r0, r1, r2, r3 */
    __asm__ volatile(
        "push {r1, r4-r11, lr}\n ldm r1, {r4, r6, r8, r10}\n"
        "ssub16 r4, r4, r2\n ssub16 r6, r6, r2\n ssub16 r8, r8, r2\n ssub16 r10, r10, r2\n"
        "lsr r5, r4, #16\n lsr r7, r6, #16\n lsr r9, r8, #16\n lsr r11, r10, #16\n"
        "lsls r3, r3, #31\n ldm r0!, {r1, r2, r3}\n bne 2f\n"
        "1:\n" DK_EIGHT_BYTES "ldm r0!, {r1, r2, r3}\n"
        "2:\n" DK_EIGHT_BYTES "ldm r0!, {r1, r2, r3}\n cmp r1, #0\n bne 1b\n"
        "pkhbt r4, r4, r5, lsl #16\n pkhbt r6, r6, r7, lsl #16\n"
        "pkhbt r8, r8, r9, lsl #16\n pkhbt r10, r10, r11, lsl #16\n"
        "pop {r1}\n stm r1, {r4, r6, r8, r10}\n pop {r4-r11, pc}\n");
}

/* Sets value and rounding of a term and adds to the offset. With value 2^shift = odd 2^e and a byte
 * b, the sum of b and 2^(14 - e), times odd 2^e / 2^15, is the product, a half, and (odd - 1) / 2:
 * the offset. For a greater e the product is an integer, and nothing is added to the bytes. */
static inline int32_t dk_set_byte_term(dk_term *term, int32_t value, uint32_t shift,
                                       int32_t offset) {
    const int32_t shifted = value * (2 << shift);
    uint32_t rounding = 0x8000;
    DK_KEEP_IN_REGISTER(rounding);
    rounding >>= (uint32_t)__builtin_ctz((uint32_t)shifted);
    term->value = shifted;
    term->rounding = rounding | rounding << 16;
    return __smlawb(shifted, (int32_t)rounding, offset);
}

static inline void dk_add_bytes(dk_term *terms, uint32_t count, int32_t offset, uint32_t n,
                                int16_t *sum) {
    const uint32_t both = ((uint32_t)offset & 0xffff) * 0x10001u;
    terms[count].value = 0;
    for (uint32_t c = 0; count && c < n; c += 8) dk_add_8_bytes(terms, sum + c, both, count);
}
#else
#define DK_TERM_SIZE "8"
#define DK_ROW_BACK "-4"
#endif

/* One column of 16-bit integers. With `value` shifted by 17, smmlar adds the rounded product. */
#define DK_ONE_SHORT(from, sum) "ldrsh r1, " from "\n smmlar " sum ", r2, r1, " sum "\n"

#define DK_EIGHT_SHORTS                                                                            \
    DK_ONE_SHORT("[r3], #16", "r4")                                                                \
    DK_ONE_SHORT("[r3, #-14]", "r5")                                                               \
    DK_ONE_SHORT("[r3, #-12]", "r6")                                                               \
    DK_ONE_SHORT("[r3, #-10]", "r7")                                                               \
    DK_ONE_SHORT("[r3, #-8]", "r8")                                                                \
    DK_ONE_SHORT("[r3, #-6]", "r9")                                                                \
    DK_ONE_SHORT("[r3, #-4]", "r10")                                                               \
    DK_ONE_SHORT("[r3, #-2]", "r11")                                                               \
    "str r3, [r0, #" DK_ROW_BACK "]\n ldrd r2, r3, [r0], #" DK_TERM_SIZE "\n"

/* As dk_add_8_bytes. */
__attribute__((naked, noinline, unused)) static void dk_add_8_shorts(dk_term *terms, int16_t *sum,
                                                                     uint32_t count) {
    (void)terms, (void)sum, (void)count; /* r0, r1, r2 */
    __asm__ volatile("push {r1, r4-r11, lr}\n ldm r1, {r4, r6, r8, r10}\n"
                     "lsr r5, r4, #16\n lsr r7, r6, #16\n lsr r9, r8, #16\n lsr r11, r10, #16\n"
                     "lsls r2, r2, #31\n ldrd r2, r3, [r0], #" DK_TERM_SIZE "\n bne 2f\n"
                     "1:\n" DK_EIGHT_SHORTS "2:\n" DK_EIGHT_SHORTS "cmp r2, #0\n bne 1b\n"
                     "pkhbt r4, r4, r5, lsl #16\n pkhbt r6, r6, r7, lsl #16\n"
                     "pkhbt r8, r8, r9, lsl #16\n pkhbt r10, r10, r11, lsl #16\n"
                     "pop {r1}\n stm r1, {r4, r6, r8, r10}\n pop {r4-r11, pc}\n");
}

/* Shifts the values for dk_add_8_shorts and ends the terms. Returns 0 if a value is too large. */
static inline int dk_prepare_shorts(dk_term *terms, uint32_t count) {
    int32_t any = 0;
    for (const dk_term *t = terms, *end = terms + count; t < end; t++)
        any |= t->value ^ t->value >> 31;
    if (any >> 14) return 0;
    for (dk_term *t = terms, *end = terms + count; t < end; t++) t->value *= 1 << 17;
    terms[count].value = 0;
    return 1;
}

#endif
