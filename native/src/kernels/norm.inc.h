/* LayerNorm and transposition. Part of vector.inc.h. */

/* Returns the sums over the lanes of each of LANES vectors, one per lane. */
INLINE vf sum_each(vf rows[LANES]) {
    v_transpose(rows);
    UNROLL for (uint32_t step = LANES / 2; step; step /= 2) {
        UNROLL for (uint32_t i = 0; i < step; i++) rows[i] = v_add(rows[i], rows[i + step]);
    }
    return rows[0];
}

/* Up to LANES rows at once, so that means, square roots and divisions are shared. */
INLINE void norm_rows(float *const x[LANES], const float *const r[LANES], uint32_t rows,
                      const float *gain, const float *bias, uint32_t n) {
    uint32_t whole = n - n % LANES, tail = n % LANES, i;
    float mean[LANES], scale[LANES];
    vf sums[LANES];
    const vf zero = v_set(0.0f), share = v_set(1.0f / (float)n);
    for (uint32_t l = 0; l < LANES; l++) sums[l] = zero;
    for (uint32_t l = 0; l < rows; l++) {
        vf sum = zero;
        for (i = 0; i < whole; i += LANES) {
            vf added = v_add(v_load(x[l] + i), v_load(r[l] + i));
            v_store(x[l] + i, added);
            sum = v_add(sum, added);
        }
        if (tail) {
            vf added = v_add(v_load_n(x[l] + i, tail, 0.0f), v_load_n(r[l] + i, tail, 0.0f));
            v_store_n(x[l] + i, added, tail);
            sum = v_add(sum, added);
        }
        sums[l] = sum;
    }
    v_store(mean, v_mul(sum_each(sums), share));
    for (uint32_t l = 0; l < LANES; l++) sums[l] = zero;
    for (uint32_t l = 0; l < rows; l++) {
        vf middle = v_set(mean[l]), squares = zero;
        for (i = 0; i < whole; i += LANES) {
            vf centred = v_sub(v_load(x[l] + i), middle);
            squares = v_fma(centred, centred, squares);
        }
        if (tail) {
            vf centred = v_sub(v_load_n(x[l] + i, tail, mean[l]), middle);
            squares = v_fma(centred, centred, squares);
        }
        sums[l] = squares;
    }
    v_store(scale, v_div(v_set(1.0f), v_sqrt(v_fma(sum_each(sums), share, v_set(1e-6f)))));
    for (uint32_t l = 0; l < rows; l++) {
        vf middle = v_set(mean[l]), factor = v_set(scale[l]);
        for (i = 0; i < whole; i += LANES) {
            vf centred = v_mul(v_sub(v_load(x[l] + i), middle), factor);
            v_store(x[l] + i, v_fma(centred, v_load(gain + i), v_load(bias + i)));
        }
        if (tail) {
            vf centred = v_mul(v_sub(v_load_n(x[l] + i, tail, 0.0f), middle), factor);
            vf scaled =
                v_fma(centred, v_load_n(gain + i, tail, 0.0f), v_load_n(bias + i, tail, 0.0f));
            v_store_n(x[l] + i, scaled, tail);
        }
    }
}

static void KERNEL(add_norm)(float *x, size_t ldx, const float *r, size_t ldr,
                             const uint16_t *where, uint32_t rows, const float *gain,
                             const float *bias, uint32_t n) {
    for (uint32_t first = 0; first < rows; first += LANES) {
        uint32_t count = rows - first < LANES ? rows - first : LANES;
        float *at[LANES];
        const float *added[LANES];
        for (uint32_t l = 0; l < count; l++) {
            at[l] = x + (first + l) * ldx;
            added[l] = r + where[first + l] * ldr;
        }
        if (n == 64 && count == LANES) /* KWT-1: loops whose length the compiler knows */
            norm_rows(at, added, LANES, gain, bias, 64);
        else
            norm_rows(at, added, count, gain, bias, n);
    }
}

static void KERNEL(transpose)(const float *a, size_t lda, uint32_t rows, uint32_t cols, float scale,
                              float *out, size_t ldo) {
    const vf factor = v_set(scale);
    uint32_t whole_rows = rows - rows % LANES, whole_cols = cols - cols % LANES;
    for (uint32_t r = 0; r < whole_rows; r += LANES)
        for (uint32_t c = 0; c < whole_cols; c += LANES) {
            vf block[LANES];
            UNROLL for (uint32_t i = 0; i < LANES; i++) block[i] = v_load(a + (r + i) * lda + c);
            v_transpose(block);
            UNROLL for (uint32_t i = 0; i < LANES; i++)
                v_store(out + (c + i) * ldo + r, v_mul(block[i], factor));
        }
    for (uint32_t r = 0; r < rows; r++) /* the edges */
        for (uint32_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            out[c * ldo + r] = scale * a[r * lda + c];
}
