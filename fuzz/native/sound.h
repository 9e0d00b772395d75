/* Sound of the targets that read float samples. */
#ifndef FUZZ_SOUND_H
#define FUZZ_SOUND_H

#include "input.h"

/* Samples of several kinds: any bits, clicks, noise of a loudness, silence. */
static inline size_t take_samples(input *in, float *samples, size_t most) {
    size_t count = 0;
    while (in->left && count < most) {
        uint8_t kind = take_byte(in);
        size_t run = take_short(in) % 1200;
        if (run > most - count) run = most - count;
        float scale = ldexpf(1.0f, kind / 4 % 32 - 16);
        if (kind % 4 == 0) memset(samples + count, 0, run * sizeof *samples);
        if (kind % 4 == 1) random_floats(kind, scale, samples + count, run);
        for (size_t i = 0; kind % 4 == 2 && i < run; i++) samples[count + i] = i % 97 ? 0 : scale;
        if (kind % 4 == 3) {
            run = run < 8 ? run : 8;
            for (size_t i = 0; i < run; i++) samples[count + i] = take_any_float(in);
        }
        count += run;
    }
    return count;
}

/* Whether a block is accepted. */
static inline int within(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= 1e9f)) return 0;
    return 1;
}

#endif
