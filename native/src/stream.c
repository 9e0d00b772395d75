/* The front end for a stream that has no end: each frame computed once, nothing looked up ahead
 * but one frame when the energies are smoothed. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* The level of a band moves this much (in nats) a frame: quickly at first, then slowly. It comes
 * to rest where a share `quantile` of the frames lies below. */
static const float STEP_FIRST = 1.0f, STEP_LEAST = 0.02f;

size_t dk_stream_size(void) { return sizeof(dk_stream) + DK_ALIGN; }

dk_status dk_stream_init(void *memory, size_t size, const dk_frontend *frontend,
                         const dk_steady *steady, dk_stream **out) {
    if (!memory || !frontend || !out) return DK_BAD_ARGUMENT;
    if (size < dk_stream_size()) return DK_BAD_MEMORY;
    if (steady && dk_check_steady(steady)) return DK_BAD_VALUE;
    dk_arena arena = dk_arena_at(memory);
    dk_stream *stream = (dk_stream *)dk_take(&arena, 1, sizeof *stream);
    memset(stream, 0, sizeof *stream);
    stream->frontend = frontend;
    if (steady) stream->steady = *steady;
    if (stream->steady.floor > 0.0) stream->lift = (float)log(stream->steady.floor);
    *out = stream;
    return DK_OK;
}

uint32_t dk_stream_rows(const dk_stream *stream, size_t samples) {
    return dk_frames(stream->filled + samples);
}

/* energies of a new frame -> those of the frame before it, smoothed. 0: nothing finished yet. */
static int smoothed(dk_stream *stream, float *energies) {
    int first = stream->frames == 0;
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        float next = energies[band];
        float here = stream->current[band], before = stream->previous[band];
        energies[band] = (before + 2.0f * here + next) / 4.0f;
        stream->previous[band] = first ? next : here; /* its own left neighbour */
        stream->current[band] = next;
    }
    return !first;
}

/* Moves the level of each band by this frame, then floors the frame at it. */
static void floored(dk_stream *stream, float *logs) {
    float step = STEP_FIRST / (1.0f + (float)stream->floored);
    if (step < STEP_LEAST) step = STEP_LEAST;
    float up = step * (float)stream->steady.quantile, down = step - up;
    for (uint32_t band = 0; band < DK_BANDS; band++) {
        float level = stream->floored ? stream->level[band] : logs[band];
        stream->level[band] = level + (logs[band] > level ? up : -down);
        float least = stream->level[band] + stream->lift;
        if (logs[band] < least) logs[band] = least;
    }
    if (stream->floored < UINT32_MAX) stream->floored++;
}

/* One whole frame is waiting: its features, if this finishes a row. */
static int finish_frame(dk_stream *stream, float *features) {
    const dk_frontend *frontend = stream->frontend;
    const dk_kernels *kernels = frontend->kernels;
    float *energies = stream->energies;
    kernels->energies(frontend, stream->samples, 1, energies, stream->work);
    int finished = stream->steady.smooth ? smoothed(stream, energies) : 1;
    if (stream->frames < UINT32_MAX) stream->frames++;
    if (!finished) return 0;
    kernels->log_floor(energies, energies, DK_BANDS);
    if (stream->steady.floor > 0.0) floored(stream, energies);
    kernels->gemm(energies, DK_BANDS, 1, &frontend->dct, NULL, features, DK_COEFFICIENTS);
    return 1;
}

dk_status dk_stream_push(dk_stream *stream, const float *audio, size_t samples, float *features,
                         uint32_t *rows) {
    if (!stream || (samples && !audio) || !rows) return DK_BAD_ARGUMENT;
    if (!dk_all_within(audio, samples, 1e9f)) return DK_BAD_VALUE;
    *rows = 0;
    while (samples) {
        size_t room = DK_FRAME - stream->filled, count = samples < room ? samples : room;
        memcpy(stream->samples + stream->filled, audio, count * sizeof *audio);
        stream->filled += (uint32_t)count;
        audio += count;
        samples -= count;
        if (stream->filled < DK_FRAME) break;
        *rows += (uint32_t)finish_frame(stream, features + (size_t)*rows * DK_COEFFICIENTS);
        memmove(stream->samples, stream->samples + DK_HOP,
                (DK_FRAME - DK_HOP) * sizeof *stream->samples);
        stream->filled = DK_FRAME - DK_HOP;
    }
    return DK_OK;
}
