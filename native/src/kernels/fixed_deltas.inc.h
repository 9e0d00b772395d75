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

/* NV > 0: the reference of NV vectors stays in registers; else it has nv vectors in memory. */
INLINE void scan_rows(const uint32_t NV, uint32_t nv, const int16_t *x, size_t ldx,
                      const uint8_t *fresh, int32_t theta, int16_t *reference, dk_changes *c,
                      uint32_t *peak) {
    const vi limit = v_set((int16_t)theta), none = v_within(v_zero(), v_zero());
    vi held[4 * PER_16], most = v_zero();
    UNROLL for (uint32_t v = 0; v < NV; v++) held[v] = v_load(reference + v * LANES);
    for (uint32_t t = c->first; t < c->rows; t++) {
        int is_fresh = !fresh || fresh[t]; /* `fresh` may be c->changed itself */
        c->changed[t] = 0;
        if (!is_fresh) continue;
        const int16_t *row = x + t * ldx;
        int16_t *delta = c->delta + (size_t)t * c->stride;
        uint64_t *mask = c->mask + (size_t)t * c->words, word = 0, any = 0;
        for (uint32_t v = 0; v < (NV ? NV : nv); v += 2) {
            vi within[2] = {none, none};
            UNROLL for (uint32_t k = 0; k < 2; k++) {
                uint32_t at = (v + k) * LANES;
                if (v + k >= (NV ? NV : nv)) continue;
                vi old = NV ? held[NV ? v + k : 0] : v_load(reference + at);
                within[k] = scan_vector(row + at, &old, limit, delta + at, &most);
                if (NV)
                    held[NV ? v + k : 0] = old;
                else
                    v_store(reference + at, old);
            }
            word |= (uint64_t)v_kept_bits(within[0], within[1]) << v * LANES % 64;
            if ((v + 2) * LANES % 64 == 0 || v + 2 >= (NV ? NV : nv)) {
                mask[v * LANES / 64] = word;
                any |= word;
                word = 0;
            }
        }
        c->changed[t] = any != 0;
    }
    UNROLL for (uint32_t v = 0; v < NV; v++) v_store(reference + v * LANES, held[v]);
    note(peak, most);
}

static void KERNEL(scan)(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh,
                         int32_t theta, int16_t *reference, dk_changes *c, uint32_t *peak) {
    if (n == 64)
        scan_rows(4 * PER_16, 0, x, ldx, fresh, theta, reference, c, peak);
    else
        scan_rows(0, n / LANES, x, ldx, fresh, theta, reference, c, peak);
}

static int KERNEL(hold)(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta,
                        uint64_t *mask) {
    const vi limit = v_set((int16_t)theta), none = v_within(v_zero(), v_zero());
    uint64_t word = 0, any = 0;
    for (uint32_t i = 0; i < n; i += 2 * LANES) {
        vi within[2] = {none, none};
        for (uint32_t k = 0, at = i; k < 2 && at < n; k++, at += LANES) {
            vi now = v_load(x + at), old = v_load(previous + at);
            within[k] = v_within(v_subs(now, old), limit);
            v_store(x + at, v_select(within[k], old, now));
        }
        word |= (uint64_t)v_kept_bits(within[0], within[1]) << i % 64;
        if ((i + 2 * LANES) % 64 == 0 || i + 2 * LANES >= n) {
            mask[i / 64] = word;
            any |= word;
            word = 0;
        }
    }
    return any != 0;
}
