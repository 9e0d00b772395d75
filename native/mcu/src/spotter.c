/* The interface of dk.h: samples to features, one window every hop, words. */
#include "clip.h"
#include "decider.h"
#include "dk.h"
#include "engine.h"
#include "profile.h"
#include "window.h"

#include <string.h>

enum { WAITING = 8 };

/* All static memory of the library. */
static struct {
    union {
        dk_work infer;
        struct {                               /* what is needed between two inferences only */
            float front_end[DK_ENERGIES_WORK]; /* of one frame */
            dk_feature computed[DK_FRAMES * DK_FEATURES]; /* the last computed window */
        } between;
    } work;
    dk_feature features[DK_FRAMES * DK_FEATURES]; /* the ring of rows of `window`, or a clip */
    dk_window window;
    uint8_t stream_memory[sizeof(dk_stream) + DK_ALIGN];
    dk_stream *stream;
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
    dk_window_init(&ram.window, DK_FRAMES, dk_rule.hop, ram.features, ram.work.between.computed);
    ram.window.scales = dk_feature_scales;
    ram.window.reuse = dk_reuse_steps;
    ram.window.onset = dk_rule.onset;
    ram.window.outliers = dk_rule.outliers;
    dk_stream_init(ram.stream_memory, sizeof ram.stream_memory, &dk_flash_frontend, &dk_front_end,
                   &ram.stream);
    ram.stream->work = ram.work.between.front_end;
    ram.decider.rule = &dk_rule;
    ram.decider.labels = DK_LABELS;
    ram.decider.delay = dk_front_end.smooth ? DK_HOP : 0;
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

void dk_push(const int16_t *samples, size_t count) {
    float block[DK_HOP], row[DK_FEATURES];
    while (count) {
        uint32_t part = count < DK_HOP ? (uint32_t)count : (uint32_t)DK_HOP, rows = 0;
        for (uint32_t i = 0; i < part; i++) block[i] = (float)samples[i] * (1.0f / 32768.0f);
        dk_stream_push(ram.stream, block, part, row, &rows); /* at most one row */
        if (rows) add_row(row);
        samples += part;
        count -= part;
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
    memory.stream = ram.stream;
    memory.features = ram.features;
    return memory;
}

void dk_clip_infer(int32_t *logits, int dense) {
    dk_infer(&dk_model_weights, &ram.work.infer, ram.features, 0, dense ? NULL : dk_thresholds,
             logits, ram.macs);
}
