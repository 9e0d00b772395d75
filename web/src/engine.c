/* The engine as a WebAssembly module: a model file, one stream of sound, and what each window of it
 * did. JavaScript (engine.js) writes into and reads from the buffers whose addresses the functions
 * return. A module instance holds one spotter; open another instance for a second stream. */
#include "deltakwt_spotter.h"

#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))

enum { PAGE = 65536, MOST_WINDOWS = 256 };

/* A window of the stream. The arrays follow it: scores and logits (labels), kept (layers, sites),
 * macs (layers, products), features (hop, 40). */
typedef struct {
    uint32_t number, is_computed;
} window_head;

static dk_stored_model model;
static dk_spotter *spotter;
static void *spotter_memory, *trace_memory;
static float *thresholds; /* (layers, DK_SITES): written by JavaScript before `setup` */
static float *logits;     /* (labels): of `explain` */
static float *kept;       /* (DK_SITES, layers, tokens): of `explain` */
static uint32_t *counts;  /* (layers, DK_SITES, tokens): the same of a model in fixed point */
static int64_t *macs;     /* (layers, DK_PRODUCTS): of `explain` */
static float *log_memory; /* (MOST_WINDOWS, log_step): the windows since `take_windows` */
static uint32_t log_step, log_count;
static float *first_rows; /* (frames, 40): features of the first window of the stream */
static int16_t samples[DK_SECOND];
static double word[6]; /* label, score, and the samples start, end, time, window */

/* The end of the used memory. Memory is never given back: an instance opens one model. */
static uintptr_t top;
extern unsigned char __heap_base;

static void *reserve(size_t size) {
    if (!top) top = (uintptr_t)&__heap_base;
    uintptr_t at = (top + 63) / 64 * 64;
    size_t have = __builtin_wasm_memory_size(0) * (size_t)PAGE;
    if (size > (size_t)1 << 30) return NULL;
    if (at + size > have &&
        __builtin_wasm_memory_grow(0, (at + size - have + PAGE - 1) / PAGE) == (size_t)-1)
        return NULL;
    top = at + size;
    return (void *)at;
}

/* Returns memory for a model file of `size` bytes, or NULL. */
EXPORT(reserve_file) void *reserve_file(uint32_t size) { return reserve(size); }

static uint32_t tokens(void) { return model.config.frames + 1; }
static uint32_t sites(void) { return model.config.layers * DK_SITES; }
static uint32_t new_rows(void) { /* of a window that the one before does not have */
    const uint32_t hop = model.decision.hop / model.stride;
    return hop < model.config.frames ? hop : model.config.frames;
}
static uint32_t products(void) { return model.config.layers * DK_PRODUCTS; }

/* Floats of the widest trace: a site has `width` values in each row. */
static size_t site_width(int site) {
    const dk_config *c = &model.config;
    if (site == DK_SITE_SCORES || site == DK_SITE_SOFTMAX) return (size_t)c->heads * tokens();
    return site == DK_SITE_MLP_HIDDEN ? c->mlp : c->dim;
}

static size_t trace_size(int site) {
    return (size_t)model.config.layers * tokens() * site_width(site);
}

/* Reads and checks a model file and takes all memory. */
EXPORT(open_model) int open_model(const void *file, uint32_t size) {
    dk_status status = dk_model_read(file, size, &model);
    if (status) return status;
    const dk_config *c = &model.config;
    size_t traces = 0;
    for (int site = 0; model.weights && site < DK_SITES; site++) traces += trace_size(site);
    log_step = sizeof(window_head) / sizeof(float) + 2 * c->labels + sites() + products() +
               new_rows() * DK_COEFFICIENTS;
    spotter_memory = reserve(dk_spotter_size(&model));
    thresholds = reserve(sites() * sizeof *thresholds);
    logits = reserve(c->labels * sizeof *logits);
    macs = reserve(products() * sizeof *macs);
    kept = reserve((size_t)sites() * tokens() * sizeof *kept);
    counts = reserve((size_t)sites() * tokens() * sizeof *counts);
    log_memory = reserve((size_t)MOST_WINDOWS * log_step * sizeof *log_memory);
    trace_memory = reserve(traces * sizeof(float));
    first_rows = reserve((size_t)c->frames * DK_COEFFICIENTS * sizeof *first_rows);
    if (!dk_spotter_size(&model)) return DK_BAD_CONFIG;
    if (!spotter_memory || !thresholds || !logits || !macs || !kept || !counts || !log_memory ||
        !trace_memory || !first_rows)
        return DK_BAD_MEMORY;
    if (model.thresholds) memcpy(thresholds, model.thresholds, sites() * sizeof *thresholds);
    return DK_OK;
}

EXPORT(is_fixed) int is_fixed(void) { return !model.weights; }
EXPORT(config) const dk_config *config(void) { return &model.config; }
EXPORT(decision) const dk_decision *decision(void) { return &model.decision; }
EXPORT(threshold_buffer) float *threshold_buffer(void) { return thresholds; }
EXPORT(sample_buffer) int16_t *sample_buffer(void) { return samples; }
EXPORT(status_text) const char *status_text(int status) {
    return dk_status_text((dk_status)status);
}

static void copy_counts(const int64_t *from, uint32_t count, float *to) {
    for (uint32_t i = 0; i < count; i++) to[i] = (float)from[i];
}

/* The last `count` rows of the window, oldest first. */
static void copy_rows(const dk_stream_view *view, uint32_t count, float *to) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = (view->last + view->ring - (count - 1) + i) % view->ring;
        memcpy(to + i * DK_COEFFICIENTS, view->rows + row * DK_COEFFICIENTS,
               DK_COEFFICIENTS * sizeof *to);
    }
}

static void log_window(void *context, const dk_seen_window *seen) {
    (void)context;
    if (log_count == MOST_WINDOWS) return;
    const uint32_t labels = model.config.labels;
    float *at = log_memory + (size_t)log_count++ * log_step;
    const window_head head = {(uint32_t)seen->window, (uint32_t)seen->stream.is_computed};
    memcpy(at, &head, sizeof head);
    at += sizeof head / sizeof *at;
    memcpy(at, seen->scores, labels * sizeof *at);
    memcpy(at + labels, seen->logits, labels * sizeof *at);
    at += 2 * labels;
    copy_counts(seen->stream.nonzeros, sites(), at);
    copy_counts(seen->stream.macs, products(), at + sites());
    copy_rows(&seen->stream, new_rows(), at + sites() + products());
    if (!seen->window) copy_rows(&seen->stream, model.config.frames, first_rows);
}

/* Starts a new stream with the thresholds of the buffer, or densely, and this front end. */
EXPORT(setup) int setup(int is_dense, int smooth, double floor, double quantile) {
    model.thresholds = is_dense ? NULL : thresholds;
    model.front_end.smooth = smooth;
    model.front_end.floor = floor;
    model.front_end.quantile = quantile;
    log_count = 0;
    spotter = NULL;
    dk_status status =
        dk_spotter_init(spotter_memory, dk_spotter_size(&model), &model, dk_isa_best(), &spotter);
    if (!status) dk_spotter_watch(spotter, log_window, NULL);
    return status;
}

/* Takes samples of the buffer. Fetch the windows and the words after each push. */
EXPORT(push) int push(uint32_t count) { return dk_spotter_push(spotter, samples, count); }
EXPORT(flush) int flush(void) { return dk_spotter_flush(spotter); }

EXPORT(window_log) const float *window_log(void) { return log_memory; }
EXPORT(first_window_rows) const float *first_window_rows(void) { return first_rows; }
EXPORT(window_step) uint32_t window_step(void) { return log_step; }
EXPORT(take_windows) uint32_t take_windows(void) {
    uint32_t count = log_count;
    log_count = 0;
    return count;
}

/* Returns the next word of the stream, or NULL. */
EXPORT(next_word) const double *next_word(void) {
    dk_word found;
    if (!spotter || !dk_spotter_next(spotter, &found)) return NULL;
    const double values[6] = {found.label,       found.score,        (double)found.start,
                              (double)found.end, (double)found.time, (double)found.window};
    memcpy(word, values, sizeof word);
    return word;
}

/* Counts the values of each row that differ from the row before: the kept deltas. */
static void count_kept(const float *references, size_t width, float *to) {
    for (uint32_t layer = 0; layer < model.config.layers; layer++)
        for (uint32_t t = 0; t < tokens(); t++) {
            const float *row = references + ((size_t)layer * tokens() + t) * width;
            uint32_t changed = 0;
            for (size_t i = 0; i < width; i++) changed += t < 2 || row[i] != row[i - width];
            to[layer * tokens() + t] = (float)changed;
        }
}

/* In floats: asks for traces, from which the kept deltas are counted. */
static dk_status explain_floats(dk_watch *watch) {
    float *at = trace_memory;
    for (int site = 0; site < DK_SITES; site++) {
        watch->trace[site] = at;
        at += trace_size(site);
    }
    memset(trace_memory, 0, (size_t)(at - (float *)trace_memory) * sizeof *at);
    dk_status status = dk_spotter_explain(spotter, samples, logits, watch);
    for (int site = 0; !status && site < DK_SITES; site++)
        count_kept(watch->trace[site], site_width(site),
                   kept + (size_t)site * model.config.layers * tokens());
    return status;
}

static dk_status explain_integers(dk_watch *watch) {
    const uint32_t layers = model.config.layers;
    watch->kept = counts;
    dk_status status = dk_spotter_explain(spotter, samples, logits, watch);
    for (uint32_t layer = 0; layer < layers; layer++)
        for (uint32_t site = 0; site < DK_SITES; site++)
            for (uint32_t t = 0; t < tokens(); t++)
                kept[(site * layers + layer) * tokens() + t] =
                    (float)counts[(layer * DK_SITES + site) * tokens() + t];
    return status;
}

/* Runs the one second in the sample buffer, apart from the stream. With `is_traced`, also counts
 * the deltas that every token kept at every site. */
EXPORT(explain) int explain(int is_traced) {
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = macs;
    if (!is_traced) return dk_spotter_explain(spotter, samples, logits, &watch);
    return model.weights ? explain_floats(&watch) : explain_integers(&watch);
}

EXPORT(explained_logits) const float *explained_logits(void) { return logits; }
EXPORT(explained_macs) const int64_t *explained_macs(void) { return macs; }
EXPORT(explained_kept) const float *explained_kept(void) { return kept; }
