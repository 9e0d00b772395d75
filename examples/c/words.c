/* Print the words of a WAV file (16 kHz, mono, 16-bit PCM): words MODEL.bin SOUND.wav
 *
 *     deltakwt export --target bin --out kwt-1.bin
 *     cc words.c $(pkg-config --cflags --libs deltakwt) -o words
 *     ./words kwt-1.bin sound.wav
 */
#include <deltakwt_spotter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *why) {
    fprintf(stderr, "words: %s: %s\n", what, why);
    return 1;
}

static void print_words(dk_spotter *spotter, const dk_stored_model *model) {
    dk_word word;
    while (dk_spotter_next(spotter, &word))
        printf("%.2f %.2f %s %.6f\n", (double)word.start / DK_SECOND, (double)word.end / DK_SECOND,
               dk_model_label(model, word.label), (double)word.score);
}

int main(int count, char **arguments) {
    static int16_t samples[DK_SECOND];
    static const uint8_t format[] = {1, 0, 1, 0, 0x80, 0x3e, 0, 0}; /* PCM, mono, 16000 Hz */
    uint8_t wav[44];
    dk_model_file file;
    dk_spotter *spotter;
    dk_status status;
    if (count != 3) return fail("usage", "words MODEL.bin SOUND.wav");
    if ((status = dk_model_open(arguments[1], &file)) != DK_OK)
        return fail(arguments[1], dk_status_text(status));
    size_t size = dk_spotter_size(&file.model), got;
    void *memory = malloc(size + 1);
    if ((status = dk_spotter_init(memory, size, &file.model, dk_isa_best(), &spotter)) != DK_OK)
        return fail(arguments[1], dk_status_text(status));
    FILE *sound = fopen(arguments[2], "rb");
    if (!sound || fread(wav, 1, sizeof wav, sound) != sizeof wav || memcmp(wav, "RIFF", 4) ||
        memcmp(wav + 20, format, sizeof format) || wav[34] != 16 || memcmp(wav + 36, "data", 4))
        return fail(arguments[2], "is not a WAV file of 16 kHz, mono, 16-bit PCM");
    while ((got = fread(samples, sizeof *samples, DK_SECOND, sound)) > 0) {
        if ((status = dk_spotter_push(spotter, samples, got)) != DK_OK)
            return fail(arguments[2], dk_status_text(status));
        print_words(spotter, &file.model);
    }
    dk_spotter_flush(spotter);
    print_words(spotter, &file.model);
    fclose(sound);
    free(memory);
    dk_model_close(&file);
    return 0;
}
