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
static const uint8_t dk_rise[256] = {
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

/* The hidden layer of a model layer. */
typedef struct {
    int32_t theta;
    int32_t room;   /* theta, less an error of GELU of two steps at both ends */
    uint32_t bits;  /* fraction bits */
    int32_t bottom; /* -0.75: GELU has its minimum there */
    int32_t least;  /* the minimum of GELU */
    int has_range;  /* 0: theta is very small */
} dk_hidden;

static inline dk_hidden dk_hidden_of(int32_t theta, uint32_t bits) {
    dk_hidden hidden;
    hidden.theta = theta;
    hidden.room = theta - 4;
    hidden.bits = bits;
    hidden.bottom = -(3 << bits >> 2);
    hidden.least = -(176 << bits >> 10);
    hidden.has_range = hidden.room * 64 >> bits > 0;
    return hidden;
}

static inline int32_t dk_rise_at(int32_t y, uint32_t bits) {
    int32_t at = y * 64 >> bits;
#ifdef DK_DSP
    return dk_rise[__usat(at, 8)];
#else
    return dk_rise[at < 255 ? at : 255];
#endif
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
static inline int dk_left_range(int32_t below, int32_t above, const dk_hidden *layer, int32_t *low,
                                int32_t *high) {
    const uint32_t bits = layer->bits;
    *low = DK_LEAST;
    if (above < 0) *low = -((dk_left[(-above * 256 >> bits) + 1] - 1) << bits >> 6) + 1;
    if (below <= layer->least) {
        *high = dk_highest(above, bits);
        return 1;
    }
    int32_t at = -below * 256 >> bits;
    if (at > 0) *high = -(dk_left[at] << bits >> 6) - 1;
    return at > 0;
}

/* Sets a range in which GELU stays within theta of its reference y; usually h is in it. */
static inline void dk_set_range(const dk_hidden *layer, int32_t h, int32_t y, int16_t *low_at,
                                uint16_t *width_at) {
    const int32_t below = y - layer->room, above = y + layer->room;
    int32_t low = h, high = h;
    if (layer->has_range) {
        if (h >= layer->bottom && below > layer->least) {
            low = dk_lowest(below, layer->bits);
            high = dk_highest(above, layer->bits);
        } else if (!dk_left_range(below, above, layer, &low, &high)) {
            low = high = h;
        }
        if (low > high) low = high = h;
    }
    low = dk_saturate(low);
    *low_at = (int16_t)low;
    *width_at = (uint16_t)(dk_saturate(high) - low);
}

#ifdef DK_DSP
/* dk_fixed_gelu: saturation to 15 bits is the limit of 4, because GELU has the same value there. */
static inline int32_t dk_gelu(int32_t x, uint32_t bits) {
    const int32_t size = (x ^ x >> 31) - (x >> 31);
    int32_t p = -4492, u = (int32_t)__usat(size << (13 - bits), 15);
    p = dk_q15(p, u) + 22398;
    p = dk_q15(p, u) - 20160;
    p = dk_q15(p, u) - 12563;
    p = dk_q15(p, u) + 16366;
    p = dk_q15(2 * p, 2 * p);
    p = dk_q15(p, p);
    return (x & ~(x >> 31)) - dk_rounded_shift(dk_q15(u, p), 14 - bits);
}
#else
#define dk_gelu dk_fixed_gelu
#endif

/* Computes the GELUs of the hidden values of a list, which becomes a list of their kept
 * differences. Returns its end. Functions of their own have more registers. */
DK_CALLED static dk_entry *dk_keep_gelus(int16_t *references, uint32_t theta, uint32_t bits,
                                         const dk_entry *end, dk_entry *list) {
    dk_entry *kept = list;
    for (; list < end; list++) {
        const uint32_t i = list->index;
        const int32_t now = dk_gelu(list->value, bits);
        const int32_t delta = dk_saturate(now - references[i]);
        if ((uint32_t)delta + theta <= 2 * theta) continue;
        references[i] = (int16_t)now;
        kept->index = (uint16_t)i;
        kept++->value = (int16_t)delta;
    }
    return kept;
}

/* Sets the ranges of the hidden values of a list. */
DK_CALLED static void dk_set_ranges(dk_mlp_state *s, const dk_hidden *layer, const dk_entry *list,
                                    const dk_entry *end) {
    for (; list < end; list++) {
        const uint32_t i = list->index;
        dk_set_range(layer, s->hidden[i], s->reference[i], &s->low[i], &s->width[i]);
    }
}

/* Lists the kept differences of the GELUs: of the hidden values that left their range. */
static inline uint32_t dk_scan_hidden(dk_mlp_state *s, const dk_hidden *layer, dk_entry *list) {
    dk_entry *end = list;
#ifdef DK_DSP
    end = dk_list_outside(s->hidden, s->low, s->width, s->hidden + DK_MLP, list);
#else
    for (uint32_t i = 0; i < DK_MLP; i++) {
        if ((uint16_t)(s->hidden[i] - s->low[i]) <= s->width[i]) continue;
        end->index = (uint16_t)i;
        end++->value = s->hidden[i];
    }
#endif
    end = dk_keep_gelus(s->reference, (uint32_t)layer->theta, layer->bits, end, list);
    dk_set_ranges(s, layer, list, end);
    return (uint32_t)(end - list);
}

/* The same for an exact row: lists the GELUs. Ranges are needed if the next row is not exact. */
static inline uint32_t dk_list_hidden(dk_mlp_state *s, const dk_hidden *layer, int ranges,
                                      dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < DK_MLP; i++) {
        const int32_t h = s->hidden[i], now = dk_gelu(h, layer->bits);
        s->reference[i] = (int16_t)now;
        if (ranges) dk_set_range(layer, h, now, &s->low[i], &s->width[i]);
        if (!now) continue;
        kept->index = (uint16_t)i;
        kept++->value = (int16_t)now;
    }
    return (uint32_t)(kept - list);
}

#endif
