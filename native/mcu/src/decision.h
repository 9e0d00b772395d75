/* From the logits of overlapping windows to words: the decision layer of deltakwt.Spotter. */
#ifndef DK_DECISION_H
#define DK_DECISION_H

#include "config.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DK_NEVER = -1 };

/* An event in windows: the best one, the first one with the word, the one that decided. */
typedef struct {
    int32_t label; /* DK_NEVER: none */
    float score;
    uint32_t first, peak, window;
} dk_decided;

typedef struct {
    float history[DK_SMOOTH_WINDOWS][DK_LABELS]; /* posteriors; the oldest at `oldest` */
    uint32_t oldest;
    uint32_t window; /* the next one */
    uint32_t ready;  /* the window at which the refractory time is over */
    uint8_t armed[DK_LABELS];
    uint8_t active[DK_LABELS]; /* whether the word is at `off` or above, */
    uint32_t first[DK_LABELS]; /* and since which window */
    dk_decided candidate;      /* its `window` is the first candidate's */
} dk_decider;

void dk_decider_init(dk_decider *decider);
/* Returns 1 if the logits of the next window complete an event. */
int dk_decide(dk_decider *decider, const float *logits, dk_decided *event);
/* Returns 1 if these logits could be those of a word. */
int dk_maybe_word(const float *logits);

#ifdef __cplusplus
}
#endif
#endif
