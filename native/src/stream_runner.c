/* Streaming inference: samples in, the logits of one window every hop out. A window that is close
 * to the last computed one is not computed: the last logits are used again. While no word is
 * possible, only one window of `span` is computed.
 *
 * A window passes if a word is possible in it: a label reaches its value of `word_posteriors`.
 * After a window that does not pass, the next `span` - 1 windows wait, and the one after them is
 * computed first. If it does not pass, the windows that waited get the logits before them.
 * Otherwise they are computed too, the newest first, until one does not pass. All windows are
 * computed from `span` passing ones in a row until `span` in a row do not pass. */
#include "stream_runner.h"
#include "decider.h"

#include <string.h>

uint32_t dk_stream_runner_windows(const dk_stream_runner *runner, size_t samples) {
    uint32_t rows = dk_stream_rows(runner->stream, samples), due = runner->window.due;
    return rows < due ? 0 : (rows - due) / runner->window.hop + 1 + runner->waiting;
}

/* The counts of the window that came `back` windows before the newest. */
static int64_t *macs_of(const dk_stream_runner *runner, uint32_t back) {
    return runner->macs + (size_t)back * runner->config->layers * DK_PRODUCTS;
}

static int64_t *nonzeros_of(const dk_stream_runner *runner, uint32_t back) {
    return runner->nonzeros + (size_t)back * runner->config->layers * DK_SITES;
}

/* Prepares the records of `windows` windows: none of them is computed yet. */
static void start_records(dk_stream_runner *runner, uint32_t windows) {
    const size_t counts = (size_t)windows * runner->config->layers * sizeof(int64_t);
    memset(runner->is_computed, 0, sizeof runner->is_computed);
    memset(runner->macs, 0, counts * DK_PRODUCTS);
    memset(runner->nonzeros, 0, counts * DK_SITES);
    runner->taken = runner->newest;
}

static dk_status run_float(dk_stream_runner *runner, const float *features, uint32_t back,
                           float *logits) {
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = macs_of(runner, back);
    watch.nonzeros = nonzeros_of(runner, back);
    return dk_run(runner->model, features, runner->thresholds, runner->scratch,
                  runner->scratch_size, logits, &watch);
}

static dk_status run_fixed(dk_stream_runner *runner, const float *features, uint32_t back,
                           float *logits, uint32_t *saturated) {
    const dk_config *c = runner->config;
    const dk_fixed_setup *fixed = &runner->fixed;
    const dk_fixed_watch watch = {macs_of(runner, back), nonzeros_of(runner, back), runner->peaks,
                                  NULL};
    dk_fixed_features(features, fixed->feature_scales, c->frames, c->features, runner->shorts);
    dk_status status =
        dk_fixed_run(fixed->model, runner->shorts, fixed->thresholds, runner->scratch,
                     runner->scratch_size, runner->fixed_logits, &watch);
    for (uint32_t i = 0; i < c->labels; i++)
        logits[i] = (float)runner->fixed_logits[i] * fixed->logit_step;
    *saturated += dk_fixed_saturated(c, runner->peaks);
    return status;
}

/* Computes the logits of the window that came `back` windows before the newest, and adds up what it
 * cost. */
static dk_status run(dk_stream_runner *runner, const float *features, uint32_t back, float *logits,
                     dk_stream_counts *counts) {
    const int64_t *macs = macs_of(runner, back);
    dk_status status = runner->model
                           ? run_float(runner, features, back, logits)
                           : run_fixed(runner, features, back, logits, &counts->saturated);
    for (uint32_t i = 0; i < runner->config->labels; i++) logits[i] += runner->bias[i];
    counts->computed++;
    runner->is_computed[back] = 1;
    for (uint32_t i = 0; i < runner->config->layers * DK_PRODUCTS; i++) counts->macs += macs[i];
    return status;
}

static int is_passing(const dk_stream_runner *runner, const float *logits) {
    return !dk_holds_no_word(logits, runner->word_posteriors, runner->config->labels);
}

/* Computes the newest window. */
static dk_status compute(dk_stream_runner *runner, dk_stream_counts *counts) {
    dk_status status = run(runner, dk_window_take(&runner->window), 0, runner->logits, counts);
    if (status) {
        runner->window.has_computed = 0; /* there are no logits to reuse */
        runner->is_waiting = 0;
        runner->waiting = runner->same = runner->since = runner->failed = 0;
        return status;
    }
    runner->is_passing = is_passing(runner, runner->logits);
    runner->window.is_quiet = !runner->is_passing;
    return DK_OK;
}

/* Returns the window that came `distance` windows before the newest. */
static const float *older_window(const dk_stream_runner *runner, uint32_t distance) {
    const uint32_t frames = runner->config->frames, ring = DK_HISTORY * frames;
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
            dk_status status = run(runner, older_window(runner, back), back, row, counts);
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
    start_records(runner, waiting);
    if (runner->same < waiting) {
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
    start_records(runner, 1);
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
    runner->newest = (runner->newest + 1) % (DK_HISTORY * runner->config->frames);
    memcpy(runner->history + (size_t)runner->newest * DK_COEFFICIENTS, row,
           DK_COEFFICIENTS * sizeof *row);
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
        size_t part = samples < DK_PART ? samples : DK_PART;
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

void dk_stream_runner_view(const dk_stream_runner *runner, uint32_t back, dk_stream_view *view) {
    const uint32_t ring = DK_HISTORY * runner->config->frames;
    const uint32_t last = runner->taken + ring - back * runner->window.hop % ring;
    const dk_stream_view seen = {runner->is_computed[back],
                                 macs_of(runner, back),
                                 nonzeros_of(runner, back),
                                 runner->history,
                                 ring,
                                 last % ring};
    *view = seen;
}
