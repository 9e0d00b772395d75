/* The reader of model files (`deltakwt export --target bin`). The mutator writes the magic number,
 * the version, the size and the checksum again, so that the checks behind them are reached; every
 * eighth input is left as it is. */
#include "input.h"

#include <deltakwt_spotter.h>

enum { CHECKED_FROM = 32 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

static uint32_t crc_of(const uint8_t *data, size_t size) {
    static uint32_t table[256];
    for (uint32_t i = 0; !table[255] && i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] & 1u ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ data[i]) & 255u];
    return ~crc;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    static const uint32_t version = 1, byte_order = 0x01020304, header_size = 160;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size <= CHECKED_FROM || seed % 8 == 0) return size;
    const uint64_t file_size = size;
    const uint32_t crc = crc_of(data + CHECKED_FROM, size - CHECKED_FROM);
    memcpy(data, "DELTAKWT", 8);
    memcpy(data + 8, &version, 4);
    memcpy(data + 12, &byte_order, 4);
    memcpy(data + 16, &file_size, 8);
    memcpy(data + 24, &crc, 4);
    memcpy(data + 28, &header_size, 4);
    return size;
}

/* Reads everything that the model points to. */
static void use(const dk_stored_model *model) {
    const uint32_t labels = model->config.labels, tensors = dk_tensor_count(&model->config);
    size_t letters = strlen(model->name) + strlen(model->setting);
    for (uint32_t i = 0; i < labels; i++) {
        const char *label = dk_model_label(model, i);
        EXPECT(label);
        letters += strlen(label);
        EXPECT(model->decision.on[i] > 0.0f && model->decision.on[i] <= 2.0f);
    }
    EXPECT(letters < 1 << 20);
    EXPECT(!dk_model_label(model, labels));
    if (model->weights) {
        const float **at = (const float **)exactly(tensors * sizeof *at);
        dk_model_tensors(model, at);
        for (uint32_t i = 0; i < tensors; i++) EXPECT(isfinite(at[i][0]));
        free((void *)at);
    } else {
        EXPECT(model->integers.tensors && model->integers.logit_step > 0.0f);
    }
    for (uint32_t i = 0; model->thresholds && i < model->config.layers * DK_SITES; i++)
        EXPECT(model->thresholds[i] >= -1.0f && isfinite(model->thresholds[i]));
    EXPECT(model->decision.hop && model->decision.smooth && model->decision.onset);
    EXPECT(dk_model_size(&model->config));
    dk_spotter_size(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void *copy = exactly(size);
    if (size) memcpy(copy, data, size);
    dk_stored_model model;
    dk_status status = dk_model_read(copy, size, &model);
    EXPECT(status == DK_OK || status == DK_BAD_FILE);
    if (status == DK_OK) use(&model);
    EXPECT(dk_model_read((char *)copy + 1, size, &model) == DK_BAD_ARGUMENT);
    free(copy);
    return 0;
}
