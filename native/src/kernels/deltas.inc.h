/* Finding the values that changed from row to row. Part of vector.inc.h. */

/* n features against their reference; the list takes their numbers from `base` on. */
INLINE uint32_t scan_part(const float *x, float *reference, uint32_t n, float theta, uint32_t base,
                          float *value, uint16_t *index, uint32_t *counts) {
    const vf limit = v_set(theta);
    vn numbers = v_number(base);
    uint32_t kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES, numbers = v_next(numbers)) {
        vf now = v_load(x + i), old = v_load(reference + i), delta = v_sub(now, old);
        vm keep = v_beyond(delta, limit);
        v_store(reference + i, v_select(keep, now, old));
        if (counts) v_tally(counts + i, keep);
        kept += v_keep(delta, numbers, v_bits(keep), value + kept, index + kept);
    }
    for (; i < n; i++) { /* the last few, one by one */
        float delta = x[i] - reference[i];
        if (!(delta > theta || -delta > theta)) continue;
        reference[i] = x[i];
        value[kept] = delta;
        index[kept++] = (uint16_t)(base + i);
        if (counts) counts[i]++;
    }
    return kept;
}

INLINE uint32_t scan_rows(const dk_deltas *d, uint32_t first, uint32_t last, dk_list *to,
                          uint16_t *where, uint32_t *counts) {
    dk_list list = *to; /* a copy that no store can change */
    uint32_t total = 0, n = d->width;
    for (uint32_t r = first; r <= last; r++) {
        where[r] = where[r - 1];
        if (d->parts == 1 && !dk_fresh(d, 0, r)) continue; /* the same row again changes nothing */
        const float *x = d->in.at + r * d->in.stride;
        size_t at = (size_t)list.groups * DK_GROUP;
        uint32_t kept = 0;
        for (uint32_t part = 0, column = 0; part < d->parts; part++, column += n)
            if (dk_fresh(d, part, r))
                kept += scan_part(x + column, d->reference + column, n, d->theta, column,
                                  list.value + at + kept, list.index + at + kept, counts);
        dk_close_row(&list, r, kept);
        if (kept) where[r] = (uint16_t)r;
        total += kept;
    }
    *to = list;
    return total;
}

/* The same for rows of one part and NV vectors: the reference stays in registers. */
INLINE uint32_t scan_held(const uint32_t NV, const dk_deltas *d, uint32_t first, uint32_t last,
                          dk_list *to, uint16_t *where) {
    const vf limit = v_set(d->theta);
    dk_list list = *to;
    vf reference[MOST_VECTORS];
    UNROLL for (uint32_t v = 0; v < NV; v++) reference[v] = v_load(d->reference + v * LANES);
    uint32_t total = 0;
    uint16_t changed = where[first - 1];
    for (uint32_t r = first; r <= last; r++) {
        where[r] = changed;
        if (!dk_fresh(d, 0, r)) continue;
        const float *x = d->in.at + r * d->in.stride;
        size_t at = (size_t)list.groups * DK_GROUP, end = at;
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            vf now = v_load(x + v * LANES), delta = v_sub(now, reference[v]);
            vm keep = v_beyond(delta, limit);
            reference[v] = v_select(keep, now, reference[v]);
            end += v_keep(delta, v_number(v * LANES), v_bits(keep), list.value + end,
                          list.index + end);
        }
        uint32_t kept = (uint32_t)(end - at);
        dk_close_row(&list, r, kept);
        where[r] = changed = kept ? (uint16_t)r : changed;
        total += kept;
    }
    UNROLL for (uint32_t v = 0; v < NV; v++) v_store(d->reference + v * LANES, reference[v]);
    *to = list;
    return total;
}

static uint32_t KERNEL(scan)(const dk_deltas *d, uint32_t first, uint32_t last, dk_list *list,
                             uint16_t *where) {
    if (d->counts) return scan_rows(d, first, last, list, where, d->counts);
    if (d->parts == 1 && d->width == 64) return scan_held(64 / LANES, d, first, last, list, where);
    return scan_rows(d, first, last, list, where, 0);
}

static uint32_t KERNEL(hold)(float *x, const float *previous, uint32_t n, float theta,
                             uint32_t *counts) {
    const vf limit = v_set(theta);
    uint32_t kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf now = v_load(x + i), old = v_load(previous + i);
        vm keep = v_beyond(v_sub(now, old), limit);
        v_store(x + i, v_select(keep, now, old));
        if (counts) v_tally(counts + i, keep);
        kept += v_count(v_bits(keep));
    }
    for (; i < n; i++) {
        float delta = x[i] - previous[i];
        int keep = delta > theta || -delta > theta;
        if (!keep) x[i] = previous[i];
        if (counts) counts[i] += (uint32_t)keep;
        kept += (uint32_t)keep;
    }
    return kept;
}
