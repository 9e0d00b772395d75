/* Rows times a matrix: dense, or only the entries of a list. Part of vector.inc.h. */
#include <string.h>

/* A vector of weights, `at` elements after the first. `tail` > 0: only so many of them. */
INLINE vf load_weights(const dk_type type, const uint32_t tail, const void *w, size_t at) {
    const float *floats = (const float *)w + at;
    const uint16_t *halves = (const uint16_t *)w + at;
    if (type == DK_F32) return tail ? v_load_n(floats, tail, 0.0f) : v_load(floats);
    if (!tail) return v_load_halves(halves);
    uint16_t few[LANES] = {0};
    memcpy(few, halves, tail * sizeof *few);
    return v_load_halves(few);
}

/* ---- dense products ------------------------------------------------------------------------- */

/* out (MR, NV vectors) = a (MR, k) b (k, NV vectors) + bias, accumulated in registers. `tail` > 0:
 * only so many floats of a single vector. */
INLINE void tile(const dk_type type, const uint32_t MR, const uint32_t NV, const uint32_t tail,
                 const float *a, size_t lda, const void *b, size_t ldb, uint32_t k,
                 const float *bias, float *out, size_t ldo) {
    vf sum[TILE_ROWS][MOST_VECTORS];
    UNROLL for (uint32_t v = 0; v < NV; v++) {
        vf from = v_set(0.0f);
        if (bias) from = tail ? v_load_n(bias, tail, 0.0f) : v_load(bias + v * LANES);
        UNROLL for (uint32_t r = 0; r < MR; r++) sum[r][v] = from;
    }
    for (uint32_t i = 0; i < k; i++) {
        vf row[MOST_VECTORS];
        UNROLL for (uint32_t v = 0; v < NV; v++) row[v] =
            load_weights(type, tail, b, i * ldb + v * LANES);
        UNROLL for (uint32_t r = 0; r < MR; r++) {
            vf x = v_set(a[r * lda + i]);
            UNROLL for (uint32_t v = 0; v < NV; v++) sum[r][v] = v_fma(x, row[v], sum[r][v]);
        }
    }
    UNROLL for (uint32_t r = 0; r < MR; r++) {
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            if (tail)
                v_store_n(out + r * ldo, sum[r][v], tail);
            else
                v_store(out + r * ldo + v * LANES, sum[r][v]);
        }
    }
}

typedef struct {
    const float *a, *bias;
    const dk_matrix *w;
    float *out;
    size_t lda, ldo, tiles; /* tiles of MR rows each */
} strip;

/* Tiles that share a column panel follow each other, so that the panel stays in the cache. */
INLINE void panel(const dk_type type, const uint32_t MR, const uint32_t NV, const uint32_t tail,
                  const strip *s, uint32_t column) {
    const float *bias = s->bias ? s->bias + column : NULL;
    dk_matrix w = dk_columns(s->w, column, NV * LANES);
    for (size_t t = 0; t < s->tiles; t++)
        tile(type, MR, NV, tail, s->a + t * MR * s->lda, s->lda, w.data, w.stride, w.rows, bias,
             s->out + t * MR * s->ldo + column, s->ldo);
}

INLINE void run_strip(const dk_type type, const uint32_t MR, const strip *s) {
    const uint32_t NV = TILE_VECTORS(MR);
    uint32_t column = 0, cols = s->w->cols;
    for (; column + NV * LANES <= cols; column += NV * LANES) panel(type, MR, NV, 0, s, column);
    for (; column + LANES <= cols; column += LANES) panel(type, MR, 1, 0, s, column);
    if (column < cols) panel(type, MR, 1, cols - column, s, column);
}

#define DEFINE_STRIP(MR)                                                                           \
    static void floats_##MR(const strip *s) { run_strip(DK_F32, MR, s); }                          \
    static void halves_##MR(const strip *s) { run_strip(DK_F16, MR, s); }
DEFINE_STRIP(1)
DEFINE_STRIP(2)
DEFINE_STRIP(3)
DEFINE_STRIP(4)
#if TILE_ROWS > 4
DEFINE_STRIP(5)
DEFINE_STRIP(6)
#define ALL_STRIPS(type) {type##_1, type##_2, type##_3, type##_4, type##_5, type##_6}
#else
#define ALL_STRIPS(type) {type##_1, type##_2, type##_3, type##_4}
#endif

static void KERNEL(gemm)(const float *a, size_t lda, size_t rows, const dk_matrix *w,
                         const float *bias, float *out, size_t ldo) {
    static void (*const by_type[2][TILE_ROWS])(const strip *) = {ALL_STRIPS(floats),
                                                                 ALL_STRIPS(halves)};
    void (*const *strips)(const strip *) = by_type[w->type == DK_F16];
    size_t whole = rows / TILE_ROWS, rest = rows % TILE_ROWS;
    strip s = {a, bias, w, out, lda, ldo, whole};
    if (whole) strips[TILE_ROWS - 1](&s);
    s.a += whole * TILE_ROWS * lda;
    s.out += whole * TILE_ROWS * ldo;
    s.tiles = 1;
    if (rest) strips[rest - 1](&s);
}

/* ---- sparse products ------------------------------------------------------------------------ */

/* Keeps the running results of NV vectors of columns in registers over all rows of the list. The
 * loads are the limit, one for each vector of weights; so the four deltas of a group are loaded at
 * once. With few columns the latency of the additions would dominate, so there are two sums, which
 * are added at the end of a row. */
INLINE void accumulate_block(const dk_type type, const uint32_t NV, const uint32_t tail,
                             const dk_list *list, const void *w, size_t ldw, const float *start,
                             float *out, size_t ldo) {
    const uint32_t chains = 2 * NV <= MANY_VECTORS ? 2 : 1;
    vf sum[2][MOST_VECTORS];
    UNROLL for (uint32_t v = 0; v < NV; v++) {
        sum[0][v] = tail ? v_load_n(start, tail, 0.0f) : v_load(start + v * LANES);
        sum[1][v] = v_set(0.0f);
    }
    const float *value = list->value;
    const uint16_t *index = list->index;
    for (uint32_t r = 0; r < list->rows; r++) {
        for (uint32_t g = list->length[r]; g; g--, value += DK_GROUP, index += DK_GROUP) {
            vf delta[DK_GROUP];
            v_set_four(value, delta);
            UNROLL for (uint32_t i = 0; i < DK_GROUP; i++) {
                size_t at = index[i] * ldw;
                vf *to = sum[i % chains];
                UNROLL for (uint32_t v = 0; v < NV; v++) to[v] =
                    v_fma(delta[i], load_weights(type, tail, w, at + v * LANES), to[v]);
            }
        }
        float *to = out + list->row[r] * ldo;
        UNROLL for (uint32_t v = 0; v < NV; v++) {
            if (chains == 2) sum[0][v] = v_add(sum[0][v], sum[1][v]);
            sum[1][v] = v_set(0.0f);
            if (tail)
                v_store_n(to, sum[0][v], tail);
            else
                v_store(to + v * LANES, sum[0][v]);
        }
    }
}

/* The columns first..first + LANES * count - 1, or `tail` columns. */
INLINE void accumulate_columns(const dk_type type, uint32_t count, uint32_t tail,
                               const dk_list *list, const dk_matrix *w, uint32_t first,
                               const float *start, float *out, size_t ldo) {
    const void *from = dk_columns(w, first, count * LANES).data;
    start += first, out += first;
    if (tail) {
        accumulate_block(type, 1, tail, list, from, w->stride, start, out, ldo);
        return;
    }
    switch (count) {
#define CASE(NV)                                                                                   \
    case NV:                                                                                       \
        accumulate_block(type, NV, 0, list, from, w->stride, start, out, ldo);                     \
        break;
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
#if BLOCK_VECTORS > 8
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
#endif
#undef CASE
    }
}

INLINE void accumulate_type(const dk_type type, const dk_list *list, const dk_matrix *w,
                            const float *start, float *out, size_t ldo) {
    uint32_t vectors = w->cols / LANES, tail = w->cols % LANES, column = 0;
    uint32_t passes = (vectors + BLOCK_VECTORS - 1) / BLOCK_VECTORS;
    for (; passes; passes--) {
        uint32_t count = (vectors + passes - 1) / passes; /* nearly equal for all passes */
        accumulate_columns(type, count, 0, list, w, column, start, out, ldo);
        column += count * LANES;
        vectors -= count;
    }
    if (tail) accumulate_columns(type, 1, tail, list, w, column, start, out, ldo);
}

static void KERNEL(accumulate)(const dk_list *list, const dk_matrix *w, const float *start,
                               float *out, size_t ldo) {
    if (!list->rows) return;
    if (w->type == DK_F16)
        accumulate_type(DK_F16, list, w, start, out, ldo);
    else
        accumulate_type(DK_F32, list, w, start, out, ldo);
}
