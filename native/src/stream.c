/* The front end of a stream: each frame is computed once. With smoothing it needs one frame
 * ahead. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* Step of the level of a band, in nats per frame: large at first, then small. The level settles
 * where a share `quantile` of the frames lies below it. */
static const float STEP_FIRST = 1.0f, STEP_LEAST = 0.02f;

dk_status dk_stream_start(dk_stream *stream, const dk_frontend *frontend,
                          const dk_front_end_setting *setting) {
    if (setting && dk_check_front_end(setting)) return DK_BAD_VALUE;
    memset(stream, 0, sizeof *stream);
    stream->frontend = frontend;
    if (setting) stream->setting = *setting;
    if (stream->setting.floor > 0.0) stream->lift = (float)log(stream->setting.floor);
    return DK_OK;
}

/* Replaces the energies of a new frame by the smoothed energies of the frame before it. */
static void smoothed(dk_stream *stream, float *energies) {
    for (uint32_t band = 0; band < DK_SMOOTHED; band++) {
        float next = energies[band];
        float here = stream->current[band], before = stream->previous[band];
        energies[band] = (before + 2.0f * here + next) / 4.0f;
        stream->previous[band] = stream->begun ? here : next; /* the first is its own neighbour */
        stream->current[band] = next;
    }
    stream->begun = 1;
}

/* Updates the level of each band with this frame, then limits the frame from below by it. */
static void floored(dk_stream *stream, float *logs) {
    float step = STEP_FIRST / (1.0f + (float)stream->floored);
    if (step < STEP_LEAST) step = STEP_LEAST;
    float up = step * (float)stream->setting.quantile, down = step - up;
    for (uint32_t band = 0; band < DK_LEVELS; band++) {
        float level = stream->floored ? stream->level[band] : logs[band];
        stream->level[band] = level + (logs[band] > level ? up : -down);
        float least = stream->level[band] + stream->lift;
        if (logs[band] < least) logs[band] = least;
    }
    if (stream->floored < UINT32_MAX) stream->floored++;
}

uint32_t dk_stream_finish(dk_stream *stream, float *energies, uint32_t frames, float *features) {
    const dk_kernels *kernels = stream->frontend->kernels;
    float *rows = energies;
    if (stream->setting.smooth) {
        uint32_t early = stream->begun ? 0 : 1; /* the first frame completes no row */
        for (uint32_t t = 0; t < frames; t++) smoothed(stream, rows + t * DK_BANDS);
        rows += early * DK_BANDS;
        frames -= early;
    }
    kernels->log_floor(rows, rows, frames * DK_BANDS);
    for (uint32_t t = 0; stream->setting.floor > 0.0 && t < frames; t++)
        floored(stream, rows + t * DK_BANDS);
    kernels->dct(stream->frontend, rows, frames, features);
    return frames;
}

#ifndef DK_SMALL

size_t dk_stream_size(void) { return sizeof(dk_stream) + DK_ALIGN; }

dk_status dk_stream_init(void *memory, size_t size, const dk_frontend *frontend,
                         const dk_front_end_setting *setting, dk_stream **out) {
    if (!memory || !frontend || !out) return DK_BAD_ARGUMENT;
    if (size < dk_stream_size()) return DK_BAD_MEMORY;
    dk_arena arena = dk_arena_at(memory);
    dk_stream *stream = (dk_stream *)dk_take(&arena, 1, sizeof *stream);
    dk_status status = dk_stream_start(stream, frontend, setting);
    if (!status) *out = stream;
    return status;
}

uint32_t dk_stream_rows(const dk_stream *stream, size_t samples) {
    return dk_frontend_frames(stream->frontend, stream->filled + samples);
}

dk_status dk_stream_push(dk_stream *stream, const float *audio, size_t samples, float *features,
                         uint32_t *rows) {
    if (!stream || (samples && !audio) || !rows) return DK_BAD_ARGUMENT;
    if (!dk_all_within(audio, samples, DK_LOUDEST)) return DK_BAD_VALUE;
    const dk_frontend *frontend = stream->frontend;
    *rows = 0;
    while (samples) {
        size_t room = DK_STREAM - stream->filled, count = samples < room ? samples : room;
        memcpy(stream->samples + stream->filled, audio, count * sizeof *audio);
        stream->filled += (uint32_t)count;
        audio += count;
        samples -= count;
        uint32_t frames = dk_frontend_frames(frontend, stream->filled);
        uint32_t done = frames * frontend->hop;
        if (!frames) break;
        frontend->kernels->energies(frontend, stream->samples, frames, stream->energies,
                                    stream->work);
        *rows += dk_stream_finish(stream, stream->energies, frames,
                                  features + (size_t)*rows * DK_COEFFICIENTS);
        stream->filled -= done;
        memmove(stream->samples, stream->samples + done, stream->filled * sizeof *stream->samples);
    }
    return DK_OK;
}

#endif
