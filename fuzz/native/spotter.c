/* Listening: a small model, in floats or in integers, with a rule, thresholds and a front end from
 * the input; then calls in any order: push, flush, next, classify, explain. */
#include "input.h"

#include <deltakwt_spotter.h>

enum { DIM = 4, MLP = 4, LABELS = 4, MOST_PUSHED = 3 * DK_SECOND };

static float weights[1 << 14], on[LABELS], thresholds[DK_SITES];

/* The weights of a model in fixed point; stored_integers.c has the order of the numbers. */
static dk_stored_integers take_integers(input *in) {
    static int16_t tensors[1 << 12];
    static double sites[DK_SITES];
    static float features[DK_COEFFICIENTS];
    static int32_t bias[LABELS], numbers[1 + 9];
    static const uint8_t least[] = {0, 1, 1, 1, 1, 0, 4, 4, 0, 0};
    static const uint8_t most[] = {15, 200, 200, 30, 30, 14, 12, 13, 14, 14};
    uint32_t state = take_byte(in) * 2654435761u | 1u, bits = 5u + take_byte(in) % 11u;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensors[i] = (int16_t)((int16_t)(next_random(&state) >> 16) >> bits);
    for (uint32_t i = 0; i < DK_SITES; i++) sites[i] = ldexp(1.0, take_byte(in) % 16);
    for (uint32_t i = 0; i < DK_COEFFICIENTS; i++)
        features[i] = ldexpf(1.0f, (int)(next_random(&state) >> 28));
    for (uint32_t i = 0; i < LABELS; i++) bias[i] = (int32_t)number(in, 0, 200);
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (int32_t)number(in, least[i], most[i]);
    const dk_stored_integers stored = {sites, features, ldexpf(1.0f, -(take_byte(in) % 16)),
                                       bias,  numbers,  tensors};
    return stored;
}

static dk_stored_model take_model(input *in) {
    dk_stored_model m;
    memset(&m, 0, sizeof m);
    const dk_config c = {DIM, 2, MLP, 1, LABELS, 98, DK_COEFFICIENTS};
    m.config = c;
    m.name = m.setting = "";
    m.labels = "a\0b\0c\0d";
    if (take_byte(in) % 2) {
        m.weights = weights;
        /* large weights give confident words */
        random_floats(take_byte(in), ldexpf(1.0f, take_byte(in) % 8 - 2), weights, 1 << 14);
    } else {
        m.integers = take_integers(in);
    }
    for (uint32_t i = 0; i < DK_SITES; i++) thresholds[i] = take_share(in) * 2.0f - 0.1f;
    if (take_byte(in) % 4) m.thresholds = thresholds;
    m.front_end.smooth = take_byte(in) % 2;
    m.front_end.floor = take_byte(in) % 4;
    m.front_end.quantile = (double)take_share(in);
    for (uint32_t i = 0; i < LABELS; i++) on[i] = fmaxf(take_share(in), 1e-6f);
    on[0] = 2.0f;
    const dk_decision rule = {1u + take_byte(in) % 100,
                              1u + take_byte(in) % 98,
                              take_short(in) % 10001u,
                              take_share(in),
                              take_share(in),
                              fmaxf(take_share(in), 1e-6f),
                              1u + take_byte(in) % 10,
                              take_byte(in) % 20u,
                              take_byte(in) % 50u,
                              on,
                              take_share(in)};
    m.decision = rule;
    m.stride = 1u + take_byte(in) % DK_MOST_STRIDE;
    m.config.frames = 1 + (DK_SECOND - DK_FRAME) / (m.stride * DK_HOP);
    m.decision.hop += (m.stride - m.decision.hop % m.stride) % m.stride; /* whole frames */
    if (m.decision.onset > m.config.frames) m.decision.onset = m.config.frames;
    return m;
}

static void take_sound(input *in, int16_t *samples, size_t count) {
    uint8_t kind = take_byte(in);
    uint32_t state = kind + 1u;
    for (size_t i = 0; i < count; i++) {
        int16_t noise = (int16_t)(next_random(&state) >> 16);
        samples[i] = kind % 3 == 0 ? 0 : kind % 3 == 1 ? noise : (int16_t)(noise >> kind / 3 % 16);
    }
}

static int acceptable(dk_status status) { return status == DK_OK || status == DK_BAD_LOGITS; }

static void fetch_words(dk_spotter *spotter, uint64_t pushed) {
    dk_word word;
    while (dk_spotter_next(spotter, &word)) {
        EXPECT(word.label > 0 && word.label < LABELS);
        EXPECT(word.score >= 0.0f && word.score <= 1.001f);
        EXPECT(word.start < word.end);
        EXPECT(word.end <= pushed && word.time <= pushed);
    }
}

/* Checks that each window is reported once and in order. */
static void see(void *context, const dk_seen_window *seen) {
    uint64_t *windows = (uint64_t *)context;
    EXPECT(seen->window == (*windows)++);
    EXPECT(seen->stream.last < seen->stream.ring);
    EXPECT(isfinite(seen->stream.rows[seen->stream.last * DK_COEFFICIENTS]));
    for (uint32_t i = 0; i < LABELS; i++)
        EXPECT(seen->scores[i] >= 0.0f && seen->scores[i] <= 1.001f);
}

static void explain(dk_spotter *spotter, const int16_t *samples, int is_fixed) {
    float logits[LABELS], output[99 * DIM];
    int64_t macs[DK_PRODUCTS];
    uint32_t kept[DK_SITES * 99];
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = macs;
    if (is_fixed) watch.kept = kept;
    EXPECT(acceptable(dk_spotter_explain(spotter, samples, logits, &watch)));
    watch.output = output;
    dk_status status = dk_spotter_explain(spotter, samples, logits, &watch);
    EXPECT(is_fixed ? status == DK_BAD_ARGUMENT : acceptable(status));
}

static void use(input *in, dk_spotter *spotter, int is_fixed) {
    static int16_t samples[DK_SECOND];
    float logits[LABELS];
    uint64_t pushed = 0, seen = 0;
    int ended = 0;
    dk_spotter_watch(spotter, see, &seen);
    while (in->left && pushed < MOST_PUSHED) {
        uint8_t call = take_byte(in);
        size_t count = take_short(in);
        if (call % 16 == 0) {
            dk_status status = dk_spotter_flush(spotter);
            EXPECT(ended ? status == DK_BAD_ARGUMENT : acceptable(status));
            ended = 1;
        } else if (call % 16 == 1) {
            take_sound(in, samples, DK_SECOND);
            EXPECT(acceptable(dk_spotter_classify(spotter, samples, logits)));
            if (call / 16 % 4 == 0) explain(spotter, samples, is_fixed);
            pushed += DK_SECOND / 4; /* it costs time, and so counts */
        } else {
            take_sound(in, samples, count < DK_SECOND ? count : DK_SECOND);
            dk_status status = dk_spotter_push(spotter, samples, count);
            if (ended || count > DK_SECOND)
                EXPECT(status == DK_BAD_ARGUMENT);
            else
                pushed += count;
            EXPECT(status == DK_BAD_ARGUMENT || acceptable(status));
        }
        if (call / 16 % 2) fetch_words(spotter, pushed + DK_SECOND);
        const float *last = dk_spotter_logits(spotter);
        for (uint32_t i = 0; last && i < LABELS; i++) EXPECT(isfinite(last[i]));
    }
    fetch_words(spotter, pushed + DK_SECOND);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    dk_stored_model model = take_model(&in);
    size_t needed = dk_spotter_size(&model);
    EXPECT(needed);
    void *memory = exactly(needed);
    dk_spotter *spotter = NULL;
    EXPECT(dk_spotter_init(memory, needed - 1, &model, dk_isa_best(), &spotter) == DK_BAD_MEMORY);
    dk_status status = dk_spotter_init(memory, needed, &model, dk_isa_best(), &spotter);
    EXPECT(status == DK_OK || status == DK_BAD_VALUE || status == DK_BAD_ARGUMENT);
    if (status == DK_OK) use(&in, spotter, !model.weights);
    free(memory);
    return 0;
}
