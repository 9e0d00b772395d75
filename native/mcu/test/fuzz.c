/* Random sound of every loudness in blocks of random size: no undefined behaviour (checked by the
 * sanitizers), no NaN in the output. `fuzz N` tries N seeds. */
#include "config.h"
#include "dk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECOND = 16000 };

static uint32_t state;

static uint32_t next(void) { /* xorshift */
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static int16_t sample(uint32_t kind, uint32_t loudness) {
    if (kind == 0) return 0;
    if (kind == 1) return next() & 1 ? INT16_MAX : INT16_MIN;
    if (kind == 2) return next() % 997 ? 0 : INT16_MIN; /* clicks */
    return (int16_t)(((int32_t)(next() >> 16) - 32768) / (1 << loudness % 16));
}

static void check(float value, float limit, const char *what) {
    if (isfinite(value) && fabsf(value) <= limit) return;
    printf("%s is %g\n", what, (double)value);
    exit(1);
}

static void try_seed(uint32_t seed) {
    static int16_t sound[SECOND];
    float logits[DK_LABELS];
    state = seed * 2654435761u + 1;
    uint32_t kind = 0, loudness = 0;
    for (uint32_t i = 0; i < SECOND; i++) {
        if (i % 2000 == 0) kind = next() % 6, loudness = next();
        sound[i] = sample(kind, loudness);
    }
    if (dk_clip(sound, logits) >= DK_LABELS) exit(1);
    for (uint32_t i = 0; i < DK_LABELS; i++) check(logits[i], 1e6f, "a logit");
    dk_init();
    for (uint32_t pushed = 0; pushed < 2 * SECOND;) {
        uint32_t at = next() % SECOND, size = next() % (next() % 16 ? 500 : SECOND);
        if (size > SECOND - at) size = SECOND - at;
        dk_push(sound + at, size);
        pushed += size;
        dk_event event;
        while (dk_result(&event)) {
            check(event.score, 1.0f, "a score");
            if (event.label >= DK_LABELS || event.start >= event.end) exit(1);
        }
    }
}

int main(int count, char **values) {
    int seeds = count > 1 ? atoi(values[1]) : 20;
    for (int seed = 0; seed < seeds; seed++) try_seed((uint32_t)seed);
    printf("%d seeds: nothing found\n", seeds);
    return 0;
}
