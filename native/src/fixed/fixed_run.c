/* From features to logits in integers. All tokens go through one stage after the other. Each
 * product scans its input for what changed since the token before and multiplies only that. A token
 * in which nothing changed is not touched by the stages that follow: its row would be the same as
 * before. */
#include "fixed.h"

#include <string.h>

/* One layer of one run. */
typedef struct {
    const dk_config *config;
    const dk_fixed_kernels *kernels;
    const dk_fixed_layer *layer;
    const int32_t *thresholds; /* this layer's; NULL if dense */
    dk_fixed_scratch *s;
    dk_fixed_widths w;
    int64_t *macs, *nonzeros; /* this layer's; NULL: no counts */
    uint32_t *kept;           /* (DK_SITES, tokens), this layer's; or NULL */
    uint32_t peaks[DK_PEAKS], next_peak;
    dk_fixed_fetch fetch;
    const int16_t *weights_end;
    uint32_t rows; /* tokens that matter after K and V: in the last layer only the class token */
} pass;

static int32_t theta_of(const pass *p, dk_site site) {
    return p->thresholds ? p->thresholds[site] : -1;
}

static void count_macs(const pass *p, dk_product product, int64_t count) {
    if (p->macs) p->macs[product] += count;
}

static int is_counting(const pass *p) { return p->macs || p->nonzeros || p->kept; }

/* ---- one site and its products --------------------------------------------------------------- */

/* Rows of `width` features, padded to n. Rows that are not fresh (NULL: all are) are not read. */
typedef struct {
    const int16_t *x;
    size_t stride;
    uint32_t width, n, rows;
    const uint8_t *fresh;
} site_rows;

/* A site after its scan: the first `exact` rows, or all fresh ones, are multiplied as they are. */
typedef struct {
    site_rows in;
    dk_changes changes;
    uint32_t exact;
    int64_t nonzeros;
} scanned;

/* Adds what each token kept: `width` values before the first row that has a mask. */
static void note_tokens(const pass *p, dk_site site, uint32_t width, const dk_changes *c) {
    uint32_t *kept = p->kept ? p->kept + site * p->w.tokens : NULL;
    for (uint32_t t = 0; kept && t < c->rows; t++) {
        if (t < c->first) kept[t] += width;
        for (uint32_t w = 0; t >= c->first && c->changed[t] && w < c->words; w++)
            kept[t] += dk_bit_count(c->mask[(size_t)t * c->words + w]);
    }
}

static void count_kept(const pass *p, dk_site which, scanned *site, uint32_t *counts) {
    site->nonzeros = (int64_t)site->exact * site->in.width;
    if (!is_counting(p)) return;
    uint32_t padding = which == DK_SITE_HEADS ? p->w.heads - p->config->dim : 0;
    note_tokens(p, which, site->in.width - padding, &site->changes);
    for (uint32_t f = 0; counts && f < site->in.width; f++) counts[f] += site->exact;
    site->nonzeros += p->kernels->count(&site->changes, counts);
}

/* `changed` tells for each row whether it differs from the one before it. `counts` may be NULL. */
static scanned scan(pass *p, dk_site which, site_rows in, uint8_t *changed, uint32_t *counts) {
    dk_fixed_scratch *s = p->s;
    int32_t theta = theta_of(p, which);
    uint32_t exact = theta < 0 || in.rows < 2 ? in.rows : 2;
    const dk_changes changes = {s->delta,         s->mask, changed, in.n,
                                (in.n + 63) / 64, exact,   in.rows, &p->fetch};
    scanned site = {in, changes, exact, 0};
    if (theta < 0 && in.fresh && changed != in.fresh) memcpy(changed, in.fresh, in.rows);
    if (theta >= 0 || !in.fresh) memset(changed, 1, exact);
    if (exact < in.rows) {
        memcpy(s->reference, in.x + (exact - 1) * in.stride, in.n * sizeof *in.x);
        p->kernels->scan(in.x, in.stride, in.n, in.fresh, theta, s->reference, &site.changes,
                         &p->peaks[DK_PEAK_DELTAS]);
    }
    count_kept(p, which, &site, counts);
    if (p->nonzeros) p->nonzeros[which] += site.nonzeros;
    return site;
}

static void multiply(pass *p, const scanned *site, const dk_fixed_matrix *w, const int16_t *bias,
                     int16_t *out, size_t ldo, uint32_t *peak) {
    const site_rows *in = &site->in;
    const uint8_t *changed = site->changes.changed;
    for (uint32_t column = 0, panel = 0; column < w->cols; column += w->panel, panel++) {
        const int16_t *data = w->data + panel * w->step;
        uint32_t n = w->cols - column < w->panel ? w->cols - column : w->panel;
        if (w->is_weights)
            dk_fetch_after(&p->fetch, data + (size_t)w->rows * w->stride, p->weights_end);
        for (uint32_t t = 0, end; t < site->exact; t = end) { /* runs of changed rows */
            for (end = t; end < site->exact && changed[end] == changed[t];) end++;
            if (changed[t])
                p->kernels->multiply(in->x + t * in->stride, in->stride, end - t, in->width, data,
                                     w->stride, n, bias ? bias + column : NULL,
                                     out + t * ldo + column, ldo, peak);
        }
        if (site->exact < in->rows)
            p->kernels->accumulate(&site->changes, data, w->stride, n,
                                   out + (site->exact - 1) * ldo + column, out + column, ldo, peak);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A row of padded width n. A call of memcpy would take longer. */
static inline void copy_row(int16_t *to, const int16_t *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i += DK_VECTOR) memcpy(to + i, from + i, DK_VECTOR * sizeof *to);
}

/* The rows of K (or V) become their references; rows of unchanged tokens are filled in. `counts`
 * may be NULL. */
static void hold_rows(pass *p, dk_site site, uint32_t column, uint32_t *counts) {
    dk_fixed_scratch *s = p->s;
    uint32_t d = p->config->dim, width = p->w.heads, tokens = p->w.tokens;
    size_t stride = 3 * (size_t)width;
    int32_t theta = theta_of(p, site);
    uint32_t exact = theta < 0 || tokens < 2 ? tokens : 2, words = (width + 63) / 64;
    dk_changes held = {NULL, s->mask, s->changed_x, width, words, exact, tokens, NULL};
    for (uint32_t t = 1; t < tokens; t++) {
        int16_t *now = s->qkv + t * stride + column;
        if (!s->changed_x[t])
            copy_row(now, now - stride, width);
        else if (t >= exact)
            p->kernels->hold(now, now - stride, width, theta, s->mask + t * (size_t)words);
    }
    if (!is_counting(p)) return;
    for (uint32_t f = 0; counts && f < width; f++) counts[f] = exact;
    note_tokens(p, site, d, &held);
    int64_t kept = (int64_t)exact * d + p->kernels->count(&held, counts);
    if (p->nonzeros) p->nonzeros[site] += kept;
}

static void project(pass *p) {
    dk_fixed_scratch *s = p->s;
    const dk_fixed_layer *layer = p->layer;
    uint32_t d = p->config->dim, width = p->w.heads, *peak = &p->peaks[DK_PEAK_QKV];
    size_t stride = 3 * (size_t)width;
    site_rows in = {s->x, p->w.dim, d, p->w.dim, p->w.tokens, NULL};
    scanned x = scan(p, DK_SITE_X, in, s->changed_x, NULL);
    int is_last = p->rows < p->w.tokens;
    count_macs(p, DK_XW, x.nonzeros * 2 * d + (is_last ? d : x.nonzeros) * d);
    if (layer->qkv.cols && !is_last) {
        multiply(p, &x, &layer->qkv, NULL, s->qkv, stride, peak);
    } else {
        multiply(p, &x, &layer->kv, NULL, s->qkv + width, stride, peak);
        if (is_last) x.exact = x.in.rows = 1; /* only the class token has a query */
        multiply(p, &x, &layer->q, NULL, s->qkv, stride, peak);
    }
    hold_rows(p, DK_SITE_V, 2 * width, NULL);
    hold_rows(p, DK_SITE_K, width, s->k_counts);
    p->kernels->transpose(s->qkv + width, stride, p->w.keys, width, layer->key_shift, s->changed_x,
                          p->w.tokens, s->keys, p->w.keys);
}

/* Scores become their references, then their softmax. */
static void soften(pass *p) {
    dk_fixed_scratch *s = p->s;
    uint32_t n = p->w.keys, tokens = p->w.tokens, words = (n + 63) / 64;
    int32_t theta = theta_of(p, DK_SITE_SCORES);
    uint32_t exact = theta < 0 || p->rows < 2 ? p->rows : 2;
    dk_changes held = {NULL, s->mask, s->changed, n, words, exact, p->rows, NULL};
    int16_t *previous = s->scores + (exact - 1) * (size_t)n;
    for (uint32_t t = exact; t < p->rows; t++) {
        int16_t *row = s->scores + t * (size_t)n;
        dk_fetch_some(&p->fetch);
        if (!s->changed[t]) continue;
        s->changed[t] =
            (uint8_t)p->kernels->hold(row, previous, n, theta, s->mask + t * (size_t)words);
        if (s->changed[t]) previous = row;
    }
    note_tokens(p, DK_SITE_SCORES, tokens, &held);
    if (p->nonzeros)
        p->nonzeros[DK_SITE_SCORES] += (int64_t)exact * tokens + p->kernels->count(&held, NULL);
    p->kernels->softmax(s->scores, n, p->rows, s->changed, tokens, p->layer->score_bits);
}

/* A matrix whose rows lie in a larger array. */
static dk_fixed_matrix part_of(const int16_t *data, uint32_t rows, uint32_t cols, uint32_t stride) {
    dk_fixed_matrix m = {data, DK_PANEL, rows, cols, DK_PANEL, stride, 0};
    return m;
}

static void attend_head(pass *p, uint32_t head) {
    dk_fixed_scratch *s = p->s;
    uint32_t width = p->w.head, column = head * width, real = p->config->dim / p->config->heads;
    uint32_t n = p->w.keys, tokens = p->w.tokens;
    site_rows in = {s->qkv + column, 3 * (size_t)p->w.heads, real, width, p->rows, s->changed_x};
    scanned q = scan(p, DK_SITE_Q, in, s->changed, s->q_counts + column);
    dk_fixed_matrix keys = part_of(s->keys + column * (size_t)n, width, n, n);
    multiply(p, &q, &keys, NULL, s->scores, n, &p->peaks[DK_PEAK_SCORES]);
    soften(p);
    site_rows soft = {s->scores, n, tokens, n, p->rows, s->changed};
    scanned rows = scan(p, DK_SITE_SOFTMAX, soft, s->changed, NULL);
    dk_fixed_matrix values =
        part_of(s->qkv + 2 * p->w.heads + column, tokens, width, 3 * p->w.heads);
    multiply(p, &rows, &values, NULL, s->heads + column, p->w.heads, &p->peaks[DK_PEAK_HEADS]);
    count_macs(p, DK_SV, rows.nonzeros * real);
    for (uint32_t t = 0; t < p->rows; t++) {
        int16_t *row = s->heads + t * (size_t)p->w.heads + column;
        if (!s->changed[t] && p->config->heads > 1) copy_row(row, row - p->w.heads, width);
        s->changed_heads[t] |= s->changed[t];
    }
}

/* x = LN(x + r), where r was computed only for changed rows. */
static void add_norm(pass *p, const uint8_t *changed, const dk_fixed_norm *norm, uint32_t shift,
                     uint32_t *sum_peak, uint32_t *peak) {
    dk_fixed_scratch *s = p->s;
    uint32_t last = 0;
    for (uint32_t t = 0; t < p->rows; t++) s->where[t] = (uint16_t)(last = changed[t] ? t : last);
    p->kernels->add_norm(s->x, p->w.dim, shift, s->r, p->w.dim, s->where, p->rows, norm, sum_peak,
                         peak, &p->fetch);
}

static void attend(pass *p) {
    dk_fixed_scratch *s = p->s;
    uint32_t d = p->config->dim, real = d / p->config->heads;
    memset(s->changed_heads, 0, p->rows);
    memset(s->q_counts, 0, p->w.heads * sizeof *s->q_counts);
    for (uint32_t head = 0; head < p->config->heads; head++) attend_head(p, head);
    for (uint32_t f = 0; p->macs && f < p->w.heads; f++) {
        int is_real = f % p->w.head < real;
        if (is_real) p->macs[DK_QKT] += (int64_t)s->q_counts[f] * s->k_counts[f];
    }
    site_rows in = {s->heads, p->w.heads, p->w.heads, p->w.heads, p->rows, s->changed_heads};
    scanned heads = scan(p, DK_SITE_HEADS, in, s->changed, NULL);
    int64_t padding = (int64_t)heads.exact * (p->w.heads - d); /* counted, but always zero */
    if (p->nonzeros) p->nonzeros[DK_SITE_HEADS] -= padding;
    multiply(p, &heads, &p->layer->proj, p->layer->proj_bias, s->r, p->w.dim,
             &p->peaks[DK_PEAK_PROJ]);
    count_macs(p, DK_PROJECT, (heads.nonzeros - padding) * d);
    add_norm(p, s->changed, &p->layer->norm1, p->layer->sum1_shift, &p->peaks[DK_PEAK_SUM1],
             &p->peaks[DK_PEAK_MLP_IN]);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void feed_forward(pass *p) {
    dk_fixed_scratch *s = p->s;
    uint32_t d = p->config->dim, m = p->config->mlp;
    site_rows in = {s->x, p->w.dim, d, p->w.dim, p->rows, NULL};
    scanned x = scan(p, DK_SITE_MLP_IN, in, s->changed, NULL);
    multiply(p, &x, &p->layer->mlp_in, p->layer->mlp_in_bias, s->hidden, p->w.mlp,
             &p->peaks[DK_PEAK_HIDDEN]);
    count_macs(p, DK_MLP1, x.nonzeros * m);
    for (uint32_t t = 0; t < p->rows; t++) {
        dk_fetch_some(&p->fetch);
        if (s->changed[t])
            p->kernels->gelu(s->hidden + t * (size_t)p->w.mlp, p->w.mlp, p->layer->hidden_bits);
    }
    site_rows wide = {s->hidden, p->w.mlp, m, p->w.mlp, p->rows, s->changed};
    scanned hidden = scan(p, DK_SITE_MLP_HIDDEN, wide, s->changed, NULL);
    multiply(p, &hidden, &p->layer->mlp_out, p->layer->mlp_out_bias, s->r, p->w.dim,
             &p->peaks[DK_PEAK_MLP_OUT]);
    count_macs(p, DK_MLP2, hidden.nonzeros * d);
    add_norm(p, s->changed, &p->layer->norm2, p->layer->sum2_shift, &p->peaks[DK_PEAK_SUM2],
             &p->next_peak);
}

static uint32_t embed(const dk_fixed_model *model, const int16_t *features, dk_fixed_scratch *s) {
    const dk_config *c = &model->config;
    uint32_t n = dk_padded(c->dim), pairs = (c->features + 1) / 2, peak = 0;
    memcpy(s->x, model->positions, n * sizeof *s->x);
    for (uint32_t i = 0; i < c->dim; i++) {
        uint32_t size = (uint32_t)(s->x[i] < 0 ? -s->x[i] : s->x[i]);
        peak = size > peak ? size : peak;
    }
    for (uint32_t t = 0; t < c->frames; t++) {
        const int16_t *from = features + t * (size_t)c->features;
        int16_t *row = s->features + t * 2 * (size_t)pairs;
        row[2 * pairs - 1] = 0; /* with an odd number of features */
        memcpy(row, from, c->features * sizeof *row);
        s->changed[t] = !t || memcmp(from, from - c->features, c->features * sizeof *row) != 0;
    }
    model->kernels->embed(s->features, c->frames, s->changed, pairs, model->embed,
                          model->embed_shift, model->positions + n, n, s->x + n, &peak);
    return peak;
}

static void classify(const dk_fixed_model *model, const int16_t *x, int32_t *logits) {
    const dk_config *c = &model->config;
    for (uint32_t j = 0; j < c->labels; j++) {
        int32_t sum = model->head_bias[j];
        for (uint32_t i = 0; i < c->dim; i++) sum += x[i] * model->head[i * c->labels + j];
        logits[j] = sum;
    }
}

static int valid_thresholds(const int32_t *thresholds, uint32_t layers) {
    for (uint32_t i = 0; thresholds && i < layers * DK_SITES; i++)
        if (thresholds[i] < -1 || thresholds[i] > DK_MOST) return 0;
    return 1;
}

dk_status dk_fixed_run(const dk_fixed_model *model, const int16_t *features,
                       const int32_t *thresholds, void *memory, size_t size, int32_t *logits,
                       const dk_fixed_watch *watch) {
    static const dk_fixed_watch nothing;
    if (!model || !features || !logits) return DK_BAD_ARGUMENT;
    const dk_config *c = &model->config;
    if (!memory || size < dk_fixed_scratch_size(c)) return DK_BAD_MEMORY;
    if (!valid_thresholds(thresholds, c->layers)) return DK_BAD_ARGUMENT;
    if (!watch) watch = &nothing;
    dk_arena arena = dk_arena_at(memory);
    dk_fixed_scratch s = dk_fixed_plan(&arena, c);
    pass p;
    p.config = c;
    p.kernels = model->kernels;
    p.s = &s;
    p.w = dk_widths(c);
    p.weights_end = model->end;
    p.fetch.next = p.fetch.end = model->layers[0].q.data;
    size_t row = 3 * (size_t)p.w.heads, past = p.w.keys - p.w.tokens;
    memset(s.qkv + p.w.tokens * row, 0, past * row * sizeof *s.qkv); /* no tokens: zero */
    p.next_peak = embed(model, features, &s);
    for (uint32_t l = 0; l < c->layers; l++) {
        p.layer = &model->layers[l];
        p.thresholds = thresholds ? thresholds + (size_t)l * DK_SITES : NULL;
        p.macs = watch->macs ? watch->macs + (size_t)l * DK_PRODUCTS : NULL;
        p.nonzeros = watch->nonzeros ? watch->nonzeros + (size_t)l * DK_SITES : NULL;
        p.kept = watch->kept ? watch->kept + (size_t)l * DK_SITES * p.w.tokens : NULL;
        p.rows = l + 1 < c->layers ? p.w.tokens : 1;
        if (p.macs) memset(p.macs, 0, DK_PRODUCTS * sizeof *p.macs);
        if (p.nonzeros) memset(p.nonzeros, 0, DK_SITES * sizeof *p.nonzeros);
        if (p.kept) memset(p.kept, 0, (size_t)DK_SITES * p.w.tokens * sizeof *p.kept);
        memset(p.peaks, 0, sizeof p.peaks);
        p.peaks[DK_PEAK_X] = p.next_peak;
        p.next_peak = 0;
        project(&p);
        attend(&p);
        feed_forward(&p);
        for (uint32_t i = 0; watch->peaks && i < DK_PEAKS; i++)
            watch->peaks[(size_t)l * DK_PEAKS + i] = (int32_t)p.peaks[i];
    }
    for (uint32_t i = 0; watch->peaks && i < DK_PEAKS; i++)
        watch->peaks[(size_t)c->layers * DK_PEAKS + i] = i ? 0 : (int32_t)p.next_peak;
    classify(model, s.x, logits);
    return DK_OK;
}
