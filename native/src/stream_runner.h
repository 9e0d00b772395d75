/* A stream runner: what stream_setup.c lays out and stream_runner.c runs. */
#ifndef DK_STREAM_RUNNER_H
#define DK_STREAM_RUNNER_H

#include "fixed/fixed.h"
#include "window.h"

/* Samples that go through the front end at once: they give at most DK_MOST_LANES rows. */
enum { DK_PART = DK_MOST_LANES * DK_HOP };

/* Windows that the ring of rows holds: the newest, those before it that wait, and more rows for
 * whoever looks at them later (dk_stream_runner_view). */
enum { DK_HISTORY = 3 };

struct dk_stream_runner {
    const dk_config *config; /* of the model */
    const dk_model *model;   /* one of the two engines: this one in floats, */
    dk_fixed_setup fixed;    /* or this one in integers, if it has a model */
    dk_stream *stream;
    dk_window window;
    float *thresholds;      /* (layers, DK_SITES), or NULL: dense */
    int32_t *integers;      /* the thresholds of the fixed-point engine */
    float *feature_scales;  /* (40) */
    int16_t *shorts;        /* (frames, 40): the window in 16 bits */
    int32_t *fixed_logits;  /* (labels) */
    int32_t *peaks;         /* (layers + 1, DK_PEAKS) */
    float *word_posteriors; /* (labels) */
    float *bias;            /* (labels) */
    float *rows;            /* (DK_MOST_LANES, 40): rows of one part */
    dk_feature *ring;       /* (frames, 40), of the window */
    dk_feature *computed;   /* (frames, 40), of the window */
    float *logits;          /* (labels) of the last computed window */
    /* Of the windows given out last, the newest first: */
    int64_t *macs;                     /* (DK_MOST_SPAN, layers, DK_PRODUCTS) */
    int64_t *nonzeros;                 /* (DK_MOST_SPAN, layers, DK_SITES) */
    uint8_t is_computed[DK_MOST_SPAN]; /* 0: it has the logits of an earlier one, and no counts */
    uint32_t taken;                    /* row of the history that is the last of the newest one */
    uint32_t span;                     /* 0: every window is computed, unless it is near */
    float *history;                    /* (DK_HISTORY * frames, 40): a ring of the newest rows */
    float *older;                      /* (frames, 40): a window that waited */
    uint32_t newest;                   /* row of the history that was written last */
    int is_waiting;   /* windows may wait; otherwise each is computed as it comes */
    int is_passing;   /* the last computed window */
    uint32_t waiting; /* windows that wait, with the newest */
    uint32_t same;    /* how many of them, from the first, are near the last computed one */
    uint32_t since;   /* windows since the last one that did not pass */
    uint32_t failed;  /* windows in a row that did not pass, while none waits */
    void *scratch;
    size_t scratch_size;
};

#endif
