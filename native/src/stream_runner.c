/* Streaming inference: samples in, the logits of one window every hop out. A window that is close
 * to the last computed one is not computed: the last logits are used again. Windows that no word
 * can depend on are not computed either.
 *
 * A word needs `span` windows in a row that pass: each has a label that reaches its value of
 * `needed`. Therefore, after a window that does not pass, the next `span` - 1 windows wait, and
 * the one after them is computed first. If it does not pass, no word lies in the windows that
 * waited. Otherwise they are computed too, the newest first, until one does not pass. All windows
 * are computed from `span` passing ones in a row until `span` in a row do not pass. */
#include "decider.h"
#include "fixed/fixed.h"
#include "window.h"

#include <string.h>

/* Samples that go through the front end at once: they give at most DK_MOST_LANES rows. */
enum { PART = DK_MOST_LANES * DK_HOP };

struct dk_stream_runner {
    const dk_config *config; /* of the model */
    const dk_model *model;   /* one of the two engines: this one in floats, */
    dk_fixed_setup fixed;    /* or this one in integers, if it has a model */
    dk_stream *stream;
    dk_window window;
    float *thresholds;      /* (layers, DK_SITES), or NULL: dense */
    int32_t *integers;      /* the same for the engine in integers */
    float *feature_scales;  /* (40) */
    int16_t *shorts;        /* (frames, 40): the window in 16 bits */
    int32_t *fixed_logits;  /* (labels) */
    int32_t *peaks;         /* (layers + 1, DK_PEAKS) */
    float *word_posteriors; /* (labels) */
    float *needed;          /* (labels) */
    float *rows;            /* (DK_MOST_LANES, 40): rows of one part */
    dk_feature *ring;       /* (frames, 40), of the window */
    dk_feature *computed;   /* (frames, 40), of the window */
    float *logits;          /* (labels) of the last computed window */
    int64_t *macs;          /* (layers, DK_PRODUCTS) of the last computed window */
    int64_t *nonzeros;      /* (layers, DK_SITES) of the last computed window */
    int is_computed;        /* the newest window */
    uint32_t span;          /* 0: every window is computed, unless it is near */
    float *history;         /* (2 * frames, 40): a ring of the newest rows, for waiting windows */
    float *older;           /* (frames, 40): a window that waited */
    uint32_t newest;        /* row of the history that was written last */
    int is_waiting;         /* windows may wait; otherwise each is computed as it comes */
    int is_passing;         /* the last computed window */
    uint32_t waiting;       /* windows that wait, with the newest */
    uint32_t same;          /* how many of them, from the first, are near the last computed one */
    uint32_t since;         /* windows since the last one that did not pass */
    uint32_t failed;        /* windows in a row that did not pass, while none waits */
    void *scratch;
    size_t scratch_size;
};

/* Lays out the memory of either engine. With an arena over NULL this only adds up the size. */
static dk_stream_runner *lay_out(dk_arena *arena, const dk_config *c, int is_fixed,
                                 dk_stream_runner *runner) {
    dk_stream_runner *at = (dk_stream_runner *)dk_take(arena, 1, sizeof *at);
    size_t window = (size_t)c->frames * DK_COEFFICIENTS, sites = (size_t)c->layers * DK_SITES;
    memset(runner, 0, sizeof *runner);
    runner->rows = dk_take_floats(arena, DK_MOST_LANES * DK_COEFFICIENTS);
    runner->ring = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->computed = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->logits = dk_take_floats(arena, c->labels);
    runner->word_posteriors = dk_take_floats(arena, c->labels);
    runner->needed = dk_take_floats(arena, c->labels);
    runner->history = dk_take_floats(arena, 2 * window);
    runner->older = dk_take_floats(arena, window + DK_PAD);
    runner->macs = (int64_t *)dk_take(arena, c->layers * DK_PRODUCTS, sizeof(int64_t));
    runner->nonzeros = (int64_t *)dk_take(arena, sites, sizeof(int64_t));
    if (is_fixed) {
        size_t peaks = ((size_t)c->layers + 1) * DK_PEAKS;
        runner->integers = (int32_t *)dk_take(arena, sites, sizeof(int32_t));
        runner->feature_scales = dk_take_floats(arena, DK_COEFFICIENTS);
        runner->shorts = (int16_t *)dk_take(arena, window, sizeof(int16_t));
        runner->fixed_logits = (int32_t *)dk_take(arena, c->labels, sizeof(int32_t));
        runner->peaks = (int32_t *)dk_take(arena, peaks, sizeof(int32_t));
    } else {
        runner->thresholds = dk_take_floats(arena, sites);
    }
    runner->scratch_size = is_fixed ? dk_fixed_scratch_size(c) : dk_scratch_size(c);
    runner->scratch = dk_take(arena, 1, runner->scratch_size);
    runner->stream = (dk_stream *)dk_take(arena, 1, dk_stream_size());
    return at;
}

static size_t size_of(const dk_config *config, int is_fixed) {
    dk_stream_runner runner;
    dk_arena arena = dk_arena_at(NULL);
    lay_out(&arena, config, is_fixed, &runner);
    return dk_arena_size(&arena);
}

size_t dk_stream_runner_size(const dk_config *config) {
    return dk_check_config(config) ? 0 : size_of(config, 0);
}

size_t dk_fixed_stream_runner_size(const dk_config *config) {
    return dk_fixed_check_config(config) ? 0 : size_of(config, 1);
}

static dk_status check_options(const dk_config *c, const dk_stream_options *options) {
    if (!options || !options->word_posteriors) return DK_BAD_ARGUMENT;
    if (c->features != DK_COEFFICIENTS) return DK_BAD_CONFIG;
    if (!options->hop || !options->onset || options->onset > c->frames) return DK_BAD_ARGUMENT;
    if (options->span) {
        if (!options->needed) return DK_BAD_ARGUMENT;
        if ((uint64_t)(options->span - 1) * options->hop > c->frames) return DK_BAD_ARGUMENT;
    }
    return options->reuse >= 0.0f ? DK_OK : DK_BAD_VALUE;
}

/* Starts what both engines share: the front end and the window. */
static dk_status start(dk_stream_runner *runner, const dk_config *c, const dk_frontend *frontend,
                       const dk_stream_options *options) {
    runner->config = c;
    memcpy(runner->word_posteriors, options->word_posteriors, c->labels * sizeof(float));
    runner->span = options->span;
    if (options->span) memcpy(runner->needed, options->needed, c->labels * sizeof(float));
    dk_window_init(&runner->window, c->frames, options->hop, runner->ring, runner->computed);
    runner->window.reuse = options->reuse;
    runner->window.onset = options->onset;
    runner->window.outliers = options->outliers;
    return dk_stream_init(runner->stream, dk_stream_size(), frontend, &options->front_end,
                          &runner->stream);
}

dk_status dk_stream_runner_init(void *memory, size_t size, const dk_model *model,
                                const dk_frontend *frontend, const float *thresholds,
                                const dk_stream_options *options, dk_stream_runner **out) {
    if (!memory || !model || !frontend || !out) return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    dk_status status = check_options(c, options);
    if (status) return status;
    if (size < dk_stream_runner_size(c)) return DK_BAD_MEMORY;
    dk_stream_runner runner;
    dk_arena arena = dk_arena_at(memory);
    dk_stream_runner *at = lay_out(&arena, c, 0, &runner);
    if (thresholds)
        memcpy(runner.thresholds, thresholds, c->layers * DK_SITES * sizeof *thresholds);
    else
        runner.thresholds = NULL;
    runner.model = model;
    status = start(&runner, c, frontend, options);
    if (status) return status;
    *at = runner;
    *out = at;
    return DK_OK;
}

dk_status dk_fixed_stream_runner_init(void *memory, size_t size, const dk_fixed_setup *fixed,
                                      const dk_frontend *frontend, const dk_stream_options *options,
                                      dk_stream_runner **out) {
    if (!memory || !fixed || !fixed->model || !fixed->feature_scales || !frontend || !out)
        return DK_BAD_ARGUMENT;
    const dk_config *c = &fixed->model->config;
    dk_status status = check_options(c, options);
    if (status) return status;
    if (size < dk_fixed_stream_runner_size(c)) return DK_BAD_MEMORY;
    dk_stream_runner runner;
    dk_arena arena = dk_arena_at(memory);
    dk_stream_runner *at = lay_out(&arena, c, 1, &runner);
    memcpy(runner.feature_scales, fixed->feature_scales, DK_COEFFICIENTS * sizeof(float));
    if (fixed->thresholds)
        memcpy(runner.integers, fixed->thresholds, c->layers * DK_SITES * sizeof(int32_t));
    runner.fixed = *fixed;
    runner.fixed.feature_scales = runner.feature_scales;
    if (fixed->thresholds) runner.fixed.thresholds = runner.integers;
    status = start(&runner, c, frontend, options);
    if (status) return status;
    *at = runner;
    *out = at;
    return DK_OK;
}

uint32_t dk_stream_runner_windows(const dk_stream_runner *runner, size_t samples) {
    uint32_t rows = dk_stream_rows(runner->stream, samples), due = runner->window.due;
    return rows < due ? 0 : (rows - due) / runner->window.hop + 1 + runner->waiting;
}

static dk_status run_float(dk_stream_runner *runner, const float *features, float *logits) {
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = runner->macs;
    watch.nonzeros = runner->nonzeros;
    return dk_run(runner->model, features, runner->thresholds, runner->scratch,
                  runner->scratch_size, logits, &watch);
}

static dk_status run_fixed(dk_stream_runner *runner, const float *features, float *logits,
                           uint32_t *saturated) {
    const dk_config *c = runner->config;
    const dk_fixed_setup *fixed = &runner->fixed;
    const dk_fixed_watch watch = {runner->macs, runner->nonzeros, runner->peaks, NULL};
    dk_fixed_features(features, fixed->feature_scales, c->frames, c->features, runner->shorts);
    dk_status status =
        dk_fixed_run(fixed->model, runner->shorts, fixed->thresholds, runner->scratch,
                     runner->scratch_size, runner->fixed_logits, &watch);
    for (uint32_t i = 0; i < c->labels; i++)
        logits[i] = (float)runner->fixed_logits[i] * fixed->logit_step;
    *saturated += dk_fixed_saturated(c, runner->peaks);
    return status;
}

/* Computes the logits of a window and adds up what it cost. */
static dk_status run(dk_stream_runner *runner, const float *features, float *logits,
                     dk_stream_counts *counts) {
    dk_status status = runner->model ? run_float(runner, features, logits)
                                     : run_fixed(runner, features, logits, &counts->saturated);
    counts->computed++;
    for (uint32_t i = 0; i < runner->config->layers * DK_PRODUCTS; i++)
        counts->macs += runner->macs[i];
    return status;
}

static int is_passing(const dk_stream_runner *runner, const float *logits) {
    return !dk_holds_no_word(logits, runner->needed, runner->config->labels);
}

/* Computes the newest window. */
static dk_status compute(dk_stream_runner *runner, dk_stream_counts *counts) {
    const uint32_t labels = runner->config->labels;
    dk_status status = run(runner, dk_window_take(&runner->window), runner->logits, counts);
    if (status) {
        runner->window.has_computed = 0; /* there are no logits to reuse */
        runner->is_waiting = 0;
        runner->waiting = runner->same = runner->since = runner->failed = 0;
        return status;
    }
    runner->window.is_quiet = dk_holds_no_word(runner->logits, runner->word_posteriors, labels);
    if (runner->span) runner->is_passing = is_passing(runner, runner->logits);
    return DK_OK;
}

/* Returns the window that came `distance` windows before the newest. */
static const float *older_window(const dk_stream_runner *runner, uint32_t distance) {
    const uint32_t frames = runner->config->frames, ring = 2 * frames;
    const uint32_t behind = frames - 1 + distance * runner->window.hop;
    for (uint32_t t = 0; t < frames; t++) {
        uint32_t at = (runner->newest + ring - behind + t) % ring;
        memcpy(runner->older + (size_t)t * DK_COEFFICIENTS,
               runner->history + (size_t)at * DK_COEFFICIENTS, DK_COEFFICIENTS * sizeof(float));
    }
    return runner->older;
}

/* Computes the windows before a newest one that passes, until one does not pass. */
static dk_status look_back(dk_stream_runner *runner, int was_passing, float *logits,
                           dk_stream_counts *counts) {
    const uint32_t labels = runner->config->labels;
    for (uint32_t back = 1; back < runner->waiting; back++) {
        uint32_t at = runner->waiting - 1 - back;
        int passes = was_passing;
        if (at >= runner->same) {
            float *row = logits + (size_t)at * labels;
            dk_status status = run(runner, older_window(runner, back), row, counts);
            if (status) return status;
            passes = is_passing(runner, row);
        }
        if (!passes) {
            runner->since = back;
            return DK_OK;
        }
    }
    /* All windows since the last one that did not pass have passed. */
    runner->is_waiting = 0;
    runner->failed = 0;
    return DK_OK;
}

/* Writes the logits of the newest window, and of those that waited for it. */
static dk_status compute_waiting(dk_stream_runner *runner, float *logits,
                                 dk_stream_counts *counts) {
    const uint32_t labels = runner->config->labels, waiting = runner->waiting;
    const int was_passing = runner->is_passing;
    dk_status status = DK_OK;
    for (uint32_t w = 0; w < waiting; w++)
        memcpy(logits + (size_t)w * labels, runner->logits, labels * sizeof *logits);
    runner->is_computed = runner->same < waiting;
    if (runner->is_computed) {
        status = compute(runner, counts);
        if (status) return status;
        memcpy(logits + (size_t)(waiting - 1) * labels, runner->logits, labels * sizeof *logits);
    }
    runner->since = 0;
    if (runner->is_passing) status = look_back(runner, was_passing, logits, counts);
    runner->waiting = runner->same = 0;
    counts->windows += waiting;
    return status;
}

/* Takes the window that is due. Writes the rows of logits that are known now. */
static dk_status take_window(dk_stream_runner *runner, float *logits, dk_stream_counts *counts) {
    const int is_near = dk_window_is_near(&runner->window);
    if (runner->is_waiting) {
        runner->same += is_near && runner->same == runner->waiting;
        runner->waiting++;
        runner->since++;
        return runner->since < runner->span ? DK_OK : compute_waiting(runner, logits, counts);
    }
    runner->is_computed = !is_near;
    dk_status status = is_near ? DK_OK : compute(runner, counts);
    if (status) return status;
    memcpy(logits, runner->logits, runner->config->labels * sizeof *logits);
    counts->windows++;
    runner->failed = runner->is_passing ? 0 : runner->failed + 1;
    if (runner->span && runner->failed >= runner->span) {
        runner->is_waiting = 1;
        runner->since = runner->failed = 0;
    }
    return DK_OK;
}

/* Adds a row of features. Returns 1 if a window is due with it. */
static int add_row(dk_stream_runner *runner, const float *row) {
    if (runner->span) {
        runner->newest = (runner->newest + 1) % (2 * runner->config->frames);
        memcpy(runner->history + (size_t)runner->newest * DK_COEFFICIENTS, row,
               DK_COEFFICIENTS * sizeof *row);
    }
    return dk_window_add(&runner->window, row);
}

dk_status dk_stream_runner_push(dk_stream_runner *runner, const float *audio, size_t samples,
                                float *logits, dk_stream_counts *counts) {
    if (!runner || (samples && !audio) || !logits || !counts) return DK_BAD_ARGUMENT;
    /* Check all of it first: a refused block changes nothing. */
    if (!dk_all_within(audio, samples, DK_LOUDEST)) return DK_BAD_VALUE;
    const uint32_t labels = runner->config->labels;
    memset(counts, 0, sizeof *counts);
    while (samples) {
        size_t part = samples < PART ? samples : PART;
        uint32_t rows;
        dk_status status = dk_stream_push(runner->stream, audio, part, runner->rows, &rows);
        if (!status && !runner->model) /* compared as on a microcontroller */
            dk_round_features(runner->rows, runner->fixed.feature_scales, rows, DK_COEFFICIENTS);
        for (uint32_t t = 0; !status && t < rows; t++)
            if (add_row(runner, runner->rows + t * DK_COEFFICIENTS))
                status = take_window(runner, logits + (size_t)counts->windows * labels, counts);
        if (status) return status;
        audio += part;
        samples -= part;
    }
    return DK_OK;
}

void dk_stream_runner_view(const dk_stream_runner *runner, dk_stream_view *view) {
    const dk_stream_view seen = {runner->is_computed, runner->macs, runner->nonzeros,
                                 runner->window.rows, runner->window.next};
    *view = seen;
}
