/* print_logits MODEL.bin CLIP.raw: the logits of one second as bits, as a clip and as the last
 * window of a stream. test_library.py compares them with those of Python. */
#include <deltakwt_spotter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_bits(const char *name, const float *logits, uint32_t labels) {
    printf("%s", name);
    for (uint32_t i = 0; i < labels; i++) {
        uint32_t bits;
        memcpy(&bits, logits + i, sizeof bits);
        printf(" %08x", (unsigned)bits);
    }
    printf("\n");
}

int main(int count, char **arguments) {
    static int16_t samples[DK_SECOND];
    dk_model_file file;
    dk_spotter *spotter;
    FILE *sound = count == 3 ? fopen(arguments[2], "rb") : NULL;
    if (!sound || fread(samples, sizeof *samples, DK_SECOND, sound) != DK_SECOND) return 1;
    if (dk_model_open(arguments[1], &file) != DK_OK) return 2;
    size_t size = dk_spotter_size(&file.model);
    void *memory = malloc(size);
    float *logits = (float *)malloc(file.model.config.labels * sizeof *logits);
    if (dk_spotter_init(memory, size, &file.model, dk_isa_best(), &spotter) != DK_OK) return 3;
    if (dk_spotter_classify(spotter, samples, logits) != DK_OK) return 4;
    print_bits("clip", logits, file.model.config.labels);
    if (dk_spotter_logits(spotter)) return 5; /* the stream has not begun */
    for (int second = 0; second < 2; second++)
        if (dk_spotter_push(spotter, samples, DK_SECOND) != DK_OK) return 6;
    if (dk_spotter_push(spotter, samples, DK_SECOND + 1) != DK_BAD_ARGUMENT) return 7;
    print_bits("stream", dk_spotter_logits(spotter), file.model.config.labels);
    dk_model_close(&file);
    fclose(sound), free(memory), free(logits);
    return 0;
}
