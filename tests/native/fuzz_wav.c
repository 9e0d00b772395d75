/* fuzz_wav FILE: reads the file cut at every length and with random changes, each copy in a block
 * of exactly its size, so that the address sanitizer sees every read beyond the end. Then prints
 * the samples of the file itself. */
#include <deltakwt_spotter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4096, CHANGES = 20000 };

static dk_status read_copy(const uint8_t *data, size_t size, int print) {
    const int16_t *samples;
    size_t count;
    long sum = 0;
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    dk_status status = dk_wav_read(copy, size, &samples, &count);
    for (size_t i = 0; status == DK_OK && i < count; i++) {
        sum += samples[i];
        if (print) printf("%d ", samples[i]);
    }
    free(copy);
    return sum == 1 && status ? DK_BAD_ARGUMENT : status; /* the sum keeps the reads */
}

int main(int count, char **arguments) {
    static uint8_t data[LARGEST], changed[LARGEST];
    uint32_t random = 1;
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (!file) return 1;
    size_t size = fread(data, 1, LARGEST, file);
    fclose(file);
    for (size_t length = 0; length <= size; length++) read_copy(data, length, 0);
    for (int change = 0; change < CHANGES; change++) {
        memcpy(changed, data, size);
        for (int i = 0; i < 3; i++) {
            random = random * 1664525u + 1013904223u;
            changed[(random >> 8) % size] = (uint8_t)((random >> 24) % 5 ? random >> 20 : 255);
        }
        read_copy(changed, size, 0);
    }
    puts(read_copy(data, size, 1) == DK_OK ? "" : "refused");
    return 0;
}
