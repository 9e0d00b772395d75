/* Declarations that the files of the core share: kernels, sparse lists, memory layout. */
#ifndef DK_INTERNAL_H
#define DK_INTERNAL_H

#include "deltakwt.h"

enum {
    DK_ALIGN = 64,  /* bytes: a cache line and the widest vector */
    DK_PAD = 16,    /* floats of slack behind every buffer: one widest vector */
    DK_GROUP = 4,   /* entries of a sparse list that are handled together */
    DK_BINS = 257,  /* of the 512-point spectrum */
    DK_CHUNK = 128, /* tokens that go through a block together */
};

/* Sparse rows of many tokens. The entries of a row come in groups of four, the last one filled up
 * with zero values. Rows with no entry do not appear. */
typedef struct {
    float *value;     /* (groups, 4) deltas */
    uint16_t *index;  /* (groups, 4) features, that is rows of the weights */
    uint16_t *row;    /* (rows) output row */
    uint16_t *length; /* (rows) groups of that row */
    uint32_t rows, groups;
} dk_list;

static inline size_t dk_weight_size(const dk_matrix *w) {
    static const size_t sizes[] = {sizeof(float), sizeof(uint16_t), sizeof(int8_t)};
    return sizes[w->type];
}

static inline size_t dk_weight_count(const dk_matrix *w) { /* with the padding of rows */
    return (size_t)w->rows * (w->stride < w->cols ? w->cols : w->stride);
}

static inline uint32_t dk_panel_width(const dk_matrix *w) {
    return w->stride < w->cols ? w->stride : w->cols;
}

/* Columns of a matrix; of one in panels, whole panels. */
static inline dk_matrix dk_columns(const dk_matrix *w, uint32_t first, uint32_t count) {
    dk_matrix part = *w;
    size_t before = w->stride < w->cols ? (size_t)first * w->rows : first;
    part.data = (const char *)w->data + before * dk_weight_size(w);
    part.cols = count;
    return part;
}

/* Rows of a chunk of tokens: row r belongs to token first + r - 1, row 0 carries over from the
 * chunk before. where[r] is the row that holds r's values: r itself if it was computed (it is
 * "fresh"), an earlier one if nothing changed. */
typedef struct {
    float *at;
    size_t stride;
    uint16_t *where;
} dk_rows;

/* Rows that are compared with their reference. A row has `parts` parts (heads) of `width` values,
 * each with its own `where`. */
typedef struct {
    dk_rows in; /* where NULL: every row is fresh */
    uint32_t parts, width, where_stride;
    float theta;
    float *reference; /* (parts * width) */
    uint32_t *counts; /* (width) grows by one where a delta was kept, or NULL; only with one part */
} dk_deltas;

struct dk_kernels {
    const char *name;
    uint32_t lanes;    /* numbers of columns that are multiples of this are fastest */
    uint32_t panel[2]; /* columns of a panel of a large matrix, by type; 0: all columns */

    /* out (rows, w.cols) = a (rows, w.rows) W + bias; bias may be NULL. W is one panel. */
    void (*gemm)(const float *a, size_t lda, size_t rows, const dk_matrix *w, const float *bias,
                 float *out, size_t ldo);

    /* R(t) = R(t-1) + dX(t) W over all rows of the list; `start` is R before the first. Of W, one
     * panel. */
    void (*accumulate)(const dk_list *list, const dk_matrix *w, const float *start, float *out,
                       size_t ldo);

    /* Deltas of the rows first..last: keeps |x - reference| > theta, updates the reference there
     * and appends to the list. where[r] = r if anything was kept, else where[r - 1]. Returns how
     * many were kept. May write 16 entries past the last one. */
    uint32_t (*scan)(const dk_deltas *deltas, uint32_t first, uint32_t last, dk_list *list,
                     uint16_t *where);

    /* One row without a list: x (n) becomes the new reference, given the previous one. Returns how
     * many deltas were kept. counts as in dk_deltas. */
    uint32_t (*hold)(float *x, const float *previous, uint32_t n, float theta, uint32_t *counts);

    /* Softmax in place of the rows r = 1..rows of x (n floats each) with where[r] == r. */
    void (*softmax)(float *x, size_t ldx, const uint16_t *where, uint32_t rows, uint32_t n);

    /* out = GELU(x) (n), the tanh form. */
    void (*gelu)(const float *x, float *out, uint32_t n);

    /* x[i] = LayerNorm(x[i] + r[where[i]]) * gain + bias for rows i of n floats. */
    void (*add_norm)(float *x, size_t ldx, const float *r, size_t ldr, const uint16_t *where,
                     uint32_t rows, const float *gain, const float *bias, uint32_t n);

    /* out (cols, ldo) = scale * a (rows, cols) transposed. */
    void (*transpose)(const float *a, size_t lda, uint32_t rows, uint32_t cols, float scale,
                      float *out, size_t ldo);

    /* Mel energies (frames, 80) of consecutive frames of audio. work: DK_ENERGIES_WORK floats. */
    void (*energies)(const dk_frontend *frontend, const float *audio, uint32_t frames, float *out,
                     float *work);

    /* out = log(max(x, 1e-12)) (n). */
    void (*log_floor)(const float *x, float *out, uint32_t n);

    /* out (frames, 40) = DCT of log energies (frames, 80). The front end's three kernels give the
     * same bits in every instruction set. */
    void (*dct)(const dk_frontend *frontend, const float *logs, uint32_t frames, float *out);
};

static inline int dk_fresh(const dk_deltas *deltas, uint32_t part, uint32_t r) {
    const uint16_t *where = deltas->in.where;
    return !where || where[part * deltas->where_stride + r] == r;
}

/* Fills the last group of a row's `kept` entries with zeros and adds its groups to the list as row
 * r. A row without entries adds nothing; there is no branch, because it would often be
 * mispredicted. */
static inline void dk_close_row(dk_list *list, uint32_t r, uint32_t kept) {
    size_t at = (size_t)list->groups * DK_GROUP + kept;
    uint32_t groups = (kept + DK_GROUP - 1) / DK_GROUP;
    for (uint32_t i = 0; i < DK_GROUP; i++) list->value[at + i] = 0.0f;
    for (uint32_t i = 0; i < DK_GROUP; i++) list->index[at + i] = 0;
    list->row[list->rows] = (uint16_t)r;
    list->length[list->rows] = (uint16_t)groups;
    list->rows += kept > 0;
    list->groups += groups;
}

/* NULL where an instruction set is not part of this build. */
const dk_kernels *dk_kernels_for(dk_isa isa);
extern const dk_kernels dk_scalar;
#ifdef DK_HAVE_NEON
extern const dk_kernels dk_neon;
#endif
#ifdef DK_HAVE_WASM
extern const dk_kernels dk_wasm;
#endif
#ifdef DK_HAVE_X86
extern const dk_kernels dk_avx2;
extern const dk_kernels dk_avx512;
#endif

/* Frames that the widest kernel of this build computes at a time. */
#ifndef DK_MOST_LANES
#define DK_MOST_LANES 16
#endif
/* Rows of the DCT are padded to whole cache lines, where there is a cache. */
enum { DK_DCT_STRIDE = DK_MOST_LANES > 1 ? 48 : DK_COEFFICIENTS };

/* Tables of the front end, computed once. */
struct dk_frontend {
    const dk_kernels *kernels;
    dk_matrix dct; /* (80, 40) */
    float dct_data[DK_BANDS * DK_DCT_STRIDE];
    float window[DK_FRAME];                 /* periodic Hann */
    float cosine[256], sine[256];           /* exp(-2 pi i k / 256) */
    float half_cosine[129], half_sine[129]; /* exp(-2 pi i k / 512) */
    uint8_t place[256];                     /* where the in-place FFT leaves frequency k */
    uint16_t first[DK_BANDS];               /* first bin of a mel band */
    uint16_t bins[DK_BANDS];                /* and how many bins it has */
    float mel[2 * DK_BINS];                 /* their weights, band after band */
    uint32_t hop;                           /* samples from one frame to the next */
};

/* Working memory of the energies kernels: 256 complex numbers and 257 magnitudes per lane. */
enum { DK_ENERGIES_WORK = (2 * 256 + DK_BINS) * DK_MOST_LANES };

/* Samples of the largest number of frames that a stream computes at once, with stride 1. */
enum { DK_STREAM = DK_FRAME + (DK_MOST_LANES - 1) * DK_HOP };

/* Bands that the smoothing and the level keep: all, or none in a program for a microcontroller
 * whose front end does not use them. */
#ifdef DK_SMALL
enum { DK_SMOOTHED = DK_SMOOTHS ? DK_BANDS : 1, DK_LEVELS = DK_FLOORS ? DK_BANDS : 1 };
#else
enum { DK_SMOOTHED = DK_BANDS, DK_LEVELS = DK_BANDS };
#endif

/* The state of a stream between two blocks of samples. All frames that are complete are computed at
 * once, up to the number of the widest kernel. */
struct dk_stream {
    const dk_frontend *frontend;
    dk_front_end_setting setting;
    float lift;                  /* log(floor) */
    int begun;                   /* the energies of a frame are known */
    uint32_t filled;             /* samples waiting in `samples` */
    uint32_t floored;            /* frames that moved the level; saturates */
    float previous[DK_SMOOTHED]; /* energies of the last two frames, for smoothing */
    float current[DK_SMOOTHED];
    float level[DK_LEVELS];   /* tracked quantile of the log energies */
#ifndef DK_SMALL              /* where the samples have 16 bits and the rest is shared memory */
    float samples[DK_STREAM]; /* from the start of the next frame on */
    float energies[DK_MOST_LANES * DK_BANDS + DK_PAD];
    float work[DK_ENERGIES_WORK];
#endif
};

dk_status dk_stream_start(dk_stream *stream, const dk_frontend *frontend,
                          const dk_front_end_setting *setting);
/* Turns the energies (frames, 80) of new frames into features. Returns the number of rows. */
uint32_t dk_stream_finish(dk_stream *stream, float *energies, uint32_t frames, float *features);

/* Hands out aligned pieces of one block; with memory NULL it only adds up sizes. */
typedef struct {
    uintptr_t base;
    size_t used;
} dk_arena;

static inline dk_arena dk_arena_at(void *memory) {
    uintptr_t at = (uintptr_t)memory;
    dk_arena arena = {0, 0};
    if (memory) arena.base = (at + DK_ALIGN - 1) / DK_ALIGN * DK_ALIGN;
    return arena;
}

static inline void *dk_take(dk_arena *arena, size_t count, size_t size) {
    size_t at = arena->used;
    arena->used += (count * size + DK_ALIGN - 1) / DK_ALIGN * DK_ALIGN;
    return arena->base ? (void *)(arena->base + at) : NULL;
}

/* Bytes that the caller must provide so that the aligned pieces fit at every alignment of the
 * block. */
static inline size_t dk_arena_size(const dk_arena *arena) { return arena->used + DK_ALIGN; }

static inline float *dk_take_floats(dk_arena *arena, size_t count) {
    return (float *)dk_take(arena, count + DK_PAD, sizeof(float));
}

/* Floats from one row to the next: whole cache lines, and an odd number of them, so that the rows
 * of a column block spread over all sets of the first-level cache. */
static inline uint32_t dk_stride(uint32_t cols) {
    uint32_t lines = (cols + DK_PAD - 1) / DK_PAD;
    return (lines | 1u) * DK_PAD;
}

dk_status dk_check_config(const dk_config *config);
dk_status dk_check_front_end(const dk_front_end_setting *setting);
/* Turns mel energies (frames, 80) into stabilised log energies, in place. `column` is working
 * memory of `frames` floats. */
void dk_log_energies(const dk_kernels *kernels, const dk_front_end_setting *setting,
                     float *energies, uint32_t frames, float *column);
/* Samples above this are refused: their squares would overflow. */
#define DK_LOUDEST 1e9f
int dk_all_within(const float *x, size_t n, float limit); /* 0 also for NaN */

#endif
