/* Sums of products with the DSP instructions of Cortex-M4, M7 and M33: the bits of rows.h.
 *
 * Each function adds the products of all terms to the sums that it keeps in registers, so all
 * registers are in use and the functions are written in assembly. A term with value 0 ends the
 * terms. The pointers of the terms move on to the next columns. */
#ifndef DK_PRODUCTS_DSP_H
#define DK_PRODUCTS_DSP_H

#include "engine.h"

#include <arm_acle.h>

/* The steps that all functions share: r0 the terms, r4 to r11 eight sums, of which the upper halves
 * hold anything. A function of 32 columns keeps terms, sums, offset and `skip` in its stack frame
 * and begins each eight columns from there. Its loop has four terms; `skip` is the length of those
 * that the first turn leaves out. */
#define DK_SPLIT_SUMS "lsr r5, r4, #16\n lsr r7, r6, #16\n lsr r9, r8, #16\n lsr r11, r10, #16\n"
#define DK_JOIN_SUMS                                                                               \
    "pkhbt r4, r4, r5, lsl #16\n pkhbt r6, r6, r7, lsl #16\n"                                      \
    "pkhbt r8, r8, r9, lsl #16\n pkhbt r10, r10, r11, lsl #16\n"
#define DK_SUBTRACT_OFFSET                                                                         \
    "ssub16 r4, r4, r2\n ssub16 r6, r6, r2\n ssub16 r8, r8, r2\n ssub16 r10, r10, r2\n"
#define DK_LOAD_SUMS(at) "ldrd r4, r6, [r1, #" at "]\n ldrd r8, r10, [r1, #" at " + 8]\n"
#define DK_STORE_SUMS(at)                                                                          \
    DK_JOIN_SUMS "ldr r1, [sp, #4]\n"                                                              \
                 "strd r4, r6, [r1, #" at "]\n strd r8, r10, [r1, #" at " + 8]\n"

#ifdef DK_DSP_BYTES
#define DK_TERM_SIZE "12"
#define DK_ROW_BACK "-8"

/* Four columns of bytes. smlaw adds value times a 16-bit half, shifted down by 16, to a sum. To
 * round, sxtab16 adds to each byte what makes the product greater by a half, and by a number that
 * is the same for all columns (dk_set_byte_terms). */
#define DK_FOUR_BYTES(word, a, b, c, d)                                                            \
    "sxtab16 r2, r3, " word "\n smlawb " a ", r1, r2, " a "\n smlawt " c ", r1, r2, " c "\n"       \
    "sxtab16 r2, r3, " word ", ror #8\n smlawb " b ", r1, r2, " b "\n smlawt " d ", r1, r2, " d    \
    "\n"

#define DK_EIGHT_BYTES                                                                             \
    DK_FOUR_BYTES("r12", "r4", "r5", "r6", "r7") DK_FOUR_BYTES("lr", "r8", "r9", "r10", "r11")
#define DK_NEXT_BYTE_TERM "ldm r0!, {r1, r2, r3}\n"

/* A term times the eight bytes at `from`; the next term. */
#define DK_BYTES_TERM(from) "ldrd r12, lr, [r2" from "\n" DK_EIGHT_BYTES DK_NEXT_BYTE_TERM

/* The same where the pointer of the term moves on. */
#define DK_MOVING_BYTES_TERM(from)                                                                 \
    "ldrd r12, lr, [r2" from "\n str r2, [r0, #" DK_ROW_BACK "]\n" DK_EIGHT_BYTES DK_NEXT_BYTE_TERM

/* Adds `count` > 0 terms to eight sums, two terms in each turn. `offset` is subtracted from both
 * halves of a word. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static void
dk_add_8_bytes(dk_term *terms, int16_t *sum, uint32_t offset, uint32_t count) {
    (void)terms, (void)sum, (void)offset, (void)count; /* r0, r1, r2, r3 */
    __asm__ volatile(
        "push {r1, r4-r11, lr}\n ldm r1, {r4, r6, r8, r10}\n"
        DK_SUBTRACT_OFFSET
        DK_SPLIT_SUMS
        "lsls r3, r3, #31\n"
        DK_NEXT_BYTE_TERM
        "bne 2f\n"
        "1:\n" DK_MOVING_BYTES_TERM("], #8")
        "2:\n" DK_MOVING_BYTES_TERM("], #8")
        "cmp r1, #0\n bne 1b\n"
        DK_JOIN_SUMS
        "pop {r1}\n stm r1, {r4, r6, r8, r10}\n pop {r4-r11, pc}\n");
}
/* clang-format on */

/* Eight columns of 32: those whose sums are at `at`. */
#define DK_BLOCK_OF_BYTES(at, TERM)                                                                \
    DK_LOAD_SUMS(at)                                                                               \
    DK_SUBTRACT_OFFSET DK_SPLIT_SUMS DK_NEXT_BYTE_TERM "add pc, r12\n nop\n"                       \
                                                       "1:\n" TERM TERM TERM TERM                  \
                                                       "cmp r1, #0\n bne 1b\n" DK_STORE_SUMS(at)

/* Adds terms to the sums up to `end`, a multiple of 32. The first turn of the loops leaves out
 * `skip` < 4 terms, of 54 bytes of code each; of 58 where the pointers move on, which is last. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static void
dk_add_32s_of_bytes(dk_term *terms, int16_t *sum, uint32_t offset, uint32_t skip,
                    const int16_t *end) {
    (void)terms, (void)sum, (void)offset, (void)skip, (void)end; /* r0 to r3, stack */
    __asm__ volatile(
        "lsl r12, r3, #2\n push {r4-r11, lr}\n movs r4, #54\n muls r3, r4\n"
        "add r12, r12, r3\n push {r0-r3, r12}\n mov r12, r3\n"
        "4:\n"
        DK_BLOCK_OF_BYTES("16", DK_BYTES_TERM(", #8]"))
        "ldm sp, {r0, r1, r2, r12}\n"
        DK_BLOCK_OF_BYTES("32", DK_BYTES_TERM(", #16]"))
        "ldm sp, {r0, r1, r2, r12}\n"
        DK_BLOCK_OF_BYTES("48", DK_BYTES_TERM(", #24]"))
        "ldm sp, {r0, r1, r2, r3, r12}\n"
        DK_BLOCK_OF_BYTES("0", DK_MOVING_BYTES_TERM("], #32"))
        "adds r1, #64\n str r1, [sp, #4]\n ldr r2, [sp, #56]\n cmp r1, r2\n"
        "ldm sp, {r0, r1, r2, r12}\n bne 4b\n"
        "add sp, #20\n pop {r4-r11, pc}\n");
}
/* clang-format on */

/* Makes terms of the entries of a list: products with rows of n bytes. Returns the offset of all.
 * With value 2^shift = odd 2^e and a byte b, the sum of b and 2^(14 - e), times odd 2^e / 2^15, is
 * the product, a half, and (odd - 1) / 2: the offset. For a greater e the product is an integer,
 * and nothing is added to the bytes. */
static inline int32_t dk_set_byte_terms(const dk_entry *list, uint32_t count, dk_term *terms,
                                        const int8_t *data, const uint8_t *shifts, uint32_t n) {
    const dk_entry *end = list + count;
    int32_t offset = 0;
    while (list < end)
        __asm__ volatile(
            "ldr r4, [%[list]], #4\n" /* value and index */
            "lsr r5, r4, #16\n"
            "ldrb r6, [%[shifts], r5]\n"
            "mla r5, r5, %[n], %[data]\n"
            "lsl r6, %[two], r6\n"
            "smulbb r4, r4, r6\n"
            "rbit r6, r4\n"
            "clz r6, r6\n"
            "lsr r6, %[most], r6\n"
            "smlawb %[offset], r4, r6, %[offset]\n"
            "orr r6, r6, r6, lsl #16\n"
            "stm %[terms]!, {r4, r5, r6}\n"
            : [list] "+r"(list), [terms] "+r"(terms), [offset] "+r"(offset)
            : [data] "r"(data), [shifts] "r"(shifts), [n] "r"(n), [two] "r"(2), [most] "r"(0x8000)
            : "r4", "r5", "r6", "memory");
    terms->value = 0;
    return offset;
}

static inline void dk_add_bytes(dk_term *terms, uint32_t count, int32_t offset, uint32_t n,
                                int16_t *sum) {
    const uint32_t both = ((uint32_t)offset & 0xffff) * 0x10001u, skip = (0 - count) & 3;
    const int16_t *end = sum + n, *whole = sum + n / 32 * 32;
    if (!count) return;
    if (sum < whole) dk_add_32s_of_bytes(terms, sum, both, skip, whole);
    for (sum += n / 32 * 32; sum < end; sum += 8) dk_add_8_bytes(terms, sum, both, count);
}
#else
#define DK_TERM_SIZE "8"
#define DK_ROW_BACK "-4"
#endif

/* One column of 16-bit integers. With `value` shifted by 17, smmlar adds the rounded product. */
#define DK_ONE_SHORT(from, sum) "ldrsh r1, [r3" from "\n smmlar " sum ", r2, r1, " sum "\n"
#define DK_NEXT_SHORT_TERM "ldrd r2, r3, [r0], #" DK_TERM_SIZE "\n"

/* A term times the eight columns that begin `from` bytes behind its pointer. */
#define DK_SHORTS_TERM(from)                                                                       \
    DK_ONE_SHORT(", #" from "]", "r4")                                                             \
    DK_ONE_SHORT(", #" from " + 2]", "r5")                                                         \
    DK_ONE_SHORT(", #" from " + 4]", "r6")                                                         \
    DK_ONE_SHORT(", #" from " + 6]", "r7")                                                         \
    DK_ONE_SHORT(", #" from " + 8]", "r8")                                                         \
    DK_ONE_SHORT(", #" from " + 10]", "r9")                                                        \
    DK_ONE_SHORT(", #" from " + 12]", "r10")                                                       \
    DK_ONE_SHORT(", #" from " + 14]", "r11")                                                       \
    DK_NEXT_SHORT_TERM

/* The same where the pointer moves on by `by`. */
#define DK_MOVING_SHORTS_TERM(by)                                                                  \
    DK_ONE_SHORT("], #" by, "r4")                                                                  \
    DK_ONE_SHORT(", #2 - " by "]", "r5")                                                           \
    DK_ONE_SHORT(", #4 - " by "]", "r6")                                                           \
    DK_ONE_SHORT(", #6 - " by "]", "r7")                                                           \
    DK_ONE_SHORT(", #8 - " by "]", "r8")                                                           \
    DK_ONE_SHORT(", #10 - " by "]", "r9")                                                          \
    DK_ONE_SHORT(", #12 - " by "]", "r10")                                                         \
    DK_ONE_SHORT(", #14 - " by "]", "r11")                                                         \
    "str r3, [r0, #" DK_ROW_BACK "]\n" DK_NEXT_SHORT_TERM

/* As dk_add_8_bytes. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static void
dk_add_8_shorts(dk_term *terms, int16_t *sum, uint32_t count) {
    (void)terms, (void)sum, (void)count; /* r0, r1, r2 */
    __asm__ volatile(
        "push {r1, r4-r11, lr}\n ldm r1, {r4, r6, r8, r10}\n"
        DK_SPLIT_SUMS
        "lsls r2, r2, #31\n"
        DK_NEXT_SHORT_TERM
        "bne 2f\n"
        "1:\n" DK_MOVING_SHORTS_TERM("16")
        "2:\n" DK_MOVING_SHORTS_TERM("16")
        "cmp r2, #0\n bne 1b\n"
        DK_JOIN_SUMS
        "pop {r1}\n stm r1, {r4, r6, r8, r10}\n pop {r4-r11, pc}\n");
}
/* clang-format on */

#define DK_BLOCK_OF_SHORTS(at, TERM)                                                               \
    DK_LOAD_SUMS(at)                                                                               \
    DK_SPLIT_SUMS DK_NEXT_SHORT_TERM "add pc, r12\n nop\n"                                         \
                                     "1:\n" TERM TERM TERM TERM                                    \
                                     "cmp r2, #0\n bne 1b\n" DK_STORE_SUMS(at)

/* As dk_add_32s_of_bytes: terms of 68 or 72 bytes of code. */
/* clang-format off */
__attribute__((naked, noinline, unused)) static void
dk_add_32s_of_shorts(dk_term *terms, int16_t *sum, uint32_t skip, const int16_t *end) {
    (void)terms, (void)sum, (void)skip, (void)end; /* r0 to r3 */
    __asm__ volatile(
        "push {r4-r11, lr}\n movs r4, #68\n mul r12, r2, r4\n"
        "add r2, r12, r2, lsl #2\n push {r0-r3, r12}\n"
        "4:\n"
        DK_BLOCK_OF_SHORTS("16", DK_SHORTS_TERM("16"))
        "ldm sp, {r0, r1, r2, r3, r12}\n"
        DK_BLOCK_OF_SHORTS("32", DK_SHORTS_TERM("32"))
        "ldm sp, {r0, r1, r2, r3, r12}\n"
        DK_BLOCK_OF_SHORTS("48", DK_SHORTS_TERM("48"))
        "ldm sp, {r0, r1, r12}\n"
        DK_BLOCK_OF_SHORTS("0", DK_MOVING_SHORTS_TERM("64"))
        "adds r1, #64\n str r1, [sp, #4]\n ldr r2, [sp, #12]\n cmp r1, r2\n"
        "ldm sp, {r0, r1, r2, r3, r12}\n bne 4b\n"
        "add sp, #20\n pop {r4-r11, pc}\n");
}
/* clang-format on */

/* Shifts the values for the functions above and ends the terms. Returns 0 if one is too large for
 * that: then nothing has changed. */
static inline int dk_prepare_shorts(dk_term *terms, uint32_t count) {
    dk_term *t = terms;
    for (const dk_term *end = terms + count; t < end; t++) {
        const int32_t value = t->value, shifted = (int32_t)((uint32_t)value << 17);
        if (shifted >> 17 != value) {
            for (; t > terms; t--) t[-1].value >>= 17;
            return 0;
        }
        t->value = shifted;
    }
    t->value = 0;
    return 1;
}

#endif
