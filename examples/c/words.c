/* Print the words of a WAV file (16 kHz, mono, 16-bit PCM): words MODEL.bin SOUND.wav */
#include <deltakwt_spotter.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, dk_status status) {
    fprintf(stderr, "words: %s: %s\n", what, dk_status_text(status));
    return 1;
}

static void print_words(dk_spotter *spotter, const dk_stored_model *model) {
    dk_word word;
    while (dk_spotter_next(spotter, &word))
        printf("%.2f %.2f %s %.6f\n", (double)word.start / DK_SECOND, (double)word.end / DK_SECOND,
               dk_model_label(model, word.label), (double)word.score);
}

int main(int count, char **arguments) {
    dk_model_file file;
    dk_wav_file sound;
    dk_spotter *spotter;
    dk_status status;
    if (count != 3) return fail("usage: words MODEL.bin SOUND.wav", DK_BAD_ARGUMENT);
    if ((status = dk_model_open(arguments[1], &file))) return fail(arguments[1], status);
    if ((status = dk_wav_open(arguments[2], &sound))) return fail(arguments[2], status);
    size_t size = dk_spotter_size(&file.model), part;
    void *memory = malloc(size);
    if ((status = dk_spotter_init(memory, size, &file.model, dk_isa_best(), &spotter)))
        return fail(arguments[1], status);
    for (size_t at = 0; at < sound.count; at += part) {
        part = sound.count - at < DK_SECOND ? sound.count - at : DK_SECOND;
        if ((status = dk_spotter_push(spotter, sound.samples + at, part)))
            return fail(arguments[2], status);
        print_words(spotter, &file.model);
    }
    dk_spotter_flush(spotter); /* finds the words of the last second */
    print_words(spotter, &file.model);
    free(memory);
    dk_wav_close(&sound);
    dk_model_close(&file);
    return 0;
}
