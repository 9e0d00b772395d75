/* The core as a whole, on random weights: instruction sets agree, thresholds of zero are dense,
 * long sounds run in chunks, streams equal clips, the logits of a stream do not depend on how it is
 * cut into blocks, and bad arguments are refused. */
#include "check.h"

#include "deltakwt.h"

static const dk_config SMALL = {24, 3, 40, 3, 5, 20, 7};
static const dk_config LONG = {16, 1, 20, 2, 4, 300, 6};  /* more tokens than one chunk */
static const dk_config WIDE = {128, 2, 192, 2, 5, 20, 7}; /* wide enough for panels */
static const dk_config STREAM = {16, 1, 20, 2, 4, 30, DK_COEFFICIENTS};
static const dk_config ONE = {8, 2, 8, 1, 2, 1, 3};

typedef struct {
    float **tensors;
    uint32_t count;
} weights;

static size_t tensor_size(const dk_config *c, uint32_t i) {
    uint32_t last = dk_tensor_count(c) - 2, d = c->dim, m = c->mlp;
    if (i == 0) return (size_t)c->features * d;
    if (i == 3) return (size_t)(c->frames + 1) * d;
    if (i < 4) return d;
    if (i == last) return (size_t)d * c->labels;
    if (i > last) return c->labels;
    const size_t sizes[DK_BLOCK_TENSORS] = {(size_t)d * d,
                                            (size_t)d * d,
                                            (size_t)d * d,
                                            (size_t)d * d,
                                            d,
                                            d,
                                            d,
                                            (size_t)d * m,
                                            m,
                                            (size_t)m * d,
                                            d,
                                            d,
                                            d};
    return sizes[(i - 4) % DK_BLOCK_TENSORS];
}

static weights random_weights(const dk_config *c) {
    weights w = {NULL, dk_tensor_count(c)};
    w.tensors = (float **)calloc(w.count, sizeof *w.tensors);
    for (uint32_t i = 0; i < w.count; i++) {
        size_t n = tensor_size(c, i);
        w.tensors[i] = (float *)malloc(n * sizeof(float));
        for (size_t k = 0; k < n; k++) w.tensors[i][k] = uniform() / 2.0f;
    }
    return w;
}

static void free_weights(weights *w) {
    for (uint32_t i = 0; i < w->count; i++) free(w->tensors[i]);
    free(w->tensors);
}

/* A run in memory that is one byte off any alignment and not a byte too large. */
static void run(const dk_config *c, const weights *w, dk_isa isa, const float *features,
                const float *thresholds, float *logits, const dk_watch *watch) {
    size_t size = dk_model_size(c), scratch_size = dk_scratch_size(c);
    char *memory = (char *)malloc(size + 1), *scratch = (char *)malloc(scratch_size + 1);
    memset(scratch, 0x7f, scratch_size + 1); /* huge floats: nothing may rely on zeroed memory */
    const dk_model *model;
    dk_status status =
        dk_model_init(memory + 1, size, c, (const float *const *)w->tensors, isa, &model);
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    status = dk_run(model, features, thresholds, scratch + 1, scratch_size, logits, watch);
    CHECK(status == DK_OK, "%s", dk_status_text(status));
    free(memory), free(scratch);
}

/* Rounds to half precision, some values to the multiples of 2^-24 next to zero. */
static void halve_weights(const dk_config *c, weights *w) {
    for (uint32_t i = 0; i < w->count; i++)
        for (size_t k = 0; k < tensor_size(c, i); k++) {
            float *x = &w->tensors[i][k];
            if (k % 50 == 0) *x *= 1e-4f;
            float step = ldexpf(1.0f, ilogbf(fmaxf(fabsf(*x), 0x1p-14f)) - 10);
            *x = truncf(*x / step) * step;
        }
}

static void test_model(const dk_config *c, int is_half) {
    weights w = random_weights(c);
    if (is_half) halve_weights(c, &w);
    size_t n = (size_t)c->frames * c->features;
    float *features = (float *)malloc(n * sizeof *features);
    for (size_t i = 0; i < n; i++) features[i] = i < c->features ? uniform() : features[i - 1];
    for (size_t i = c->features; i < n; i++)
        features[i] = uniform() > 0.3f ? uniform() : features[i - c->features];
    float *theta = (float *)malloc(c->layers * DK_SITES * sizeof *theta);
    float *dense = (float *)calloc(c->labels, sizeof *dense);
    float *other = (float *)calloc(c->labels, sizeof *other);
    int64_t macs[8 * DK_PRODUCTS], nonzeros[8 * DK_SITES];
    dk_watch counted;
    memset(&counted, 0, sizeof counted);
    counted.macs = macs;
    counted.nonzeros = nonzeros;
    run(c, &w, DK_SCALAR, features, NULL, dense, NULL);
    for (int isa = 0; isa < DK_ISAS; isa++) {
        if (!dk_isa_available((dk_isa)isa)) continue;
        const char *name = dk_isa_name((dk_isa)isa);
        run(c, &w, (dk_isa)isa, features, NULL, other, &counted);
        float worst = largest_difference(dense, other, c->labels);
        CHECK(worst < 2e-4f, "%s dense, %u tokens: %g", name, c->frames + 1, (double)worst);
        for (uint32_t mix = 0; mix < 16; mix++) { /* dense and delta sites in many combinations */
            for (uint32_t i = 0; i < c->layers * DK_SITES; i++)
                theta[i] = mix == 0 || uniform() > 0.0f ? 0.0f : -1.0f;
            run(c, &w, (dk_isa)isa, features, theta, other, &counted);
            worst = largest_difference(dense, other, c->labels);
            CHECK(worst < 5e-4f, "%s zero thresholds, mix %u: %g", name, mix, (double)worst);
        }
        for (uint32_t i = 0; i < c->layers * DK_SITES; i++) theta[i] = 1e9f;
        run(c, &w, (dk_isa)isa, features, theta, other, &counted);
        uint32_t two = 2 * c->dim;
        CHECK(nonzeros[DK_SITE_X] == two, "only two exact rows: %d", (int)nonzeros[DK_SITE_X]);
        CHECK(macs[DK_XW] == (c->layers > 1 ? (int64_t)two * 3 * c->dim
                                            : (int64_t)two * 2 * c->dim + c->dim * c->dim),
              "%d", (int)macs[DK_XW]);
        for (uint32_t i = 0; i < c->labels; i++) CHECK(isfinite(other[i]), "%s", name);
    }
    free_weights(&w);
    free(features), free(theta), free(dense), free(other);
}

static void test_front_end(dk_isa isa, uint32_t stride, const dk_front_end_setting *setting) {
    enum { SAMPLES = 5000 };
    float *audio = (float *)malloc(SAMPLES * sizeof *audio);
    for (int i = 0; i < SAMPLES; i++) audio[i] = uniform() / 4.0f;
    void *memory = malloc(dk_frontend_size()), *state = malloc(dk_stream_size());
    const dk_frontend *frontend;
    dk_stream *stream;
    CHECK(dk_frontend_init_stride(memory, dk_frontend_size(), isa, stride, &frontend) == DK_OK,
          "init");
    uint32_t frames = dk_frontend_frames(frontend, SAMPLES), rows = 0;
    CHECK(frames == 1 + (SAMPLES - DK_FRAME) / (stride * DK_HOP), "%u frames", frames);
    size_t scratch_size = dk_features_scratch_size(frames);
    void *scratch = malloc(scratch_size);
    float *clip = (float *)malloc(frames * DK_COEFFICIENTS * sizeof *clip);
    float *streamed = (float *)malloc(frames * DK_COEFFICIENTS * sizeof *streamed);
    CHECK(dk_features(frontend, audio, SAMPLES, setting, scratch, scratch_size, clip) == DK_OK,
          "-");
    CHECK(dk_stream_init(state, dk_stream_size(), frontend, setting, &stream) == DK_OK, "init");
    for (size_t at = 0, block = 1; at < SAMPLES; at += block, block = block * 3 % 701) {
        if (block > SAMPLES - at) block = SAMPLES - at;
        uint32_t room = dk_stream_rows(stream, block), made;
        float *out = (float *)malloc((room + 1) * DK_COEFFICIENTS * sizeof *out);
        CHECK(dk_stream_push(stream, audio + at, block, out, &made) == DK_OK, "push");
        CHECK(made <= room, "%u rows, %u promised", made, room);
        memcpy(streamed + rows * DK_COEFFICIENTS, out, made * DK_COEFFICIENTS * sizeof *out);
        rows += made;
        free(out);
    }
    uint32_t late = setting && setting->smooth ? 1 : 0; /* its right neighbour is still missing */
    CHECK(rows == frames - late, "%u rows of %u frames", rows, frames);
    if (!setting || setting->floor == 0.0) {
        float worst = largest_difference(clip, streamed, rows * DK_COEFFICIENTS);
        CHECK(worst < 1e-4f, "stream against clip: %g", (double)worst);
    }
    for (uint32_t i = 0; i < rows * DK_COEFFICIENTS; i++) CHECK(isfinite(streamed[i]), "NaN");
    audio[7] = NAN;
    CHECK(dk_features(frontend, audio, SAMPLES, setting, scratch, scratch_size, clip) ==
              DK_BAD_VALUE,
          "NaN");
    audio[7] = 1e30f;
    uint32_t made;
    CHECK(dk_stream_push(stream, audio, SAMPLES, clip, &made) == DK_BAD_VALUE, "too loud");
    free(audio), free(memory), free(state), free(scratch), free(clip), free(streamed);
}

/* Windows of a stream, pushed in blocks of up to `longest` samples: (windows, labels) logits. */
static uint32_t run_stream(dk_stream_runner *runner, const float *audio, size_t samples,
                           size_t longest, float *logits, uint32_t *computed) {
    uint32_t windows = 0;
    *computed = 0;
    for (size_t at = 0, block = 1; at < samples; at += block, block = block * 3 % longest + 1) {
        if (block > samples - at) block = samples - at;
        uint32_t room = dk_stream_runner_windows(runner, block);
        dk_stream_counts counts;
        float *out = (float *)malloc((room * STREAM.labels + 1) * sizeof *out);
        CHECK(dk_stream_runner_push(runner, audio + at, block, out, &counts) == DK_OK, "push");
        CHECK(counts.windows <= room, "%u windows, %u promised", counts.windows, room);
        CHECK((counts.macs > 0) == (counts.computed > 0), "%u computed", counts.computed);
        memcpy(logits + windows * STREAM.labels, out, counts.windows * STREAM.labels * sizeof *out);
        windows += counts.windows;
        *computed += counts.computed;
        free(out);
    }
    return windows;
}

static void test_stream_runner(dk_isa isa) {
    enum { SAMPLES = 40000, HOP = 7, MOST = (SAMPLES / DK_HOP) / HOP };
    const float word_posteriors[] = {2.0f, 2.0f, 0.5f, 0.5f};
    const dk_stream_options options = {{1, 2.0, 0.2}, HOP, 1.0f, 10, 20, word_posteriors, 0, NULL};
    weights w = random_weights(&STREAM);
    size_t model_size = dk_model_size(&STREAM), size = dk_stream_runner_size(&STREAM);
    void *front = malloc(dk_frontend_size()), *memory = malloc(model_size);
    char *state = (char *)malloc(size + 1);
    const dk_frontend *frontend;
    const dk_model *model;
    dk_stream_runner *runner;
    float *audio = (float *)malloc(SAMPLES * sizeof *audio), theta[2 * DK_SITES];
    for (int i = 0; i < SAMPLES; i++) audio[i] = uniform() * (i / 8000 % 2 ? 0.2f : 0.01f);
    for (int i = 0; i < 2 * DK_SITES; i++) theta[i] = 0.1f;
    CHECK(dk_frontend_init(front, dk_frontend_size(), isa, &frontend) == DK_OK, "-");
    CHECK(dk_model_init(memory, model_size, &STREAM, (const float *const *)w.tensors, isa,
                        &model) == DK_OK,
          "-");
    float logits[2][MOST * 4];
    uint32_t windows[2], computed[2];
    for (int i = 0; i < 2; i++) {
        memset(state, 0x7f, size + 1);
        CHECK(dk_stream_runner_init(state + 1, size, model, frontend, theta, &options, &runner) ==
                  DK_OK,
              "-");
        windows[i] =
            run_stream(runner, audio, SAMPLES, i ? 900 : (size_t)SAMPLES, logits[i], &computed[i]);
    }
    CHECK(windows[0] == (dk_frames(SAMPLES) - 1 - STREAM.frames) / HOP + 1, "%u", windows[0]);
    CHECK(windows[0] == windows[1] && computed[0] == computed[1], "%u windows", windows[1]);
    CHECK(1 < computed[0] && computed[0] < windows[0], "%u computed", computed[0]);
    CHECK(!memcmp(logits[0], logits[1], windows[0] * STREAM.labels * sizeof(float)),
          "other logits");

    dk_stream_options bad = options;
    bad.hop = 0;
    CHECK(dk_stream_runner_init(state, size, model, frontend, theta, &bad, &runner) ==
              DK_BAD_ARGUMENT,
          "-");
    bad = options;
    bad.span = DK_MOST_SPAN + 1;
    CHECK(dk_stream_runner_init(state, size, model, frontend, theta, &bad, &runner) ==
              DK_BAD_ARGUMENT,
          "-");
    bad = options;
    bad.onset = STREAM.frames + 1;
    CHECK(dk_stream_runner_init(state, size, model, frontend, theta, &bad, &runner) ==
              DK_BAD_ARGUMENT,
          "-");
    bad = options;
    bad.reuse = NAN;
    CHECK(dk_stream_runner_init(state, size, model, frontend, theta, &bad, &runner) == DK_BAD_VALUE,
          "-");
    CHECK(dk_stream_runner_init(state, size - 1, model, frontend, theta, &options, &runner) ==
              DK_BAD_MEMORY,
          "-");
    CHECK(dk_stream_runner_init(state, size, model, frontend, NULL, &options, &runner) == DK_OK,
          "dense");
    dk_stream_counts counts;
    audio[7] = NAN;
    CHECK(dk_stream_runner_push(runner, audio, 100, logits[0], &counts) == DK_BAD_VALUE, "NaN");
    free(front), free(memory), free(state), free(audio);
    free_weights(&w);
}

static void test_refusals(void) {
    dk_config bad[] = {SMALL, SMALL, SMALL, SMALL, SMALL, SMALL};
    bad[0].dim = 0;
    bad[1].heads = 5;
    bad[2].layers = 4000000000u;
    bad[3].frames = 4000000000u;
    bad[4].heads = 0;
    bad[5].mlp = 0xffffffffu;
    for (int i = 0; i < 6; i++) {
        CHECK(dk_model_size(&bad[i]) == 0, "config %d", i);
        CHECK(dk_scratch_size(&bad[i]) == 0, "config %d", i);
    }
    weights w = random_weights(&ONE);
    size_t size = dk_model_size(&ONE), scratch_size = dk_scratch_size(&ONE);
    void *memory = malloc(size), *scratch = malloc(scratch_size);
    const float *const *tensors = (const float *const *)w.tensors;
    const dk_model *model;
    float features[3] = {0.0f, 1.0f, 2.0f}, logits[2];
    CHECK(dk_model_init(memory, size - 1, &ONE, tensors, DK_SCALAR, &model) == DK_BAD_MEMORY, "-");
    CHECK(dk_model_init(memory, size, &bad[0], tensors, DK_SCALAR, &model) == DK_BAD_CONFIG, "-");
    CHECK(dk_model_init(memory, size, &ONE, tensors, DK_ISAS, &model) == DK_BAD_ISA, "-");
    CHECK(dk_model_init(memory, size, &ONE, tensors, DK_SCALAR, &model) == DK_OK, "-");
    CHECK(dk_run(model, features, NULL, scratch, scratch_size - 1, logits, NULL) == DK_BAD_MEMORY,
          "-");
    CHECK(dk_run(model, features, NULL, scratch, scratch_size, NULL, NULL) == DK_BAD_ARGUMENT, "-");
    features[1] = INFINITY;
    CHECK(dk_run(model, features, NULL, scratch, scratch_size, logits, NULL) == DK_BAD_VALUE, "-");
    const dk_frontend *frontend;
    void *tables = malloc(dk_frontend_size());
    for (uint32_t stride = 0; stride <= DK_MOST_STRIDE + 1; stride += DK_MOST_STRIDE + 1)
        CHECK(dk_frontend_init_stride(tables, dk_frontend_size(), DK_SCALAR, stride, &frontend) ==
                  DK_BAD_ARGUMENT,
              "stride %u", stride);
    free(tables);
    free(memory), free(scratch);
    free_weights(&w);
}

int main(void) {
    test_model(&SMALL, 0);
    test_model(&LONG, 0);
    test_model(&WIDE, 0);
    test_model(&WIDE, 1);
    test_model(&ONE, 0);
    const dk_front_end_setting smooth = {1, 0.0, 0.2}, floored = {1, 2.0, 0.2};
    for (int isa = 0; isa < DK_ISAS; isa++) {
        if (!dk_isa_available((dk_isa)isa)) continue;
        for (uint32_t stride = 1; stride <= DK_MOST_STRIDE; stride++) {
            test_front_end((dk_isa)isa, stride, NULL);
            test_front_end((dk_isa)isa, stride, &smooth);
            test_front_end((dk_isa)isa, stride, &floored);
        }
        test_stream_runner((dk_isa)isa);
        printf("%s checked\n", dk_isa_name((dk_isa)isa));
    }
    test_refusals();
    return failures != 0;
}
