/* Sums of products with the DSP instructions of Cortex-M4, M7 and M33: the bits of rows.h.
 *
 * Each function adds the products of all terms to the sums that it keeps in registers, so all
 * registers are in use and the functions are written in assembly. A term with value 0 ends the
 * terms. The pointers of the terms move on to the next columns. */
#ifndef DK_PRODUCTS_DSP_H
#define DK_PRODUCTS_DSP_H

#include "engine.h"

#include <arm_acle.h>

/* Two columns of bytes. With `value` doubled, the rounded product is the upper half of the sum of
 * product and 2^15. Sixteen sums lie in eight registers; sadd16 adds both halves modulo 2^16. */
#define DK_TWO_BYTES(first, second, sums)                                                          \
    "ldrsb r1, " first "\n ldrsb r12, [r3, #" second "]\n"                                         \
    "mla r1, r1, r2, lr\n mla r12, r12, r2, lr\n"                                                  \
    "pkhtb r1, r12, r1, asr #16\n sadd16 " sums ", " sums ", r1\n"

__attribute__((naked, noinline, unused)) static void dk_add_16_bytes(dk_term *terms, int16_t *sum) {
    (void)terms, (void)sum; /* r0, r1 */
    __asm__ volatile(
        "push {r1, r4-r11, lr}\n ldm r1, {r4-r11}\n movw lr, #0x8000\n"
        "ldrd r2, r3, [r0], #8\n"
        "1:\n" DK_TWO_BYTES("[r3], #16", "-15", "r4") /* now r3 is 16 ahead */
        DK_TWO_BYTES("[r3, #-14]", "-13", "r5") DK_TWO_BYTES("[r3, #-12]", "-11", "r6")
            DK_TWO_BYTES("[r3, #-10]", "-9", "r7") DK_TWO_BYTES("[r3, #-8]", "-7", "r8")
                DK_TWO_BYTES("[r3, #-6]", "-5", "r9") DK_TWO_BYTES("[r3, #-4]", "-3", "r10")
                    DK_TWO_BYTES(
                        "[r3, #-2]", "-1",
                        "r11") "str r3, [r0, #-4]\n ldrd r2, r3, [r0], #8\n cmp r2, #0\n bne 1b\n"
                               "pop {r1}\n stm r1, {r4-r11}\n pop {r4-r11, pc}\n");
}

/* One column of 16-bit integers. With `value` shifted by 17, smmlar adds the rounded product. */
#define DK_ONE_SHORT(from, sum) "ldrsh r1, " from "\n smmlar " sum ", r2, r1, " sum "\n"

__attribute__((naked, noinline, unused)) static void dk_add_8_shorts(dk_term *terms, int16_t *sum) {
    (void)terms, (void)sum; /* r0, r1 */
    __asm__ volatile(
        "push {r4-r11, lr}\n mov r12, r1\n"
        "ldrsh r4, [r12]\n ldrsh r5, [r12, #2]\n ldrsh r6, [r12, #4]\n ldrsh r7, [r12, #6]\n"
        "ldrsh r8, [r12, #8]\n ldrsh r9, [r12, #10]\n ldrsh r10, [r12, #12]\n"
        "ldrsh r11, [r12, #14]\n ldrd r2, r3, [r0], #8\n"
        "1:\n" DK_ONE_SHORT("[r3], #16", "r4") DK_ONE_SHORT("[r3, #-14]", "r5")
            DK_ONE_SHORT("[r3, #-12]", "r6") DK_ONE_SHORT("[r3, #-10]", "r7")
                DK_ONE_SHORT("[r3, #-8]", "r8") DK_ONE_SHORT("[r3, #-6]", "r9")
                    DK_ONE_SHORT("[r3, #-4]", "r10") DK_ONE_SHORT(
                        "[r3, #-2]",
                        "r11") "str r3, [r0, #-4]\n ldrd r2, r3, [r0], #8\n cmp r2, #0\n bne 1b\n"
                               "strh r4, [r12]\n strh r5, [r12, #2]\n strh r6, [r12, #4]\n strh "
                               "r7, [r12, #6]\n"
                               "strh r8, [r12, #8]\n strh r9, [r12, #10]\n strh r10, [r12, #12]\n"
                               "strh r11, [r12, #14]\n pop {r4-r11, pc}\n");
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
