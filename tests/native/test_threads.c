/* Eight threads share one model and one front end, each with scratch memory, a stream and
 * thresholds of its own: every answer has the bits of the answer of one thread. Meant for
 * ThreadSanitizer. */
#include "check.h"

#include "deltakwt.h"

#include <pthread.h>

enum {
    THREADS = 8,
    ROUNDS = 12,
    SETTINGS = 4,
    SAMPLES = 16000,
    LABELS = 4,
    TENSORS = 4 + 13 * 2 + 2
};

static const dk_config CONFIG = {16, 2, 20, 2, LABELS, 98, DK_COEFFICIENTS};

static const dk_model *model;
static const dk_frontend *frontend;
static float audio[SAMPLES], values[1 << 14];
static float expected[SETTINGS][LABELS];

static void thresholds_of(uint32_t setting, float *out) {
    static const float theta[SETTINGS] = {-1.0f, 0.0f, 0.1f, 0.4f};
    for (uint32_t i = 0; i < CONFIG.layers * DK_SITES; i++) out[i] = theta[setting];
}

/* One clip, through the features and the model. */
static void classify(uint32_t setting, float *logits) {
    const dk_front_end_setting front_end = {(int)setting % 2, setting > 1 ? 2.0 : 0.0, 0.2};
    const uint32_t frames = dk_frames(SAMPLES);
    float thresholds[2 * DK_SITES], features[98 * DK_COEFFICIENTS];
    size_t size = dk_scratch_size(&CONFIG), need = dk_features_scratch_size(frames);
    size = size > need ? size : need;
    void *scratch = malloc(size);
    thresholds_of(setting, thresholds);
    dk_status status = dk_features(frontend, audio, SAMPLES, &front_end, scratch, size, features);
    if (!status)
        status = dk_run(model, features, setting ? thresholds : NULL, scratch, size, logits, NULL);
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    free(scratch);
}

/* A stream of its own over the shared model: the windows that it computes. */
static uint32_t follow(uint32_t setting) {
    static const float never[LABELS] = {2.0f, 2.0f, 2.0f, 2.0f};
    const dk_stream_options options = {{0, 0.0, 0.0}, 10, 0.0f, 98, 0, never, 0, NULL};
    float thresholds[2 * DK_SITES], logits[4 * LABELS];
    size_t size = dk_stream_runner_size(&CONFIG);
    void *memory = malloc(size);
    dk_stream_runner *runner;
    dk_stream_counts counts;
    uint32_t windows = 0;
    thresholds_of(setting, thresholds);
    dk_status status =
        dk_stream_runner_init(memory, size, model, frontend, thresholds, &options, &runner);
    for (uint32_t at = 0; !status && at < SAMPLES; at += 1600) {
        status = dk_stream_runner_push(runner, audio + at, 1600, logits, &counts);
        windows += counts.windows;
    }
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    free(memory);
    return windows;
}

static void *work(void *argument) {
    uint32_t number = *(const uint32_t *)argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        float logits[LABELS];
        uint32_t setting = (number + round) % SETTINGS;
        classify(setting, logits);
        CHECK(!memcmp(logits, expected[setting], sizeof logits), "setting %u", (unsigned)setting);
        if (round % 4 == 0) CHECK(follow(setting) == 1, "windows");
    }
    return NULL;
}

int main(void) {
    const float *tensors[TENSORS];
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    size_t model_size = dk_model_size(&CONFIG), frontend_size = dk_frontend_size();
    void *memory = malloc(model_size), *tables = malloc(frontend_size);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) values[i] = uniform() / 2.0f;
    for (size_t i = 0; i < SAMPLES; i++) audio[i] = uniform() / 8.0f;
    for (uint32_t i = 0; i < dk_tensor_count(&CONFIG); i++) tensors[i] = values + i * 97;
    CHECK(!dk_model_init(memory, model_size, &CONFIG, tensors, dk_isa_best(), &model), "model");
    CHECK(!dk_frontend_init(tables, frontend_size, dk_isa_best(), &frontend), "front end");
    for (uint32_t setting = 0; setting < SETTINGS; setting++) classify(setting, expected[setting]);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(!pthread_create(&threads[i], NULL, work, &numbers[i]), "thread");
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    free(memory);
    free(tables);
    printf("threads: %d failures\n", failures);
    return failures != 0;
}
