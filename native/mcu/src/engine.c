/* x = LN(x + MHSA(x)); x = LN(x + MLP(x)), token after token. core/fixed.py is the definition. */
#include "engine.h"
#include "hidden.h"
#include "norm.h"
#include "rows.h"
#include "softmax.h"

/* One layer on its way. */
typedef struct {
    dk_work *work;
    const dk_flash_layer *layer;
    const int16_t *theta;        /* (DK_SITES), NULL: dense */
    uint32_t rows;               /* tokens that go beyond K and V: in the last layer only one */
    dk_entry *list;              /* kept differences, */
    uint32_t kept;               /* and their number */
    uint32_t nonzeros[DK_SITES]; /* kept differences; exact rows count whole */
    uint32_t score_macs;
} pass;

static int32_t theta_of(const pass *p, dk_site site) { return p->theta ? p->theta[site] : -1; }

/* The class token and the first sound are exact, and so is every row of a dense site. */
static int is_exact(const pass *p, dk_site site, uint32_t token) {
    return token < 2 || theta_of(p, site) < 0;
}

/* Lists what a row (n) of a site has to multiply. Returns 0 if it equals the row before. */
static int list_row(pass *p, dk_site site, uint32_t token, const int16_t *x, int16_t *reference,
                    uint32_t n) {
    p->list = site == DK_SITE_SCORES ? p->work->row.scores : p->work->list;
    if (is_exact(p, site, token)) {
        p->kept = dk_list_all(x, reference, n, p->list);
        return 1;
    }
    p->kept = dk_scan(x, reference, n, theta_of(p, site), p->list);
    return p->kept > 0;
}

/* The same, and counts it. */
static int take_row(pass *p, dk_site site, uint32_t token, const int16_t *x, int16_t *reference,
                    uint32_t n) {
    int changed = list_row(p, site, token, x, reference, n);
    p->nonzeros[site] += is_exact(p, site, token) ? n : p->kept;
    return changed;
}

/* A result (n) starts with its bias where the row is exact. */
static void start_result(int exact, const int16_t *bias, int16_t *sum, uint32_t n) {
    if (exact && bias) memcpy(sum, bias, n * sizeof *sum);
    if (exact && !bias) memset(sum, 0, n * sizeof *sum);
}

/* Adds the product of the listed differences and W to sum (n). Takes DK_TERMS differences at a
 * time. */
static void multiply(const pass *p, const dk_flash_matrix *w, uint32_t n, int16_t *sum) {
    dk_term *terms = p->work->row.terms;
    const dk_entry *list = p->list;
    for (uint32_t left = p->kept, count; left; left -= count, list += count) {
        count = left < DK_TERMS ? left : (uint32_t)DK_TERMS;
#ifdef DK_WEIGHTS_INT8
        int32_t offset = dk_set_byte_terms(list, count, terms, w->data, w->shifts, n);
        dk_add_bytes(terms, count, offset, n, sum);
#else
        for (uint32_t i = 0; i < count; i++) {
            terms[i].row = w->data + (size_t)list[i].index * n;
            terms[i].value = list[i].value;
        }
        dk_add_shorts(terms, count, n, sum);
#endif
    }
}

/* ---- keys and values of all tokens ----------------------------------------------------------- */

/* Column c > 0 of the keys begins as column c - 1. */
static void copy_column(dk_attention *all, uint32_t c) {
    int16_t *key = all->keys + c - 1;
    for (uint32_t f = 0; f < DK_DIM; f += 8, key += 8 * DK_COLUMNS) {
#define DK_COPY_KEY(i) key[i * DK_COLUMNS + 1] = key[i * DK_COLUMNS];
        DK_REPEAT_8(DK_COPY_KEY)
    }
}

/* Adds a column: the references of K, shifted, and of V. */
static void add_column(pass *p, uint32_t token) {
    dk_attention *all = &p->work->s.attention;
    dk_keys_state *s = &all->s.keys;
    uint32_t c = all->columns++;
    int16_t *keys = all->keys + c;
    const uint32_t shift = p->layer->key_shift;
    const int32_t half = 1 << shift >> 1;
    list_row(p, DK_SITE_K, token, s->key, s->key_reference, DK_DIM);
    if (is_exact(p, DK_SITE_K, token)) { /* zeros are not listed */
        for (uint32_t f = 0; f < DK_DIM; f++) keys[f * DK_COLUMNS] = 0, all->kept_k[f]++;
    } else {
        copy_column(all, c);
        for (uint32_t i = 0; i < p->kept; i++) all->kept_k[p->list[i].index]++;
    }
    for (const dk_entry *e = p->list, *end = e + p->kept; e < end; e++) {
        const uint32_t f = e->index;
        int32_t key = (s->key_reference[f] + half) >> shift;
        keys[f * DK_COLUMNS] = (int16_t)(key < -DK_MOST ? -DK_MOST : key);
    }
    const int16_t *value = s->value;
    if (!is_exact(p, DK_SITE_V, token)) {
        list_row(p, DK_SITE_V, token, s->value, s->value_reference, DK_DIM);
        value = s->value_reference;
    } else if (theta_of(p, DK_SITE_V) >= 0) {
        memcpy(s->value_reference, value, sizeof s->value_reference);
    }
    memcpy(all->values[c], value, sizeof all->values[c]);
    all->times[c] = 0;
}

static void keys_and_values(pass *p) {
    dk_attention *all = &p->work->s.attention;
    dk_keys_state *s = &all->s.keys;
    all->columns = 0;
    memset(all->kept_k, 0, sizeof all->kept_k);
    for (uint32_t t = 0; t < DK_TOKENS; t++) {
        int exact = is_exact(p, DK_SITE_X, t);
        if (take_row(p, DK_SITE_X, t, p->work->x[t], s->x, DK_DIM)) {
            start_result(exact, NULL, s->key, DK_DIM);
            start_result(exact, NULL, s->value, DK_DIM);
            multiply(p, &p->layer->k, DK_DIM, s->key);
            multiply(p, &p->layer->v, DK_DIM, s->value);
            add_column(p, t);
        }
        all->times[all->columns - 1]++;
    }
    for (uint32_t f = 0; theta_of(p, DK_SITE_K) < 0 && f < DK_DIM; f++)
        all->kept_k[f] = DK_TOKENS; /* dense: all values of every row count */
}

/* ---- attention: one token -------------------------------------------------------------------- */

/* Updates the references of the scores, their powers and the sum of the powers. Returns 0 if no
 * reference changed. A power is computed again only if its score changed or if the highest score
 * did. */
static int take_powers(pass *p, dk_head_state *s, uint32_t token) {
    const dk_attention *all = &p->work->s.attention;
    const dk_power_scale scale = dk_power_scale_of(p->layer->score_bits);
    int exact = is_exact(p, DK_SITE_SCORES, token);
    if (!list_row(p, DK_SITE_SCORES, token, s->scores, s->held, all->columns)) return 0;
    int32_t top = dk_highest_of(s->held, all->columns);
    if (exact || top != s->top) {
        s->top = top;
        dk_set_powers(s->held, s->powers, all->columns, top, &scale);
    } else {
        for (const dk_entry *e = p->list, *end = e + p->kept; e < end; e++)
            s->powers[e->index] = dk_power(top - s->held[e->index], &scale);
    }
    s->total = dk_sum_powers(s->powers, all->times, all->columns);
    return 1;
}

/* Adds the kept changes of the softmax, times V, to the head. */
static int add_values(pass *p, uint32_t head, uint32_t token) {
    dk_token_state *s = &p->work->s.attention.s.token;
    int16_t *out = s->heads + head * DK_HEAD_DIM;
    int exact = is_exact(p, DK_SITE_SOFTMAX, token);
    uint32_t theta = exact ? 0 : (uint32_t)theta_of(p, DK_SITE_SOFTMAX);
    start_result(exact, NULL, s->head[head].softmax, DK_COLUMNS);
    start_result(exact, NULL, out, DK_HEAD_DIM);
    uint32_t count = dk_add_softmax(p->work, head, theta, out);
    p->nonzeros[DK_SITE_SOFTMAX] += exact ? (uint32_t)DK_TOKENS : count;
    return exact || count;
}

/* Returns 0 if the head equals that of the token before. */
static int attend_head(pass *p, uint32_t head, uint32_t token) {
    dk_attention *all = &p->work->s.attention;
    dk_token_state *s = &all->s.token;
    dk_term *terms = p->work->row.terms;
    const uint32_t first = head * DK_HEAD_DIM;
    int exact = is_exact(p, DK_SITE_Q, token);
    int16_t *scores = s->head[head].scores;
    if (!take_row(p, DK_SITE_Q, token, s->q + first, s->q_reference + first, DK_HEAD_DIM)) return 0;
    start_result(exact, NULL, scores, DK_PADDED);
    const dk_entry *e = p->list;
    for (uint32_t left = p->kept, count; left; left -= count) {
        count = left < DK_TERMS ? left : (uint32_t)DK_TERMS;
        for (uint32_t i = 0; i < count; i++, e++) {
            const uint32_t feature = first + e->index;
            terms[i].value = e->value;
            terms[i].row = all->keys + feature * DK_COLUMNS;
            if (!exact) p->score_macs += all->kept_k[feature];
        }
        dk_add_shorts(terms, count, (all->columns + 7) / 8 * 8, scores);
    }
    for (uint32_t f = first; exact && f < first + DK_HEAD_DIM; f++) p->score_macs += all->kept_k[f];
    return take_powers(p, &s->head[head], token) && add_values(p, head, token);
}

static void attention(pass *p) {
    const dk_flash_layer *layer = p->layer;
    const int16_t *times = p->work->s.attention.times;
    dk_token_state *s = &p->work->s.attention.s.token;
    int32_t left = 0; /* tokens of the column */
    for (uint32_t t = 0; t < p->rows; t++) {
        int16_t *x = p->work->x[t];
        int changed = 0;
        if (!left) { /* the token begins a column: it has changed */
            left = *times++;
            list_row(p, DK_SITE_X, t, x, s->x, DK_DIM);
            start_result(is_exact(p, DK_SITE_X, t), NULL, s->q, DK_DIM);
            multiply(p, &layer->q, DK_DIM, s->q);
            for (uint32_t head = 0; head < DK_HEADS; head++) changed |= attend_head(p, head, t);
        }
        left--;
        if (changed && take_row(p, DK_SITE_HEADS, t, s->heads, s->heads_reference, DK_DIM)) {
            start_result(is_exact(p, DK_SITE_HEADS, t), layer->proj_bias, s->result, DK_DIM);
            multiply(p, &layer->proj, DK_DIM, s->result);
        }
        dk_add_norm(x, layer->sum1_shift, s->result, &layer->norm1);
    }
    if (theta_of(p, DK_SITE_Q) >= 0) return;
    p->score_macs = 0; /* dense: all values of every row count */
    for (uint32_t f = 0; f < DK_DIM; f++) p->score_macs += p->rows * p->work->s.attention.kept_k[f];
}

/* ---- MLP: one token -------------------------------------------------------------------------- */

static void feed_forward(pass *p) {
    const dk_flash_layer *layer = p->layer;
    dk_mlp_state *s = &p->work->s.mlp;
    const int32_t theta = theta_of(p, DK_SITE_MLP_HIDDEN);
    const dk_hidden hidden = dk_hidden_of(theta, layer->hidden_bits);
    for (uint32_t t = 0; t < p->rows; t++) {
        int16_t *x = p->work->x[t];
        if (take_row(p, DK_SITE_MLP_IN, t, x, s->x, DK_DIM)) {
            int exact = is_exact(p, DK_SITE_MLP_HIDDEN, t);
            start_result(is_exact(p, DK_SITE_MLP_IN, t), layer->mlp_in_bias, s->hidden, DK_MLP);
            multiply(p, &layer->mlp_in, DK_MLP, s->hidden);
            p->list = s->list;
            p->kept = exact ? dk_list_hidden(s, &hidden, t && theta >= 0, s->list)
                            : dk_scan_hidden(s, &hidden, s->list);
            p->nonzeros[DK_SITE_MLP_HIDDEN] += exact ? (uint32_t)DK_MLP : p->kept;
            start_result(exact, layer->mlp_out_bias, s->result, DK_DIM);
            multiply(p, &layer->mlp_out, DK_DIM, s->result);
        }
        dk_add_norm(x, layer->sum2_shift, s->result, &layer->norm2);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Adds the MACs of the layer, as the library counts them: every row of a dense site is whole. */
static void count_macs(pass *p, uint32_t macs[DK_PRODUCTS]) {
    static const uint16_t widths[DK_SITES] = {
        DK_DIM, DK_DIM, DK_DIM, DK_TOKENS * DK_HEADS, DK_TOKENS * DK_HEADS, DK_DIM,
        DK_DIM, DK_MLP, DK_DIM};
    uint32_t *kept = p->nonzeros;
    for (uint32_t site = 0; site < DK_SITES; site++)
        if (theta_of(p, (dk_site)site) < 0)
            kept[site] = (site == DK_SITE_X ? (uint32_t)DK_TOKENS : p->rows) * widths[site];
    uint32_t queries = p->rows < DK_TOKENS ? (uint32_t)DK_DIM : kept[DK_SITE_X];
    macs[DK_XW] += (2 * kept[DK_SITE_X] + queries) * DK_DIM;
    macs[DK_QKT] += p->score_macs;
    macs[DK_SV] += kept[DK_SITE_SOFTMAX] * DK_HEAD_DIM;
    macs[DK_PROJECT] += kept[DK_SITE_HEADS] * DK_DIM;
    macs[DK_MLP1] += kept[DK_SITE_MLP_IN] * DK_MLP;
    macs[DK_MLP2] += kept[DK_SITE_MLP_HIDDEN] * DK_DIM;
}

/* sum (DK_DIM) = a row of features times W. */
static void embed_row(const int16_t *row, const int16_t *w, int32_t *sum) {
    for (uint32_t c = 0; c < DK_DIM; c += 8, w += 16, sum += 8) dk_embed_8(row, w, sum);
}

/* x = [class; features W] + positions. A frame that equals the frame before has its sums. */
static void embed(const dk_flash_model *model, dk_work *work, const int16_t *features,
                  uint32_t first) {
    const int16_t *row = features + (size_t)first * DK_FEATURES, *before = NULL;
    const int16_t *end = features + (size_t)DK_FRAMES * DK_FEATURES;
    const uint32_t shift = model->embed_shift;
    memcpy(work->x[0], model->positions, sizeof work->x[0]);
    for (uint32_t t = 1; t < DK_TOKENS; t++, before = row, row += DK_FEATURES) {
        const int16_t *position = model->positions + (size_t)t * DK_DIM;
        if (row == end) row = features;
        if (!before || memcmp(row, before, DK_FEATURES * sizeof *row))
            embed_row(row, model->embed, work->s.embedded);
        for (uint32_t j = 0; j < DK_DIM; j++) {
            int32_t token = dk_rounded_shift(work->s.embedded[j], shift);
            work->x[t][j] = (int16_t)dk_saturate(dk_saturate(token) + position[j]);
        }
    }
}

void dk_infer(const dk_flash_model *model, dk_work *work, const int16_t *features, uint32_t first,
              const int16_t *thresholds, int32_t *logits, uint32_t macs[DK_PRODUCTS]) {
    uint32_t counts[DK_PRODUCTS] = {0};
    embed(model, work, features, first);
    for (uint32_t layer = 0; layer < DK_LAYERS; layer++) {
        pass p;
        p.work = work;
        p.layer = &model->layers[layer];
        p.theta = thresholds ? thresholds + (size_t)layer * DK_SITES : NULL;
        p.rows = layer + 1 < DK_LAYERS ? (uint32_t)DK_TOKENS : 1;
        p.score_macs = 0;
        memset(p.nonzeros, 0, sizeof p.nonzeros);
        keys_and_values(&p);
        attention(&p);
        feed_forward(&p);
        count_macs(&p, counts);
    }
    for (uint32_t label = 0; label < DK_LABELS; label++) {
        logits[label] = model->head_bias[label];
        for (uint32_t i = 0; i < DK_DIM; i++)
            logits[label] += work->x[0][i] * model->head[i * DK_LABELS + label];
    }
    if (macs) memcpy(macs, counts, sizeof counts);
}
