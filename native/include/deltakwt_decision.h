/* Words in a stream, and the settings of the rule that finds them. */
#ifndef DELTAKWT_DECISION_H
#define DELTAKWT_DECISION_H

#include "deltakwt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DK_SECOND = 16000 }; /* samples */

/* The rule that turns the logits of overlapping windows into words; see docs/listening.md. */
typedef struct {
    uint32_t hop;             /* steps of 10 ms from one window to the next */
    uint32_t onset, outliers; /* see dk_stream_options */
    float reuse;              /* see dk_stream_options */
    float possible;           /* posterior from which a window may hold a word */
    float off;                /* smoothed posterior below which a word has ended */
    uint32_t smooth;          /* windows whose posteriors are averaged */
    uint32_t patience;        /* windows in which a better candidate replaces the first */
    uint32_t refractory;      /* windows after a word that cannot hold another one */
    const float *on;          /* (labels): smoothed posterior of a candidate; 2: not a word */
    float unknown_bias;       /* added to the logit of "_unknown_" in a stream */
} dk_decision;

/* A word in a stream. Positions are samples since the start of the stream. */
typedef struct {
    uint32_t label;
    float score;         /* smoothed posterior, 0 to 1 */
    uint64_t start, end; /* the word lies between these samples */
    uint64_t time;       /* samples that were needed to decide it */
    uint64_t window;     /* start of its best window */
} dk_word;

#ifdef __cplusplus
}
#endif
#endif
