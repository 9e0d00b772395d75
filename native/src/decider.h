/* The decision rule of the library: from the logits of overlapping windows to words. The same rule
 * as src/deltakwt/listen/decision.py, where it is described, and mcu/src/decision.c, which has its
 * sizes as constants. */
#ifndef DK_DECIDER_H
#define DK_DECIDER_H

#include "deltakwt_spotter.h"
#include "internal.h"

enum { DK_NO_LABEL = -1 };

/* A word in windows: the first window that recognised it, the best one, the one that decided. */
typedef struct {
    int32_t label; /* DK_NO_LABEL: none */
    float score;
    uint64_t first, peak, window;
} dk_decided_word;

typedef struct {
    dk_decision rule; /* its `on` points to memory of the decider */
    uint32_t labels;
    float *on;       /* (labels) */
    float *history;  /* (smooth, labels): posteriors of the last windows */
    float *scores;   /* (labels): smoothed posteriors */
    uint8_t *armed;  /* (labels): the word may become a candidate */
    uint8_t *active; /* (labels): its score is at `off` or above, */
    uint64_t *first; /* (labels): since this window */
    uint32_t oldest; /* row of the history */
    uint64_t window; /* number of the next window */
    uint64_t ready;  /* window at which the refractory time ends */
    dk_decided_word candidate;
} dk_library_decider;

/* Takes the arrays from the arena. With an arena over NULL this only adds up the size. */
void dk_decider_layout(dk_library_decider *decider, dk_arena *arena, const dk_decision *rule,
                       uint32_t labels);
void dk_decider_start(dk_library_decider *decider);
/* Returns 1 if the logits of the next window complete a word. */
int dk_decider_push(dk_library_decider *decider, const float *logits, dk_decided_word *word);
/* Returns 1 if a stream of one window ends with a word that was not decided yet. */
int dk_decider_end_of_clip(const dk_library_decider *decider, dk_decided_word *word);

#endif
