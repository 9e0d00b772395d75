/* Softmax, GELU and the logarithm. Part of vector.inc.h. */

#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

#define LOG2_E 1.44269504f

/* 2^x for -126 <= x <= 126, to 2e-7: 2^n times a polynomial on [-1/2, 1/2]. */
INLINE vf power_of_two(vf x) {
    vf shifted = v_add(x, v_set(ROUNDER));
    vf f = v_sub(x, v_sub(shifted, v_set(ROUNDER)));
    vf p = v_fma(f, v_set(1.3333558e-3f), v_set(9.6181291e-3f));
    p = v_fma(p, f, v_set(5.5504109e-2f));
    p = v_fma(p, f, v_set(2.4022651e-1f));
    p = v_fma(p, f, v_set(6.9314718e-1f));
    p = v_fma(p, f, v_set(1.0f));
    return v_scale(p, shifted);
}

/* ROWS rows at once: with a single row the latency of its sums would dominate. */
INLINE void softmax_rows(const uint32_t ROWS, float *const x[2], uint32_t n) {
    const uint32_t whole = n - n % LANES, tail = n % LANES;
    const vf unit = v_set(LOG2_E), least = v_set(-126.0f);
    vf top[2], rest[2], shift[2], sum[2];
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        rest[r] = tail ? v_load_n(x[r] + whole, tail, x[r][0]) : v_set(x[r][0]);
        top[r] = rest[r];
        sum[r] = v_set(0.0f);
    }
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++) top[r] = v_max(top[r], v_load(x[r] + i));
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) /* the largest becomes 2^0 */
        shift[r] = v_set(-LOG2_E * v_largest(top[r]));
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++) {
            vf power = power_of_two(v_max(v_fma(v_load(x[r] + i), unit, shift[r]), least));
            v_store(x[r] + i, power);
            sum[r] = v_add(sum[r], power);
        }
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        rest[r] = power_of_two(v_max(v_fma(rest[r], unit, shift[r]), least));
        sum[r] = v_add(sum[r], v_select(v_first(tail), rest[r], v_set(0.0f)));
        shift[r] = v_set(1.0f / v_sum(sum[r]));
    }
    for (uint32_t i = 0; i < whole; i += LANES) {
        UNROLL for (uint32_t r = 0; r < ROWS; r++)
            v_store(x[r] + i, v_mul(v_load(x[r] + i), shift[r]));
    }
    UNROLL for (uint32_t r = 0; r < ROWS; r++) {
        if (tail) v_store_n(x[r] + whole, v_mul(rest[r], shift[r]), tail);
    }
}

static void KERNEL(softmax)(float *x, size_t ldx, const uint16_t *where, uint32_t rows,
                            uint32_t n) {
    float *pair[2];
    uint32_t waiting = 0;
    for (uint32_t r = 1; r <= rows; r++) {
        if (where[r] != r) continue;
        pair[waiting++] = x + r * ldx;
        if (waiting == 2) softmax_rows(2, pair, n);
        waiting %= 2;
    }
    if (waiting) softmax_rows(1, pair, n);
}

/* x/2 (1 + tanh(u)) = x / (1 + 2^-z), z = 2 log2(e) sqrt(2/pi) (x + 0.044715 x^3). */
INLINE vf gelu_of(vf x) {
    vf inner = v_fma(v_mul(x, x), v_set(-0.0713548163f * LOG2_E), v_set(-1.5957691216f * LOG2_E));
    vf exponent = v_min(v_max(v_mul(x, inner), v_set(-126.0f)), v_set(126.0f));
    return v_div(x, v_add(v_set(1.0f), power_of_two(exponent)));
}

static void KERNEL(gelu)(const float *x, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(out + i, gelu_of(v_load(x + i)));
    if (i < n) v_store_n(out + i, gelu_of(v_load_n(x + i, n - i, 0.0f)), n - i);
}

/* log(m 2^e) = log(m) + e ln2, log(m) a polynomial in m - 1. The same operations in the same order
 * as in scalar.c, without fused ones, so that every instruction set gives the same bits. */
INLINE vf log_of(vf x) {
    static const float factors[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                    1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                    -2.4999993993e-1f, 3.3333331174e-1f};
    vf e, m = v_split(v_max(x, v_set(1e-12f)), &e);
    vf f = v_sub(m, v_set(1.0f)), square = v_mul(f, f), p = v_set(7.0376836292e-2f);
    UNROLL for (uint32_t i = 0; i < 8; i++) p = v_add(v_mul(p, f), v_set(factors[i]));
    p = v_sub(v_mul(v_mul(p, f), square), v_mul(e, v_set(2.12194440e-4f)));
    p = v_sub(p, v_mul(square, v_set(0.5f)));
    return v_add(v_mul(e, v_set(0.693359375f)), v_add(f, p));
}

static void KERNEL(log_floor)(const float *x, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(out + i, log_of(v_load(x + i)));
    if (i < n) v_store_n(out + i, log_of(v_load_n(x + i, n - i, 1.0f)), n - i);
}

/* The DCT of the log energies. The order is that of the scalar gemm: four bands at a time. */
static void KERNEL(dct)(const dk_frontend *frontend, const float *logs, uint32_t frames,
                        float *out) {
    enum { VECTORS = (DK_COEFFICIENTS + LANES - 1) / LANES, TAIL = DK_COEFFICIENTS % LANES };
    for (uint32_t t = 0; t < frames; t++, logs += DK_BANDS, out += DK_COEFFICIENTS) {
        vf sum[VECTORS];
        UNROLL for (uint32_t v = 0; v < VECTORS; v++) sum[v] = v_set(0.0f);
        for (uint32_t band = 0; band < DK_BANDS; band += DK_GROUP) {
            const float *w = frontend->dct_data + (size_t)band * DK_DCT_STRIDE;
            UNROLL for (uint32_t v = 0; v < VECTORS; v++, w += LANES) {
                vf part = v_mul(v_set(logs[band]), v_load(w));
                UNROLL for (uint32_t i = 1; i < DK_GROUP; i++) part =
                    v_add(part, v_mul(v_set(logs[band + i]), v_load(w + i * DK_DCT_STRIDE)));
                sum[v] = v_add(sum[v], part);
            }
        }
        UNROLL for (uint32_t v = 0; v < DK_COEFFICIENTS / LANES; v++)
            v_store(out + v * LANES, sum[v]);
        if (TAIL) v_store_n(out + DK_COEFFICIENTS - TAIL, sum[VECTORS - 1], TAIL);
    }
}
