/* The setting and the decision rule of this export, as constants (profile.c). */
#ifndef DK_PROFILE_H
#define DK_PROFILE_H

#include "config.h"
#include "deltakwt_decision.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const int16_t *const dk_thresholds; /* (DK_LAYERS, DK_SITES), or NULL: dense */
extern const dk_front_end_setting dk_front_end;
extern const dk_decision dk_rule;
extern const float dk_feature_scales[DK_FEATURES]; /* of the features in 16 bits */
extern const int32_t dk_reuse_steps[DK_FEATURES];  /* dk_rule.reuse in steps of each feature */
extern const float dk_logit_step;                  /* the value of the integer 1 in the logits */
extern const float dk_logit_biases[DK_LABELS];     /* added to the logits of a stream */
extern const float
    dk_word_posteriors[DK_LABELS]; /* from which a window may hold a word; 2: never */

#ifdef __cplusplus
}
#endif
#endif
