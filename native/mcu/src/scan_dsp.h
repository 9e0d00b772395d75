/* Which of the values of a row have moved too far, with the DSP instructions of Cortex-M4, M7 and
 * M33: four values at a time. The rows are aligned to four bytes. */
#ifndef DK_SCAN_DSP_H
#define DK_SCAN_DSP_H

#include "engine.h"

#include <arm_acle.h>
#include <string.h>

/* Reads or writes four values of a row, which is aligned to four bytes, and moves on. */
static inline void dk_take_four(const int16_t **at, int16x2_t *a, int16x2_t *b) {
    __asm__ volatile("ldrd %0, %1, [%2], #8" : "=&r"(*a), "=&r"(*b), "+r"(*at) : : "memory");
}

static inline void dk_put_four(int16_t **at, int16x2_t a, int16x2_t b) {
    __asm__ volatile("strd %1, %2, [%0], #8" : "+r"(*at) : "r"(a), "r"(b) : "memory");
}

/* An entry of the list from the lower or upper half of r4 or r5, with the index in r10, if the half
 * of the test r8 or r9 is not zero. */
#define DK_KEEP_LOWER(test, from)                                                                  \
    "lsls r11, " test ", #16\n beq 3f\n"                                                           \
    "pkhbt r11, " from ", r10\n str r11, [lr], #4\n 3:\n"
#define DK_KEEP_UPPER(test, from)                                                                  \
    "lsrs r11, " test ", #16\n beq 3f\n"                                                           \
    "pkhtb r11, r10, " from ", asr #16\n str r11, [lr], #4\n 3:\n"
#define DK_KEEP_FOUR                                                                               \
    DK_KEEP_LOWER("r8", "r4")                                                                      \
    "add r10, r10, #0x10000\n" DK_KEEP_UPPER("r8", "r4") "add r10, r10, #0x10000\n" DK_KEEP_LOWER( \
        "r9", "r5") "add r10, r10, #0x10000\n" DK_KEEP_UPPER("r9", "r5")

/* Lists the differences of x (end - x, a multiple of four) beyond theta and updates their
 * references. `once` has theta in both halves. Returns the end of the list.
 *
 * qsub16 gives two differences; with theta added, they are in 0 .. 2 theta as unsigned numbers if
 * they are not kept: uqsub16 leaves zero. If one of four is kept, usub16 and sel choose the new
 * references, and each difference is packed with its index. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static dk_entry *
dk_scan_fours(const int16_t *x, int16_t *reference, const int16_t *end, uint32_t once,
              dk_entry *list) {
    (void)x, (void)reference, (void)end, (void)once, (void)list; /* r0 to r3, stack */
    __asm__ volatile(
        "push {r4-r11, lr}\n ldr lr, [sp, #36]\n add r4, r0, #8\n push {r4}\n"
        "lsl r12, r3, #1\n cmp r0, r2\n beq 4f\n"
        "1: ldrd r4, r5, [r0], #8\n ldrd r6, r7, [r1], #8\n"
        "qsub16 r8, r4, r6\n qsub16 r9, r5, r7\n"
        "sadd16 r8, r8, r3\n sadd16 r9, r9, r3\n"
        "uqsub16 r8, r8, r12\n uqsub16 r9, r9, r12\n"
        "orrs r10, r8, r9\n bne 2f\n"
        "cmp r0, r2\n bne 1b\n b 4f\n"
        "2: movs r10, #0\n"
        "usub16 r11, r10, r8\n sel r11, r6, r4\n qsub16 r4, r4, r6\n"
        "usub16 r6, r10, r9\n sel r6, r7, r5\n qsub16 r5, r5, r7\n"
        "strd r11, r6, [r1, #-8]\n"
        "ldr r10, [sp]\n sub r10, r0, r10\n lsl r10, r10, #15\n"
        DK_KEEP_FOUR
        "cmp r0, r2\n bne 1b\n"
        "4: mov r0, lr\n add sp, #4\n pop {r4-r11, pc}\n");
}
/* clang-format on */

/* Lists the values that are not in low .. low + width, which are as long as x (end - x, a multiple
 * of four). Returns the end of the list. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static dk_entry *
dk_list_outside(const int16_t *x, const int16_t *low, const uint16_t *width, const int16_t *end,
                dk_entry *list) {
    (void)x, (void)low, (void)width, (void)end, (void)list; /* r0 to r3, stack */
    __asm__ volatile(
        "push {r4-r11, lr}\n ldr lr, [sp, #36]\n add r12, r0, #8\n"
        "1: ldrd r4, r5, [r0], #8\n ldrd r6, r7, [r1], #8\n ldrd r10, r11, [r2], #8\n"
        "ssub16 r8, r4, r6\n ssub16 r9, r5, r7\n"
        "uqsub16 r8, r8, r10\n uqsub16 r9, r9, r11\n"
        "orrs r10, r8, r9\n bne 2f\n"
        "cmp r0, r3\n bne 1b\n b 4f\n"
        "2: sub r10, r0, r12\n lsl r10, r10, #15\n"
        DK_KEEP_FOUR
        "cmp r0, r3\n bne 1b\n"
        "4: mov r0, lr\n pop {r4-r11, pc}\n");
}
/* clang-format on */

static inline uint32_t dk_scan(const int16_t *x, int16_t *reference, uint32_t n, int32_t theta,
                               dk_entry *list) {
    const uint32_t fours = n / 4 * 4;
    dk_entry *kept = dk_scan_fours(x, reference, x + fours, (uint32_t)theta * 0x10001u, list);
    for (uint32_t i = fours; i < n; i++) {
        int32_t change = dk_saturate(x[i] - reference[i]);
        if (change <= theta && -change <= theta) continue;
        reference[i] = x[i];
        kept->index = (uint16_t)i;
        kept++->value = (int16_t)change;
    }
    return (uint32_t)(kept - list);
}

#endif
