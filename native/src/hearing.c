/* Samples as they come -> the logits of a window every hop. A window near the last computed one is
 * not computed: its logits stand. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* Samples heard at once, so that at most DK_MOST_LANES rows come out. */
enum { PART = DK_MOST_LANES * DK_HOP };

struct dk_hearing {
    const dk_model *model;
    dk_stream *stream;
    float *thresholds; /* (layers, DK_SITES), or NULL: dense */
    float *heard;      /* (labels) */
    uint32_t hop, onset, stray;
    float reuse;
    float *rows;     /* (room, 40) feature rows; the newest end at `used` */
    float *computed; /* (frames, 40): the window last computed, */
    float *logits;   /* (labels): and its logits */
    int64_t *macs;   /* (layers, DK_PRODUCTS): and its MACs */
    void *scratch;
    size_t scratch_size;
    uint32_t room, used;
    uint32_t due; /* rows that the next window still needs */
    int is_begun; /* a window was computed */
    int is_quiet; /* and no word was heard in it */
};

/* With no memory behind the arena only its size counts. */
static dk_hearing *plan(dk_arena *arena, const dk_config *c, dk_hearing *hearing) {
    dk_hearing *at = (dk_hearing *)dk_take(arena, 1, sizeof *at);
    size_t window = (size_t)c->frames * DK_COEFFICIENTS;
    hearing->room = 2 * c->frames + DK_MOST_LANES;
    hearing->rows = dk_take_floats(arena, (size_t)hearing->room * DK_COEFFICIENTS);
    hearing->computed = dk_take_floats(arena, window);
    hearing->logits = dk_take_floats(arena, c->labels);
    hearing->heard = dk_take_floats(arena, c->labels);
    hearing->thresholds = dk_take_floats(arena, c->layers * DK_SITES);
    hearing->macs = (int64_t *)dk_take(arena, c->layers * DK_PRODUCTS, sizeof(int64_t));
    hearing->scratch_size = dk_scratch_size(c);
    hearing->scratch = dk_take(arena, 1, hearing->scratch_size);
    hearing->stream = (dk_stream *)dk_take(arena, 1, dk_stream_size());
    return at;
}

size_t dk_hearing_size(const dk_config *config) {
    if (dk_check_config(config)) return 0;
    dk_hearing hearing;
    dk_arena arena = dk_arena_at(NULL);
    plan(&arena, config, &hearing);
    return dk_arena_size(&arena);
}

dk_status dk_hearing_init(void *memory, size_t size, const dk_model *model,
                          const dk_frontend *frontend, const float *thresholds,
                          const dk_listening *how, dk_hearing **out) {
    if (!memory || !model || !frontend || !how || !how->heard || !out) return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    if (c->features != DK_COEFFICIENTS) return DK_BAD_CONFIG;
    if (size < dk_hearing_size(c)) return DK_BAD_MEMORY;
    if (!how->hop || !how->onset || how->onset > c->frames) return DK_BAD_ARGUMENT;
    if (!(how->reuse >= 0.0f)) return DK_BAD_VALUE;
    dk_hearing hearing;
    memset(&hearing, 0, sizeof hearing);
    dk_arena arena = dk_arena_at(memory);
    dk_hearing *at = plan(&arena, c, &hearing);
    memcpy(hearing.heard, how->heard, c->labels * sizeof *how->heard);
    if (thresholds)
        memcpy(hearing.thresholds, thresholds, c->layers * DK_SITES * sizeof *thresholds);
    else
        hearing.thresholds = NULL;
    hearing.model = model;
    hearing.hop = how->hop;
    hearing.reuse = how->reuse;
    hearing.onset = how->onset;
    hearing.stray = how->stray;
    hearing.due = c->frames;
    dk_status status =
        dk_stream_init(hearing.stream, dk_stream_size(), frontend, &how->steady, &hearing.stream);
    if (status) return status;
    *at = hearing;
    *out = at;
    return DK_OK;
}

uint32_t dk_hearing_windows(const dk_hearing *hearing, size_t samples) {
    uint32_t rows = dk_stream_rows(hearing->stream, samples);
    return rows < hearing->due ? 0 : (rows - hearing->due) / hearing->hop + 1;
}

/* Whether nothing moved by more than `reuse` since it was computed; in quiet, not much lately. */
static int is_near(const dk_hearing *hearing, const float *window) {
    const float reuse = hearing->reuse;
    uint32_t frames = hearing->model->config.frames, moved = 0;
    uint32_t first = hearing->is_quiet ? frames - hearing->onset : 0;
    if (!hearing->is_begun) return 0;
    for (uint32_t t = first; t < frames; t++) {
        const float *row = window + t * DK_COEFFICIENTS;
        const float *known = hearing->computed + t * DK_COEFFICIENTS;
        for (uint32_t i = 0; i < DK_COEFFICIENTS; i++) moved += fabsf(row[i] - known[i]) > reuse;
    }
    return moved <= (hearing->is_quiet ? hearing->stray : 0);
}

/* Whether no word reaches the posterior at which it counts as heard. */
static int is_quiet(const float *logits, const float *heard, uint32_t labels) {
    float top = logits[0], sum = 0.0f;
    for (uint32_t i = 1; i < labels; i++)
        if (logits[i] > top) top = logits[i];
    for (uint32_t i = 0; i < labels; i++) sum += expf(logits[i] - top);
    for (uint32_t i = 0; i < labels; i++)
        if (expf(logits[i] - top) >= heard[i] * sum) return 0;
    return 1;
}

static dk_status compute(dk_hearing *hearing, const float *window, dk_heard *heard) {
    const dk_config *c = &hearing->model->config;
    dk_watch watch;
    memset(&watch, 0, sizeof watch);
    watch.macs = hearing->macs;
    dk_status status = dk_run(hearing->model, window, hearing->thresholds, hearing->scratch,
                              hearing->scratch_size, hearing->logits, &watch);
    if (status) return status;
    memcpy(hearing->computed, window, (size_t)c->frames * DK_COEFFICIENTS * sizeof *window);
    hearing->is_begun = 1;
    hearing->is_quiet = is_quiet(hearing->logits, hearing->heard, c->labels);
    heard->computed++;
    for (uint32_t i = 0; i < c->layers * DK_PRODUCTS; i++) heard->macs += hearing->macs[i];
    return DK_OK;
}

/* Room for the rows of one more part behind those that later windows still need. */
static float *make_room(dk_hearing *hearing) {
    uint32_t kept = hearing->model->config.frames;
    if (hearing->used + DK_MOST_LANES > hearing->room) {
        size_t row = DK_COEFFICIENTS;
        memmove(hearing->rows, hearing->rows + (hearing->used - kept) * row,
                kept * row * sizeof *hearing->rows);
        hearing->used = kept;
    }
    return hearing->rows + (size_t)hearing->used * DK_COEFFICIENTS;
}

dk_status dk_hearing_push(dk_hearing *hearing, const float *audio, size_t samples, float *logits,
                          dk_heard *heard) {
    if (!hearing || (samples && !audio) || !logits || !heard) return DK_BAD_ARGUMENT;
    if (!dk_all_within(audio, samples, DK_LOUDEST)) return DK_BAD_VALUE; /* nothing is taken */
    const dk_config *c = &hearing->model->config;
    memset(heard, 0, sizeof *heard);
    while (samples) {
        size_t part = samples < PART ? samples : PART;
        uint32_t rows;
        dk_status status = dk_stream_push(hearing->stream, audio, part, make_room(hearing), &rows);
        for (; !status && rows; rows--) {
            hearing->used++;
            if (--hearing->due) continue;
            hearing->due = hearing->hop;
            const float *window = hearing->rows + (hearing->used - c->frames) * DK_COEFFICIENTS;
            if (!is_near(hearing, window)) status = compute(hearing, window, heard);
            memcpy(logits + heard->windows++ * c->labels, hearing->logits,
                   c->labels * sizeof *logits);
        }
        if (status) return status;
        audio += part;
        samples -= part;
    }
    return DK_OK;
}
