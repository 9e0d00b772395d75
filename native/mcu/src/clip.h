/* The two halves of dk_clip, so that they can be measured separately, and what they share with
 * the stream. */
#ifndef DK_CLIP_H
#define DK_CLIP_H

#include "internal.h"

#ifdef __cplusplus
extern "C" {
#endif

void dk_clip_features(const int16_t *samples);
void dk_clip_infer(int32_t *logits, int dense); /* the integers before they become floats */

/* The memory of the stream that a clip borrows (spotter.c). */
typedef struct {
    float *frame, *work; /* (DK_FRAME), (DK_ENERGIES_WORK) */
    int16_t *features;   /* (DK_FRAMES, DK_FEATURES) */
} dk_borrowed;
dk_borrowed dk_borrow(void);

#ifdef __cplusplus
}
#endif
#endif
