/* The window of a stream: the newest feature rows, when they are due, and whether they must be
 * computed.
 *
 * The library (stream_runner.c) and the exported microcontroller code (mcu/src/spotter.c) use the
 * same source. They differ in how a feature is stored: as a float, or in 16 bits with DK_SMALL. The
 * engine in integers compares features of 16 bits in both, so both reuse the same windows.
 */
#ifndef DK_WINDOW_H
#define DK_WINDOW_H

#include "internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DK_SMALL
typedef int16_t dk_feature; /* as dk_fixed_features makes it */
#else
typedef float dk_feature;
#endif

typedef struct {
    uint32_t frames; /* rows of a window */
    uint32_t hop;    /* rows from one window to the next */
#ifdef DK_SMALL
    const float *scales;  /* (40): of the features in 16 bits */
    const int32_t *reuse; /* (40): see dk_stream_options; in steps of the feature */
#else
    float reuse; /* see dk_stream_options */
#endif
    uint32_t onset, outliers; /* see dk_stream_options */
    dk_feature *rows;         /* (frames, 40): a ring of the newest rows */
    dk_feature *computed;     /* (frames, 40): the last computed window, oldest row first */
    uint32_t next;            /* row of the ring to write next: the oldest, once it is full */
    uint32_t due;             /* rows that the next window still needs */
    int has_computed;
    int is_quiet; /* the last computed window holds no word; set by the caller */
} dk_window;

/* rows and computed: memory for (frames, 40) each. */
void dk_window_init(dk_window *window, uint32_t frames, uint32_t hop, dk_feature *rows,
                    dk_feature *computed);
/* Adds a row. Returns 1 if a window is due with it. */
int dk_window_add(dk_window *window, const float *row);
/* Returns 1 if the window is so close to the last computed one that its logits can be reused. */
int dk_window_is_near(const dk_window *window);
/* Copies the window to `computed`, oldest row first, and returns it. */
const dk_feature *dk_window_take(dk_window *window);

#ifdef __cplusplus
}
#endif
#endif
