/* Streaming inference: samples in, the logits of one window every hop out. A window that is close
 * to the last computed one is not computed: the last logits are used again. */
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
    float *rows;            /* (DK_MOST_LANES, 40): rows of one part */
    dk_feature *ring;       /* (frames, 40), of the window */
    dk_feature *computed;   /* (frames, 40), of the window */
    float *logits;          /* (labels) of the last computed window */
    int64_t *macs;          /* (layers, DK_PRODUCTS) of the last computed window */
    int64_t *nonzeros;      /* (layers, DK_SITES) of the last computed window */
    int is_computed;        /* the newest window */
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
    return options->reuse >= 0.0f ? DK_OK : DK_BAD_VALUE;
}

/* Starts what both engines share: the front end and the window. */
static dk_status start(dk_stream_runner *runner, const dk_config *c, const dk_frontend *frontend,
                       const dk_stream_options *options) {
    runner->config = c;
    memcpy(runner->word_posteriors, options->word_posteriors, c->labels * sizeof(float));
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
    return rows < due ? 0 : (rows - due) / runner->window.hop + 1;
}

static dk_status run_float(dk_stream_runner *runner, const float *features) {
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = runner->macs;
    watch.nonzeros = runner->nonzeros;
    return dk_run(runner->model, features, runner->thresholds, runner->scratch,
                  runner->scratch_size, runner->logits, &watch);
}

static dk_status run_fixed(dk_stream_runner *runner, const float *features, uint32_t *saturated) {
    const dk_config *c = runner->config;
    const dk_fixed_setup *fixed = &runner->fixed;
    const dk_fixed_watch watch = {runner->macs, runner->nonzeros, runner->peaks};
    dk_fixed_features(features, fixed->feature_scales, c->frames, c->features, runner->shorts);
    dk_status status =
        dk_fixed_run(fixed->model, runner->shorts, fixed->thresholds, runner->scratch,
                     runner->scratch_size, runner->fixed_logits, &watch);
    for (uint32_t i = 0; i < c->labels; i++)
        runner->logits[i] = (float)runner->fixed_logits[i] * fixed->logit_step;
    for (uint32_t i = 0; i < (c->layers + 1) * DK_PEAKS; i++)
        *saturated += runner->peaks[i] >= dk_peak_limit(i % DK_PEAKS);
    return status;
}

static dk_status compute(dk_stream_runner *runner, dk_stream_counts *counts) {
    const dk_config *c = runner->config;
    const float *features = dk_window_take(&runner->window);
    dk_status status = runner->model ? run_float(runner, features)
                                     : run_fixed(runner, features, &counts->saturated);
    if (status) {
        runner->window.has_computed = 0; /* there are no logits to reuse */
        return status;
    }
    runner->window.is_quiet = dk_holds_no_word(runner->logits, runner->word_posteriors, c->labels);
    counts->computed++;
    for (uint32_t i = 0; i < c->layers * DK_PRODUCTS; i++) counts->macs += runner->macs[i];
    return DK_OK;
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
        for (uint32_t t = 0; !status && t < rows; t++) {
            if (!dk_window_add(&runner->window, runner->rows + t * DK_COEFFICIENTS)) continue;
            runner->is_computed = !dk_window_is_near(&runner->window);
            if (runner->is_computed) status = compute(runner, counts);
            memcpy(logits + (size_t)counts->windows++ * labels, runner->logits,
                   labels * sizeof *logits);
        }
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
