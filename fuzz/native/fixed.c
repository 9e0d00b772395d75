/* The fixed-point interface: any source of weights is refused or runs, and the vector kernels give
 * the same bits as the portable ones. */
#include "source.h"

static dk_status run(const dk_config *c, const dk_fixed_source *source, dk_isa isa,
                     const int16_t *features, const int32_t *thresholds, int32_t *logits,
                     int64_t *macs) {
    const dk_fixed_model *model;
    const size_t size = dk_fixed_model_size(c), scratch_size = dk_fixed_scratch_size(c);
    void *memory = exactly(size), *scratch = exactly(scratch_size);
    EXPECT(dk_fixed_init(memory, size - 1, c, source, isa, &model) == DK_BAD_MEMORY);
    dk_status status = dk_fixed_init(memory, size, c, source, isa, &model);
    int64_t nonzeros[MOST_LAYERS * DK_SITES];
    int32_t peaks[(MOST_LAYERS + 1) * DK_PEAKS];
    const dk_fixed_watch watch = {macs, nonzeros, peaks, NULL};
    if (!status)
        status = dk_fixed_run(model, features, thresholds, scratch, scratch_size, logits, &watch);
    free(memory), free(scratch);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static integers from;
    input in = {data, size};
    if (take_byte(&in) % 8 == 0) {
        dk_config any = take_any_shape(&in);
        EXPECT(!dk_fixed_model_size(&any) == !dk_fixed_scratch_size(&any));
        return 0;
    }
    dk_config c = take_small_shape(&in);
    int32_t thresholds[MOST_LAYERS * DK_SITES];
    int32_t logits[2][MOST_LABELS];
    int64_t macs[2][MOST_LAYERS * DK_PRODUCTS];
    take_source(&in, &c, &from);
    for (uint32_t i = 0; i < c.layers * DK_SITES; i++)
        thresholds[i] = (int32_t)(number(&in, 0, 200) * 4u) - 1;
    const size_t count = (size_t)c.frames * c.features;
    int16_t *features = (int16_t *)exactly(count * sizeof *features);
    uint32_t state = take_byte(&in) + 1u, bits = take_byte(&in) % 16;
    for (size_t i = 0; i < count; i++)
        features[i] = (int16_t)((int16_t)(next_random(&state) >> 16) >> bits);
    const int32_t *used = take_byte(&in) % 8 ? thresholds : NULL;
    dk_status status = run(&c, &from.source, DK_SCALAR, features, used, logits[0], macs[0]);
    EXPECT(status == DK_OK || status == DK_BAD_ARGUMENT || status == DK_BAD_VALUE);
    EXPECT(run(&c, &from.source, dk_isa_best(), features, used, logits[1], macs[1]) == status);
    if (status == DK_OK) {
        EXPECT(!memcmp(logits[0], logits[1], c.labels * sizeof **logits));
        EXPECT(!memcmp(macs[0], macs[1], c.layers * DK_PRODUCTS * sizeof **macs));
    }
    free(features);
    return 0;
}
