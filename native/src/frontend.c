/* Sound to MFCC. A frame has 480 samples; the next one begins stride * 160 samples later. Each
 * frame passes a Hann window, a 512-point FFT, 80 mel bands, the logarithm, and a DCT that
 * keeps 40. */
#include "internal.h"

#include <math.h>
#include <string.h>

static uint32_t count_frames(size_t samples, uint32_t hop) {
    size_t frames = samples < DK_FRAME ? 0 : 1 + (samples - DK_FRAME) / hop;
    return frames > UINT32_MAX ? 0 : (uint32_t)frames;
}

uint32_t dk_frames(size_t samples) { return count_frames(samples, DK_HOP); }

uint32_t dk_frontend_frames(const dk_frontend *frontend, size_t samples) {
    return count_frames(samples, frontend->hop);
}

/* Averages with weights (1, 2, 1)/4 over time, in place; the first and last frames are repeated. */
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

/* Returns the value at `rank` of the sorted x (n); x is reordered. */
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

/* Limits each band from below by `floor` times its own quantile over these frames. */
static void floor_bands(float *logs, uint32_t frames, const dk_front_end_setting *setting,
                        float *column) {
    uint32_t rank = (uint32_t)(setting->quantile * (frames - 1));
    float lift = (float)log(setting->floor);
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        for (uint32_t t = 0; t < frames; t++) column[t] = logs[(size_t)t * DK_BANDS + band];
        float least = order_statistic(column, frames, rank) + lift;
        for (uint32_t t = 0; t < frames; t++) {
            float *at = logs + (size_t)t * DK_BANDS + band;
            if (*at < least) *at = least;
        }
    }
}

int dk_all_within(const float *x, size_t n, float limit) {
    int within = 1;
    for (size_t i = 0; i < n; i++) within &= fabsf(x[i]) <= limit;
    return within;
}

dk_status dk_check_front_end(const dk_front_end_setting *setting) {
    if (!(setting->floor >= 0.0 && setting->floor < 1e30)) return DK_BAD_VALUE;
    if (!(setting->quantile >= 0.0 && setting->quantile <= 1.0)) return DK_BAD_VALUE;
    return DK_OK;
}

void dk_log_energies(const dk_kernels *kernels, const dk_front_end_setting *setting,
                     float *energies, uint32_t frames, float *column) {
    if (setting->smooth) smooth(energies, frames);
    kernels->log_floor(energies, energies, frames * DK_BANDS);
    if (setting->floor > 0.0) floor_bands(energies, frames, setting, column);
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
                      const dk_front_end_setting *setting, void *scratch, size_t scratch_size,
                      float *features) {
    static const dk_front_end_setting plain = {0, 0.0, 0.0};
    if (!setting) setting = &plain;
    uint32_t frames = frontend ? dk_frontend_frames(frontend, samples) : 0;
    if (!audio || !features || !frames) return DK_BAD_ARGUMENT;
    if (!scratch || scratch_size < dk_features_scratch_size(frames)) return DK_BAD_MEMORY;
    if (dk_check_front_end(setting) || !dk_all_within(audio, samples, DK_LOUDEST))
        return DK_BAD_VALUE;
    dk_arena arena = dk_arena_at(scratch);
    features_plan plan = plan_features(&arena, frames);
    const dk_kernels *kernels = frontend->kernels;
    kernels->energies(frontend, audio, frames, plan.energies, plan.work);
    dk_log_energies(kernels, setting, plan.energies, frames, plan.column);
    kernels->dct(frontend, plan.energies, frames, features);
    return DK_OK;
}
