/* The two halves of dk_clip, so that they can be measured separately. */
#ifndef DK_CLIP_H
#define DK_CLIP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void dk_clip_features(const int16_t *samples);
void dk_clip_infer(float *logits, int dense);

#ifdef __cplusplus
}
#endif
#endif
