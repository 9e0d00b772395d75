/* Words of one stream: front end, model, stream runner and decision rule in one block of memory. */
#include "decider.h"
#include "deltakwt_spotter.h"
#include "internal.h"
#include "stored_integers.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 1600,                                  /* samples converted at once */
    WORD = DK_SECOND / 2,                          /* the length that a word is taken to have */
    QUEUE = 256,                                   /* more than the windows of one push or flush */
    BLOCK_WINDOWS = BLOCK / DK_HOP + DK_MOST_SPAN, /* with those that waited */
};

struct dk_spotter {
    const dk_stored_model *stored;
    const dk_model *model; /* of a model in floats */
    dk_integers integers;  /* of a model in fixed point */
    const dk_frontend *frontend;
    dk_stream_runner *runner;
    dk_decider decider;
    dk_word queue[QUEUE];
    uint32_t first, waiting;
    uint64_t samples; /* of the stream */
    int has_ended;
    dk_see see; /* or NULL */
    void *context;
    uint64_t windows;  /* of the stream */
    float *block;      /* (BLOCK): samples as floats; a whole second for a clip */
    float *features;   /* (frames, 40) of a clip */
    float *logits;     /* (BLOCK_WINDOWS, labels) */
    float *last;       /* (labels): logits of the last window */
    float *posteriors; /* (labels): posterior from which a window holds a word */
    float *bias;       /* (labels): added to the logits of a stream */
    const float **tensors;
    void *memory[3]; /* of the front end, the model and the runner */
    void *scratch;   /* of a clip */
    size_t scratch_size;
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void lay_out_decider(dk_decider *d, dk_arena *arena, const dk_stored_model *m) {
    const uint32_t labels = m->config.labels;
    d->rule = &m->decision;
    d->labels = labels;
    d->delay = dk_delay(m->stride * DK_HOP, m->front_end.smooth);
    d->history = dk_take_floats(arena, (size_t)m->decision.smooth * labels);
    d->scores = dk_take_floats(arena, labels);
    d->armed = (uint8_t *)dk_take(arena, labels, 1);
    d->active = (uint8_t *)dk_take(arena, labels, 1);
    d->first = (uint64_t *)dk_take(arena, labels, sizeof *d->first);
}

static size_t runner_size(const dk_stored_model *m) {
    return m->weights ? dk_stream_runner_size(&m->config) : dk_fixed_stream_runner_size(&m->config);
}

/* Lays out the memory. With an arena over NULL this only adds up the size. */
static dk_spotter *lay_out(dk_arena *arena, const dk_stored_model *m, dk_spotter *s) {
    const dk_config *c = &m->config;
    dk_spotter *at = (dk_spotter *)dk_take(arena, 1, sizeof *at);
    s->block = dk_take_floats(arena, DK_SECOND);
    s->features = dk_take_floats(arena, (size_t)c->frames * DK_COEFFICIENTS);
    s->logits = dk_take_floats(arena, (size_t)BLOCK_WINDOWS * c->labels);
    s->last = dk_take_floats(arena, c->labels);
    s->posteriors = dk_take_floats(arena, c->labels);
    s->bias = dk_take_floats(arena, c->labels);
    s->tensors = (const float **)dk_take(arena, dk_tensor_count(c), sizeof *s->tensors);
    lay_out_decider(&s->decider, arena, m);
    s->memory[0] = dk_take(arena, 1, dk_frontend_size());
    if (m->weights)
        s->memory[1] = dk_take(arena, 1, dk_model_size(c));
    else
        dk_integers_lay_out(&s->integers, arena, c);
    s->memory[2] = dk_take(arena, 1, runner_size(m));
    s->scratch_size = m->weights ? dk_scratch_size(c) : dk_fixed_scratch_size(c);
    s->scratch_size = larger(s->scratch_size, dk_features_scratch_size(c->frames));
    s->scratch = dk_take(arena, 1, s->scratch_size);
    return at;
}

/* A spotter takes models of one second of sound. */
static int is_supported(const dk_stored_model *m) {
    return m && runner_size(m) && (m->weights || m->integers.tensors) &&
           m->config.features == DK_COEFFICIENTS && m->stride - 1 < DK_MOST_STRIDE &&
           m->config.frames == 1 + (DK_SECOND - DK_FRAME) / (m->stride * DK_HOP) &&
           m->decision.hop % m->stride == 0 && m->decision.smooth && m->decision.on;
}

size_t dk_spotter_size(const dk_stored_model *model) {
    dk_spotter spotter;
    if (!is_supported(model)) return 0;
    dk_arena arena = dk_arena_at(NULL);
    lay_out(&arena, model, &spotter);
    return dk_arena_size(&arena);
}

/* Returns one window of how many is enough while no word is possible, as `Decision.span` does
 * (src/deltakwt/listen/decision.py); 0 if all windows must be computed. */
static uint32_t find_span(const dk_decision *rule, const dk_config *c) {
    const double low = sqrt((double)rule->possible);
    float least = 2.0f;
    for (uint32_t i = 0; i < c->labels; i++)
        if (rule->on[i] < least) least = rule->on[i];
    const double fewest = rule->smooth * (sqrt((double)least) - low) / (1 - low);
    uint32_t span = 0;
    while (span < DK_MOST_SPAN && span < fewest - 1e-4) span++;
    if (span < 2 || span < rule->patience) return 0;
    return (uint64_t)(span - 1) * rule->hop > dk_frames(DK_SECOND) ? 0 : span;
}

static dk_status init_parts(dk_spotter *s, dk_isa isa) {
    const dk_stored_model *m = s->stored;
    const dk_config *c = &m->config;
    const dk_decision *rule = &m->decision;
    for (uint32_t i = 0; i < c->labels; i++) {
        s->posteriors[i] = rule->on[i] > 1.0f ? 2.0f : rule->possible;
        s->bias[i] = strcmp(dk_model_label(m, i), "_unknown_") ? 0.0f : rule->unknown_bias;
    }
    const uint32_t hop = rule->hop / m->stride;
    const dk_stream_options options = {
        m->front_end,   hop,           rule->reuse,        rule->onset,
        rule->outliers, s->posteriors, find_span(rule, c), s->bias};
    dk_decider_start(&s->decider);
    dk_status status =
        dk_frontend_init_stride(s->memory[0], dk_frontend_size(), isa, m->stride, &s->frontend);
    if (status) return status;
    if (!m->weights) {
        status = dk_integers_init(&s->integers, m, isa);
        const dk_fixed_setup setup = dk_integers_setup(&s->integers, m);
        if (status) return status;
        return dk_fixed_stream_runner_init(s->memory[2], runner_size(m), &setup, s->frontend,
                                           &options, &s->runner);
    }
    dk_model_tensors(m, s->tensors);
    status = dk_model_init(s->memory[1], dk_model_size(c), c, s->tensors, isa, &s->model);
    if (status) return status;
    return dk_stream_runner_init(s->memory[2], runner_size(m), s->model, s->frontend, m->thresholds,
                                 &options, &s->runner);
}

dk_status dk_spotter_init(void *memory, size_t size, const dk_stored_model *model, dk_isa isa,
                          dk_spotter **out) {
    if (!model || !out) return DK_BAD_ARGUMENT;
    if (!is_supported(model)) return DK_BAD_CONFIG;
    if (!memory || size < dk_spotter_size(model)) return DK_BAD_MEMORY;
    dk_spotter spotter;
    memset(&spotter, 0, sizeof spotter);
    dk_arena arena = dk_arena_at(memory);
    dk_spotter *at = lay_out(&arena, model, &spotter);
    spotter.stored = model;
    dk_status status = init_parts(&spotter, isa);
    if (status) return status;
    *at = spotter;
    *out = at;
    return DK_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Queues a word. When the stream has ended, no word lies after its end. */
static void add_word(dk_spotter *s, const dk_word *found) {
    if (s->waiting == QUEUE) return; /* the caller does not fetch them */
    dk_word *word = &s->queue[(s->first + s->waiting++) % QUEUE];
    *word = *found;
    if (!s->has_ended) return;
    word->start = smaller(word->start, s->samples > WORD ? s->samples - WORD : 0);
    word->end = smaller(word->end, s->samples);
    word->time = smaller(word->time, s->samples);
    word->window = smaller(word->window, s->samples);
}

static void to_floats(const int16_t *samples, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = (float)samples[i] * (1.0f / 32768.0f);
}

/* Shows the window that came `back` windows before the last one. */
static void show_window(const dk_spotter *s, uint32_t back) {
    dk_seen_window seen;
    seen.window = s->windows;
    seen.logits = s->last;
    seen.scores = s->decider.scores;
    dk_stream_runner_view(s->runner, back, &seen.stream);
    s->see(s->context, &seen);
}

static dk_status push(dk_spotter *s, const int16_t *samples, size_t count) {
    const uint32_t labels = s->stored->config.labels;
    const uint64_t most = smaller(BLOCK, (uint64_t)s->stored->decision.hop * DK_HOP);
    while (count) {
        size_t part = (size_t)smaller(count, most); /* at most one window is due */
        dk_stream_counts counts;
        dk_word found;
        to_floats(samples, part, s->block);
        dk_status status = dk_stream_runner_push(s->runner, s->block, part, s->logits, &counts);
        if (status) return status;
        for (uint32_t w = 0; w < counts.windows; w++) {
            memcpy(s->last, s->logits + (size_t)w * labels, labels * sizeof *s->last);
            if (dk_decider_push(&s->decider, s->last, &found)) add_word(s, &found);
            if (s->see) show_window(s, counts.windows - 1 - w);
            s->windows++;
        }
        samples += part;
        count -= part;
    }
    return DK_OK;
}

dk_status dk_spotter_push(dk_spotter *s, const int16_t *samples, size_t count) {
    if (!s || s->has_ended || (count && !samples) || count > DK_SECOND) return DK_BAD_ARGUMENT;
    s->samples += count;
    return push(s, samples, count);
}

/* Returns the number of zeros to append at the end of a sound. A sound of up to one second is
 * filled up to its only window. A longer one gets a second, so that its last sample passes through
 * the whole window, and the windows for which a candidate waits. */
static uint64_t ending(const dk_spotter *s) {
    const dk_decision *rule = &s->stored->decision;
    if (s->samples <= DK_SECOND) return DK_SECOND + s->decider.delay - s->samples;
    return DK_SECOND + s->decider.delay + (uint64_t)rule->patience * rule->hop * DK_HOP;
}

dk_status dk_spotter_flush(dk_spotter *s) {
    static const int16_t zeros[BLOCK];
    dk_status status = DK_OK;
    dk_word found;
    if (!s || s->has_ended) return DK_BAD_ARGUMENT;
    s->has_ended = 1;
    if (!s->samples) return DK_OK;
    for (uint64_t left = ending(s); left && !status;) {
        size_t part = left < BLOCK ? (size_t)left : (size_t)BLOCK;
        status = push(s, zeros, part);
        left -= part;
    }
    if (!status && s->samples <= DK_SECOND && dk_decider_end_of_clip(&s->decider, &found))
        add_word(s, &found);
    return status;
}

int dk_spotter_next(dk_spotter *s, dk_word *word) {
    if (!s || !word || !s->waiting) return 0;
    *word = s->queue[s->first];
    s->first = (s->first + 1) % QUEUE;
    s->waiting--;
    return 1;
}

const float *dk_spotter_logits(const dk_spotter *s) { return s && s->windows ? s->last : NULL; }

void dk_spotter_watch(dk_spotter *s, dk_see see, void *context) {
    s->see = see;
    s->context = context;
}

dk_status dk_spotter_classify(dk_spotter *s, const int16_t *samples, float *logits) {
    return dk_spotter_explain(s, samples, logits, NULL);
}

dk_status dk_spotter_explain(dk_spotter *s, const int16_t *samples, float *logits,
                             const dk_watch *watch) {
    if (!s || !samples || !logits) return DK_BAD_ARGUMENT;
    to_floats(samples, DK_SECOND, s->block);
    dk_status status = dk_features(s->frontend, s->block, DK_SECOND, &s->stored->front_end,
                                   s->scratch, s->scratch_size, s->features);
    if (status) return status;
    if (!s->model)
        return dk_integers_run(&s->integers, s->stored, s->features, s->scratch, s->scratch_size,
                               logits, watch);
    return dk_run(s->model, s->features, s->stored->thresholds, s->scratch, s->scratch_size, logits,
                  watch);
}
