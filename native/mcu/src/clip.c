/* One second of sound. It is a file of its own because its energies take memory that a stream does
 * not need: a program that does not call dk_clip does not have it. */
#include "clip.h"
#include "deltakwt_fixed.h"
#include "dk.h"
#include "engine.h"
#include "profile.h"

#include <string.h>

static float energies[DK_FRAMES * DK_BANDS], column[DK_FRAMES];

/* Computes the features of a clip. The floor uses the whole clip; in a stream it is tracked. */
void dk_clip_features(const int16_t *samples) {
    dk_borrowed memory = dk_borrow();
    const dk_frontend *frontend = &dk_flash_frontend;
    float row[DK_FEATURES];
    for (uint32_t t = 0; t < DK_FRAMES; t++) {
        for (uint32_t i = 0; i < DK_FRAME; i++)
            memory.frame[i] = (float)samples[t * frontend->hop + i] * (1.0f / 32768.0f);
        frontend->kernels->energies(frontend, memory.frame, 1, energies + t * DK_BANDS,
                                    memory.work);
    }
    dk_log_energies(frontend->kernels, &dk_front_end, energies, DK_FRAMES, column);
    for (uint32_t t = 0; t < DK_FRAMES; t++) {
        frontend->kernels->dct(frontend, energies + t * DK_BANDS, 1, row);
        dk_fixed_features(row, dk_feature_scales, 1, DK_FEATURES,
                          memory.features + t * DK_FEATURES);
    }
}

uint32_t dk_clip(const int16_t *samples, float *logits) {
    int32_t integers[DK_LABELS];
    uint32_t best = 0;
    dk_clip_features(samples);
    dk_clip_infer(integers, 0);
    for (uint32_t i = 0; i < DK_LABELS; i++) {
        logits[i] = (float)integers[i] * dk_logit_step;
        if (integers[i] > integers[best]) best = i;
    }
    return best;
}
