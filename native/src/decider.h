/* The decision rule: from the logits of overlapping windows to words. It is described in
 * src/deltakwt/listen/decision.py and does the same arithmetic. The library (spotter.c) and the
 * exported microcontroller code (mcu/src/spotter.c) use this one source. */
#ifndef DK_DECIDER_H
#define DK_DECIDER_H

#include "deltakwt_decision.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    /* Set by the caller before dk_decider_start. */
    const dk_decision *rule;
    uint32_t labels;
    uint32_t delay;  /* samples after the end of a window that the front end needs */
    float *history;  /* (smooth, labels): roots of the posteriors of the last windows */
    float *scores;   /* (labels): smoothed posteriors */
    uint8_t *armed;  /* (labels): the word may become a candidate */
    uint8_t *active; /* (labels): its score is at `off` or above, */
    uint64_t *first; /* (labels): since this window */

    uint32_t oldest; /* row of the history */
    uint64_t window; /* number of the next window */
    uint64_t ready;  /* window at which the refractory time ends */
    struct {
        int is_there;
        uint32_t label;
        float score;
        uint64_t first;  /* window since which the word is active */
        uint64_t window; /* of the first candidate */
        uint64_t peak;   /* window of the score */
    } candidate;
} dk_decider;

/* Returns the samples after a window of one second that the front end needs for its last row, if
 * frames are `hop` samples apart. */
static inline uint32_t dk_delay(uint32_t hop, int smooth) {
    const uint32_t last = (DK_SECOND - DK_FRAME) / hop + (smooth ? 1u : 0u);
    const uint32_t needed = last * hop + DK_FRAME;
    return needed > DK_SECOND ? needed - DK_SECOND : 0;
}

void dk_decider_start(dk_decider *decider);
/* Returns 1 if the logits of the next window complete a word. */
int dk_decider_push(dk_decider *decider, const float *logits, dk_word *word);
/* Returns 1 if a stream of one window ends with a word that was not decided yet. */
int dk_decider_end_of_clip(const dk_decider *decider, dk_word *word);
/* Returns 1 if no label reaches the posterior (labels) from which a window may hold a word. */
int dk_holds_no_word(const float *logits, const float *word_posteriors, uint32_t labels);

#ifdef __cplusplus
}
#endif
#endif
