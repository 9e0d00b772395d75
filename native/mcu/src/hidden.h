/* The hidden layer of the MLP: which GELUs must be computed, and which of their differences are
 * kept.
 */
#ifndef DK_HIDDEN_H
#define DK_HIDDEN_H

#include "rows.h"

/* Where GELU takes a value, for the bounds of a range.
 *
 * dk_rise: x - y for GELU(x) = y > 0 in steps of 1/1024, the least in each 1/64 of y, rounded down;
 * in a 1/64 it is at most 17 steps more. dk_right and dk_left: -x for GELU(x) = -k/256 in steps of
 * 1/64, rounded up, right and left of the minimum of -0.17 at -0.75. */
static const uint8_t dk_rise[] = {
    0,   15,  29,  41,  53,  63,  73,  82,  90,  98,  105, 112, 118, 123, 128, 133, 137, 142,
    145, 149, 152, 155, 157, 160, 162, 164, 165, 167, 168, 169, 170, 171, 172, 173, 173, 173,
    174, 174, 173, 173, 173, 173, 172, 171, 171, 170, 169, 168, 167, 166, 165, 164, 163, 162,
    161, 159, 158, 157, 155, 154, 152, 151, 149, 148, 146, 144, 143, 141, 139, 138, 136, 134,
    132, 131, 129, 127, 125, 123, 122, 120, 118, 116, 114, 112, 111, 109, 107, 105, 103, 102,
    100, 98,  96,  94,  93,  91,  89,  87,  86,  84,  82,  80,  79,  77,  75,  74,  72,  71,
    69,  67,  66,  64,  63,  61,  60,  58,  57,  56,  54,  53,  51,  50,  49,  47,  46,  45,
    44,  42,  41,  40,  39,  38,  37,  36,  34,  33,  32,  31,  30,  29,  29,  28,  27,  26,
    25,  24,  23,  22,  22,  21,  20,  19,  19,  18,  17,  17,  16,  16,  15,  14,  14,  13,
    13,  12,  12,  11,  11,  10,  10,  9,   9,   9,   8,   8,   8,   7,   7,   7,   6,   6,
    6,   5,   5,   5,   5,   4,   4,   4,   4,   4,   3,   3,   0};
static const uint8_t dk_right[] = {0,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  8,  8,
                                   9,  10, 10, 11, 12, 12, 13, 14, 14, 15, 16, 17, 18, 18, 19,
                                   20, 21, 22, 23, 25, 26, 27, 28, 30, 32, 33, 36, 38, 43, 49};
static const uint8_t dk_left[] = {255, 191, 176, 167, 160, 154, 149, 144, 140, 137, 133, 130,
                                  127, 125, 122, 119, 117, 115, 112, 110, 108, 106, 104, 102,
                                  100, 98,  96,  94,  92,  90,  88,  86,  84,  82,  80,  78,
                                  76,  74,  72,  69,  66,  63,  60,  55,  49};

static inline int32_t dk_rise_at(int32_t y, uint32_t bits) {
    int32_t at = y * 64 >> bits;
    return dk_rise[at < (int32_t)sizeof dk_rise ? at : (int32_t)sizeof dk_rise - 1];
}

/* The greatest x, or a little less, with GELU <= y from the minimum to x. */
static inline int32_t dk_highest(int32_t y, uint32_t bits) {
    if (y >= 0) return y + (dk_rise_at(y, bits) << bits >> 10);
    return -(dk_right[(-y * 256 >> bits) + 1] << bits >> 6) - 1;
}

/* Returns an x from which on GELU is at least y: the smallest, or slightly more. y must be above
 * the minimum of GELU. */
static inline int32_t dk_lowest(int32_t y, uint32_t bits) {
    if (y >= 0) return y + ((dk_rise_at(y, bits) + 17) << bits >> 10) + 1;
    return -((dk_right[-y * 256 >> bits] - 1) * (1 << bits) >> 6) + 1;
}

/* The range of GELUs around h left of the minimum: to `low` from where GELU is less than `above`,
 * and, if it would come below `below` on its way, to the `high` of that. Returns 0 for no range. */
static inline int dk_left_range(int32_t below, int32_t above, uint32_t bits, int32_t *low,
                                int32_t *high) {
    *low = DK_LEAST;
    if (above < 0) *low = -((dk_left[(-above * 256 >> bits) + 1] - 1) << bits >> 6) + 1;
    if (below <= -(176 << bits >> 10)) {
        *high = dk_highest(above, bits);
        return 1;
    }
    int32_t at = -below * 256 >> bits;
    if (at > 0) *high = -(dk_left[at] << bits >> 6) - 1;
    return at > 0;
}

/* Sets a range in which GELU stays within theta of its reference; usually h is in it. An error of
 * GELU of two steps is allowed for at both ends. */
static inline void dk_set_range(dk_mlp_state *s, uint32_t i, int32_t theta, uint32_t bits) {
    const int32_t h = s->hidden[i], room = theta - 4;
    const int32_t below = s->reference[i] - room, above = s->reference[i] + room;
    int32_t low = h, high = h;
    if (room * 64 >> bits <= 0) {
        /* for a very small theta the range is h */
    } else if (h >= -(3 << bits >> 2) && below > -(176 << bits >> 10)) {
        low = dk_lowest(below, bits);
        high = dk_highest(above, bits);
    } else if (!dk_left_range(below, above, bits, &low, &high)) {
        low = high = h;
    }
    if (low > high) low = high = h;
    low = dk_saturate(low);
    s->low[i] = (int16_t)low;
    s->width[i] = (uint16_t)(dk_saturate(high) - low);
}

#ifdef __GNUC__
#define DK_CALLED __attribute__((noinline))
#else
#define DK_CALLED
#endif

/* Computes the GELU of a hidden value that left its range, and lists its difference if it is kept.
 */
DK_CALLED static dk_entry *dk_move_hidden(dk_mlp_state *s, uint32_t i, int32_t theta, uint32_t bits,
                                          dk_entry *kept) {
    int32_t now = dk_fixed_gelu(s->hidden[i], bits);
    int32_t delta = dk_saturate(now - s->reference[i]);
    if (delta <= theta && -delta <= theta) return kept;
    s->reference[i] = (int16_t)now;
    kept->index = (uint16_t)i;
    kept->value = (int16_t)delta;
    dk_set_range(s, i, theta, bits);
    return kept + 1;
}

/* Lists the kept differences of the GELUs. */
static inline uint32_t dk_scan_hidden(dk_mlp_state *s, int32_t theta, uint32_t bits,
                                      dk_entry *list) {
    dk_entry *kept = list;
#ifdef DK_DSP
    const int16_t *hidden = s->hidden, *low = s->low, *end = hidden + DK_MLP;
    const uint16_t *width = s->width;
    dk_moved m;
    while (m = dk_next_outside(&hidden, &low, &width, end), m.any) {
        uint32_t i = (uint32_t)(hidden - s->hidden) - 4;
        if (m.first & 0xffff) kept = dk_move_hidden(s, i, theta, bits, kept);
        if (m.first >> 16) kept = dk_move_hidden(s, i + 1, theta, bits, kept);
        if (m.second & 0xffff) kept = dk_move_hidden(s, i + 2, theta, bits, kept);
        if (m.second >> 16) kept = dk_move_hidden(s, i + 3, theta, bits, kept);
    }
#else
    for (uint32_t i = 0; i < DK_MLP; i++)
        if ((uint16_t)(s->hidden[i] - s->low[i]) > s->width[i])
            kept = dk_move_hidden(s, i, theta, bits, kept);
#endif
    return (uint32_t)(kept - list);
}

/* The same for an exact row: lists the GELUs. Ranges are needed if the next row is not exact. */
static inline uint32_t dk_list_hidden(dk_mlp_state *s, int32_t theta, uint32_t bits, int ranges,
                                      dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < DK_MLP; i++) {
        s->reference[i] = (int16_t)dk_fixed_gelu(s->hidden[i], bits);
        if (ranges) dk_set_range(s, i, theta, bits);
        if (!s->reference[i]) continue;
        kept->index = (uint16_t)i;
        kept++->value = s->reference[i];
    }
    return (uint32_t)(kept - list);
}

#endif
