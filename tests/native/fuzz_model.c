/* fuzz_model MODEL.bin COUNT: random changes of a model file are refused, or the model runs. Every
 * second change is followed by a correct size and checksum, so that the checks behind them are
 * tested too. Meant for the address and undefined-behaviour sanitizers. */
#include "check.h"

#include <deltakwt_spotter.h>

static uint32_t state = 1;

static uint32_t next(void) { /* xorshift */
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static uint32_t crc_of(const uint8_t *data, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1u ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static void change(uint8_t *data, size_t size) {
    static const uint32_t odd[] = {0, 1, 2, 0x7f800000u, 0x7fc00000u, 0xffffffffu, 0x80000000u, 64};
    size_t within = next() % 4 ? (size < 512 ? size : 512) : size; /* mostly header and text */
    for (uint32_t n = 1 + next() % 3; n; n--) {
        uint32_t value = next() % 2 ? odd[next() % 8] : next();
        if (next() % 2)
            data[next() % within] ^= (uint8_t)(1u << next() % 8);
        else if (within >= 4)
            memcpy(data + next() % (within - 3) / 4 * 4, &value, sizeof value);
    }
}

static int run(const uint8_t *data, size_t size) {
    static int16_t samples[DK_SECOND];
    dk_stored_model model;
    dk_spotter *spotter;
    if (dk_model_read(data, size, &model) != DK_OK) return 0;
    CHECK(dk_model_label(&model, model.config.labels - 1), "label");
    size_t needed = dk_spotter_size(&model);
    if (!needed) return 0;
    void *memory = malloc(needed);
    float *logits = (float *)malloc(model.config.labels * sizeof *logits);
    dk_status status = dk_spotter_init(memory, needed, &model, dk_isa_best(), &spotter);
    CHECK(status == DK_OK || !model.weights, "%s", dk_status_text(status));
    if (status != DK_OK) { /* integers are checked here */
        free(memory), free(logits);
        return 0;
    }
    for (uint32_t i = 0; i < DK_SECOND; i++) samples[i] = (int16_t)(next() % 2000);
    status = dk_spotter_classify(spotter, samples, logits);
    CHECK(status == DK_OK || status == DK_BAD_LOGITS, "%s", dk_status_text(status));
    status = dk_spotter_push(spotter, samples, DK_SECOND);
    CHECK(status == DK_OK || status == DK_BAD_LOGITS, "%s", dk_status_text(status));
    if (status == DK_OK) status = dk_spotter_flush(spotter);
    CHECK(status == DK_OK || status == DK_BAD_LOGITS, "%s", dk_status_text(status));
    dk_word word;
    while (dk_spotter_next(spotter, &word)) CHECK(word.label < model.config.labels, "label");
    free(memory), free(logits);
    return 1;
}

int main(int count, char **arguments) {
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    static uint8_t original[1 << 20];
    if (!file) return 1;
    size_t size = fread(original, 1, sizeof original, file);
    fclose(file);
    int ran = 0, tries = atoi(arguments[2]);
    CHECK(run(original, size), "the file itself");
    for (int i = 0; i < tries; i++) {
        size_t cut = next() % 10 ? size : next() % size; /* sometimes a shorter file */
        uint8_t *data = (uint8_t *)malloc(cut + !cut);   /* exact: reading past it is found */
        memcpy(data, original, cut);
        if (cut) change(data, cut);
        if (i % 2 && cut > 32) {
            uint64_t length = cut;
            memcpy(data, original, 16);
            memcpy(data + 16, &length, sizeof length);
            uint32_t crc = crc_of(data + 32, cut - 32);
            memcpy(data + 24, &crc, sizeof crc);
            memcpy(data + 28, original + 28, 4);
        }
        ran += run(data, cut);
        free(data);
    }
    printf("%d of %d ran, %d failures\n", ran, tries, failures);
    return failures != 0;
}
