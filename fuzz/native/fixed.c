/* The fixed-point interface: any source of weights is refused or runs, and the vector kernels give
 * the same bits as the portable ones. */
#include "shape.h"

#include <deltakwt_fixed.h>

enum { SHARED = 1 << 13, MOST_LAYERS = 3, MOST_LABELS = 20 };

static int16_t values[SHARED];

static const int16_t *piece(uint32_t *at) {
    *at = (*at + 211) % (SHARED / 4);
    return values + *at;
}

/* Numbers of the right range, except where the input asks for others. */
static uint32_t number(input *in, uint32_t low, uint32_t high) {
    uint8_t byte = take_byte(in);
    return byte == 255 ? take_word(in) : low + byte % (high - low + 1);
}

static void take_layer(input *in, dk_fixed_layer_source *l, uint32_t *at) {
    const int16_t **all[] = {
        &l->q,          &l->k,           &l->v,         &l->proj,         &l->proj_bias,
        &l->mlp_in,     &l->mlp_in_bias, &l->mlp_out,   &l->mlp_out_bias, &l->norm1,
        &l->norm1_bias, &l->norm2,       &l->norm2_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = piece(at);
    l->norm1_epsilon = number(in, 1, 200);
    l->norm2_epsilon = number(in, 1, 200);
    l->norm1_shift = number(in, 1, 30);
    l->norm2_shift = number(in, 1, 30);
    l->key_shift = number(in, 0, 14);
    l->score_bits = number(in, 4, 12);
    l->hidden_bits = number(in, 4, 13);
    l->sum1_shift = number(in, 0, 14);
    l->sum2_shift = number(in, 0, 14);
}

static void take_source(input *in, const dk_config *c, dk_fixed_source *source,
                        dk_fixed_layer_source *layers, int16_t *narrow, int32_t *head_bias) {
    uint32_t state = take_byte(in) * 2654435761u | 1u, at = 0, bits = take_byte(in) % 16;
    for (uint32_t i = 0; i < SHARED; i++) {
        int16_t value = (int16_t)(next_random(&state) >> 16);
        values[i] = value == INT16_MIN ? 0 : (int16_t)(value >> bits);
        narrow[i] = (int16_t)(value >> 9);
    }
    for (uint32_t n = take_byte(in) % 8; n; n--) {
        uint32_t place = take_short(in) % SHARED;
        values[place] = (int16_t)take_short(in);
    }
    for (uint32_t i = 0; i < c->labels; i++) head_bias[i] = (int32_t)number(in, 0, 200);
    source->embed = narrow;
    source->head = narrow + 1000;
    source->positions = piece(&at);
    source->head_bias = head_bias;
    source->layers = layers;
    source->embed_shift = number(in, 0, 15);
    for (uint32_t l = 0; l < c->layers; l++) take_layer(in, &layers[l], &at);
}

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
    static int16_t narrow[SHARED];
    input in = {data, size};
    if (take_byte(&in) % 8 == 0) {
        dk_config any = take_any_shape(&in);
        EXPECT(!dk_fixed_model_size(&any) == !dk_fixed_scratch_size(&any));
        return 0;
    }
    dk_config c = take_small_shape(&in);
    dk_fixed_source source;
    dk_fixed_layer_source layers[MOST_LAYERS];
    int32_t head_bias[MOST_LABELS], thresholds[MOST_LAYERS * DK_SITES];
    int32_t logits[2][MOST_LABELS];
    int64_t macs[2][MOST_LAYERS * DK_PRODUCTS];
    take_source(&in, &c, &source, layers, narrow, head_bias);
    for (uint32_t i = 0; i < c.layers * DK_SITES; i++)
        thresholds[i] = (int32_t)(number(&in, 0, 200) * 4u) - 1;
    const size_t count = (size_t)c.frames * c.features;
    int16_t *features = (int16_t *)exactly(count * sizeof *features);
    uint32_t state = take_byte(&in) + 1u, bits = take_byte(&in) % 16;
    for (size_t i = 0; i < count; i++)
        features[i] = (int16_t)((int16_t)(next_random(&state) >> 16) >> bits);
    const int32_t *used = take_byte(&in) % 8 ? thresholds : NULL;
    dk_status status = run(&c, &source, DK_SCALAR, features, used, logits[0], macs[0]);
    EXPECT(status == DK_OK || status == DK_BAD_ARGUMENT || status == DK_BAD_VALUE);
    EXPECT(run(&c, &source, dk_isa_best(), features, used, logits[1], macs[1]) == status);
    if (status == DK_OK) {
        EXPECT(!memcmp(logits[0], logits[1], c.labels * sizeof **logits));
        EXPECT(!memcmp(macs[0], macs[1], c.layers * DK_PRODUCTS * sizeof **macs));
    }
    free(features);
    return 0;
}
