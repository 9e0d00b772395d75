/* The setting and the decision rule of this export, as constants (profile.c). */
#ifndef DK_PROFILE_H
#define DK_PROFILE_H

#include "config.h"
#include "deltakwt_decision.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const float *const dk_thresholds; /* (DK_LAYERS, DK_SITES), or NULL: dense */
extern const dk_front_end_setting dk_front_end;
extern const dk_decision dk_rule;
extern const float
    dk_word_posteriors[DK_LABELS]; /* from which a window may hold a word; 2: never */

#ifdef __cplusplus
}
#endif
#endif
