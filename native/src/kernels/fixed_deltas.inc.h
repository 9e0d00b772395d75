/* Deltas of 16-bit rows: comparing rows with their references, and keeping references. Included by
 * fixed_vector.inc.h, which lists the vector primitives. */

/* One vector of a row against its reference. Returns the lanes that are not kept. */
INLINE vi scan_vector(const int16_t *x, vi *reference, vi theta, int16_t *delta, vi *most) {
    vi now = v_load(x), change = v_subs(now, *reference), within = v_within(change, theta);
    *reference = v_select(within, *reference, now);
    *most = v_max_size(*most, change);
    v_store(delta, change);
    return within;
}

enum { PER_WORD = 4 * PER_16 }; /* vectors of 64 features: a word of a mask */

/* NV <= PER_WORD vectors against their references. Returns a bit for each kept feature. */
INLINE uint64_t scan_word(const uint32_t NV, const int16_t *x, vi *reference, vi theta,
                          int16_t *delta, vi *most) {
    uint64_t kept = 0;
    UNROLL for (uint32_t v = 0; v < NV; v += 2) {
        vi first = scan_vector(x + v * LANES, &reference[v], theta, delta + v * LANES, most);
        vi second = v_within(v_zero(), v_zero());
        if (v + 1 < NV)
            second = scan_vector(x + (v + 1) * LANES, &reference[v + 1], theta,
                                 delta + (v + 1) * LANES, most);
        kept |= (uint64_t)v_kept_bits(first, second) << v * LANES;
    }
    return kept;
}

/* The same with the references in memory. */
INLINE uint64_t scan_stored(const uint32_t NV, const int16_t *x, int16_t *reference, vi theta,
                            int16_t *delta, vi *most) {
    vi held[PER_WORD];
    UNROLL for (uint32_t v = 0; v < NV; v++) held[v] = v_load(reference + v * LANES);
    uint64_t kept = scan_word(NV, x, held, theta, delta, most);
    UNROLL for (uint32_t v = 0; v < NV; v++) v_store(reference + v * LANES, held[v]);
    return kept;
}

/* A row of n features. Returns the words of the mask, joined. */
INLINE uint64_t scan_row(const uint32_t n, const int16_t *x, int16_t *reference, vi theta,
                         int16_t *delta, uint64_t *mask, vi *most) {
    uint64_t any = 0;
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64, mask++)
        any |= *mask = scan_stored(PER_WORD, x + i, reference + i, theta, delta + i, most);
    if (n - i == 48)
        any |= *mask = scan_stored(3 * PER_16, x + i, reference + i, theta, delta + i, most);
    else if (n - i == 32)
        any |= *mask = scan_stored(2 * PER_16, x + i, reference + i, theta, delta + i, most);
    else if (n - i == 16)
        any |= *mask = scan_stored(PER_16, x + i, reference + i, theta, delta + i, most);
    return any;
}

/* Rows of n features; if there are 64, their references stay in registers. */
INLINE void scan_rows(const uint32_t n, const int16_t *x, size_t ldx, const uint8_t *fresh,
                      int32_t theta, int16_t *reference, const dk_changes *changes,
                      uint32_t *peak) {
    const dk_changes c = *changes; /* its members stay in registers */
    const vi limit = v_set((int16_t)theta);
    vi held[PER_WORD], most = v_zero();
    UNROLL for (uint32_t v = 0; n == 64 && v < PER_WORD; v++) held[v] =
        v_load(reference + v * LANES);
    for (uint32_t t = c.first; t < c.rows; t++) {
        int is_fresh = !fresh || fresh[t]; /* `fresh` may be c.changed itself */
        c.changed[t] = 0;
        if (!is_fresh) continue;
        const int16_t *row = x + t * ldx;
        int16_t *delta = c.delta + (size_t)t * c.stride;
        uint64_t *mask = c.mask + (size_t)t * c.words, any;
        if (n == 64)
            any = *mask = scan_word(PER_WORD, row, held, limit, delta, &most);
        else
            any = scan_row(n, row, reference, limit, delta, mask, &most);
        c.changed[t] = any != 0;
    }
    UNROLL for (uint32_t v = 0; n == 64 && v < PER_WORD; v++)
        v_store(reference + v * LANES, held[v]);
    note(peak, most);
}

static void KERNEL(scan)(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh,
                         int32_t theta, int16_t *reference, dk_changes *c, uint32_t *peak) {
    switch (n) { /* the usual widths, as constants */
    case 64:
        scan_rows(64, x, ldx, fresh, theta, reference, c, peak);
        break;
    case 112:
        scan_rows(112, x, ldx, fresh, theta, reference, c, peak);
        break;
    case 256:
        scan_rows(256, x, ldx, fresh, theta, reference, c, peak);
        break;
    default:
        scan_rows(n, x, ldx, fresh, theta, reference, c, peak);
    }
}

/* NV <= PER_WORD vectors of x become references. Returns a bit for each kept feature. */
INLINE uint64_t hold_word(const uint32_t NV, int16_t *x, const int16_t *previous, vi theta) {
    uint64_t kept = 0;
    UNROLL for (uint32_t v = 0; v < NV; v += 2) {
        vi within[2] = {v_zero(), v_within(v_zero(), v_zero())};
        UNROLL for (uint32_t k = 0; k < 2; k++) {
            if (v + k >= NV) continue;
            uint32_t at = (v + k) * LANES;
            vi now = v_load(x + at), old = v_load(previous + at);
            within[k] = v_within(v_subs(now, old), theta);
            v_store(x + at, v_select(within[k], old, now));
        }
        kept |= (uint64_t)v_kept_bits(within[0], within[1]) << v * LANES;
    }
    return kept;
}

static int KERNEL(hold)(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta,
                        uint64_t *mask) {
    const vi limit = v_set((int16_t)theta);
    uint64_t any = 0;
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) any |= *mask++ = hold_word(PER_WORD, x + i, previous + i, limit);
    if (n - i == 48)
        any |= *mask = hold_word(3 * PER_16, x + i, previous + i, limit);
    else if (n - i == 32)
        any |= *mask = hold_word(2 * PER_16, x + i, previous + i, limit);
    else if (n - i == 16)
        any |= *mask = hold_word(PER_16, x + i, previous + i, limit);
    return any != 0;
}
