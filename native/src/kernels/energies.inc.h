/* Mel energies of LANES frames at a time: lane l of every vector belongs to frame l, so the FFT
 * needs no shuffles and reads the same in every instruction set (scalar: one lane).
 *
 * Every product is rounded before it is added, and sums have one order: all instruction sets give
 * the same bits, those of core/exact_frontend.py.
 *
 * The includer defines vf, LANES and v_load, v_store, v_set, v_add, v_sub, v_mul, v_sqrt,
 * v_transpose.
 */

/* One radix-4 step of a decimation in frequency, in place: positions at, at+q, at+2q, at+3q. */
static inline void butterfly(float *re, float *im, uint32_t at, uint32_t q, const vf c[3],
                             const vf s[3], int twiddle) {
    float *r[4], *i[4];
    for (uint32_t p = 0; p < 4; p++) {
        r[p] = re + (at + p * q) * LANES;
        i[p] = im + (at + p * q) * LANES;
    }
    vf ar = v_load(r[0]), br = v_load(r[1]), cr = v_load(r[2]), dr = v_load(r[3]);
    vf ai = v_load(i[0]), bi = v_load(i[1]), ci = v_load(i[2]), di = v_load(i[3]);
    vf sum_r = v_add(ar, cr), dif_r = v_sub(ar, cr), sum2_r = v_add(br, dr), dif2_r = v_sub(br, dr);
    vf sum_i = v_add(ai, ci), dif_i = v_sub(ai, ci), sum2_i = v_add(bi, di), dif2_i = v_sub(bi, di);
    vf yr[4] = {v_add(sum_r, sum2_r), v_add(dif_r, dif2_i), v_sub(sum_r, sum2_r),
                v_sub(dif_r, dif2_i)};
    vf yi[4] = {v_add(sum_i, sum2_i), v_sub(dif_i, dif2_r), v_sub(sum_i, sum2_i),
                v_add(dif_i, dif2_r)};
    v_store(r[0], yr[0]);
    v_store(i[0], yi[0]);
    for (uint32_t p = 1; p < 4; p++) {
        if (twiddle) {
            vf rotated = v_sub(v_mul(yr[p], c[p - 1]), v_mul(yi[p], s[p - 1]));
            yi[p] = v_add(v_mul(yr[p], s[p - 1]), v_mul(yi[p], c[p - 1]));
            yr[p] = rotated;
        }
        v_store(r[p], yr[p]);
        v_store(i[p], yi[p]);
    }
}

/* (256, LANES) complex numbers in place; frequency k ends up at frontend->place[k]. */
static void fft256(const dk_frontend *frontend, float *re, float *im) {
    vf c[3], s[3];
    for (uint32_t span = 256; span >= 4; span /= 4) {
        uint32_t q = span / 4;
        for (uint32_t j = 0; j < q; j++) {
            for (uint32_t p = 0; p < 3; p++) {
                uint32_t turn = (p + 1) * j * (256 / span);
                c[p] = v_set(frontend->cosine[turn]);
                s[p] = v_set(frontend->sine[turn]);
            }
            if (j)
                for (uint32_t at = j; at < 256; at += span) butterfly(re, im, at, q, c, s, 1);
            else
                for (uint32_t at = 0; at < 256; at += span) butterfly(re, im, at, q, c, s, 0);
        }
    }
}

/* Windowed samples as 256 complex numbers, even samples real and odd samples imaginary. */
static void load_frames(const dk_frontend *frontend, const float *const frame[LANES], float *re,
                        float *im) {
    vf rows[LANES];
    enum { STEP = LANES > 1 ? LANES : 2 };
    for (uint32_t n = 0; n < DK_FRAME; n += STEP) {
#if LANES > 1
        vf window = v_load(frontend->window + n);
        for (uint32_t l = 0; l < LANES; l++) rows[l] = v_mul(v_load(frame[l] + n), window);
        v_transpose(rows);
        for (uint32_t k = 0; k < LANES; k++)
            v_store((k & 1 ? im : re) + (n + k) / 2 * LANES, rows[k]);
#else
        (void)rows;
        re[n / 2] = frame[0][n] * frontend->window[n];
        im[n / 2] = frame[0][n + 1] * frontend->window[n + 1];
#endif
    }
    for (uint32_t n = DK_FRAME / 2 * LANES; n < 256 * LANES; n += LANES) {
        v_store(re + n, v_set(0.0f));
        v_store(im + n, v_set(0.0f));
    }
}

/* Twice the magnitudes of bins 1..255 of the real 512-point spectrum (the mel weights halve them):
 * with E and O the spectra of the even and odd samples, X[k] = E + W^k O, X[256-k]* = E - W^k O. */
static void magnitudes(const dk_frontend *frontend, const float *re, const float *im,
                       float *magnitude) {
    for (uint32_t k = 1; k <= 128; k++) {
        size_t a = (size_t)frontend->place[k] * LANES, b = (size_t)frontend->place[256 - k] * LANES;
        vf ar = v_load(re + a), ai = v_load(im + a), br = v_load(re + b), bi = v_load(im + b);
        vf er = v_add(ar, br), ei = v_sub(ai, bi), or_ = v_add(ai, bi), oi = v_sub(br, ar);
        vf c = v_set(frontend->half_cosine[k]), s = v_set(frontend->half_sine[k]);
        vf tr = v_sub(v_mul(or_, c), v_mul(oi, s)), ti = v_add(v_mul(or_, s), v_mul(oi, c));
        vf pr = v_add(er, tr), pi = v_add(ei, ti), qr = v_sub(er, tr), qi = v_sub(ei, ti);
        v_store(magnitude + (256 - k) * LANES, v_sqrt(v_add(v_mul(qr, qr), v_mul(qi, qi))));
        v_store(magnitude + k * LANES, v_sqrt(v_add(v_mul(pr, pr), v_mul(pi, pi))));
    }
}

static void mel_bands(const dk_frontend *frontend, const float *magnitude, uint32_t lanes,
                      float *out) {
    const float *weight = frontend->mel;
    for (uint32_t band = 0; band < DK_BANDS; band += LANES) {
        vf rows[LANES];
        for (uint32_t b = 0; b < LANES; b++) {
            const float *bin = magnitude + (size_t)frontend->first[band + b] * LANES;
            vf sum = v_set(0.0f);
            for (uint32_t n = frontend->bins[band + b]; n > 0; n--, bin += LANES)
                sum = v_add(v_mul(v_load(bin), v_set(*weight++)), sum);
            rows[b] = sum;
        }
        v_transpose(rows);
        for (uint32_t l = 0; l < lanes; l++) v_store(out + l * DK_BANDS + band, rows[l]);
    }
}

static void KERNEL(energies)(const dk_frontend *frontend, const float *audio, uint32_t frames,
                             float *out, float *work) {
    float *re = work, *im = re + 256 * LANES, *magnitude = im + 256 * LANES;
    for (uint32_t t = 0; t < frames; t += LANES) {
        uint32_t lanes = frames - t < LANES ? frames - t : LANES;
        const float *frame[LANES]; /* spare lanes repeat the last frame */
        for (uint32_t l = 0; l < LANES; l++)
            frame[l] = audio + (size_t)(t + (l < lanes ? l : lanes - 1)) * frontend->hop;
        load_frames(frontend, frame, re, im);
        fft256(frontend, re, im);
        magnitudes(frontend, re, im, magnitude);
        mel_bands(frontend, magnitude, lanes, out + (size_t)t * DK_BANDS);
    }
}
