/* From features to logits. */
#include "block.h"
#include "delta.h"
#include "internal.h"

#include <float.h>
#include <string.h>

/* Larger than any Keyword Transformer, and small enough that no computed size can overflow. */
enum {
    MAX_DIM = 1024,
    MAX_MLP = 4096,
    MAX_LAYERS = 64,
    MAX_LABELS = 1024,
    MAX_FRAMES = 8191,
    MAX_FEATURES = 1024,
};
static const float MAX_FEATURE = 1e6f;

const char *dk_status_text(dk_status status) {
    switch (status) {
    case DK_OK:
        return "ok";
    case DK_BAD_CONFIG:
        return "a size of the model is zero, too large or does not divide";
    case DK_BAD_MEMORY:
        return "the memory block is missing or too small";
    case DK_BAD_ISA:
        return "this processor or this build lacks these instructions";
    case DK_BAD_VALUE:
        return "a number is NaN, infinite or far too large";
    case DK_BAD_ARGUMENT:
        return "a pointer is missing or a count is out of range";
    case DK_BAD_LOGITS:
        return "the logits are NaN or infinite: the weights are too large";
    case DK_NO_FILE:
        return "the file cannot be opened or read";
    case DK_BAD_FILE:
        return "the file is not a model file of this version, or it is damaged";
    case DK_BAD_SOUND:
        return "the file is not a WAV file of 16 kHz, mono, 16-bit PCM";
    }
    return "unknown status";
}

dk_status dk_check_config(const dk_config *c) {
    if (!c || c->dim - 1 >= MAX_DIM || c->mlp - 1 >= MAX_MLP || c->layers - 1 >= MAX_LAYERS ||
        c->labels - 1 >= MAX_LABELS || c->frames - 1 >= MAX_FRAMES ||
        c->features - 1 >= MAX_FEATURES || c->heads - 1 >= c->dim || c->dim % c->heads)
        return DK_BAD_CONFIG;
    return DK_OK;
}

size_t dk_scratch_size(const dk_config *config) {
    if (dk_check_config(config)) return 0;
    dk_arena arena = dk_arena_at(NULL);
    dk_plan_scratch(&arena, config);
    return dk_arena_size(&arena);
}

/* Eq. 1: X = [class; features W0 + b0] + positions. */
static void embed(const dk_model *model, const float *features, const dk_plan *plan) {
    const dk_config *c = &model->config;
    float *x = plan->x + plan->x_stride;
    memcpy(x, model->class_token, c->dim * sizeof *x);
    dk_gemm(model->kernels, features, c->features, c->frames, &model->embed, model->embed_bias,
            x + plan->x_stride, plan->x_stride);
    for (uint32_t t = 0; t < plan->tokens; t++)
        for (uint32_t i = 0; i < c->dim; i++)
            x[t * plan->x_stride + i] += model->positions[t * c->dim + i];
}

static void clear_watch(const dk_watch *watch, uint32_t layers) {
    if (watch->macs) memset(watch->macs, 0, layers * DK_PRODUCTS * sizeof *watch->macs);
    if (watch->nonzeros) memset(watch->nonzeros, 0, layers * DK_SITES * sizeof *watch->nonzeros);
}

dk_status dk_run(const dk_model *model, const float *features, const float *thresholds,
                 void *scratch, size_t scratch_size, float *logits, const dk_watch *watch) {
    static const dk_watch nothing;
    if (!model || !features || !logits) return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    if (!scratch || scratch_size < dk_scratch_size(c)) return DK_BAD_MEMORY;
    if (!dk_all_within(features, (size_t)c->frames * c->features, MAX_FEATURE)) return DK_BAD_VALUE;
    if (!watch) watch = &nothing;
    if (watch->clock && !watch->ticks) return DK_BAD_ARGUMENT;
    dk_arena arena = dk_arena_at(scratch);
    dk_plan plan = dk_plan_scratch(&arena, c);
    clear_watch(watch, c->layers);
    memset(plan.keys, 0, (size_t)c->dim * plan.keys_stride * sizeof *plan.keys);
    embed(model, features, &plan);
    dk_run_state run = {model, thresholds, watch, &plan};
    for (uint32_t layer = 0; layer < c->layers; layer++) dk_block(&run, layer);
    dk_gemm(model->kernels, plan.x + plan.x_stride, plan.x_stride, 1, &model->head,
            model->head_bias, logits, c->labels);
    return dk_all_within(logits, c->labels, FLT_MAX) ? DK_OK : DK_BAD_LOGITS;
}
