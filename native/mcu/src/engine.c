/* x = LN(x + MHSA(x)); x = LN(x + MLP(x)), token after token. */
#include "engine.h"
#include "products.h"

DK_DEFINE_ADD_ROWS(add_rows, float, dk_from_f32)
DK_DEFINE_ADD_ROWS(add_kv_rows, dk_kv, dk_from_kv)
DK_DEFINE_ADD_ROWS(add_packed_rows, dk_weight, dk_from_weight)

/* The same with rows first .. of weights as they are stored: where too few tokens come to make
 * unpacking worth while. The list's values are scaled. */
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

static float theta_of(const pass *p, dk_site site) { return p->theta ? p->theta[site] : 0.0f; }

static float *room(dk_work *work, uint32_t which) {
#ifdef DK_WEIGHTS_F32
    (void)work, (void)which;
    return NULL;
#else
    return work->unpacked + which * DK_DIM * DK_BLOCK;
#endif
}

/* ---- keys and values: columns first .. first + DK_BLOCK - 1 of W_K and W_V, of all tokens
 * -------- */

static void scan_key(const pass *p, uint32_t token, uint32_t first) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    uint32_t kept = dk_scan(s->key, s->key_reference, DK_BLOCK, theta_of(p, DK_SITE_K),
                            is_exact(p, DK_SITE_K, token), work->list);
    for (uint32_t i = 0; i < kept; i++) work->kept_k[first + work->list[i].index]++;
}

static void store_column(dk_work *work, uint32_t first) {
    const float scale = 1.0f / sqrtf((float)DK_HEAD_DIM);
    const dk_keys_state *s = &work->s.keys;
    dk_kv *key = &work->a.kv.keys[first][work->columns];
    dk_kv *value = &work->a.kv.values[work->columns][first];
    for (uint32_t i = 0; i < DK_BLOCK; i++, key += DK_COLUMNS) {
        *key = dk_to_kv(scale * s->key_reference[i]);
        value[i] = dk_to_kv(s->value_reference[i]);
    }
    work->times[work->columns++] = 0.0f;
}

static void keys_and_values(const pass *p, uint32_t first) {
    dk_work *work = p->work;
    dk_keys_state *s = &work->s.keys;
    const dk_matrix *w = &p->weights->qkv;
    dk_floats wk = dk_unpack(w, 0, DK_DIM, DK_DIM + first, DK_BLOCK, room(work, 0));
    dk_floats wv = dk_unpack(w, 0, DK_DIM, 2 * DK_DIM + first, DK_BLOCK, room(work, 1));
    work->columns = 0;
    for (uint32_t t = 0; t < DK_TOKENS; t++) {
        int exact = is_exact(p, DK_SITE_X, t);
        float theta = theta_of(p, DK_SITE_X);
        uint32_t kept =
            first ? dk_recall_token(work->x[t], s->x, exact, work->list, work->mask[t])
                  : dk_scan_token(work->x[t], s->x, theta, exact, work->list, work->mask[t]);
        p->macs[DK_XW] += kept * 2 * DK_BLOCK;
        if (kept) {
            if (exact) {
                memset(s->key, 0, sizeof s->key);
                memset(s->value, 0, sizeof s->value);
            }
            add_rows(work->list, kept, wk.at, wk.stride, s->key, DK_BLOCK);
            add_rows(work->list, kept, wv.at, wv.stride, s->value, DK_BLOCK);
            scan_key(p, t, first);
            dk_scan(s->value, s->value_reference, DK_BLOCK, theta_of(p, DK_SITE_V),
                    is_exact(p, DK_SITE_V, t), work->list);
            store_column(work, first);
        }
        work->times[work->columns - 1] += 1.0f;
    }
    for (uint32_t i = 0; i < DK_BLOCK; i++) /* up to a multiple of four */
        for (uint32_t c = work->columns; c < DK_COLUMNS && c % 4; c++)
            work->a.kv.keys[first + i][c] = dk_to_kv(0.0f);
}

/* ---- attention: one head, one token ------------------------------------------------------------
 */

/* exp(scores - top) of the scores that changed, or of all when the top is out of date. Returns
 * the sum over the tokens. */
static float powers(const dk_work *work, dk_attention_state *s, uint32_t kept, int exact) {
    const float highest = 8.0f, lowest = 1e-3f; /* how far the top may be off */
    const dk_entry *list = work->list;
    int stale = exact;
    for (uint32_t i = 0; i < kept && !stale; i++) {
        float above = s->scores_reference[list[i].index] - s->top;
        if (above > highest) stale = 1;
        s->power[list[i].index] = dk_exp(above);
    }
    float sum = 0.0f;
    for (uint32_t c = 0; c < work->columns && !stale; c++)
        sum = dk_mac(work->times[c], s->power[c], sum);
    if (!stale && sum > lowest) return sum;
    s->top = s->scores_reference[0];
    for (uint32_t c = 1; c < work->columns; c++)
        if (s->scores_reference[c] > s->top) s->top = s->scores_reference[c];
    sum = 0.0f;
    for (uint32_t c = 0; c < work->columns; c++) {
        s->power[c] = dk_exp(s->scores_reference[c] - s->top);
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
    uint32_t kept = 0, limit = dk_size(theta_of(p, DK_SITE_SOFTMAX));
    for (uint32_t c = 0; c < work->columns; c++) {
        float now = s->power[c] * scale, delta = exact ? now : now - s->softmax_reference[c];
        if (!exact && dk_size(delta) <= limit) continue;
        s->softmax_reference[c] = now;
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

/* From the kept deltas of x (in the list) to the projection's running result. Where nothing is
 * kept, nothing further down changes. */
static void attend(const pass *p, uint32_t head, uint32_t token, uint32_t kept, dk_floats wq) {
    dk_work *work = p->work;
    dk_attention_state *s = &work->s.attention;
    uint32_t first = head * DK_HEAD_DIM;
    if (!kept) return;
    if (is_exact(p, DK_SITE_X, token)) memset(s->q, 0, sizeof s->q);
    add_rows(work->list, kept, wq.at, wq.stride, s->q, DK_HEAD_DIM);

    int exact = is_exact(p, DK_SITE_Q, token);
    kept = dk_scan(s->q, s->q_reference, DK_HEAD_DIM, theta_of(p, DK_SITE_Q), exact, work->list);
    if (!kept) return;
    for (uint32_t i = 0; i < kept; i++) work->kept_q[first + work->list[i].index]++;
    if (exact) memset(s->scores, 0, sizeof s->scores);
    uint32_t columns = (work->columns + 3) / 4 * 4;
    add_kv_rows(work->list, kept, work->a.kv.keys[first], DK_COLUMNS, s->scores, columns);

    exact = is_exact(p, DK_SITE_SCORES, token);
    kept = dk_scan(s->scores, s->scores_reference, columns, theta_of(p, DK_SITE_SCORES), exact,
                   work->list);
    if (!kept) return;
    float sum = powers(work, s, kept, exact);
    exact = is_exact(p, DK_SITE_SOFTMAX, token);
    kept = scan_softmax(p, sum, exact);
    if (!kept) return;
    if (exact) memset(s->head, 0, sizeof s->head);
    add_kv_rows(work->list, kept, &work->a.kv.values[0][first], DK_DIM, s->head, DK_HEAD_DIM);

    exact = is_exact(p, DK_SITE_HEADS, token);
    kept = dk_scan(s->head, s->head_reference, DK_HEAD_DIM, theta_of(p, DK_SITE_HEADS), exact,
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
        dk_add_norm(work->x[t], result, w->norm1, w->norm1_bias);
    }
}

/* ---- MLP: hidden features first .. first + DK_BLOCK - 1, one token ------------------------------
 */

static const float GELU_STEEPEST = 1.13f; /* no slope of the GELU is greater */

/* GELU of a row and its kept deltas. A hidden value that moved too little to matter is not
 * computed: the GELU changes at most GELU_STEEPEST times as much as its input. */
static uint32_t scan_gelu(dk_mlp_state *s, float theta, int exact, dk_entry *list) {
    uint32_t kept = 0, limit = dk_size(theta);
    for (uint32_t i = 0; i < DK_BLOCK; i++) {
        float hidden = s->hidden[i];
        if (!exact && dk_size(hidden - s->centre[i]) <= dk_size(s->slack[i])) continue;
        float now = dk_gelu(hidden), delta = exact ? now : now - s->reference[i];
        float left = theta;
        if (exact || dk_size(delta) > limit) {
            s->reference[i] = now;
            list[kept].index = i;
            list[kept].value = delta;
            kept++;
        } else {
            left -= fabsf(delta);
        }
        s->centre[i] = hidden;
        s->slack[i] = left * (1.0f / GELU_STEEPEST);
    }
    return kept;
}

/* The MLP's share of this block, added to those of the blocks before it; or its bias, at first. */
static void add_partial(const pass *p, uint32_t first, uint32_t run) {
    const float *result = p->work->s.mlp.result;
    float *partial = p->work->a.partial[run];
    const float *before = first ? partial : p->weights->mlp_out_bias;
    for (uint32_t i = 0; i < DK_DIM; i += 4) {
        float *to = partial + i;
#define DK_SUM(k) to[k] = before[i + k] + result[i + k];
        DK_REPEAT_4(DK_SUM)
    }
}

static void feed_forward(const pass *p, uint32_t first, uint32_t tokens) {
    dk_work *work = p->work;
    const dk_layer *w = p->weights;
    dk_mlp_state *s = &work->s.mlp;
    dk_floats w1 = dk_unpack(&w->mlp_in, 0, DK_DIM, first, DK_BLOCK, room(work, 0));
    dk_floats w2 = dk_unpack(&w->mlp_out, first, DK_BLOCK, 0, DK_DIM, room(work, 1));
    uint32_t run = 0; /* tokens with the same input have the same output */
    for (uint32_t t = 0; t < tokens; t++) {
        float *x = work->x[t], theta = theta_of(p, DK_SITE_MLP_IN);
        int exact = is_exact(p, DK_SITE_MLP_IN, t);
        uint32_t kept = first ? dk_recall_token(x, s->x, exact, work->list, work->mask[t])
                              : dk_scan_token(x, s->x, theta, exact, work->list, work->mask[t]);
        p->macs[DK_MLP1] += kept * DK_BLOCK;
        if (kept) {
            if (exact) memcpy(s->hidden, w->mlp_in_bias + first, sizeof s->hidden);
            add_rows(work->list, kept, w1.at, w1.stride, s->hidden, DK_BLOCK);
            exact = is_exact(p, DK_SITE_MLP_HIDDEN, t);
            kept = scan_gelu(s, theta_of(p, DK_SITE_MLP_HIDDEN), exact, work->list);
            p->macs[DK_MLP2] += kept * DK_DIM;
            if (exact) memset(s->result, 0, sizeof s->result);
            if (kept) add_rows(work->list, kept, w2.at, w2.stride, s->result, DK_DIM);
            add_partial(p, first, t ? ++run : 0);
        }
        if (first + DK_BLOCK == DK_MLP)
            dk_add_norm(x, work->a.partial[run], w->norm2, w->norm2_bias);
    }
}

/* ---- the model ---------------------------------------------------------------------------------
 */

static void run_layer(const pass *p) {
    dk_work *work = p->work;
    uint32_t tokens = p->is_last ? 1 : DK_TOKENS;
    memset(work->kept_q, 0, sizeof work->kept_q);
    memset(work->kept_k, 0, sizeof work->kept_k);
    for (uint32_t first = 0; first < DK_DIM; first += DK_BLOCK) keys_and_values(p, first);
    for (uint32_t head = 0; head < DK_HEADS; head++) attention(p, head, tokens);
    for (uint32_t f = 0; f < DK_DIM; f++)
        p->macs[DK_QKT] += (uint32_t)work->kept_q[f] * work->kept_k[f];
    for (uint32_t first = 0; first < DK_MLP; first += DK_BLOCK) feed_forward(p, first, tokens);
}

/* x = [class; features W + b] + positions. Features that are as they were one frame before cost
 * nothing, so silence is nearly free from here on. */
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
        uint32_t kept = dk_scan(frame, reference, DK_FEATURES, 0.0f, t == 1, work->list);
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
    dk_scan(work->x[0], work->s.mlp.x, DK_DIM, 0.0f, 1, work->list);
    float padded[DK_HEAD_COLUMNS] = {0};
    memcpy(padded, model->head_bias, DK_LABELS * sizeof *padded);
    add_weights(work->list, DK_DIM, &model->head, 0, padded);
    memcpy(logits, padded, DK_LABELS * sizeof *logits);
    if (macs) memcpy(macs, counts, sizeof counts);
}
