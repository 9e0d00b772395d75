/* Keyword spotting on a microcontroller: push samples, get words.
 *
 *     dk_init();
 *     for (;;) {
 *         read_microphone(samples, 160);           // 16 kHz, mono, signed 16 bit
 *         dk_push(samples, 160);                   // any number at a time
 *         dk_event event;
 *         while (dk_result(&event)) react(dk_labels[event.label], event.score);
 *     }
 *
 * One stream, one static block of memory (DK_RAM_BYTES), no heap, no operating system. Only one
 * thread may call these functions. dk_push returns after the inference of a window that is due:
 * the buffers of the microphone must hold the samples that arrive meanwhile. engine.h says why
 * this engine and the library's are separate.
 */
#ifndef DK_H
#define DK_H

#include "config.h" /* DK_HOP_MS: milliseconds from one window to the next */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A word. Samples are counted from dk_init. */
typedef struct {
    uint32_t label;      /* of dk_labels */
    float score;         /* 0..1 */
    uint64_t start, end; /* samples between which the word lies */
    uint64_t time;       /* samples that were needed to decide it */
} dk_event;

void dk_init(void);                                 /* starts a stream, or restarts it */
void dk_push(const int16_t *samples, size_t count); /* adds the next samples */
/* 1: the next word is in *event; 0: none. Four words wait; further ones are lost. */
int dk_result(dk_event *event);
/* Classifies one second (16,000 samples): returns the best label and the logits of all labels. Ends
 * the stream. A program that calls it needs 32 KB more (clip.c). */
uint32_t dk_clip(const int16_t *samples, float *logits);
const uint32_t *dk_macs(void); /* (6) MACs of each product of the last inference */
const float *dk_logits(void);  /* (labels) logits of the last window of the stream */
extern const char *const dk_labels[];
extern const uint32_t DK_RAM_BYTES, DK_LABEL_COUNT;

#ifdef __cplusplus
}
#endif
#endif
