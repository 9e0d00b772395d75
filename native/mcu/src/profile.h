/* The settings of this export, as constants: profile.c. */
#ifndef DK_PROFILE_H
#define DK_PROFILE_H

#include "config.h"
#include "deltakwt.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const float *const dk_thresholds; /* (DK_LAYERS, DK_SITES), NULL: dense */
extern const dk_steady dk_front_end;
extern const float dk_on[DK_LABELS]; /* smoothed posterior of an event; 2: not a word */
extern const float dk_off;
extern const float dk_reuse;    /* difference of features that makes a window new */
extern const uint32_t dk_stray; /* features that may differ more while nothing could be a word */
extern const float dk_maybe;    /* posterior at which something could be one */

#ifdef __cplusplus
}
#endif
#endif
