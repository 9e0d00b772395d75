/* LayerNorm of 16-bit rows. Included by fixed_vector.inc.h, which lists the vector primitives. */

#ifndef SMALL_SQUARES /* rows of 64 have no functions of their own */
#define SMALL_SQUARES 0
#define s_add_squares(s, a) (s)
#define s_scale_totals(s, epsilon, scaled, p) ((void)(s))
static inline void s_totals(const vs *s, int32_t *totals) {
    for (uint32_t t = 0; t < 8; t++) totals[t] = s_total(s[t]);
}
#endif

/* x (nv vectors) = x / 2^shift + r; factor = 2^(15 - shift). Returns the sum of the row. */
INLINE vs add_row(uint32_t nv, int16_t *x, vi factor, const int16_t *r, int is_shifted, vi *most) {
    vs sum = s_zero();
    for (uint32_t v = 0; v < nv; v++) {
        vi a = v_load(x + v * LANES);
        a = v_adds(is_shifted ? v_q15(a, factor) : a, v_load(r + v * LANES));
        sum = s_add_sum(sum, a);
        *most = v_max_size(*most, a);
        v_store(x + v * LANES, a);
    }
    return sum;
}

/* Subtracts the mean. Returns the sum of squares, of which the padding has its share. */
INLINE uint64_t centre_row(uint32_t nv, int16_t *x, int32_t mean) {
    const vi centre = v_set((int16_t)mean);
    vq squares = q_zero();
    for (uint32_t v = 0; v < nv; v++) {
        vi c = v_subs(v_load(x + v * LANES), centre);
        squares = q_add_squares(squares, c);
        v_store(x + v * LANES, c);
    }
    return q_total(squares);
}

/* The same for 64 values that are small: see SMALL_SQUARES. */
INLINE vs centre_small(int16_t *x, int32_t mean) {
    const vi centre = v_set((int16_t)mean);
    vs squares = s_zero();
    UNROLL for (uint32_t v = 0; v < 64 / LANES; v++) {
        vi c = v_subs(v_load(x + v * LANES), centre);
        squares = s_add_squares(squares, c);
        v_store(x + v * LANES, c);
    }
    return squares;
}

/* x = x 2^p gain root / 2^shift + bias */
INLINE void scale_row(uint32_t nv, int16_t *x, int32_t p, uint32_t root, const dk_fixed_norm *norm,
                      vi *most) {
    const vi scale = v_set((int16_t)root);
    const int16_t *gain = norm->gain, *bias = norm->bias;
    uint32_t shift = norm->shift;
    if (p >= 0 && (uint32_t)p < shift) { /* the usual case: a smaller shift afterwards */
        shift -= (uint32_t)p;
    } else {
        for (uint32_t v = 0; v < nv; v++) {
            vi c = v_load(x + v * LANES);
            c = p >= 0 ? v_left(c, (uint32_t)p) : v_right_signed(c, (uint32_t)-p);
            v_store(x + v * LANES, c);
        }
    }
    for (uint32_t v = 0; v < nv; v++) {
        vi factor = v_q15(v_load(gain + v * LANES), scale);
        vi y = v_scaled(v_load(x + v * LANES), factor, shift);
        y = v_adds(y, v_load(bias + v * LANES));
        v_store(x + v * LANES, y);
        *most = v_max_size(*most, y);
    }
}

enum { NORM_ROWS = 16 }; /* at a time; a multiple of eight */

/* Some rows on their way through LayerNorm. */
typedef struct {
    int16_t *x;
    uint32_t count, root[NORM_ROWS];
    int32_t mean[NORM_ROWS], p[NORM_ROWS];
} norm_block;

/* Means of the rows. Returns the largest of their magnitudes. */
INLINE uint32_t row_means(const uint32_t n, const vs *sums, int32_t *mean) {
    uint32_t most = 0;
    for (uint32_t t = 0; t < NORM_ROWS; t += 8) s_totals(sums + t, mean + t);
    for (uint32_t t = 0; t < NORM_ROWS; t++) {
        mean[t] = n == 64 ? (mean[t] + 32) >> 6 : dk_mean(mean[t], n);
        uint32_t size = (uint32_t)(mean[t] < 0 ? -mean[t] : mean[t]);
        most = size > most ? size : most;
    }
    return most;
}

/* Centres the rows and finds what they are to be multiplied by. `largest` of their values. */
INLINE void centre_rows(const uint32_t n, norm_block *b, size_t ldx, uint32_t largest,
                        const dk_fixed_norm *norm) {
    const uint32_t padding = dk_padded(n) - n;
    uint32_t scaled[NORM_ROWS] = {0};
    if (SMALL_SQUARES && n == 64 && largest <= SMALL_SQUARES) {
        vs squares[NORM_ROWS];
        for (uint32_t t = 0; t < b->count; t++)
            squares[t] = centre_small(b->x + t * ldx, b->mean[t]);
        for (uint32_t t = b->count; t < NORM_ROWS; t++) squares[t] = s_zero();
        for (uint32_t t = 0; t < NORM_ROWS; t += 8)
            s_scale_totals(squares + t, norm->epsilon, scaled + t, b->p + t);
    } else {
        for (uint32_t t = 0; t < b->count; t++) {
            uint64_t squares = centre_row(dk_padded(n) / LANES, b->x + t * ldx, b->mean[t]);
            int64_t pad = padding ? dk_saturate(-b->mean[t]) : 0;
            squares += norm->epsilon - (uint64_t)(padding * pad * pad);
            b->p[t] = dk_scale_total(squares, &scaled[t]);
        }
    }
    for (uint32_t t = 0; t < NORM_ROWS; t++) b->root[t] = dk_reciprocal_root(scaled[t]);
}

INLINE vi scale_rows(const uint32_t n, const norm_block *b, size_t ldx, const dk_fixed_norm *norm,
                     vi most) {
    for (uint32_t t = 0; t < b->count; t++)
        scale_row(dk_padded(n) / LANES, b->x + t * ldx, b->p[t], b->root[t], norm, &most);
    return most;
}

/* Roots take long, and so do means: the rows before are scaled meanwhile. */
INLINE void norm_rows(const uint32_t n, int16_t *x, size_t ldx, uint32_t shift, const int16_t *r,
                      size_t ldr, const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                      uint32_t *sum_peak, uint32_t *peak, dk_fixed_fetch *fetch) {
    const vi factor = v_set((int16_t)(shift ? 1 << (15 - shift) : 0));
    const uint32_t nv = dk_padded(n) / LANES;
    vi most = v_zero();
    norm_block b;
    b.count = 0;
    for (uint32_t first = 0; first < rows; first += NORM_ROWS) {
        const uint32_t count = rows - first < NORM_ROWS ? rows - first : NORM_ROWS;
        vs sums[NORM_ROWS];
        vi sum_most = v_zero();
        for (uint32_t t = 0; t < count; t++) {
            const int16_t *add = r + where[first + t] * ldr;
            dk_fetch_some(fetch);
            sums[t] = add_row(nv, x + (first + t) * ldx, factor, add, shift > 0, &sum_most);
        }
        for (uint32_t t = count; t < NORM_ROWS; t++) sums[t] = s_zero();
        uint32_t largest = v_largest_size(sum_most), largest_mean = row_means(n, sums, b.mean);
        if (largest > *sum_peak) *sum_peak = largest;
        most = scale_rows(n, &b, ldx, norm, most);
        b.x = x + first * ldx;
        b.count = count;
        centre_rows(n, &b, ldx, largest + largest_mean, norm);
    }
    note(peak, scale_rows(n, &b, ldx, norm, most));
}

static void KERNEL(add_norm)(int16_t *x, size_t ldx, uint32_t shift, const int16_t *r, size_t ldr,
                             const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                             uint32_t *sum_peak, uint32_t *peak, dk_fixed_fetch *fetch) {
    if (norm->n == 64) /* the usual width, as a constant */
        norm_rows(64, x, ldx, shift, r, ldr, where, rows, norm, sum_peak, peak, fetch);
    else
        norm_rows(norm->n, x, ldx, shift, r, ldr, where, rows, norm, sum_peak, peak, fetch);
}
