/* Memory and options of a stream runner. */
#include "stream_runner.h"

#include <string.h>

/* Lays out the memory of either engine. With an arena over NULL this only adds up the size. */
static dk_stream_runner *lay_out(dk_arena *arena, const dk_config *c, int is_fixed,
                                 dk_stream_runner *runner) {
    dk_stream_runner *at = (dk_stream_runner *)dk_take(arena, 1, sizeof *at);
    size_t window = (size_t)c->frames * DK_COEFFICIENTS, sites = (size_t)c->layers * DK_SITES;
    size_t products = (size_t)c->layers * DK_PRODUCTS;
    memset(runner, 0, sizeof *runner);
    runner->rows = dk_take_floats(arena, DK_MOST_LANES * DK_COEFFICIENTS);
    runner->ring = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->computed = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->logits = dk_take_floats(arena, c->labels);
    runner->word_posteriors = dk_take_floats(arena, c->labels);
    runner->bias = dk_take_floats(arena, c->labels);
    runner->history = dk_take_floats(arena, DK_HISTORY * window);
    runner->older = dk_take_floats(arena, window + DK_PAD);
    runner->macs = (int64_t *)dk_take(arena, DK_MOST_SPAN * products, sizeof(int64_t));
    runner->nonzeros = (int64_t *)dk_take(arena, DK_MOST_SPAN * sites, sizeof(int64_t));
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
        if (options->span > DK_MOST_SPAN) return DK_BAD_ARGUMENT;
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
    for (uint32_t i = 0; i < c->labels; i++) runner->bias[i] = options->bias ? options->bias[i] : 0;
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
