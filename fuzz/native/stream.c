/* The front end: any setting, any samples, blocks of any size. The rows of a stream do not depend
 * on the sizes of the blocks, and a refused block changes nothing. */
#include "sound.h"

#include <deltakwt.h>

enum { MOST = 6000 }; /* samples */

static const dk_frontend *frontend;

static void start(void) {
    static void *memory;
    if (memory) return;
    memory = exactly(dk_frontend_size());
    EXPECT(dk_frontend_init(memory, dk_frontend_size(), dk_isa_best(), &frontend) == DK_OK);
}

static dk_front_end_setting take_setting(input *in) {
    dk_front_end_setting setting;
    setting.smooth = take_byte(in) % 2;
    int any = take_byte(in) % 4 == 0;
    setting.floor = any ? take_any_double(in) : (double)take_byte(in) / 16.0;
    setting.quantile = any ? take_any_double(in) : (double)take_share(in);
    return setting;
}

/* Pushes all samples in blocks from `seed` and returns the rows; their values go to *out. */
static uint32_t push_all(const dk_front_end_setting *setting, const float *samples, size_t count,
                         uint32_t seed, float *out) {
    dk_stream *stream;
    void *memory = exactly(dk_stream_size());
    uint32_t rows = 0;
    EXPECT(dk_stream_init(memory, dk_stream_size() - 1, frontend, setting, &stream));
    EXPECT(dk_stream_init(memory, dk_stream_size(), frontend, setting, &stream) == DK_OK);
    for (size_t at = 0; at < count;) {
        size_t block = seed ? next_random(&seed) % 700 : count;
        if (block > count - at) block = count - at;
        uint32_t made = 0, most = dk_stream_rows(stream, block);
        float *features = (float *)exactly(most * DK_COEFFICIENTS * sizeof *features);
        dk_status status = dk_stream_push(stream, samples + at, block, features, &made);
        EXPECT(status == (within(samples + at, block) ? DK_OK : DK_BAD_VALUE));
        EXPECT(made <= most);
        for (uint32_t i = 0; i < made * DK_COEFFICIENTS; i++) EXPECT(isfinite(features[i]));
        if (made) memcpy(out + rows * DK_COEFFICIENTS, features, made * DK_COEFFICIENTS * 4);
        rows += made;
        free(features);
        at += block;
    }
    free(memory);
    return rows;
}

static void check_clip(const dk_front_end_setting *setting, const float *samples, size_t count) {
    uint32_t frames = dk_frames(count);
    size_t size = dk_features_scratch_size(frames);
    void *scratch = exactly(size);
    float *features = (float *)exactly(frames * DK_COEFFICIENTS * sizeof *features);
    dk_status status = dk_features(frontend, samples, count, setting, scratch, size, features);
    EXPECT((status == DK_OK) == (frames && within(samples, count)));
    for (uint32_t i = 0; !status && i < frames * DK_COEFFICIENTS; i++)
        EXPECT(isfinite(features[i]));
    free(scratch), free(features);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static float samples[MOST], one[MOST / DK_HOP * DK_COEFFICIENTS],
        other[MOST / DK_HOP * DK_COEFFICIENTS];
    input in = {data, size};
    start();
    dk_front_end_setting setting = take_setting(&in);
    uint32_t seed = take_word(&in) | 1u;
    size_t count = take_samples(&in, samples, MOST);
    dk_stream *stream;
    void *memory = exactly(dk_stream_size());
    dk_status status = dk_stream_init(memory, dk_stream_size(), frontend, &setting, &stream);
    free(memory);
    EXPECT(status == DK_OK || status == DK_BAD_VALUE);
    if (status) return 0;
    check_clip(&setting, samples, count);
    uint32_t rows = push_all(&setting, samples, count, seed, one);
    if (!within(samples, count)) return 0; /* which blocks are refused depends on their sizes */
    EXPECT(push_all(&setting, samples, count, 0, other) == rows);
    EXPECT(!memcmp(one, other, rows * DK_COEFFICIENTS * sizeof *one));
    return 0;
}
