/* The tables of the front end, in double precision. On a microcontroller they are constants. */
#include "internal.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { SAMPLE_RATE = 16000, FFT = 512 };
static const double LOW_HZ = 20.0, HIGH_HZ = 7600.0;

static double mel_of(double hz) { return 1127.0 * log1p(hz / 700.0); }

/* HTK mel triangles, linear in mel. The spectrum kernel yields twice the magnitudes. */
static void init_mel(dk_frontend *frontend) {
    double low = mel_of(LOW_HZ), step = (mel_of(HIGH_HZ) - low) / (DK_BANDS + 1);
    float *weight = frontend->mel;
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        uint32_t first = 0, bins = 0;
        for (uint32_t bin = 1; bin < DK_BINS - 1; bin++) {
            double at = (mel_of((double)bin * SAMPLE_RATE / FFT) - low) / step - band;
            double height = at < 1.0 ? at : 2.0 - at; /* rises from 0 to 1, falls from 1 to 2 */
            if (height <= 0.0) continue;
            if (!bins++) first = bin;
            *weight++ = (float)(height / 2.0);
        }
        frontend->first[band] = (uint16_t)first;
        frontend->bins[band] = (uint16_t)bins;
    }
}

static void init_fft(dk_frontend *frontend) {
    for (uint32_t k = 0; k < 256; k++) {
        frontend->cosine[k] = (float)cos(2.0 * PI * k / 256.0);
        frontend->sine[k] = (float)-sin(2.0 * PI * k / 256.0);
        /* four base-4 digits, reversed */
        frontend->place[k] =
            (uint8_t)((k & 3u) << 6 | (k >> 2 & 3u) << 4 | (k >> 4 & 3u) << 2 | k >> 6);
    }
    for (uint32_t k = 0; k <= 128; k++) {
        frontend->half_cosine[k] = (float)cos(2.0 * PI * k / FFT);
        frontend->half_sine[k] = (float)-sin(2.0 * PI * k / FFT);
    }
}

size_t dk_frontend_size(void) { return sizeof(dk_frontend) + DK_ALIGN; }

dk_status dk_frontend_init(void *memory, size_t size, dk_isa isa, const dk_frontend **out) {
    return dk_frontend_init_stride(memory, size, isa, 1, out);
}

dk_status dk_frontend_init_stride(void *memory, size_t size, dk_isa isa, uint32_t stride,
                                  const dk_frontend **out) {
    if (!memory || !out || stride - 1 >= DK_MOST_STRIDE) return DK_BAD_ARGUMENT;
    if (size < dk_frontend_size()) return DK_BAD_MEMORY;
    if (!dk_isa_available(isa)) return DK_BAD_ISA;
    dk_arena arena = dk_arena_at(memory);
    dk_frontend *frontend = (dk_frontend *)dk_take(&arena, 1, sizeof *frontend);
    memset(frontend, 0, sizeof *frontend);
    frontend->kernels = dk_kernels_for(isa);
    frontend->hop = stride * DK_HOP;
    for (uint32_t n = 0; n < DK_FRAME; n++)
        frontend->window[n] = (float)(0.5 - 0.5 * cos(2.0 * PI * n / DK_FRAME));
    init_fft(frontend);
    init_mel(frontend);
    for (uint32_t n = 0; n < DK_BANDS; n++)
        for (uint32_t k = 0; k < DK_COEFFICIENTS; k++)
            frontend->dct_data[n * DK_DCT_STRIDE + k] =
                (float)(2.0 * cos(PI * (2 * n + 1) * k / 160.0) / sqrt(160.0));
    frontend->dct =
        (dk_matrix){frontend->dct_data, DK_BANDS, DK_COEFFICIENTS, DK_DCT_STRIDE, DK_F32};
    *out = frontend;
    return DK_OK;
}
