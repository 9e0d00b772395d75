/* The reader of WAV files: the samples of an accepted file lie within it. */
#include "input.h"

#include <deltakwt_spotter.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = (uint8_t *)exactly(size);
    if (size) memcpy(copy, data, size);
    const int16_t *samples = NULL;
    size_t count = 0;
    int64_t sum = 0;
    dk_status status = dk_wav_read(copy, size, &samples, &count);
    EXPECT(status == DK_OK || status == DK_BAD_SOUND);
    for (size_t i = 0; status == DK_OK && i < count; i++) sum += samples[i];
    EXPECT(llabs(sum) <= 32768 * (int64_t)size);
    EXPECT(dk_wav_read(copy + 1, size, &samples, &count) == DK_BAD_ARGUMENT);
    free(copy);
    return 0;
}
