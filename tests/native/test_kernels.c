/* Every kernel of every instruction set against the scalar one: odd sizes, unaligned pointers,
 * buffers without any slack. */
#include "check.h"

#include "../../native/src/internal.h"

static const uint32_t SIZES[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 64, 99, 130};
enum { COUNT = sizeof SIZES / sizeof *SIZES, SLACK = 16 };

static const dk_kernels *kernels; /* under test */
static size_t offset;             /* floats by which every pointer is off a 64-byte boundary */

/* A block of floats of exactly n, `offset` away from alignment; freed with its base. */
typedef struct {
    void *base;
    float *at;
} block;

static block new_block(size_t n) {
    block made;
    size_t bytes = (n + offset) * sizeof(float);
    made.base = malloc(bytes ? bytes : 1);
    made.at = (float *)made.base + offset;
    for (size_t i = 0; i < n; i++) made.at[i] = uniform();
    return made;
}

static block copy_of(const block *other, size_t n) {
    block made = new_block(n);
    memcpy(made.at, other->at, n * sizeof(float));
    return made;
}

/* Weights of a type, in a block. The halves are below one, and some no longer normal. */
static const void *new_weights(size_t n, dk_type type, block *made) {
    *made = new_block(n);
    if (type == DK_F32) return made->at;
    free(made->base);
    uint16_t *halves = (uint16_t *)malloc((n + offset) * sizeof *halves);
    made->base = halves;
    for (size_t i = 0; i < n; i++) {
        uint32_t size = (uint32_t)(fabsf(uniform()) * 0x3bff), sign = uniform() < 0.0f ? 0x8000 : 0;
        halves[offset + i] = (uint16_t)(size | sign);
    }
    return halves + offset;
}

static void test_gemm(uint32_t rows, uint32_t k, uint32_t cols, int biased, dk_type type) {
    uint32_t lda = k + 1, ldw = cols + 2, ldo = cols + 3;
    block a = new_block((rows - 1) * lda + k), w;
    block bias = new_block(cols), want = new_block((rows - 1) * ldo + cols);
    block got = copy_of(&want, (rows - 1) * ldo + cols);
    const void *data = new_weights((k - 1) * ldw + cols, type, &w);
    dk_matrix matrix = {data, k, cols, ldw, type};
    dk_scalar.gemm(a.at, lda, rows, &matrix, biased ? bias.at : NULL, want.at, ldo);
    kernels->gemm(a.at, lda, rows, &matrix, biased ? bias.at : NULL, got.at, ldo);
    float worst = largest_difference(want.at, got.at, (rows - 1) * ldo + cols);
    CHECK(worst < 2e-5f, "%s gemm %u x %u x %u: %g", kernels->name, rows, k, cols, (double)worst);
    free(a.base), free(w.base), free(bias.base), free(want.base), free(got.base);
}

/* A list made by the scalar scan of random rows. */
static void test_accumulate(uint32_t rows, uint32_t k, uint32_t cols, dk_type type) {
    uint32_t ldw = cols + 5, ldo = cols + 1, capacity = rows * (k + DK_GROUP) + SLACK;
    block w, value = new_block(capacity), start = new_block(cols);
    block want = new_block(rows * ldo + cols), got = copy_of(&want, rows * ldo + cols);
    uint16_t *index = (uint16_t *)calloc(capacity, sizeof *index);
    uint16_t *row = (uint16_t *)calloc(rows, sizeof *row);
    uint16_t *length = (uint16_t *)calloc(rows, sizeof *length);
    dk_list list = {value.at, index, row, length, 0, 0};
    for (uint32_t r = 1; r <= rows; r++) {
        uint32_t kept = 0;
        for (uint32_t f = 0; f < k; f++)
            if (uniform() > 0.0f) {
                value.at[list.groups * DK_GROUP + kept] = uniform();
                index[list.groups * DK_GROUP + kept++] = (uint16_t)f;
            }
        if (!kept) continue;
        uint32_t groups = (kept + DK_GROUP - 1) / DK_GROUP;
        for (; kept < groups * DK_GROUP; kept++) {
            value.at[list.groups * DK_GROUP + kept] = 0.0f;
            index[list.groups * DK_GROUP + kept] = 0;
        }
        row[list.rows] = (uint16_t)r;
        length[list.rows++] = (uint16_t)groups;
        list.groups += groups;
    }
    const void *data = new_weights((k - 1) * ldw + cols, type, &w);
    dk_matrix matrix = {data, k, cols, ldw, type};
    dk_scalar.accumulate(&list, &matrix, start.at, want.at, ldo);
    kernels->accumulate(&list, &matrix, start.at, got.at, ldo);
    /* Sums run over all rows, in another order: the error is that of the largest of them. */
    float worst = largest_difference(want.at, got.at, rows * ldo + cols), size = 1.0f;
    for (uint32_t i = 0; i < rows * ldo + cols; i++) size = fmaxf(size, fabsf(want.at[i]));
    CHECK(worst < 1e-5f * size, "%s accumulate %u x %u x %u: %g of %g", kernels->name, rows, k,
          cols, (double)worst, (double)size);
    free(w.base), free(value.base), free(start.base), free(want.base), free(got.base);
    free(index), free(row), free(length);
}

/* The results of a scan of one chunk. */
typedef struct {
    block value, reference;
    uint16_t *index, *row, *length, *where;
    uint32_t *counts, total;
    dk_list list;
} scanned;

static scanned scan_with(const dk_kernels *by, dk_deltas deltas, const block *reference,
                         uint32_t rows, int counted) {
    uint32_t width = deltas.parts * deltas.width, capacity = rows * (width + DK_GROUP) + SLACK;
    scanned s;
    memset(&s, 0, sizeof s);
    s.value = new_block(capacity);
    s.reference = copy_of(reference, width);
    s.index = (uint16_t *)calloc(capacity, sizeof *s.index);
    s.row = (uint16_t *)calloc(rows + 1, sizeof *s.row);
    s.length = (uint16_t *)calloc(rows + 1, sizeof *s.length);
    s.where = (uint16_t *)calloc(rows + 1, sizeof *s.where);
    s.counts = (uint32_t *)calloc(width, sizeof *s.counts);
    s.list.value = s.value.at;
    s.list.index = s.index;
    s.list.row = s.row;
    s.list.length = s.length;
    deltas.reference = s.reference.at;
    deltas.counts = counted ? s.counts : NULL;
    s.total = by->scan(&deltas, 1, rows, &s.list, s.where);
    return s;
}

static void free_scanned(scanned *s) {
    free(s->value.base), free(s->reference.base), free(s->index), free(s->row);
    free(s->length), free(s->where), free(s->counts);
}

/* Every third row of a part repeats the one before, as `where` says; one feature never changes. */
static void test_scan(uint32_t parts, uint32_t n, float theta, int counted) {
    enum { ROWS = 7 };
    uint32_t width = parts * n, stride = width + 3;
    block x = new_block(ROWS * stride + width), reference = new_block(width);
    uint16_t *where = (uint16_t *)calloc((size_t)parts * (ROWS + 1), sizeof *where);
    for (uint32_t r = 1; r <= ROWS; r++) {
        x.at[r * stride + width / 2] = reference.at[width / 2];
        for (uint32_t part = 0; part < parts; part++)
            where[part * (ROWS + 1) + r] = (uint16_t)((r + part) % 3 ? r : r - 1);
    }
    dk_deltas deltas = {{x.at, stride, where}, parts, n, ROWS + 1, theta, NULL, NULL};
    scanned want = scan_with(&dk_scalar, deltas, &reference, ROWS, counted);
    scanned got = scan_with(kernels, deltas, &reference, ROWS, counted);
    uint32_t entries = want.list.groups * DK_GROUP, lists = want.list.rows;
    CHECK(want.total == got.total && want.list.groups == got.list.groups && lists == got.list.rows,
          "%s scan %u x %u: kept %u, not %u", kernels->name, parts, n, got.total, want.total);
#define SAME(what, count) !memcmp(want.what, got.what, (count) * sizeof *want.what)
    CHECK(SAME(reference.at, width), "%s scan %u x %u: reference", kernels->name, parts, n);
    CHECK(SAME(value.at, entries), "%s scan %u x %u", kernels->name, parts, n);
    CHECK(SAME(index, entries), "%s scan %u x %u: index", kernels->name, parts, n);
    CHECK(SAME(row, lists) && SAME(length, lists), "%s scan %u x %u: rows", kernels->name, parts,
          n);
    CHECK(SAME(where, ROWS + 1), "%s scan %u x %u: where", kernels->name, parts, n);
    CHECK(SAME(counts, width), "%s scan %u x %u: counts", kernels->name, parts, n);
#undef SAME
    free_scanned(&want), free_scanned(&got);
    free(x.base), free(reference.base), free(where);
}

static void test_hold(uint32_t n, float theta) {
    block want = new_block(n), got = copy_of(&want, n), previous = new_block(n);
    uint32_t *counts = (uint32_t *)calloc(n, sizeof *counts);
    uint32_t *others = (uint32_t *)calloc(n, sizeof *others);
    uint32_t kept = dk_scalar.hold(want.at, previous.at, n, theta, counts);
    uint32_t again = kernels->hold(got.at, previous.at, n, theta, others);
    CHECK(kept == again, "%s hold %u: kept %u, not %u", kernels->name, n, again, kept);
    CHECK(!memcmp(want.at, got.at, n * sizeof(float)), "%s hold %u", kernels->name, n);
    CHECK(!memcmp(counts, others, n * sizeof *counts), "%s hold %u: counts", kernels->name, n);
    free(want.base), free(got.base), free(previous.base), free(counts), free(others);
}

/* Softmax, GELU and logarithm, over the whole range of floats that a model can meet. */
static void test_functions(uint32_t n, float range) {
    block x = new_block(n), want = new_block(n), got = new_block(n);
    for (uint32_t i = 0; i < n; i++) x.at[i] *= range;
    float worst;
    for (uint32_t i = 0; i < n; i++) {
        double a = x.at[i], u = sqrt(2.0 / 3.14159265358979) * (a + 0.044715 * a * a * a);
        want.at[i] = (float)(a / 2.0 * (1.0 + tanh(u)));
    }
    kernels->gelu(x.at, got.at, n);
    worst = largest_difference(want.at, got.at, n);
    CHECK(worst <= 1e-6f * (1.0f + range), "%s gelu %u: %g", kernels->name, n, (double)worst);
    for (uint32_t i = 0; i < n; i++) {
        x.at[i] = i % 5 ? fabsf(x.at[i]) : x.at[i] * 1e-30f; /* some below the floor */
        want.at[i] = (float)log(x.at[i] > 1e-12f ? x.at[i] : 1e-12f);
    }
    kernels->log_floor(x.at, got.at, n);
    worst = largest_difference(want.at, got.at, n);
    CHECK(worst < 1e-5f, "%s log %u: %g", kernels->name, n, (double)worst);
    dk_scalar.log_floor(x.at, want.at, n);
    CHECK(!memcmp(want.at, got.at, n * sizeof(float)), "%s log %u: other bits", kernels->name, n);
    free(x.base), free(want.base), free(got.base);
}

static void test_softmax(uint32_t rows, uint32_t n, float range) {
    uint32_t ldx = n + 1;
    block want = new_block(rows * ldx + n), got;
    for (uint32_t i = 0; i < rows * ldx + n; i++) want.at[i] *= range;
    got = copy_of(&want, rows * ldx + n);
    uint16_t *where = (uint16_t *)calloc(rows + 1, sizeof *where);
    for (uint32_t r = 1; r <= rows; r++) where[r] = (uint16_t)(r % 3 ? r : r - 1);
    dk_scalar.softmax(want.at, ldx, where, rows, n);
    kernels->softmax(got.at, ldx, where, rows, n);
    float worst = largest_difference(want.at, got.at, rows * ldx + n);
    CHECK(worst < 2e-6f * (1.0f + range / 1e3f), "%s softmax %u x %u of %g: %g", kernels->name,
          rows, n, (double)range, (double)worst);
    free(want.base), free(got.base), free(where);
}

static void test_add_norm(uint32_t rows, uint32_t n) {
    uint32_t ldx = n + 1, ldr = n + 2;
    block want = new_block((rows - 1) * ldx + n), got = copy_of(&want, (rows - 1) * ldx + n);
    block r = new_block((rows - 1) * ldr + n), gain = new_block(n), bias = new_block(n);
    uint16_t *where = (uint16_t *)calloc(rows, sizeof *where);
    for (uint32_t i = 0; i < rows; i++) where[i] = (uint16_t)(i / 2);
    dk_scalar.add_norm(want.at, ldx, r.at, ldr, where, rows, gain.at, bias.at, n);
    kernels->add_norm(got.at, ldx, r.at, ldr, where, rows, gain.at, bias.at, n);
    float worst = largest_difference(want.at, got.at, (rows - 1) * ldx + n);
    CHECK(worst < 2e-4f, "%s add_norm %u x %u: %g", kernels->name, rows, n, (double)worst);
    free(want.base), free(got.base), free(r.base), free(gain.base), free(bias.base), free(where);
}

static void test_transpose(uint32_t rows, uint32_t cols) {
    uint32_t lda = cols + 1, ldo = rows + 2;
    block a = new_block((rows - 1) * lda + cols), want = new_block((cols - 1) * ldo + rows);
    block got = copy_of(&want, (cols - 1) * ldo + rows);
    dk_scalar.transpose(a.at, lda, rows, cols, 0.125f, want.at, ldo);
    kernels->transpose(a.at, lda, rows, cols, 0.125f, got.at, ldo);
    CHECK(!memcmp(want.at, got.at, ((cols - 1) * ldo + rows) * sizeof(float)),
          "%s transpose %u x %u", kernels->name, rows, cols);
    free(a.base), free(want.base), free(got.base);
}

/* The front end has the same bits in every instruction set. */
static void test_energies(const dk_frontend *frontend, uint32_t frames) {
    size_t samples = (size_t)(frames - 1) * DK_HOP + DK_FRAME;
    block audio = new_block(samples), work = new_block(DK_ENERGIES_WORK);
    block want = new_block((size_t)frames * DK_BANDS), got = new_block((size_t)frames * DK_BANDS);
    dk_scalar.energies(frontend, audio.at, frames, want.at, work.at);
    kernels->energies(frontend, audio.at, frames, got.at, work.at);
    CHECK(!memcmp(want.at, got.at, (size_t)frames * DK_BANDS * sizeof(float)), "%s energies %u",
          kernels->name, frames);
    dk_scalar.dct(frontend, want.at, frames, work.at);
    kernels->dct(frontend, want.at, frames, got.at);
    CHECK(!memcmp(work.at, got.at, (size_t)frames * DK_COEFFICIENTS * sizeof(float)), "%s dct %u",
          kernels->name, frames);
    free(audio.base), free(work.base), free(want.base), free(got.base);
}

static void test_table(const dk_frontend *frontend) {
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j += 2) {
            for (dk_type type = DK_F32; type <= DK_F16; type++) {
                test_gemm(SIZES[j], SIZES[(i + j) % COUNT], SIZES[i], j % 4 == 0, type);
                test_accumulate(SIZES[j], SIZES[(i + j) % COUNT], SIZES[i], type);
            }
            test_add_norm(SIZES[j], SIZES[i]);
            test_transpose(SIZES[j], SIZES[i]);
            test_softmax(SIZES[j], SIZES[i], j % 4 ? 5.0f : 100.0f);
        }
        test_gemm(6, 64, SIZES[i], 1, DK_F32);
        test_scan(1, SIZES[i], 0.5f, 1);
        test_scan(1, SIZES[i], 0.0f, 0);
        test_scan(1, SIZES[i], 1.99f, 0); /* rows of which nothing is kept */
        test_scan(3, SIZES[i], 0.5f, 0);
        test_hold(SIZES[i], 0.5f);
        test_functions(SIZES[i], 1.0f);
        test_functions(SIZES[i], 30.0f);
        test_functions(SIZES[i], 1e4f);
    }
    for (uint32_t cols = 176; cols <= 256; cols += 16) {
        test_accumulate(9, 64, cols, DK_F32);
        test_accumulate(9, 64, cols, DK_F16);
    }
    for (uint32_t frames = 1; frames <= 33; frames += 4) test_energies(frontend, frames);
}

int main(void) {
    void *memory = malloc(dk_frontend_size());
    const dk_frontend *frontend;
    CHECK(dk_frontend_init(memory, dk_frontend_size(), DK_SCALAR, &frontend) == DK_OK, "init");
    for (int isa = 0; isa < DK_ISAS; isa++) {
        if (!dk_isa_available((dk_isa)isa)) continue;
        kernels = dk_kernels_for((dk_isa)isa);
        for (offset = 0; offset < 4; offset += 3) test_table(frontend);
        printf("%s checked\n", kernels->name);
    }
    free(memory);
    return failures != 0;
}
