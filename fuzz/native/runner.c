/* The stream runner in floats and in integers, with both rules that leave windows out: windows that
 * are near the last computed one, and windows on which no word can depend.
 *
 * The logits do not depend on the sizes of the blocks nor, in integers, on the kernels. They are
 * compared with those of a runner that leaves nothing out: a computed window has the same logits,
 * and so has every window of a row of `span` windows that pass. */
#include "../../native/src/decider.h"
#include "sound.h"
#include "source.h"

enum { MOST = 6000, MOST_WINDOWS = MOST / DK_HOP, MOST_FRAMES = 24 };

typedef struct {
    dk_config config;
    const dk_model *floats;         /* or NULL */
    const dk_fixed_model *model[2]; /* portable kernels, the best kernels */
    const dk_frontend *frontend;
    float thresholds[MOST_LAYERS * DK_SITES], scales[DK_COEFFICIENTS], step;
    int32_t whole[MOST_LAYERS * DK_SITES];
    int is_dense;
} engine;

/* What a runner gave out. */
typedef struct {
    uint32_t windows;
    float logits[MOST_WINDOWS * MOST_LABELS];
    uint8_t is_computed[MOST_WINDOWS];
    dk_status worst;
} record;

static dk_config take_shape(input *in) {
    dk_config c;
    c.heads = 1 + take_byte(in) % 2;
    c.dim = (1 + take_byte(in) % 5) * c.heads;
    c.mlp = 1 + take_byte(in) % 9;
    c.layers = 1 + take_byte(in) % 2;
    c.labels = 1 + take_byte(in) % 4;
    c.frames = 1 + take_byte(in) % MOST_FRAMES;
    c.features = DK_COEFFICIENTS;
    return c;
}

static void *take_floats_model(input *in, engine *e) {
    static float values[FLOATS];
    const float *tensors[MOST_TENSORS];
    const size_t size = dk_model_size(&e->config);
    void *memory = exactly(size);
    take_tensors(in, &e->config, ldexpf(1.0f, take_byte(in) % 6 - 3), values, tensors);
    for (uint32_t i = 0; i < e->config.layers * DK_SITES; i++)
        e->thresholds[i] = take_share(in) * 2.0f - 0.2f;
    EXPECT(dk_model_init(memory, size, &e->config, tensors, dk_isa_best(), &e->floats) == DK_OK);
    return memory;
}

/* Returns NULL if the integers are refused. */
static char *take_fixed_model(input *in, engine *e) {
    static integers from;
    const size_t size = dk_fixed_model_size(&e->config);
    char *memory = (char *)exactly(2 * size);
    take_source(in, &e->config, &from);
    for (uint32_t i = 0; i < e->config.layers * DK_SITES; i++) /* a run refuses all others */
        e->whole[i] = take_byte(in) * 4 - 1;
    for (uint32_t i = 0; i < DK_COEFFICIENTS; i++) e->scales[i] = ldexpf(1.0f, take_byte(in) % 16);
    e->step = ldexpf(1.0f, -(take_byte(in) % 20));
    const dk_isa isas[] = {DK_SCALAR, dk_isa_best()};
    for (int i = 0; i < 2; i++) {
        dk_status status =
            dk_fixed_init(memory + i * size, size, &e->config, &from.source, isas[i], &e->model[i]);
        if (status == DK_OK) continue;
        free(memory);
        return NULL;
    }
    return memory;
}

static dk_stream_options take_options(input *in, const dk_config *c, float *words, float *bias) {
    dk_stream_options o;
    const uint8_t kind = take_byte(in);
    o.front_end.smooth = kind % 2;
    o.front_end.floor = kind / 2 % 4;
    o.front_end.quantile = 0.5;
    o.bias = kind / 8 % 2 ? bias : NULL;
    o.hop = 1 + take_byte(in) % 8;
    o.onset = c->frames;
    o.reuse = 0.0f;
    o.outliers = 0;
    if (kind / 8 % 2) {
        o.onset = number(in, 1, c->frames);
        o.reuse = kind / 16 % 8 ? take_share(in) * 4.0f : take_any_float(in);
        o.outliers = take_short(in);
    }
    for (uint32_t i = 0; i < c->labels; i++) words[i] = bias[i] = take_share(in) * 1.1f;
    o.word_posteriors = words;
    o.span = kind / 128 ? number(in, 0, DK_MOST_SPAN) : 2u + take_byte(in) % 3u;
    return o;
}

static dk_status start(const engine *e, int isa, const dk_stream_options *options, void *memory,
                       size_t size, dk_stream_runner **out) {
    if (e->floats)
        return dk_stream_runner_init(memory, size, e->floats, e->frontend,
                                     e->is_dense ? NULL : e->thresholds, options, out);
    const dk_fixed_setup setup = {e->model[isa], e->is_dense ? NULL : e->whole, e->scales, e->step};
    return dk_fixed_stream_runner_init(memory, size, &setup, e->frontend, options, out);
}

/* Looks at the last `windows` windows that were given out. */
static uint32_t look(const dk_stream_runner *runner, const dk_config *c, uint32_t windows,
                     uint8_t *is_computed) {
    uint32_t computed = 0;
    for (uint32_t back = 0; back < windows; back++) {
        dk_stream_view view;
        dk_stream_runner_view(runner, back, &view);
        EXPECT(view.last < view.ring && view.ring >= 2 * c->frames);
        for (uint32_t i = 0; i < c->layers * DK_PRODUCTS; i++)
            EXPECT(view.is_computed ? view.macs[i] >= 0 : view.macs[i] == 0);
        for (uint32_t t = 0; t < c->frames; t++)
            EXPECT(isfinite(view.rows[(view.last + view.ring - t) % view.ring * DK_COEFFICIENTS]));
        is_computed[windows - 1 - back] = (uint8_t)view.is_computed;
        computed += (uint32_t)view.is_computed;
    }
    return computed;
}

/* Pushes all samples in blocks. With a seed they are at most one hop long, so that each window can
 * be looked at; without one there is a single block. */
static void push_all(const engine *e, int isa, const dk_stream_options *options,
                     const float *samples, size_t count, uint32_t seed, record *out) {
    const dk_config *c = &e->config;
    const size_t size = e->floats ? dk_stream_runner_size(c) : dk_fixed_stream_runner_size(c);
    void *memory = exactly(size);
    dk_stream_runner *runner;
    EXPECT(start(e, isa, options, memory, size - 1, &runner) == DK_BAD_MEMORY);
    EXPECT(start(e, isa, options, memory, size, &runner) == DK_OK);
    out->windows = 0;
    out->worst = DK_OK;
    for (size_t at = 0; at < count;) {
        size_t block = seed ? 1 + next_random(&seed) % (options->hop * DK_HOP) : count;
        if (block > count - at) block = count - at;
        const uint32_t most = dk_stream_runner_windows(runner, block);
        float *logits = (float *)exactly(most * c->labels * sizeof *logits);
        dk_stream_counts counts;
        memset(&counts, 0, sizeof counts);
        dk_status status = dk_stream_runner_push(runner, samples + at, block, logits, &counts);
        EXPECT(status == DK_BAD_VALUE ? !within(samples + at, block)
                                      : status == DK_OK || (status == DK_BAD_LOGITS && e->floats));
        EXPECT(counts.windows <= most && counts.macs >= 0);
        if (status) out->worst = status;
        if (out->worst == DK_OK) {
            EXPECT(out->windows + counts.windows <= MOST_WINDOWS);
            if (seed && counts.windows)
                EXPECT(look(runner, c, counts.windows, out->is_computed + out->windows) ==
                       counts.computed);
            memcpy(out->logits + out->windows * c->labels, logits,
                   counts.windows * c->labels * sizeof *logits);
            out->windows += counts.windows;
        }
        free(logits);
        at += block;
    }
    free(memory);
}

static int is_same(const record *a, const record *b, uint32_t window, uint32_t labels) {
    const size_t at = (size_t)window * labels;
    return !memcmp(a->logits + at, b->logits + at, labels * sizeof *a->logits);
}

/* Compares with a runner that computed every window. */
static void compare(const dk_stream_options *o, const record *all, const record *some,
                    uint32_t labels) {
    const int only_identical = o->reuse <= 0.0f && !o->outliers;
    EXPECT(some->windows <= all->windows && all->windows - some->windows <= o->span);
    for (uint32_t w = 0; w < some->windows; w++)
        if (some->is_computed[w]) EXPECT(is_same(all, some, w, labels));
    for (uint32_t w = 0, row = 0; only_identical && w < all->windows; w++) {
        row = dk_holds_no_word(all->logits + w * labels, o->word_posteriors, labels) ? 0 : row + 1;
        for (uint32_t back = 0; row >= o->span && back < row; back++)
            if (w - back < some->windows) EXPECT(is_same(all, some, w - back, labels));
    }
}

/* Sets the posterior of a possible word to that of a label in one of the windows: about as many
 * windows pass as do not. Nothing else separates them so well, whatever the weights are. */
static void need_one_label(const record *all, uint32_t labels, uint32_t seed, float *words) {
    const uint32_t label = seed % labels;
    const float *logits = all->logits + seed / 8 % all->windows * labels;
    double sum = 0.0;
    for (uint32_t i = 0; i < labels; i++) sum += exp((double)logits[i] - (double)logits[label]);
    for (uint32_t i = 0; i < labels; i++) words[i] = i == label ? (float)(1.0 / sum) : 2.0f;
}

static void run(const engine *e, const dk_stream_options *o, const float *samples, size_t count,
                uint32_t seed, float *words) {
    static record all, some, other;
    dk_stream_options plain = *o;
    plain.span = plain.outliers = 0;
    plain.reuse = 0.0f;
    plain.onset = e->config.frames;
    push_all(e, 1, &plain, samples, count, 0, &all);
    if (all.windows && seed % 16 != 1) need_one_label(&all, e->config.labels, seed / 8, words);
    push_all(e, 1, o, samples, count, seed, &some);
    push_all(e, 0, o, samples, count, 0, &other);
    if (some.worst || other.worst || all.worst) return; /* they depend on the blocks */
    EXPECT(other.windows == some.windows);
    for (uint32_t w = 0; w < some.windows; w++) EXPECT(is_same(&some, &other, w, e->config.labels));
    compare(o, &all, &some, e->config.labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static float samples[MOST];
    static void *front_end;
    static const dk_frontend *frontend;
    if (!front_end) {
        front_end = exactly(dk_frontend_size());
        EXPECT(!dk_frontend_init(front_end, dk_frontend_size(), dk_isa_best(), &frontend));
    }
    input in = {data, size};
    engine e;
    memset(&e, 0, sizeof e);
    const uint8_t kind = take_byte(&in);
    float words[MOST_LABELS], bias[MOST_LABELS];
    e.is_dense = kind / 2 % 4 == 0;
    e.frontend = frontend;
    e.config = take_shape(&in);
    const dk_stream_options o = take_options(&in, &e.config, words, bias);
    void *memory = kind % 2 ? take_floats_model(&in, &e) : (void *)take_fixed_model(&in, &e);
    if (!memory) return 0;
    const size_t needed_size =
        e.floats ? dk_stream_runner_size(&e.config) : dk_fixed_stream_runner_size(&e.config);
    void *trial = exactly(needed_size);
    dk_stream_runner *runner;
    dk_status status = start(&e, 1, &o, trial, needed_size, &runner);
    free(trial);
    EXPECT(status == DK_OK || status == DK_BAD_ARGUMENT || status == DK_BAD_VALUE);
    const uint32_t seed = take_word(&in) | 1u;
    const size_t count = take_samples(&in, samples, MOST);
    if (status == DK_OK) run(&e, &o, samples, count, seed, words);
    free(memory);
    return 0;
}
