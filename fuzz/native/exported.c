/* An exported model (`deltakwt export --target c`): calls in any order with any samples. */
#include "input.h"

#include "config.h"
#include "dk.h"

enum { SECOND = 16000, MOST_PUSHED = 2 * SECOND };

static void take_sound(input *in, int16_t *samples, size_t count) {
    uint8_t kind = take_byte(in);
    uint32_t state = kind + 1u;
    for (size_t i = 0; i < count; i++) {
        int16_t noise = (int16_t)(next_random(&state) >> 16);
        if (kind % 4 == 0) samples[i] = 0;
        if (kind % 4 == 1) samples[i] = noise & 1 ? INT16_MAX : INT16_MIN;
        if (kind % 4 == 2) samples[i] = (int16_t)(noise >> kind / 4 % 16);
        if (kind % 4 == 3) samples[i] = i < 64 ? (int16_t)take_short(in) : (int16_t)0;
    }
}

static void fetch_words(uint64_t pushed) {
    dk_event event;
    while (dk_result(&event)) {
        EXPECT(event.label < DK_LABEL_COUNT && dk_labels[event.label]);
        EXPECT(event.score >= 0.0f && event.score <= 1.001f);
        EXPECT(event.start < event.end && event.time <= pushed);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int16_t sound[SECOND];
    input in = {data, size};
    uint64_t pushed = 0, spent = 0;
    dk_init();
    while (in.left && spent < MOST_PUSHED) {
        uint8_t call = take_byte(&in);
        size_t count = take_short(&in) % (SECOND + 1);
        if (call % 32 == 0) {
            dk_init();
            pushed = 0;
        } else if (call % 32 == 1) {
            float logits[DK_LABELS];
            take_sound(&in, sound, SECOND);
            EXPECT(dk_clip(sound, logits) < DK_LABEL_COUNT);
            for (uint32_t i = 0; i < DK_LABELS; i++) EXPECT(isfinite(logits[i]));
            for (int i = 0; i < 6; i++) EXPECT(dk_macs()[i] < 1u << 30);
            dk_init(); /* dk_clip ends the stream */
            pushed = 0;
            spent += SECOND / 2;
        } else {
            take_sound(&in, sound, count);
            dk_push(sound, count);
            pushed += count;
        }
        spent += count;
        fetch_words(pushed);
    }
    return 0;
}
