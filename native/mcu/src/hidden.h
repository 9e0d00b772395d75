/* The hidden layer of the MLP: which GELUs must be computed, and which of their differences are
 * kept.
 */
#ifndef DK_HIDDEN_H
#define DK_HIDDEN_H

#include "rows.h"

/* Sets the range around the hidden value h in which its GELU, now `delta` away from the reference,
 * stays within theta of it. The slope of GELU at h is between -0.13 and 0.55 + 0.66 h, or 1.13 if
 * that is less; the table has 16 / slope in steps of 1/4, and the range ends 1/4 above h. An error
 * of GELU of two steps is allowed for at both ends. */
static inline void dk_set_range(dk_mlp_state *s, uint32_t i, int32_t h, int32_t delta,
                                int32_t theta, uint32_t bits) {
    static const uint8_t flat[] = {123, 72, 41, 29, 22, 18, 15, 14};
    int32_t room = theta - 4 - (delta < 0 ? -delta : delta), at = (h >> (bits - 2)) + 5;
    int32_t reach = 1 << (bits - 2), most = room * flat[at < 0 ? 0 : at > 7 ? 7 : at] >> 4;
    most = most < reach ? most : reach;
    most = most > 0 ? most : 0;
    s->low[i] = (int16_t)dk_saturate(h - most);
    s->width[i] = (uint16_t)(h + most > DK_MOST ? DK_MOST - s->low[i] : h + most - s->low[i]);
}

/* Computes the GELU of a hidden value that left its range. Returns 1 if its difference is kept. */
static inline int dk_move_hidden(dk_mlp_state *s, uint32_t i, int32_t theta, uint32_t bits,
                                 dk_entry *entry) {
    int32_t h = s->hidden[i], now = dk_fixed_gelu(h, bits);
    int32_t delta = dk_saturate(now - s->reference[i]);
    int keep = delta > theta || -delta > theta;
    if (keep) {
        s->reference[i] = (int16_t)now;
        entry->index = (uint16_t)i;
        entry->value = (int16_t)delta;
    }
    dk_set_range(s, i, h, keep ? 0 : delta, theta, bits);
    return keep;
}

/* Lists the kept differences of the GELUs. */
static inline uint32_t dk_scan_hidden(dk_mlp_state *s, int32_t theta, uint32_t bits,
                                      dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < DK_MLP; i += 2) {
        if (!dk_two_outside(s->hidden + i, s->low + i, s->width + i)) continue;
        for (uint32_t j = i; j < i + 2; j++)
            if ((uint16_t)(s->hidden[j] - s->low[j]) > s->width[j])
                kept += dk_move_hidden(s, j, theta, bits, kept);
    }
    return (uint32_t)(kept - list);
}

/* The same for an exact row: lists the GELUs. */
static inline uint32_t dk_list_hidden(dk_mlp_state *s, int32_t theta, uint32_t bits,
                                      dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < DK_MLP; i++) {
        s->reference[i] = (int16_t)dk_fixed_gelu(s->hidden[i], bits);
        if (theta >= 0) dk_set_range(s, i, s->hidden[i], 0, theta, bits);
        if (!s->reference[i]) continue;
        kept->index = (uint16_t)i;
        kept++->value = s->reference[i];
    }
    return (uint32_t)(kept - list);
}

#endif
