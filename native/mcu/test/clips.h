/* The sound of the self-test and the expected results (clips.c). */
#ifndef DK_TEST_CLIPS_H
#define DK_TEST_CLIPS_H

#include <stdint.h>

extern const int16_t test_word[16000];           /* a synthetic voice */
extern const int32_t test_dense[], test_delta[]; /* (labels) logits of the word */

#endif
