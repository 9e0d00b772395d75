#include "decider.h"

#include <math.h>
#include <string.h>

void dk_decider_layout(dk_library_decider *decider, dk_arena *arena, const dk_decision *rule,
                       uint32_t labels) {
    memset(decider, 0, sizeof *decider);
    decider->rule = *rule;
    decider->labels = labels;
    decider->on = dk_take_floats(arena, labels);
    decider->history = dk_take_floats(arena, (size_t)rule->smooth * labels);
    decider->scores = dk_take_floats(arena, labels);
    decider->armed = (uint8_t *)dk_take(arena, labels, 1);
    decider->active = (uint8_t *)dk_take(arena, labels, 1);
    decider->first = (uint64_t *)dk_take(arena, labels, sizeof *decider->first);
}

void dk_decider_start(dk_library_decider *decider) {
    uint32_t labels = decider->labels;
    memcpy(decider->on, decider->rule.on, labels * sizeof *decider->on);
    decider->rule.on = decider->on;
    memset(decider->history, 0, (size_t)decider->rule.smooth * labels * sizeof(float));
    memset(decider->armed, 1, labels);
    memset(decider->active, 0, labels);
    decider->candidate.label = DK_NO_LABEL;
}

static void posteriors(const float *logits, uint32_t labels, float *out) {
    float top = logits[0], sum = 0.0f;
    for (uint32_t i = 1; i < labels; i++)
        if (logits[i] > top) top = logits[i];
    for (uint32_t i = 0; i < labels; i++) sum += out[i] = (float)exp((double)(logits[i] - top));
    for (uint32_t i = 0; i < labels; i++) out[i] /= sum;
}

/* scores = mean of the posteriors of this window and those before it, oldest first. At the start of
 * a stream the mean is over the windows that exist. */
static void smooth(dk_library_decider *d, const float *logits) {
    const uint32_t windows = d->rule.smooth, labels = d->labels;
    posteriors(logits, labels, d->history + (size_t)d->oldest * labels);
    memset(d->scores, 0, labels * sizeof *d->scores);
    for (uint32_t w = 0; w < windows; w++) {
        d->oldest = d->oldest + 1 < windows ? d->oldest + 1 : 0;
        const float *row = d->history + (size_t)d->oldest * labels;
        for (uint32_t i = 0; i < labels; i++) d->scores[i] += row[i];
    }
    d->oldest = d->oldest + 1 < windows ? d->oldest + 1 : 0;
    uint32_t seen = d->window < windows ? (uint32_t)d->window + 1 : windows;
    for (uint32_t i = 0; i < labels; i++) d->scores[i] /= (float)seen;
}

/* Returns the armed word with the highest score that reaches its threshold. */
static int32_t best_word(dk_library_decider *d) {
    int32_t best = DK_NO_LABEL;
    for (uint32_t word = 0; word < d->labels; word++) {
        float score = d->scores[word];
        if (d->on[word] > 1.0f) continue; /* silence or unknown */
        if (score < d->rule.off) {
            d->armed[word] = 1;
            d->active[word] = 0;
            continue;
        }
        if (!d->active[word]) d->first[word] = d->window;
        d->active[word] = 1;
        if (d->armed[word] && score >= d->on[word] && d->window >= d->ready &&
            (best < 0 || score > d->scores[best]))
            best = (int32_t)word;
    }
    return best;
}

int dk_decider_push(dk_library_decider *d, const float *logits, dk_decided_word *word) {
    dk_decided_word *known = &d->candidate;
    uint64_t window = d->window;
    smooth(d, logits);
    int32_t best = best_word(d);
    if (best >= 0 && (known->label < 0 || d->scores[best] > known->score)) {
        if (known->label < 0) known->window = window;
        known->label = best;
        known->score = d->scores[best];
        known->first = d->first[best];
        known->peak = window;
    }
    d->window++;
    if (known->label < 0 || window - known->window < d->rule.patience) return 0;
    d->armed[known->label] = d->scores[known->label] < d->rule.off;
    d->ready = window + 1 + d->rule.refractory;
    *word = *known;
    word->window = window;
    known->label = DK_NO_LABEL;
    return 1;
}

int dk_decider_end_of_clip(const dk_library_decider *d, dk_decided_word *word) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < d->labels; i++)
        if (d->scores[i] > d->scores[best]) best = i;
    if (!d->window || d->ready || d->on[best] > 1.0f || d->scores[best] < d->rule.off) return 0;
    memset(word, 0, sizeof *word);
    word->label = (int32_t)best;
    word->score = d->scores[best];
    return 1;
}
