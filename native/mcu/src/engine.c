/* x = LN(x + MHSA(x)); x = LN(x + MLP(x)), token after token. */
#include "engine.h"
#include "products.h"

DK_DEFINE_ADD_ROWS(add_rows, float, dk_from_f32)
DK_DEFINE_ADD_ROWS(add_kv_rows, dk_kv, dk_from_kv)
DK_DEFINE_ADD_ROWS(add_packed_rows, dk_weight, dk_from_weight)

/* The same with rows first .. of the weights as they are stored, for so few tokens that unpacking
 * does not pay off. The values of the list are scaled. */
static void add_weights(dk_entry *list, uint32_t count, const dk_matrix *w, uint32_t first,
                        float *out) {
    for (uint32_t i = 0; i < count && w->scales; i++)
        list[i].value *= w->scales[first + list[i].index];
    const dk_weight *rows = (const dk_weight *)w->data + (size_t)first * w->stride;
    add_packed_rows(list, count, rows, w->stride, out, w->cols);
}

/* One layer on its way. */
typedef struct {
    dk_work *work;
    const dk_layer *weights;
    const float *theta; /* (DK_SITES), NULL: dense */
    int is_last;        /* only the class token goes beyond K and V */
    uint32_t *macs;
} pass;

/* The class token and the first sound are exact, and so is every row of a dense site. */
static int is_exact(const pass *p, dk_site site, uint32_t token) {
    return token < 2 || !p->theta || p->theta[site] < 0.0f;
}

static float theta_of(const pass *p, dk_site site) { return p->theta ? p->theta[site] : -1.0f; }

static float *room(dk_work *work, uint32_t which) {
#ifdef DK_WEIGHTS_F32
    (void)work, (void)which;
    return NULL;
#else
    return work->unpacked + which * DK_DIM * DK_COLUMN_BLOCK;
#endif
}

/* ---- keys and values: columns first .. first + DK_COLUMN_BLOCK - 1 of W_K and W_V, of all tokens
 * ---- */

/* A kept key is stored as the difference to what is stored of it already, so that rounding does
 * not add up. */
static void store_key(dk_work *work, uint32_t feature, float *stored, float key) {
    const float scale = 1.0f / sqrtf((float)DK_HEAD_DIM);
    uint32_t column = work->columns;
    dk_kv delta = dk_to_kv(dk_mac(scale, key, -*stored));
    work->a.kv.keys[feature][column] = delta;
    work->a.kv.key_mask[feature][column / 32] |= 1u << column % 32;
    work->kept_k[feature]++;
    *stored += dk_from_kv(delta);
}

static void store_column(const pass *p, uint32_t token, uint32_t first) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    int fresh = is_exact(p, DK_SITE_X, token);
    uint32_t kept = dk_keep(s->key_moved, s->key, DK_COLUMN_BLOCK, theta_of(p, DK_SITE_K), fresh,
                            is_exact(p, DK_SITE_K, token), work->list);
    for (const dk_entry *e = work->list, *end = e + kept; e < end; e++)
        store_key(work, first + e->index, &s->stored[e->index], s->key[e->index]);
    dk_keep(s->value_moved, s->value, DK_COLUMN_BLOCK, theta_of(p, DK_SITE_V), fresh,
            is_exact(p, DK_SITE_V, token), work->list);
    dk_kv *value = &work->a.kv.values[work->columns][first];
    for (uint32_t i = 0; i < DK_COLUMN_BLOCK; i++) value[i] = dk_to_kv(s->value[i]);
    work->times[work->columns++] = 0.0f;
}

static void keys_and_values(const pass *p, uint32_t first) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    const dk_matrix *w = &p->weights->qkv;
    dk_floats wk = dk_unpack(w, 0, DK_DIM, DK_DIM + first, DK_COLUMN_BLOCK, room(work, 0));
    dk_floats wv = dk_unpack(w, 0, DK_DIM, 2 * DK_DIM + first, DK_COLUMN_BLOCK, room(work, 1));
    work->columns = 0;
    memset(s->stored, 0, sizeof s->stored);
    memset(work->a.kv.keys[first], 0, DK_COLUMN_BLOCK * sizeof work->a.kv.keys[0]);
    memset(work->a.kv.key_mask[first], 0, DK_COLUMN_BLOCK * sizeof work->a.kv.key_mask[0]);
    for (uint32_t t = 0; t < DK_TOKENS; t++) {
        int exact = is_exact(p, DK_SITE_X, t);
        float theta = theta_of(p, DK_SITE_X);
        uint32_t kept =
            first ? dk_recall_token(work->x[t], s->x, exact, work->list, work->mask[t])
                  : dk_scan_token(work->x[t], s->x, theta, exact, work->list, work->mask[t]);
        p->macs[DK_XW] += kept * 2 * DK_COLUMN_BLOCK;
        if (kept) {
            if (exact) {
                memset(s->key_moved, 0, sizeof s->key_moved);
                memset(s->value_moved, 0, sizeof s->value_moved);
            }
            add_rows(work->list, kept, wk.at, wk.stride, s->key_moved, DK_COLUMN_BLOCK);
            add_rows(work->list, kept, wv.at, wv.stride, s->value_moved, DK_COLUMN_BLOCK);
            store_column(p, t, first);
        }
        work->times[work->columns - 1] += 1.0f;
    }
    for (uint32_t c = work->columns; c % 4; c++) work->times[c] = 0.0f; /* no token's */
}

/* ---- attention: one head, one token ---- */

/* One feature's share of the scores' deltas from column to column: where its key changed. */
static void add_changes(const dk_work *work, uint32_t feature, float q, float *out) {
    const dk_kv *key = work->a.kv.keys[feature];
    for (uint32_t word = 0; word < DK_KEY_WORDS; word++, key += 32, out += 32) {
        for (uint32_t bits = work->a.kv.key_mask[feature][word]; bits; bits &= bits - 1) {
            uint32_t column = dk_lowest(bits);
            out[column] = dk_mac(q, dk_from_kv(key[column]), out[column]);
        }
    }
}

/* scores_moved (columns) += the list's deltas of q times K^. */
static void add_scores(dk_work *work, uint32_t first, uint32_t kept, uint32_t columns) {
    dk_attention_state *s = &work->s.attention;
    dk_entry *whole = work->list;
    memset(s->changes, 0, columns * sizeof *s->changes);
    for (const dk_entry *e = work->list, *end = e + kept; e < end; e++) {
        if (work->kept_k[first + e->index] * 3u < columns)
            add_changes(work, first + e->index, e->value, s->changes);
        else
            *whole++ = *e; /* going from change to change would take longer */
    }
    kept = (uint32_t)(whole - work->list);
    add_kv_rows(work->list, kept, work->a.kv.keys[first], DK_KEY_COLUMNS, s->changes, columns);
    float change = 0.0f;
    for (uint32_t c = 0; c < columns; c += 4) {
#define DK_CHANGE(k) s->scores_moved[c + k] += change += s->changes[c + k];
        DK_REPEAT_4(DK_CHANGE)
    }
}

/* exp(scores - top) of the scores that changed, or of all when the top is out of date. Returns
 * the sum over the tokens. Floats keep their precision far from one, so the top may be far off.
 * Columns that fill the last group of four belong to no token and count zero times. */
static float powers(const dk_work *work, dk_attention_state *s, uint32_t kept, int exact) {
    const uint32_t lowest = dk_bits(1e-12f), highest = dk_bits(1e12f), step = dk_magnitude(0.25f);
    int stale = exact;
    for (const dk_entry *e = work->list, *end = e + kept; e < end && !stale; e++) {
        float *power = &s->power[e->index];
        if (dk_magnitude(e->value) < step && dk_bits(*power) - lowest < highest - lowest) {
            *power *= dk_exp_small(e->value); /* in half the time */
            continue;
        }
        *power = dk_exp(s->scores[e->index] - s->top);
        stale = dk_bits(*power) > highest;
    }
    float sum = 0.0f;
    for (uint32_t c = 0; c < work->columns && !stale; c += 4) {
#define DK_TOTAL(k) sum = dk_mac(work->times[c + k], s->power[c + k], sum);
        DK_REPEAT_4(DK_TOTAL)
    }
    if (!stale && dk_bits(sum) > lowest) return sum;
    s->top = s->scores[0];
    for (uint32_t c = 1; c < work->columns; c++)
        if (s->scores[c] > s->top) s->top = s->scores[c];
    sum = 0.0f;
    for (uint32_t c = 0; c < work->columns || c % 4; c++) {
        s->power[c] = dk_exp(s->scores[c] - s->top);
        sum = dk_mac(work->times[c], s->power[c], sum);
    }
    return sum;
}

/* Kept changes of the softmax row, times the tokens of their column; the row itself is never
 * written down. */
static uint32_t scan_softmax(const pass *p, float sum, int exact) {
    dk_work *work = p->work;
    dk_attention_state *s = &work->s.attention;
    float scale = 1.0f / sum, tokens = 0.0f;
    uint32_t kept = 0, limit = dk_magnitude(theta_of(p, DK_SITE_SOFTMAX));
    for (uint32_t c = 0; c < work->columns; c++) {
        float now = s->power[c] * scale, delta = exact ? now : now - s->softmax[c];
        if (!exact && dk_magnitude(delta) <= limit) continue;
        s->softmax[c] = now;
        work->list[kept].index = c;
        work->list[kept++].value = delta * work->times[c];
        tokens += work->times[c];
    }
    p->macs[DK_SV] += (uint32_t)tokens * DK_HEAD_DIM;
    return kept;
}

/* The bias belongs to the first head's share. */
static void start_result(const pass *p, uint32_t head, float *result) {
    if (head == 0)
        memcpy(result, p->weights->proj_bias, DK_DIM * sizeof *result);
    else
        memset(result, 0, DK_DIM * sizeof *result);
}

/* Updates the running result of the projection from the kept deltas of x (in the list). If nothing
 * is kept, nothing after it changes. */
static void attend(const pass *p, uint32_t head, uint32_t token, uint32_t kept, dk_floats wq) {
    dk_work *work = p->work;
    dk_attention_state *s = &work->s.attention;
    uint32_t first = head * DK_HEAD_DIM;
    if (!kept) return;
    int fresh = is_exact(p, DK_SITE_X, token), exact = is_exact(p, DK_SITE_Q, token);
    if (fresh) memset(s->q_moved, 0, sizeof s->q_moved);
    add_rows(work->list, kept, wq.at, wq.stride, s->q_moved, DK_HEAD_DIM);

    kept = dk_keep(s->q_moved, s->q, DK_HEAD_DIM, theta_of(p, DK_SITE_Q), fresh, exact, work->list);
    if (!kept) return;
    for (uint32_t i = 0; i < kept; i++) work->kept_q[first + work->list[i].index]++;
    if (exact) memset(s->scores_moved, 0, sizeof s->scores_moved);
    uint32_t columns = (work->columns + 3) / 4 * 4;
    add_scores(work, first, kept, columns);

    fresh = exact, exact = is_exact(p, DK_SITE_SCORES, token);
    kept = dk_keep(s->scores_moved, s->scores, columns, theta_of(p, DK_SITE_SCORES), fresh, exact,
                   work->list);
    if (!kept) return;
    float sum = powers(work, s, kept, exact);
    exact = is_exact(p, DK_SITE_SOFTMAX, token);
    kept = scan_softmax(p, sum, exact);
    if (!kept) return;
    if (exact) memset(s->head_moved, 0, sizeof s->head_moved);
    add_kv_rows(work->list, kept, &work->a.kv.values[0][first], DK_DIM, s->head_moved, DK_HEAD_DIM);

    fresh = exact, exact = is_exact(p, DK_SITE_HEADS, token);
    kept = dk_keep(s->head_moved, s->head, DK_HEAD_DIM, theta_of(p, DK_SITE_HEADS), fresh, exact,
                   work->list);
    if (!kept) return;
    p->macs[DK_PROJECT] += kept * DK_DIM;
    if (exact) start_result(p, head, s->result);
    add_weights(work->list, kept, &p->weights->proj, first, s->result);
}

#if DK_HEADS > 1
/* The shares of the projection add up over the heads. */
static void gather_heads(const pass *p, uint32_t head, uint32_t token) {
    float *partial = p->work->heads_partial[token];
    const float *result = p->work->s.attention.result;
    if (head == 0)
        memcpy(partial, result, DK_DIM * sizeof *partial);
    else
        for (uint32_t i = 0; i < DK_DIM; i++) partial[i] += result[i];
}
#endif

static void attention(const pass *p, uint32_t head, uint32_t tokens) {
    dk_work *work = p->work;
    const dk_layer *w = p->weights;
    uint32_t first = head * DK_HEAD_DIM;
    dk_floats wq = dk_unpack(&w->qkv, 0, DK_DIM, first, DK_HEAD_DIM, room(work, 0));
    for (uint32_t t = 0; t < tokens; t++) {
        int exact = is_exact(p, DK_SITE_X, t);
        uint32_t kept =
            dk_recall_token(work->x[t], work->s.attention.x, exact, work->list, work->mask[t]);
        p->macs[DK_XW] += kept * DK_HEAD_DIM;
        attend(p, head, t, kept, wq);
        float *result = work->s.attention.result;
#if DK_HEADS > 1
        gather_heads(p, head, t);
        result = work->heads_partial[t];
        if (head + 1 < DK_HEADS) continue;
#endif
        dk_add_norm_token(work->x[t], result, w->norm1, w->norm1_bias);
    }
}

/* ---- MLP: hidden features first .. first + DK_COLUMN_BLOCK - 1, one token ---- */

/* Returns how far a hidden value may move before its GELU, which is `delta` away from the
 * reference, is theta away from it. The slope of GELU at h is between -0.13 and 0.55 + 0.66 h, or
 * 1.13 if that is less; up to `reach` above h, the steepest slope is that at h + reach. */
static void set_slack(dk_mlp_state *s, uint32_t i, float delta, float theta) {
    const float reach = 0.2f, falling = 1.0f / 0.13f;
    float slope = dk_least(dk_mac(0.66f, s->centre[i] + reach, 0.55f), 1.13f);
    float above = theta - delta, below = theta + delta, flat = 1.0f / dk_most(slope, 0.13f);
    float up = dk_least(dk_least(above * flat, below * falling), reach);
    float down = dk_least(below * flat, above * falling);
    s->moved[i] = 0.5f * (down - up);
    s->centre[i] -= s->moved[i];
    s->slack[i] = dk_magnitude(0.5f * (up + down));
}

/* Finds the hidden values that may have moved beyond the threshold. */
static uint32_t scan_hidden(const dk_mlp_state *s, dk_entry *list) {
    dk_entry *kept = list;
    for (uint32_t i = 0; i < DK_COLUMN_BLOCK; i += 4) {
#define DK_MOVED(k)                                                                                \
    if (dk_magnitude(s->moved[i + k]) > s->slack[i + k]) kept++->index = i + k;
        DK_REPEAT_4(DK_MOVED)
    }
    return (uint32_t)(kept - list);
}

/* Finds the kept deltas of GELU among these hidden values. */
static uint32_t scan_gelu(dk_mlp_state *s, float theta, dk_entry *list) {
    dk_entry *kept = list;
    uint32_t limit = dk_magnitude(theta);
    for (const dk_entry *e = list, *end = list + scan_hidden(s, list); e < end; e++) {
        uint32_t i = e->index;
        s->centre[i] += s->moved[i];
        float now = dk_gelu(s->centre[i]), delta = now - s->reference[i];
        if (dk_magnitude(delta) > limit) {
            s->reference[i] = now;
            kept->index = i;
            kept++->value = delta;
            delta = 0.0f;
        }
        set_slack(s, i, delta, theta);
    }
    return (uint32_t)(kept - list);
}

/* All of them. */
static uint32_t exact_gelu(dk_mlp_state *s, float theta, dk_entry *list) {
    for (uint32_t i = 0; i < DK_COLUMN_BLOCK; i++) {
        s->centre[i] += s->moved[i];
        s->moved[i] = 0.0f;
        s->reference[i] = dk_gelu(s->centre[i]);
        list[i].index = i;
        list[i].value = s->reference[i];
        if (theta >= 0.0f) set_slack(s, i, 0.0f, theta);
    }
    return DK_COLUMN_BLOCK;
}

/* The deltas of the output are summed over the blocks; at the end they are added to the token's
 * output. */
static void add_output(const pass *p, uint32_t token, uint32_t run) {
    dk_mlp_state *s = &p->work->s.mlp;
    const float *delta = p->work->a.partial[run];
    const float *before =
        is_exact(p, DK_SITE_MLP_HIDDEN, token) ? p->weights->mlp_out_bias : s->output;
    for (uint32_t i = 0; i < DK_DIM; i += 4) {
#define DK_SUM(k) s->output[i + k] = before[i + k] + delta[i + k];
        DK_REPEAT_4(DK_SUM)
    }
}

static void feed_forward(const pass *p, uint32_t first, uint32_t tokens) {
    dk_work *work = p->work;
    const dk_layer *w = p->weights;
    dk_mlp_state *s = &work->s.mlp;
    dk_floats w1 = dk_unpack(&w->mlp_in, 0, DK_DIM, first, DK_COLUMN_BLOCK, room(work, 0));
    dk_floats w2 = dk_unpack(&w->mlp_out, first, DK_COLUMN_BLOCK, 0, DK_DIM, room(work, 1));
    uint32_t run = 0; /* tokens with the same input have the same output */
    int is_last_block = first + DK_COLUMN_BLOCK == DK_MLP;
    for (uint32_t t = 0; t < tokens; t++) {
        float *x = work->x[t], theta = theta_of(p, DK_SITE_MLP_IN);
        int exact = is_exact(p, DK_SITE_MLP_IN, t);
        uint32_t kept = first ? dk_recall_token(x, s->x, exact, work->list, work->mask[t])
                              : dk_scan_token(x, s->x, theta, exact, work->list, work->mask[t]);
        p->macs[DK_MLP1] += kept * DK_COLUMN_BLOCK;
        if (kept) {
            float *delta = work->a.partial[t ? ++run : 0];
            if (!first) memset(delta, 0, DK_DIM * sizeof *delta);
            if (exact) {
                memset(s->centre, 0, sizeof s->centre);
                memcpy(s->moved, w->mlp_in_bias + first, sizeof s->moved);
            }
            add_rows(work->list, kept, w1.at, w1.stride, s->moved, DK_COLUMN_BLOCK);
            theta = theta_of(p, DK_SITE_MLP_HIDDEN);
            kept = is_exact(p, DK_SITE_MLP_HIDDEN, t) ? exact_gelu(s, theta, work->list)
                                                      : scan_gelu(s, theta, work->list);
            p->macs[DK_MLP2] += kept * DK_DIM;
            if (kept) add_rows(work->list, kept, w2.at, w2.stride, delta, DK_DIM);
            if (is_last_block) add_output(p, t, run);
        }
        if (is_last_block) dk_add_norm_token(x, s->output, w->norm2, w->norm2_bias);
    }
}

/* ---- the model ---- */

static void run_layer(const pass *p) {
    dk_work *work = p->work;
    uint32_t tokens = p->is_last ? 1 : DK_TOKENS;
    memset(work->kept_q, 0, sizeof work->kept_q);
    memset(work->kept_k, 0, sizeof work->kept_k);
    for (uint32_t first = 0; first < DK_DIM; first += DK_COLUMN_BLOCK) keys_and_values(p, first);
    for (uint32_t head = 0; head < DK_HEADS; head++) attention(p, head, tokens);
    for (uint32_t f = 0; f < DK_DIM; f++)
        p->macs[DK_QKT] += (uint32_t)work->kept_q[f] * work->kept_k[f];
    for (uint32_t first = 0; first < DK_MLP; first += DK_COLUMN_BLOCK)
        feed_forward(p, first, tokens);
}

/* x = [class; features W + b] + positions. Features that equal those of the frame before are not
 * multiplied, so silence needs almost no MACs here. */
static void embed(const dk_model *model, dk_work *work, const dk_feature *features,
                  uint32_t first) {
    const float *position = model->positions;
    dk_floats w = dk_unpack(&model->embed, 0, DK_FEATURES, 0, DK_DIM, room(work, 0));
    float frame[DK_FEATURES], reference[DK_FEATURES], token[DK_DIM];
    memcpy(token, model->embed_bias, sizeof token);
    for (uint32_t i = 0; i < DK_DIM; i++) work->x[0][i] = model->class_token[i] + position[i];
    for (uint32_t t = 1; t < DK_TOKENS; t++) {
        const dk_feature *row = features + (size_t)first * DK_FEATURES;
        first = first + 1 < DK_FRAMES ? first + 1 : 0;
        position += DK_DIM;
        for (uint32_t i = 0; i < DK_FEATURES; i++) frame[i] = dk_from_feature(row[i]);
        uint32_t kept = dk_scan_row(frame, reference, DK_FEATURES, 0.0f, t == 1, work->list);
        add_rows(work->list, kept, w.at, w.stride, token, DK_DIM);
        for (uint32_t i = 0; i < DK_DIM; i++) work->x[t][i] = token[i] + position[i];
    }
}

void dk_infer(const dk_model *model, dk_work *work, const dk_feature *features, uint32_t first,
              const float *thresholds, float *logits, uint32_t macs[DK_PRODUCTS]) {
    uint32_t counts[DK_PRODUCTS] = {0};
    embed(model, work, features, first);
    for (uint32_t layer = 0; layer < DK_LAYERS; layer++) {
        pass p;
        p.work = work;
        p.weights = &model->layers[layer];
        p.theta = thresholds ? thresholds + (size_t)layer * DK_SITES : NULL;
        p.is_last = layer + 1 == DK_LAYERS;
        p.macs = counts;
        run_layer(&p);
    }
    dk_scan_row(work->x[0], work->s.mlp.x, DK_DIM, 0.0f, 1, work->list);
    float padded[DK_HEAD_COLUMNS] = {0};
    memcpy(padded, model->head_bias, DK_LABELS * sizeof *padded);
    add_weights(work->list, DK_DIM, &model->head, 0, padded);
    memcpy(logits, padded, DK_LABELS * sizeof *logits);
    if (macs) memcpy(macs, counts, sizeof counts);
}
