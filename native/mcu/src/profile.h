/* The setting and the decision rule of this export, as constants (profile.c). */
#ifndef DK_PROFILE_H
#define DK_PROFILE_H

#include "config.h"
#include "deltakwt.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const float *const dk_thresholds; /* (DK_LAYERS, DK_SITES), or NULL: dense */
extern const dk_front_end_setting dk_front_end;
extern const float dk_on[DK_LABELS];     /* smoothed posterior that makes a word a candidate; 2: not
                                            a word */
extern const float dk_off;               /* smoothed posterior below which a word has ended */
extern const float dk_maybe;             /* posterior from which a window may hold a word */
extern const float dk_reuse;             /* largest difference of a feature for reuse */
extern const uint32_t dk_reuse_outliers; /* features that may differ more in a quiet window */

#ifdef __cplusplus
}
#endif
#endif
