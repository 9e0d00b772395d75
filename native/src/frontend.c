/* Sound to MFCC: 480 samples every 160, Hann, 512-point spectrum, 80 mel bands, log, 40 DCT. */
#include "internal.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { SAMPLE_RATE = 16000, FFT = 512 };
static const double LOW_HZ = 20.0, HIGH_HZ = 7600.0;
static const float LOUDEST = 1e9f; /* beyond this a sample is no sound, and squares overflow */

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
    if (!memory || !out) return DK_BAD_ARGUMENT;
    if (size < dk_frontend_size()) return DK_BAD_MEMORY;
    if (!dk_isa_available(isa)) return DK_BAD_ISA;
    dk_arena arena = dk_arena_at(memory);
    dk_frontend *frontend = (dk_frontend *)dk_take(&arena, 1, sizeof *frontend);
    memset(frontend, 0, sizeof *frontend);
    frontend->kernels = dk_kernels_for(isa);
    for (uint32_t n = 0; n < DK_FRAME; n++)
        frontend->window[n] = (float)(0.5 - 0.5 * cos(2.0 * PI * n / DK_FRAME));
    init_fft(frontend);
    init_mel(frontend);
    enum { STRIDE = sizeof frontend->dct_data / sizeof(float) / DK_BANDS };
    for (uint32_t n = 0; n < DK_BANDS; n++)
        for (uint32_t k = 0; k < DK_COEFFICIENTS; k++)
            frontend->dct_data[n * STRIDE + k] =
                (float)(2.0 * cos(PI * (2 * n + 1) * k / 160.0) / sqrt(160.0));
    frontend->dct =
        (dk_matrix){frontend->dct_data, NULL, DK_BANDS, DK_COEFFICIENTS, STRIDE, DK_F32};
    *out = frontend;
    return DK_OK;
}

uint32_t dk_frames(size_t samples) {
    size_t frames = samples < DK_FRAME ? 0 : 1 + (samples - DK_FRAME) / DK_HOP;
    return frames > UINT32_MAX ? 0 : (uint32_t)frames;
}

/* (1, 2, 1)/4 over time, in place; the first and last frames are their own neighbours. */
static void smooth(float *energies, uint32_t frames) {
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        float *column = energies + band, before = column[0];
        for (uint32_t t = 0; t < frames; t++) {
            float here = column[(size_t)t * DK_BANDS];
            float after = t + 1 < frames ? column[(size_t)(t + 1) * DK_BANDS] : here;
            column[(size_t)t * DK_BANDS] = (before + 2.0f * here + after) / 4.0f;
            before = here;
        }
    }
}

/* The value that would stand at `rank` if x (n) were sorted; x is reordered. */
static float order_statistic(float *x, uint32_t n, uint32_t rank) {
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int64_t i = (int64_t)low - 1, j = (int64_t)high + 1;
        for (;;) {
            do i++;
            while (x[i] < pivot);
            do j--;
            while (x[j] > pivot);
            if (i >= j) break;
            float swap = x[i];
            x[i] = x[j];
            x[j] = swap;
        }
        if ((int64_t)rank <= j)
            high = (uint32_t)j;
        else
            low = (uint32_t)j + 1;
    }
    return x[rank];
}

/* No band falls below `floor` times its own quantile over these frames. */
static void floor_bands(float *logs, uint32_t frames, const dk_steady *steady, float *column) {
    uint32_t rank = (uint32_t)(steady->quantile * (frames - 1));
    float lift = (float)log(steady->floor);
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        for (uint32_t t = 0; t < frames; t++) column[t] = logs[(size_t)t * DK_BANDS + band];
        float least = order_statistic(column, frames, rank) + lift;
        for (uint32_t t = 0; t < frames; t++) {
            float *at = logs + (size_t)t * DK_BANDS + band;
            if (*at < least) *at = least;
        }
    }
}

dk_status dk_check_steady(const dk_steady *steady) {
    if (!(steady->floor >= 0.0 && steady->floor < 1e30)) return DK_BAD_VALUE;
    if (!(steady->quantile >= 0.0 && steady->quantile <= 1.0)) return DK_BAD_VALUE;
    return DK_OK;
}

typedef struct {
    float *energies, *work, *column;
} features_plan;

static features_plan plan_features(dk_arena *arena, uint32_t frames) {
    features_plan plan;
    plan.energies = dk_take_floats(arena, (size_t)frames * DK_BANDS);
    plan.work = dk_take_floats(arena, DK_ENERGIES_WORK);
    plan.column = dk_take_floats(arena, frames);
    return plan;
}

size_t dk_features_scratch_size(uint32_t frames) {
    dk_arena arena = dk_arena_at(NULL);
    plan_features(&arena, frames);
    return dk_arena_size(&arena);
}

dk_status dk_features(const dk_frontend *frontend, const float *audio, size_t samples,
                      const dk_steady *steady, void *scratch, size_t scratch_size,
                      float *features) {
    static const dk_steady plain = {0, 0.0, 0.0};
    if (!steady) steady = &plain;
    uint32_t frames = dk_frames(samples);
    if (!frontend || !audio || !features || !frames) return DK_BAD_ARGUMENT;
    if (!scratch || scratch_size < dk_features_scratch_size(frames)) return DK_BAD_MEMORY;
    if (dk_check_steady(steady) || !dk_all_within(audio, samples, LOUDEST)) return DK_BAD_VALUE;
    dk_arena arena = dk_arena_at(scratch);
    features_plan plan = plan_features(&arena, frames);
    const dk_kernels *kernels = frontend->kernels;
    kernels->energies(frontend, audio, frames, plan.energies, plan.work);
    if (steady->smooth) smooth(plan.energies, frames);
    kernels->log_floor(plan.energies, plan.energies, frames * DK_BANDS);
    if (steady->floor > 0.0) floor_bands(plan.energies, frames, steady, plan.column);
    kernels->gemm(plan.energies, DK_BANDS, frames, &frontend->dct, NULL, features, DK_COEFFICIENTS);
    return DK_OK;
}
