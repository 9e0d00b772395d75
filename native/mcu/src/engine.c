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
    uint32_t kept;               /* entries of the list */
    uint32_t nonzeros[DK_SITES]; /* kept differences; exact rows count whole */
} pass;

static int32_t theta_of(const pass *p, dk_site site) { return p->theta ? p->theta[site] : -1; }

/* The class token and the first sound are exact, and so is every row of a dense site. */
static int is_exact(const pass *p, dk_site site, uint32_t token) {
    return token < 2 || theta_of(p, site) < 0;
}

/* Lists what a row (n) of a site has to multiply. Returns 0 if it equals the row before. */
static int list_row(pass *p, dk_site site, uint32_t token, const int16_t *x, int16_t *reference,
                    uint32_t n) {
    dk_entry *list = p->work->row.kept.list;
    if (is_exact(p, site, token)) {
        p->kept = dk_list_all(x, reference, n, list);
        return 1;
    }
    p->kept = dk_scan(x, reference, n, theta_of(p, site), list);
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

/* sum (n) += the list times W. */
static void multiply(const pass *p, const dk_flash_matrix *w, uint32_t n, int16_t *sum) {
    dk_term *term = p->work->row.terms;
    const dk_weight *data = w->data;
    const uint8_t *shifts = w->shifts;
    int32_t offset = 0;
    for (const dk_entry *e = p->work->row.kept.list, *end = e + p->kept; e < end; e++, term++) {
        term->row = data + (size_t)e->index * n;
#ifdef DK_WEIGHTS_INT8
        offset = dk_set_byte_term(term, e->value, shifts[e->index], offset);
#else
        term->value = e->value;
#endif
    }
#ifdef DK_WEIGHTS_INT8
    dk_add_bytes(p->work->row.terms, p->kept, offset, n, sum);
#else
    (void)offset, (void)shifts;
    dk_add_shorts(p->work->row.terms, p->kept, n, sum);
#endif
}

/* ---- keys and values of all tokens ----------------------------------------------------------- */

/* Adds a column: the references of K, shifted, and of V. */
static void add_column(pass *p, uint32_t token) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    uint32_t c = work->columns++;
    for (uint32_t f = 0; c && f < DK_DIM; f++) work->keys[f][c] = work->keys[f][c - 1];
    list_row(p, DK_SITE_K, token, s->key, s->key_reference, DK_DIM);
    if (is_exact(p, DK_SITE_K, token)) { /* zeros are not listed */
        for (uint32_t f = 0; f < DK_DIM; f++) work->keys[f][c] = 0, work->kept_k[f]++;
    } else {
        for (uint32_t i = 0; i < p->kept; i++) work->kept_k[work->row.kept.list[i].index]++;
    }
    for (const dk_entry *e = work->row.kept.list, *end = e + p->kept; e < end; e++) {
        int32_t key = dk_rounded_shift(s->key_reference[e->index], p->layer->key_shift);
        work->keys[e->index][c] = (int16_t)(key < -DK_MOST ? -DK_MOST : key);
    }
    const int16_t *value = s->value;
    if (!is_exact(p, DK_SITE_V, token)) {
        list_row(p, DK_SITE_V, token, s->value, s->value_reference, DK_DIM);
        value = s->value_reference;
    } else if (theta_of(p, DK_SITE_V) >= 0) {
        memcpy(s->value_reference, value, sizeof s->value_reference);
    }
    memcpy(work->values[c], value, sizeof work->values[c]);
    work->times[c] = 0;
}

static void keys_and_values(pass *p) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    work->columns = 0;
    for (uint32_t t = 0; t < DK_TOKENS; t++) {
        int exact = is_exact(p, DK_SITE_X, t);
        work->changed[t] = (uint8_t)take_row(p, DK_SITE_X, t, work->x[t], s->x, DK_DIM);
        if (work->changed[t]) {
            start_result(exact, NULL, s->key, DK_DIM);
            start_result(exact, NULL, s->value, DK_DIM);
            multiply(p, &p->layer->k, DK_DIM, s->key);
            multiply(p, &p->layer->v, DK_DIM, s->value);
            add_column(p, t);
        }
        work->times[work->columns - 1]++;
    }
}

/* ---- attention: one token -------------------------------------------------------------------- */

/* Updates the references of the scores, their powers and the sum of the powers. Returns 0 if no
 * reference changed. A power is computed again only if its score changed or if the highest score
 * did. */
static int take_powers(pass *p, dk_head_state *s, uint32_t token) {
    dk_work *work = p->work;
    const uint32_t columns = work->columns, bits = p->layer->score_bits;
    int exact = is_exact(p, DK_SITE_SCORES, token);
    if (!list_row(p, DK_SITE_SCORES, token, s->scores, s->held, columns)) return 0;
    int32_t top = dk_highest_of(s->held, columns);
    if (exact || top != s->top) {
        s->top = top;
        for (uint32_t c = 0; c < columns; c++)
            s->powers[c] = (int16_t)dk_fixed_power(top - s->held[c], bits);
    } else {
        for (const dk_entry *e = work->row.kept.list, *end = e + p->kept; e < end; e++)
            s->powers[e->index] = (int16_t)dk_fixed_power(top - s->held[e->index], bits);
    }
    s->total = dk_sum_powers(s->powers, work->times, columns);
    return 1;
}

/* Adds the kept changes of the softmax, times V, to the head. */
static int add_values(pass *p, uint32_t head, uint32_t token) {
    dk_work *work = p->work;
    dk_head_state *s = &work->s.attention.head[head];
    int16_t *out = work->s.attention.heads + head * DK_HEAD_DIM;
    int exact = is_exact(p, DK_SITE_SOFTMAX, token);
    uint32_t theta = exact ? 0 : (uint32_t)theta_of(p, DK_SITE_SOFTMAX);
    start_result(exact, NULL, s->softmax, DK_COLUMNS);
    uint32_t count = dk_list_softmax(work, s, theta, work->values[0] + head * DK_HEAD_DIM);
    p->nonzeros[DK_SITE_SOFTMAX] += exact ? (uint32_t)DK_TOKENS : count;
    start_result(exact, NULL, out, DK_HEAD_DIM);
    dk_add_shorts(work->row.terms, count, DK_HEAD_DIM, out);
    return exact || count;
}

/* Returns 0 if the head equals that of the token before. */
static int attend_head(pass *p, uint32_t head, uint32_t token) {
    dk_work *work = p->work;
    dk_attention_state *s = &work->s.attention;
    const uint32_t first = head * DK_HEAD_DIM;
    int exact = is_exact(p, DK_SITE_Q, token);
    if (!take_row(p, DK_SITE_Q, token, s->q + first, s->q_reference + first, DK_HEAD_DIM)) return 0;
    start_result(exact, NULL, s->head[head].scores, DK_COLUMNS);
    for (uint32_t i = 0; i < p->kept; i++) {
        uint32_t feature = first + work->row.kept.list[i].index;
        work->row.terms[i].value = work->row.kept.list[i].value;
        work->row.terms[i].row = work->keys[feature];
        if (!exact) work->kept_q[feature]++;
    }
    for (uint32_t f = first; exact && f < first + DK_HEAD_DIM; f++) work->kept_q[f]++;
    dk_add_shorts(work->row.terms, p->kept, (work->columns + 7) / 8 * 8, s->head[head].scores);
    return take_powers(p, &s->head[head], token) && add_values(p, head, token);
}

static void attention(pass *p) {
    const dk_flash_layer *layer = p->layer;
    dk_attention_state *s = &p->work->s.attention;
    for (uint32_t t = 0; t < p->rows; t++) {
        int16_t *x = p->work->x[t];
        int changed = 0;
        if (p->work->changed[t]) {
            list_row(p, DK_SITE_X, t, x, s->x, DK_DIM);
            start_result(is_exact(p, DK_SITE_X, t), NULL, s->q, DK_DIM);
            multiply(p, &layer->q, DK_DIM, s->q);
            for (uint32_t head = 0; head < DK_HEADS; head++) changed |= attend_head(p, head, t);
        }
        if (changed && take_row(p, DK_SITE_HEADS, t, s->heads, s->heads_reference, DK_DIM)) {
            start_result(is_exact(p, DK_SITE_HEADS, t), layer->proj_bias, s->result, DK_DIM);
            multiply(p, &layer->proj, DK_DIM, s->result);
        }
        dk_add_norm(x, layer->sum1_shift, s->result, &layer->norm1);
    }
}

/* ---- MLP: one token -------------------------------------------------------------------------- */

static void feed_forward(pass *p) {
    const dk_flash_layer *layer = p->layer;
    dk_entry *list = p->work->row.kept.list;
    dk_mlp_state *s = &p->work->s.mlp;
    int32_t theta = theta_of(p, DK_SITE_MLP_HIDDEN);
    for (uint32_t t = 0; t < p->rows; t++) {
        int16_t *x = p->work->x[t];
        if (take_row(p, DK_SITE_MLP_IN, t, x, s->x, DK_DIM)) {
            int exact = is_exact(p, DK_SITE_MLP_HIDDEN, t);
            start_result(is_exact(p, DK_SITE_MLP_IN, t), layer->mlp_in_bias, s->hidden, DK_MLP);
            multiply(p, &layer->mlp_in, DK_MLP, s->hidden);
            p->kept = exact ? dk_list_hidden(s, theta, layer->hidden_bits, t && theta >= 0, list)
                            : dk_scan_hidden(s, theta, layer->hidden_bits, list);
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
    for (uint32_t f = 0; f < DK_DIM; f++) {
        uint32_t q = theta_of(p, DK_SITE_Q) < 0 ? p->rows : p->work->kept_q[f];
        uint32_t k = theta_of(p, DK_SITE_K) < 0 ? (uint32_t)DK_TOKENS : p->work->kept_k[f];
        macs[DK_QKT] += q * k;
    }
    macs[DK_SV] += kept[DK_SITE_SOFTMAX] * DK_HEAD_DIM;
    macs[DK_PROJECT] += kept[DK_SITE_HEADS] * DK_DIM;
    macs[DK_MLP1] += kept[DK_SITE_MLP_IN] * DK_MLP;
    macs[DK_MLP2] += kept[DK_SITE_MLP_HIDDEN] * DK_DIM;
}

/* Lists the features that differ from those of the frame before, or all that are not zero. */
static uint32_t list_features(const int16_t *row, const int16_t *before, dk_term *term,
                              const int16_t *embed) {
    const dk_term *terms = term;
    for (uint32_t i = 0; i < DK_FEATURES; i++) {
        term->value = before ? row[i] - before[i] : row[i];
        term->row = embed + (size_t)i * DK_DIM;
        if (term->value) term++;
    }
    return (uint32_t)(term - terms);
}

/* x = [class; features W] + positions. The sums are exact, so only features that differ from those
 * of the frame before are multiplied. */
static void embed(const dk_flash_model *model, dk_work *work, const int16_t *features,
                  uint32_t first) {
    const int16_t *row = features + (size_t)first * DK_FEATURES, *before = NULL;
    const int16_t *end = features + (size_t)DK_FRAMES * DK_FEATURES;
    memset(work->s.embedded, 0, sizeof work->s.embedded);
    memcpy(work->x[0], model->positions, sizeof work->x[0]);
    for (uint32_t t = 1; t < DK_TOKENS; t++, before = row, row += DK_FEATURES) {
        const int16_t *position = model->positions + (size_t)t * DK_DIM;
        if (row == end) row = features;
        uint32_t count = list_features(row, before, work->row.terms, model->embed);
        if (count) dk_add_exact(work->row.terms, count, DK_DIM, work->s.embedded);
        for (uint32_t j = 0; j < DK_DIM; j++) {
            int32_t token = dk_rounded_shift(work->s.embedded[j], model->embed_shift);
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
        memset(p.nonzeros, 0, sizeof p.nonzeros);
        memset(work->kept_q, 0, sizeof work->kept_q);
        memset(work->kept_k, 0, sizeof work->kept_k);
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
