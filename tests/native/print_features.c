/* print_features SOUND.raw: the bits of the features of one second (16,000 floats), plain and
 * stabilised, with every instruction set. test_exact_frontend.py compares them with Python's. */
#include "deltakwt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16000 };

static int print(dk_isa isa, const float *sound, const dk_front_end_setting *setting) {
    const dk_frontend *frontend;
    uint32_t frames = dk_frames(SAMPLES), bits;
    size_t size = dk_frontend_size(), work = dk_features_scratch_size(frames);
    void *memory = malloc(size), *scratch = malloc(work);
    float *features = (float *)malloc((size_t)frames * DK_COEFFICIENTS * sizeof *features);
    if (dk_frontend_init(memory, size, isa, &frontend) != DK_OK) return 2;
    if (dk_features(frontend, sound, SAMPLES, setting, scratch, work, features) != DK_OK) return 3;
    printf("%s", dk_isa_name(isa));
    for (uint32_t i = 0; i < frames * DK_COEFFICIENTS; i++) {
        memcpy(&bits, features + i, sizeof bits);
        printf(" %08x", (unsigned)bits);
    }
    printf("\n");
    free(memory);
    free(scratch);
    free(features);
    return 0;
}

int main(int count, char **arguments) {
    static float sound[SAMPLES];
    const dk_front_end_setting settings[2] = {{0, 0.0, 0.0}, {1, 2.0, 0.1}};
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (!file || fread(sound, sizeof *sound, SAMPLES, file) != SAMPLES) return 1;
    fclose(file);
    for (int isa = 0; isa < DK_ISAS; isa++)
        for (int i = 0; i < 2 && dk_isa_available((dk_isa)isa); i++) {
            int failed = print((dk_isa)isa, sound, settings + i);
            if (failed) return failed;
        }
    return 0;
}
