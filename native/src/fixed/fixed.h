/* What the files of the fixed-point engine share: layout and the kernel table. */
#ifndef DK_FIXED_H
#define DK_FIXED_H

#include "../internal.h"
#include "deltakwt_fixed.h"
#include "fixed_arithmetic.h"

#ifdef DK_HAVE_WASM
#define DK_PANEL 128 /* columns that a product keeps in registers */
#else
#define DK_PANEL 192
#endif

enum {
    DK_VECTOR = 16, /* rows are padded with zeros to whole vectors of so many values */
};

static inline uint32_t dk_padded(uint32_t n) { return (n + DK_VECTOR - 1) / DK_VECTOR * DK_VECTOR; }

/* ---- prefetching ----------------------------------------------------------------------------- */

/* Since the clip before, the weights have left the near caches. They lie in the order in which a
 * run reads them. Every row of a stage prefetches a few lines from `next` on, up to `end`, which is
 * a little ahead of the weights in use. */
typedef struct {
    const int16_t *next, *end;
} dk_fixed_fetch;

enum {
    DK_LINE = DK_ALIGN / sizeof(int16_t),
    DK_FETCH_SOME = 4 * DK_LINE,
    DK_FETCH_AHEAD = 1 << 15
};

/* The weights before `after` are about to be read; the last end at `last`. */
static inline void dk_fetch_after(dk_fixed_fetch *f, const int16_t *after, const int16_t *last) {
    if (f->next < after) f->next = after;
    f->end = last - after < DK_FETCH_AHEAD ? last : after + DK_FETCH_AHEAD;
}

/* Always inlined: GCC removes calls of functions that only prefetch. */
#ifdef __GNUC__
__attribute__((always_inline)) static inline void dk_fetch_some(dk_fixed_fetch *f) {
    if (f->end - f->next < DK_FETCH_SOME) return;
    for (int i = 0; i < DK_FETCH_SOME; i += DK_LINE) __builtin_prefetch(f->next + i, 0, 2);
    f->next += DK_FETCH_SOME;
}
#else
static inline void dk_fetch_some(dk_fixed_fetch *f) { (void)f; }
#endif

/* A matrix (rows = inputs, cols = outputs, padded) in panels of `panel` columns, of which the last
 * may be narrower. Panel p starts at data + p * step; its rows are `stride` values apart. */
typedef struct {
    const int16_t *data;
    size_t step;
    uint32_t rows, cols, panel, stride;
    int is_weights; /* of the model; else it is in the scratch memory */
} dk_fixed_matrix;

/* The rows first .. rows-1 of a site as differences. Row t has `words` words of `mask`, one bit for
 * every kept feature, and the differences of all features. Both are set only where changed[t]. */
typedef struct {
    int16_t *delta;
    uint64_t *mask;
    uint8_t *changed;
    uint32_t stride, words, first, rows;
    dk_fixed_fetch *fetch; /* what to prefetch while they are multiplied */
} dk_changes;

/* Widths n are padded, so no kernel has a remainder to treat. *peak grows to the largest magnitude
 * that was stored. The arithmetic of each is defined in docs/fixed-point.md. */
typedef struct {
    /* out (rows, n) = bias + x (rows, k) W; n <= DK_PANEL. */
    void (*multiply)(const int16_t *x, size_t ldx, uint32_t rows, uint32_t k, const int16_t *w,
                     size_t ldw, uint32_t n, const int16_t *bias, int16_t *out, size_t ldo,
                     uint32_t *peak);
    /* R(t) = R(t-1) + dX(t) W for the changed rows; `start` is R before the first. */
    void (*accumulate)(const dk_changes *changes, const int16_t *w, size_t ldw, uint32_t n,
                       const int16_t *start, int16_t *out, size_t ldo, uint32_t *peak);
    /* Deltas of the rows of `changes`: those with |x - reference| > theta. Rows that are not
     * `fresh` (NULL: all are) equal the row before. *peak is that of all differences. */
    void (*scan)(const int16_t *x, size_t ldx, uint32_t n, const uint8_t *fresh, int32_t theta,
                 int16_t *reference, dk_changes *changes, uint32_t *peak);
    /* x (n) becomes the new reference, given the previous one. Sets the mask; returns whether
     * anything was kept. */
    int (*hold)(int16_t *x, const int16_t *previous, uint32_t n, int32_t theta, uint64_t *mask);
    /* Softmax of the changed rows of x (rows, n) in place; of a padded row the rest becomes zero.
     */
    void (*softmax)(int16_t *x, size_t ldx, uint32_t rows, const uint8_t *changed, uint32_t n,
                    uint32_t bits);
    void (*gelu)(int16_t *x, uint32_t n, uint32_t bits);
    /* x[t] = LayerNorm(x[t] / 2^shift + r[where[t]]); peaks of the sum and of the result. */
    void (*add_norm)(int16_t *x, size_t ldx, uint32_t shift, const int16_t *r, size_t ldr,
                     const uint16_t *where, uint32_t rows, const dk_fixed_norm *norm,
                     uint32_t *sum_peak, uint32_t *peak, dk_fixed_fetch *fetch);
    /* out (cols, rows) = a (rows, cols) / 2^shift transposed, rounded, at least -32767. Rows and
     * columns are padded. Of the first `known` rows, those not `changed` equal the row before. */
    void (*transpose)(const int16_t *a, size_t lda, uint32_t rows, uint32_t cols, uint32_t shift,
                      const uint8_t *changed, uint32_t known, int16_t *out, size_t ldo);
    /* out (rows, n) = x (rows, 2 pairs) W / 2^shift + add (rows, n); W is (pairs, n, 2), in 32
     * bits. Rows that are not `changed` equal the row before; the first one is. */
    void (*embed)(const int16_t *x, uint32_t rows, const uint8_t *changed, uint32_t pairs,
                  const int16_t *w, uint32_t shift, const int16_t *add, uint32_t n, int16_t *out,
                  uint32_t *peak);
    /* Kept features of the changed rows. counts (stride), unless NULL, grow by those of each. */
    int64_t (*count)(const dk_changes *changes, uint32_t *counts);
} dk_fixed_kernels;

extern const dk_fixed_kernels dk_fixed_scalar;
#ifdef DK_HAVE_X86
extern const dk_fixed_kernels dk_fixed_avx2, dk_fixed_avx512;
#endif
#ifdef DK_HAVE_NEON
extern const dk_fixed_kernels dk_fixed_neon;
#endif
#ifdef DK_HAVE_WASM
extern const dk_fixed_kernels dk_fixed_wasm;
#endif

/* ---- model ---------------------------------------------------------------------------------- */

typedef struct {
    dk_fixed_matrix qkv;                   /* one panel if it fits, else no columns */
    dk_fixed_matrix q, kv;                 /* parts of qkv, or by themselves */
    dk_fixed_matrix proj, mlp_in, mlp_out; /* heads padded one by one, as in q and kv */
    const int16_t *proj_bias, *mlp_in_bias, *mlp_out_bias;
    dk_fixed_norm norm1, norm2;
    uint32_t key_shift, score_bits, hidden_bits, sum1_shift, sum2_shift;
} dk_fixed_layer;

struct dk_fixed_model {
    dk_config config;
    const dk_fixed_kernels *kernels;
    const dk_fixed_layer *layers;
    const int16_t *embed, *positions, *head; /* embed (pairs, d, 2), head (d, labels) */
    const int32_t *head_bias;
    const int16_t *end; /* of the weights */
    uint32_t embed_shift;
};

/* Widths of the rows. */
typedef struct {
    uint32_t tokens, dim, head, heads, mlp, keys; /* padded: d; one head; all heads; m; tokens */
} dk_fixed_widths;

static inline dk_fixed_widths dk_widths(const dk_config *c) {
    uint32_t head = dk_padded(c->dim / c->heads);
    dk_fixed_widths w = {c->frames + 1,   dk_padded(c->dim), head,
                         head * c->heads, dk_padded(c->mlp), dk_padded(c->frames + 1)};
    return w;
}

/* Everything a run needs, in the caller's scratch memory. Rows of `tokens` tokens each. */
typedef struct {
    int16_t *x;      /* (T, d) */
    int16_t *qkv;    /* (T padded, 3 heads): Q, K, V */
    int16_t *keys;   /* (heads, T padded): K transposed */
    int16_t *scores; /* (T, T padded): of one head */
    int16_t *heads;  /* (T, heads) */
    int16_t *hidden; /* (T, m) */
    int16_t *r;      /* (T, d): what is added to x */
    int16_t *delta, *reference;
    int16_t *features; /* (T, an even number) */
    uint64_t *mask;
    uint8_t *changed_x, *changed, *changed_heads;
    uint16_t *where;
    uint32_t *q_counts, *k_counts; /* (heads): kept deltas of a feature */
    uint32_t widest;
} dk_fixed_scratch;

/* Take all of it from an arena. */
dk_fixed_scratch dk_fixed_plan(dk_arena *arena, const dk_config *config);

dk_status dk_fixed_check_config(const dk_config *config);

#endif
