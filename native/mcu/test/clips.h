/* The sound of the self-test and the expected results (clips.c). */
#ifndef DK_TEST_CLIPS_H
#define DK_TEST_CLIPS_H

#include <stdint.h>

extern const int16_t test_word[16000];     /* a synthetic voice */
extern const float test_expected[];        /* (labels) dense logits of the word */
extern const float test_tolerance;         /* how far off a dense logit may be */
extern const uint32_t test_expected_delta; /* best label with deltas */

#endif
