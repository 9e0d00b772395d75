/* Which of the values of a row have moved too far, with the DSP instructions of Cortex-M4, M7 and
 * M33: four values at a time. The rows are aligned to four bytes. */
#ifndef DK_SCAN_DSP_H
#define DK_SCAN_DSP_H

#include "engine.h"

#include <string.h>

/* Four values of which at least one has moved: those whose halves of `first` and `second` are not
 * zero. `any` is 0 at the end of the row. */
typedef struct {
    uint32_t first, second, any;
} dk_moved;

/* The next four values with one that is more than theta away from its reference; `once` and `twice`
 * have theta and 2 theta in both halves. Both pointers end behind the four values. */
static inline dk_moved dk_next_beyond(const int16_t **x, int16_t **reference, const int16_t *end,
                                      uint32_t once, uint32_t twice) {
    dk_moved found;
    uint32_t other;
    __asm__ volatile(
        "movs %[any], #0\n"
        "1: cmp %[x], %[end]\n beq 2f\n"
        "ldrd %[first], %[second], [%[x]], #8\n"
        "ldrd %[any], %[other], [%[reference]], #8\n"
        "qsub16 %[first], %[first], %[any]\n"
        "qsub16 %[second], %[second], %[other]\n"
        "sadd16 %[first], %[first], %[once]\n"
        "sadd16 %[second], %[second], %[once]\n"
        "uqsub16 %[first], %[first], %[twice]\n"
        "uqsub16 %[second], %[second], %[twice]\n"
        "orrs %[any], %[first], %[second]\n beq 1b\n"
        "2:\n"
        : [first] "=&r"(found.first), [second] "=&r"(found.second), [any] "=&r"(found.any),
          [other] "=&r"(other), [x] "+r"(*x), [reference] "+r"(*reference)
        : [end] "r"(end), [once] "r"(once), [twice] "r"(twice)
        : "cc", "memory");
    return found;
}

/* The next four values with one that is not in low .. low + width. */
static inline dk_moved dk_next_outside(const int16_t **x, const int16_t **low,
                                       const uint16_t **width, const int16_t *end) {
    dk_moved found;
    uint32_t other;
    __asm__ volatile(
        "movs %[any], #0\n"
        "1: cmp %[x], %[end]\n beq 2f\n"
        "ldrd %[first], %[second], [%[x]], #8\n"
        "ldrd %[any], %[other], [%[low]], #8\n"
        "ssub16 %[first], %[first], %[any]\n"
        "ssub16 %[second], %[second], %[other]\n"
        "ldrd %[any], %[other], [%[width]], #8\n"
        "uqsub16 %[first], %[first], %[any]\n"
        "uqsub16 %[second], %[second], %[other]\n"
        "orrs %[any], %[first], %[second]\n beq 1b\n"
        "2:\n"
        : [first] "=&r"(found.first), [second] "=&r"(found.second), [any] "=&r"(found.any),
          [other] "=&r"(other), [x] "+r"(*x), [low] "+r"(*low), [width] "+r"(*width)
        : [end] "r"(end)
        : "cc", "memory");
    return found;
}

/* Lists the difference of a value and updates its reference. */
static inline dk_entry *dk_keep(const int16_t *x, int16_t *reference, uint32_t index,
                                dk_entry *kept) {
    int32_t now = *x, change = dk_saturate(now - *reference);
    uint32_t entry = ((uint32_t)change & 0xffff) | index << 16;
    *reference = (int16_t)now;
    memcpy(kept, &entry, sizeof entry);
    return kept + 1;
}

static inline uint32_t dk_scan(const int16_t *x, int16_t *reference, uint32_t n, int32_t theta,
                               dk_entry *list) {
    dk_entry *kept = list;
    const int16_t *start = x, *end = x + n / 4 * 4;
    const uint32_t once = (uint32_t)theta * 0x10001u, twice = 2 * once;
    dk_moved m;
    while (m = dk_next_beyond(&x, &reference, end, once, twice), m.any) {
        uint32_t i = (uint32_t)(x - start) - 4;
        if (m.first & 0xffff) kept = dk_keep(x - 4, reference - 4, i, kept);
        if (m.first >> 16) kept = dk_keep(x - 3, reference - 3, i + 1, kept);
        if (m.second & 0xffff) kept = dk_keep(x - 2, reference - 2, i + 2, kept);
        if (m.second >> 16) kept = dk_keep(x - 1, reference - 1, i + 3, kept);
    }
    for (; x < start + n; x++, reference++) {
        int32_t change = dk_saturate(*x - *reference);
        if (change > theta || -change > theta)
            kept = dk_keep(x, reference, (uint32_t)(x - start), kept);
    }
    return (uint32_t)(kept - list);
}

#endif
