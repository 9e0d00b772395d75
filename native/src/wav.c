/* WAV files: finds the samples of a file in memory. Nothing of the file is trusted. */
#include "deltakwt_spotter.h"

#include <string.h>

enum { PCM = 1, EXTENSIBLE = 0xfffe, HEADER = 8 }; /* of a chunk: name and size */

static uint32_t number(const uint8_t *at, uint32_t bytes) {
    uint32_t value = 0;
    while (bytes--) value = value << 8 | at[bytes];
    return value;
}

/* 16 kHz, mono, 16-bit PCM. */
static int is_supported(const uint8_t *format, size_t size) {
    if (size < 16) return 0;
    uint32_t kind = number(format, 2);
    if (kind == EXTENSIBLE && size >= 40) kind = number(format + 24, 2);
    return kind == PCM && number(format + 2, 2) == 1 && number(format + 4, 4) == DK_SECOND &&
           number(format + 14, 2) == 16;
}

dk_status dk_wav_read(const void *data, size_t size, const int16_t **samples, size_t *count) {
    if (!data || (uintptr_t)data % 2 || !samples || !count) return DK_BAD_ARGUMENT;
    const uint16_t one = 1;
    if (!*(const uint8_t *)&one) return DK_BAD_SOUND; /* a big-endian machine */
    const uint8_t *at = (const uint8_t *)data, *end = at + size;
    if (size < 12 || memcmp(at, "RIFF", 4) || memcmp(at + 8, "WAVE", 4)) return DK_BAD_SOUND;
    int has_format = 0;
    for (at += 12; (size_t)(end - at) >= HEADER;) {
        const uint8_t *name = at;
        size_t left = (size_t)(end - at) - HEADER, length = number(at + 4, 4);
        at += HEADER;
        if (!memcmp(name, "fmt ", 4)) {
            has_format = length <= left && is_supported(at, length);
        } else if (!memcmp(name, "data", 4)) {
            if (!has_format) return DK_BAD_SOUND;
            *samples = (const int16_t *)(const void *)at;
            *count = (length < left ? length : left) / sizeof **samples;
            return DK_OK;
        }
        if (length >= left) break;
        at += length + length % 2;
    }
    return DK_BAD_SOUND;
}
