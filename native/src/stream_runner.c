/* Streaming inference: samples in, the logits of one window every hop out. A window that is close
 * to the last computed one is not computed: the last logits are used again. */
#include "decider.h"
#include "window.h"

#include <string.h>

/* Samples that go through the front end at once: they give at most DK_MOST_LANES rows. */
enum { PART = DK_MOST_LANES * DK_HOP };

struct dk_stream_runner {
    const dk_model *model;
    dk_stream *stream;
    dk_window window;
    float *thresholds;      /* (layers, DK_SITES), or NULL: dense */
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

/* Lays out the memory. With an arena over NULL this only adds up the size. */
static dk_stream_runner *lay_out(dk_arena *arena, const dk_config *c, dk_stream_runner *runner) {
    dk_stream_runner *at = (dk_stream_runner *)dk_take(arena, 1, sizeof *at);
    size_t window = (size_t)c->frames * DK_COEFFICIENTS;
    runner->rows = dk_take_floats(arena, DK_MOST_LANES * DK_COEFFICIENTS);
    runner->ring = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->computed = (dk_feature *)dk_take(arena, window + DK_PAD, sizeof(dk_feature));
    runner->logits = dk_take_floats(arena, c->labels);
    runner->word_posteriors = dk_take_floats(arena, c->labels);
    runner->thresholds = dk_take_floats(arena, c->layers * DK_SITES);
    runner->macs = (int64_t *)dk_take(arena, c->layers * DK_PRODUCTS, sizeof(int64_t));
    runner->nonzeros = (int64_t *)dk_take(arena, c->layers * DK_SITES, sizeof(int64_t));
    runner->scratch_size = dk_scratch_size(c);
    runner->scratch = dk_take(arena, 1, runner->scratch_size);
    runner->stream = (dk_stream *)dk_take(arena, 1, dk_stream_size());
    return at;
}

size_t dk_stream_runner_size(const dk_config *config) {
    if (dk_check_config(config)) return 0;
    dk_stream_runner runner;
    dk_arena arena = dk_arena_at(NULL);
    lay_out(&arena, config, &runner);
    return dk_arena_size(&arena);
}

dk_status dk_stream_runner_init(void *memory, size_t size, const dk_model *model,
                                const dk_frontend *frontend, const float *thresholds,
                                const dk_stream_options *options, dk_stream_runner **out) {
    if (!memory || !model || !frontend || !options || !options->word_posteriors || !out)
        return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    if (c->features != DK_COEFFICIENTS) return DK_BAD_CONFIG;
    if (size < dk_stream_runner_size(c)) return DK_BAD_MEMORY;
    if (!options->hop || !options->onset || options->onset > c->frames) return DK_BAD_ARGUMENT;
    if (!(options->reuse >= 0.0f)) return DK_BAD_VALUE;
    dk_stream_runner runner;
    memset(&runner, 0, sizeof runner);
    dk_arena arena = dk_arena_at(memory);
    dk_stream_runner *at = lay_out(&arena, c, &runner);
    memcpy(runner.word_posteriors, options->word_posteriors, c->labels * sizeof(float));
    if (thresholds)
        memcpy(runner.thresholds, thresholds, c->layers * DK_SITES * sizeof *thresholds);
    else
        runner.thresholds = NULL;
    runner.model = model;
    dk_window_init(&runner.window, c->frames, options->hop, runner.ring, runner.computed);
    runner.window.reuse = options->reuse;
    runner.window.onset = options->onset;
    runner.window.outliers = options->outliers;
    dk_status status = dk_stream_init(runner.stream, dk_stream_size(), frontend,
                                      &options->front_end, &runner.stream);
    if (status) return status;
    *at = runner;
    *out = at;
    return DK_OK;
}

uint32_t dk_stream_runner_windows(const dk_stream_runner *runner, size_t samples) {
    uint32_t rows = dk_stream_rows(runner->stream, samples), due = runner->window.due;
    return rows < due ? 0 : (rows - due) / runner->window.hop + 1;
}

static dk_status compute(dk_stream_runner *runner, dk_stream_counts *counts) {
    const dk_config *c = &runner->model->config;
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = runner->macs;
    watch.nonzeros = runner->nonzeros;
    dk_status status = dk_run(runner->model, dk_window_take(&runner->window), runner->thresholds,
                              runner->scratch, runner->scratch_size, runner->logits, &watch);
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
    const uint32_t labels = runner->model->config.labels;
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
