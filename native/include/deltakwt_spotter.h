/* Model files and words: the part of the C library that an application needs.
 *
 *     dk_model_file file;
 *     if (dk_model_open("kwt-1.bin", &file) != DK_OK) ...;
 *     size_t size = dk_spotter_size(&file.model);
 *     dk_spotter *spotter;
 *     dk_spotter_init(malloc(size), size, &file.model, dk_isa_best(), &spotter);
 *     dk_spotter_push(spotter, samples, count);               // 16 kHz, mono, signed 16 bit
 *     dk_word word;
 *     while (dk_spotter_next(spotter, &word)) puts(dk_model_label(&file.model, word.label));
 *
 * `deltakwt export --target bin --out kwt-1.bin` writes a model file. docs/c-library.md describes
 * its format and this interface.
 */
#ifndef DELTAKWT_SPOTTER_H
#define DELTAKWT_SPOTTER_H

#include "deltakwt_decision.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights and scales of a fixed-point model (docs/fixed-point.md). */
typedef struct {
    const double *threshold_scales; /* (layers, DK_SITES): thresholds times these are integers */
    const float *feature_scales;    /* (features) */
    float logit_step;               /* the value of the integer 1 in the logits */
    const int32_t *head_bias;       /* (labels) */
    const int32_t *numbers;         /* the embedding's shift, then nine of every layer */
    const int16_t *tensors;         /* each one 64-byte aligned in the file */
} dk_stored_integers;

/* A model as it is in a model file. The pointers point into the file. */
typedef struct {
    dk_config config;
    const char *name;        /* of the model, for people */
    const char *setting;     /* name of the setting, for people */
    const char *labels;      /* `config.labels` strings, one after the other; dk_model_label */
    const float *thresholds; /* (layers, DK_SITES), or NULL: dense */
    dk_front_end_setting front_end;
    dk_decision decision;
    const float *weights; /* the tensors of dk_model_init, each one 64-byte aligned in the file;
                           * NULL: the model is in fixed point */
    dk_stored_integers integers;
    uint32_t stride; /* steps of 10 ms from one frame to the next; it divides decision.hop */
} dk_stored_model;

/* Checks a model file in memory completely: header, checksum, sizes, offsets, text and numbers.
 * Fills *model with pointers into `data`, which must be 8-byte aligned and stay unchanged. */
DK_API dk_status dk_model_read(const void *data, size_t size, dk_stored_model *model);
/* Returns the text of a label (UTF-8), or NULL if there is no such label. */
DK_API const char *dk_model_label(const dk_stored_model *model, uint32_t label);
/* Sets tensors[0 .. dk_tensor_count - 1] for dk_model_init. Not for a model in fixed point. */
DK_API void dk_model_tensors(const dk_stored_model *model, const float **tensors);

typedef struct {
    dk_stored_model model;
    void *memory; /* the mapped file */
    size_t size;
} dk_model_file;

/* Maps a model file into memory, read-only, and checks it. Where there is no mmap, the file is
 * read into memory from malloc. The file must not be changed while it is open. */
DK_API dk_status dk_model_open(const char *path, dk_model_file *file);
DK_API void dk_model_close(dk_model_file *file);

/* Finds the samples of a WAV file in memory: 16 kHz, mono, 16-bit PCM. `data` must be 2-byte
 * aligned; *samples points into it. A file that ends early has as many samples as are there. */
DK_API dk_status dk_wav_read(const void *data, size_t size, const int16_t **samples, size_t *count);

typedef struct {
    const int16_t *samples;
    size_t count;
    void *memory; /* the mapped file */
    size_t size;
} dk_wav_file;

/* The same for a file, which is mapped or read as a model file is. */
DK_API dk_status dk_wav_open(const char *path, dk_wav_file *file);
DK_API void dk_wav_close(dk_wav_file *file);

/* Finds words in one stream. Only one thread may use a spotter at a time. */
typedef struct dk_spotter dk_spotter;

DK_API size_t dk_spotter_size(const dk_stored_model *model); /* 0 if the shape is not supported */
/* The weights are copied; `model` and the memory behind it must stay. */
DK_API dk_status dk_spotter_init(void *memory, size_t size, const dk_stored_model *model,
                                 dk_isa isa, dk_spotter **out);
/* Adds up to one second (DK_SECOND) of samples. */
DK_API dk_status dk_spotter_push(dk_spotter *spotter, const int16_t *samples, size_t count);
/* Ends the stream: the words of its last second are found. A sound of at most one second is decided
 * as one clip. Nothing can be pushed after it. */
DK_API dk_status dk_spotter_flush(dk_spotter *spotter);
/* Returns 1 and the next word, or 0 if there is none. Fetch all words after each push. */
DK_API int dk_spotter_next(dk_spotter *spotter, dk_word *word);
/* Computes the logits (labels) of one second (DK_SECOND samples). Does not touch the stream. */
DK_API dk_status dk_spotter_classify(dk_spotter *spotter, const int16_t *samples, float *logits);
/* The same, and what dk_run reports besides. watch may be NULL. A model in fixed point has no
 * traces: it refuses a watch that asks for more than its macs, nonzeros and kept. */
DK_API dk_status dk_spotter_explain(dk_spotter *spotter, const int16_t *samples, float *logits,
                                    const dk_watch *watch);
/* Returns the logits (labels) of the last window that was decided on, or NULL before the first. */
DK_API const float *dk_spotter_logits(const dk_spotter *spotter);

/* A window of the stream, as the decision rule saw it. */
typedef struct {
    uint64_t window;     /* number of the window */
    const float *logits; /* (labels) */
    const float *scores; /* (labels): smoothed posteriors */
    dk_stream_view stream;
} dk_seen_window;
typedef void (*dk_see)(void *context, const dk_seen_window *window);
/* From now on, calls `see` after every window, from inside dk_spotter_push and dk_spotter_flush. */
DK_API void dk_spotter_watch(dk_spotter *spotter, dk_see see, void *context);

#ifdef __cplusplus
}
#endif
#endif
