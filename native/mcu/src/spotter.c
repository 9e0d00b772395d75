/* The interface of dk.h: samples to features, one window every hop, words. */
#include "clip.h"
#include "decider.h"
#include "dk.h"
#include "engine.h"
#include "profile.h"
#include "window.h"

#include <string.h>

enum {
    WAITING = 4,
    STEP = DK_STRIDE * DK_HOP,                 /* samples from one frame to the next */
    OLDER = DK_FRAME - STEP,                   /* samples of a frame that the next one has too */
    STAYING = OLDER > STEP ? OLDER - STEP : 0, /* of these, the ones that the one after has too */
    LEAVING = OLDER - STAYING,
};

/* All static memory of the library. */
static struct {
    union {
        dk_work infer;
        struct {                  /* what is needed between two inferences only */
            int16_t newest[STEP]; /* samples behind the older ones; none when a frame is done */
            float frame[DK_FRAME], energies[DK_BANDS];
            float front_end[DK_ENERGIES_WORK];
            dk_feature computed[DK_FRAMES * DK_FEATURES]; /* the last computed window */
        } between;
    } work;
    dk_feature features[DK_FRAMES * DK_FEATURES]; /* the ring of rows of `window`, or a clip */
    dk_window window;
    dk_stream stream;
    int16_t older[OLDER > 0 ? OLDER : 1];
    dk_decider decider;
    float history[DK_SMOOTH_WINDOWS * DK_LABELS], scores[DK_LABELS];
    uint64_t first[DK_LABELS];
    uint8_t armed[DK_LABELS], active[DK_LABELS];
    dk_event events[WAITING];
    uint32_t first_event, waiting;
    float logits[DK_LABELS]; /* of the last computed window */
    uint32_t macs[DK_PRODUCTS];
} ram;

const uint32_t DK_RAM_BYTES = sizeof ram, DK_LABEL_COUNT = DK_LABELS;

void dk_init(void) {
    memset(&ram, 0, sizeof ram);
    dk_window_init(&ram.window, DK_FRAMES, dk_rule.hop / DK_STRIDE, ram.features,
                   ram.work.between.computed);
    ram.window.scales = dk_feature_scales;
    ram.window.reuse = dk_reuse_steps;
    ram.window.onset = dk_rule.onset;
    ram.window.outliers = dk_rule.outliers;
    dk_stream_start(&ram.stream, &dk_flash_frontend, &dk_front_end);
    ram.decider.rule = &dk_rule;
    ram.decider.labels = DK_LABELS;
    ram.decider.delay = dk_delay(STEP, dk_front_end.smooth);
    ram.decider.history = ram.history;
    ram.decider.scores = ram.scores;
    ram.decider.first = ram.first;
    ram.decider.armed = ram.armed;
    ram.decider.active = ram.active;
    dk_decider_start(&ram.decider);
}

static void add_event(const dk_word *found) {
    if (ram.waiting == WAITING) return; /* full: the caller does not fetch them */
    dk_event *event = &ram.events[(ram.first_event + ram.waiting++) % WAITING];
    event->label = found->label;
    event->score = found->score;
    event->start = found->start;
    event->end = found->end;
    event->time = found->time;
}

/* The inference overwrites the last computed window: the new one is copied from the ring after it.
 */
static void infer_window(void) {
    int32_t logits[DK_LABELS];
    dk_infer(&dk_model_weights, &ram.work.infer, ram.features, ram.window.next, dk_thresholds,
             logits, ram.macs);
    dk_window_take(&ram.window);
    for (uint32_t i = 0; i < DK_LABELS; i++)
        ram.logits[i] = (float)logits[i] * dk_logit_step + dk_logit_biases[i];
}

static void add_row(const float *row) {
    if (!dk_window_add(&ram.window, row)) return;
    memset(ram.macs, 0, sizeof ram.macs);
    if (!dk_window_is_near(&ram.window)) {
        infer_window();
        ram.window.is_quiet = dk_holds_no_word(ram.logits, dk_word_posteriors, DK_LABELS);
    }
    dk_word found;
    if (dk_decider_push(&ram.decider, ram.logits, &found)) add_event(&found);
}

/* Computes the features of a frame. */
static void add_frame(void) {
    float *frame = ram.work.between.frame, *energies = ram.work.between.energies;
    float row[DK_FEATURES];
    const int16_t *newest = ram.work.between.newest;
    for (uint32_t i = 0; i < OLDER; i++) frame[i] = (float)ram.older[i] * (1.0f / 32768.0f);
    for (uint32_t i = 0; i < STEP; i++) frame[OLDER + i] = (float)newest[i] * (1.0f / 32768.0f);
    memmove(ram.older, ram.older + LEAVING, STAYING * sizeof *ram.older);
    memcpy(ram.older + STAYING, newest + STEP - LEAVING, LEAVING * sizeof *newest);
    ram.stream.filled = OLDER;
    dk_flash_frontend.kernels->energies(&dk_flash_frontend, frame, 1, energies,
                                        ram.work.between.front_end);
    if (dk_stream_finish(&ram.stream, energies, 1, row)) add_row(row);
}

void dk_push(const int16_t *samples, size_t count) {
    while (count) {
        const uint32_t filled = ram.stream.filled;
        int16_t *to;
        uint32_t room;
        if (filled < OLDER) {
            to = ram.older + filled;
            room = OLDER - filled;
        } else {
            to = ram.work.between.newest + (filled - OLDER);
            room = DK_FRAME - filled;
        }
        const uint32_t part = count < room ? (uint32_t)count : room;
        memcpy(to, samples, part * sizeof *samples);
        samples += part;
        count -= part;
        ram.stream.filled += part;
        if (ram.stream.filled == DK_FRAME) add_frame();
    }
}

int dk_result(dk_event *event) {
    if (!ram.waiting) return 0;
    *event = ram.events[ram.first_event];
    ram.first_event = (ram.first_event + 1) % WAITING;
    ram.waiting--;
    return 1;
}

const uint32_t *dk_macs(void) { return ram.macs; }

const float *dk_logits(void) { return ram.logits; }

/* Restarts the stream: a clip uses its memory. */
dk_borrowed dk_borrow(void) {
    dk_borrowed memory;
    dk_init();
    memory.frame = ram.work.between.frame;
    memory.work = ram.work.between.front_end;
    memory.features = ram.features;
    return memory;
}

void dk_clip_infer(int32_t *logits, int dense) {
    dk_infer(&dk_model_weights, &ram.work.infer, ram.features, 0, dense ? NULL : dk_thresholds,
             logits, ram.macs);
}
