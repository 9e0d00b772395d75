/* The public interface of the core: any shape is measured or refused; a small model runs with any
 * thresholds and features, with and without the optional outputs. */
#include "shape.h"

static void check_sizes(const dk_config *c) {
    size_t size = dk_model_size(c);
    EXPECT(!size == !dk_scratch_size(c));
    EXPECT(!size == !dk_stream_runner_size(c));
    const float *const *none = NULL;
    const dk_model *model;
    char memory[64];
    EXPECT(dk_model_init(memory, sizeof memory, c, none, DK_SCALAR, &model) != DK_OK);
    EXPECT(dk_model_init(NULL, SIZE_MAX, c, none, DK_SCALAR, &model) != DK_OK);
}

static const dk_model *make_model(input *in, const dk_config *c, void *memory, size_t size) {
    static float values[FLOATS];
    const float *tensors[MOST_TENSORS];
    take_tensors(in, c, 0.5f, values, tensors);
    const dk_model *model;
    dk_isa isa = (dk_isa)(take_byte(in) % (DK_ISAS + 1));
    EXPECT(dk_model_init(memory, size - 1, c, tensors, isa, &model) == DK_BAD_MEMORY);
    dk_status status = dk_model_init(memory, size, c, tensors, isa, &model);
    if (isa == DK_ISAS || !dk_isa_available(isa)) {
        EXPECT(status == DK_BAD_ISA);
        status = dk_model_init(memory, size, c, tensors, DK_SCALAR, &model);
    }
    EXPECT(status == DK_OK);
    return model;
}

static uint64_t clock_of_the_test(void) {
    static uint64_t now;
    return ++now;
}

static void watch_everything(input *in, const dk_config *c, dk_watch *watch) {
    const size_t layers = c->layers, tokens = c->frames + 1;
    const uint8_t wanted = take_byte(in);
    memset(watch, 0, sizeof *watch);
    if (wanted & 1) watch->macs = (int64_t *)exactly(layers * DK_PRODUCTS * 8);
    if (wanted & 2) watch->nonzeros = (int64_t *)exactly(layers * DK_SITES * 8);
    if (wanted & 4) watch->output = (float *)exactly(layers * tokens * c->dim * 4);
    if (wanted & 8) {
        watch->clock = clock_of_the_test;
        watch->ticks = (uint64_t *)exactly(layers * DK_STAGES * 8);
        memset(watch->ticks, 0, layers * DK_STAGES * 8);
    }
    for (int site = 0; wanted & 16 && site < DK_SITES; site++) {
        size_t width = site == DK_SITE_SCORES || site == DK_SITE_SOFTMAX ? c->heads * tokens
                       : site == DK_SITE_MLP_HIDDEN                      ? c->mlp
                                                                         : c->dim;
        if (take_byte(in) % 2) watch->trace[site] = (float *)exactly(layers * tokens * width * 4);
    }
}

static void free_watch(dk_watch *watch) {
    free(watch->macs), free(watch->nonzeros), free(watch->output), free(watch->ticks);
    for (int site = 0; site < DK_SITES; site++) free(watch->trace[site]);
}

static void run(input *in, const dk_model *model) {
    const dk_config *c = &model->config;
    const size_t count = (size_t)c->frames * c->features, size = dk_scratch_size(c);
    float thresholds[MOST_LAYERS * DK_SITES];
    float *features = (float *)exactly(count * sizeof *features);
    float *logits = (float *)exactly(c->labels * sizeof *logits);
    void *scratch = exactly(size);
    uint8_t kind = take_byte(in);
    for (uint32_t i = 0; i < c->layers * DK_SITES; i++)
        thresholds[i] = kind % 2 ? take_any_float(in) : take_share(in) * 2.0f - 0.2f;
    random_floats(take_byte(in), ldexpf(1.0f, kind / 2 % 32 - 12), features, count);
    for (uint32_t n = take_byte(in) % 8; n; n--)
        features[take_short(in) % count] = take_any_float(in);
    dk_watch watch;
    watch_everything(in, c, &watch);
    const float *used = take_byte(in) % 8 ? thresholds : NULL;
    EXPECT(dk_run(model, features, used, scratch, size - 1, logits, &watch) == DK_BAD_MEMORY);
    dk_status status = dk_run(model, features, used, scratch, size, logits, &watch);
    EXPECT(status == DK_OK || status == DK_BAD_VALUE || status == DK_BAD_LOGITS);
    for (uint32_t i = 0; status == DK_OK && i < c->labels; i++) EXPECT(isfinite(logits[i]));
    for (uint32_t i = 0; status == DK_OK && watch.macs && i < c->layers * DK_PRODUCTS; i++)
        EXPECT(watch.macs[i] >= 0);
    free_watch(&watch);
    free(features), free(logits), free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    if (take_byte(&in) % 4 == 0) {
        dk_config any = take_any_shape(&in);
        check_sizes(&any);
        return 0;
    }
    dk_config c = take_small_shape(&in);
    size_t needed = dk_model_size(&c), shift = take_byte(&in) % 64;
    char *memory = (char *)exactly(needed + shift); /* any alignment */
    run(&in, make_model(&in, &c, memory + shift, needed));
    free(memory);
    return 0;
}
