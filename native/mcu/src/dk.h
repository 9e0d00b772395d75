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
 * One stream, one static block of memory (DK_RAM_BYTES), no heap, no operating system. Not for two
 * threads at once.
 */
#ifndef DK_H
#define DK_H

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
    uint64_t time;       /* samples that had to be heard before it was decided */
} dk_event;

void dk_init(void);                                 /* start, or start again */
void dk_push(const int16_t *samples, size_t count); /* sound as it comes */
int dk_result(dk_event *event);                     /* the next word found; 0: none */
/* One second (16,000 samples) by itself: the best label, and the logits of all. Ends the stream. */
uint32_t dk_clip(const int16_t *samples, float *logits);
const uint32_t *dk_macs(void); /* (6) MACs of each product of the last inference */
extern const char *const dk_labels[];
extern const uint32_t DK_RAM_BYTES, DK_LABEL_COUNT;

#ifdef __cplusplus
}
#endif
#endif
