#include "decider.h"

#include <math.h>
#include <string.h>

enum { WORD = DK_SECOND / 2 }; /* the length that a word is taken to have */

void dk_decider_start(dk_decider *d) {
    const uint32_t labels = d->labels;
    memset(d->history, 0, (size_t)d->rule->smooth * labels * sizeof *d->history);
    memset(d->scores, 0, labels * sizeof *d->scores);
    memset(d->armed, 1, labels);
    memset(d->active, 0, labels);
    memset(d->first, 0, labels * sizeof *d->first);
    d->oldest = 0;
    d->window = d->ready = 0;
    d->candidate.is_there = 0;
}

static float highest(const float *logits, uint32_t labels) {
    float top = logits[0];
    for (uint32_t i = 1; i < labels; i++)
        if (logits[i] > top) top = logits[i];
    return top;
}

/* Rounded from a double, so that it has the same bits with every C library. */
static float power(float x) { return (float)exp((double)x); }

/* Writes the square roots of the posteriors. */
static void roots_of_posteriors(const float *logits, uint32_t labels, float *out) {
    float top = highest(logits, labels), sum = 0.0f;
    for (uint32_t i = 0; i < labels; i++) sum += out[i] = power(logits[i] - top);
    for (uint32_t i = 0; i < labels; i++) out[i] = sqrtf(out[i] / sum);
}

int dk_holds_no_word(const float *logits, const float *word_posteriors, uint32_t labels) {
    float top = highest(logits, labels), sum = 0.0f;
    for (uint32_t i = 0; i < labels; i++) sum += power(logits[i] - top);
    for (uint32_t i = 0; i < labels; i++)
        if (power(logits[i] - top) >= word_posteriors[i] * sum) return 0;
    return 1;
}

/* scores = square of the mean of the roots of this window and those before it, oldest first. At the
 * start of a stream the mean is over the windows that exist. */
static void smooth(dk_decider *d, const float *logits) {
    const uint32_t windows = d->rule->smooth, labels = d->labels;
    roots_of_posteriors(logits, labels, d->history + (size_t)d->oldest * labels);
    memset(d->scores, 0, labels * sizeof *d->scores);
    for (uint32_t w = 0; w < windows; w++) {
        d->oldest = d->oldest + 1 < windows ? d->oldest + 1 : 0;
        const float *row = d->history + (size_t)d->oldest * labels;
        for (uint32_t i = 0; i < labels; i++) d->scores[i] += row[i];
    }
    d->oldest = d->oldest + 1 < windows ? d->oldest + 1 : 0;
    uint32_t seen = d->window < windows ? (uint32_t)d->window + 1 : windows;
    for (uint32_t i = 0; i < labels; i++) {
        float mean = d->scores[i] / (float)seen;
        d->scores[i] = mean * mean;
    }
}

/* Finds the armed word with the highest score that reaches its threshold. Returns 0 if none. */
static int best_word(dk_decider *d, uint32_t *best) {
    const dk_decision *rule = d->rule;
    int found = 0;
    for (uint32_t word = 0; word < d->labels; word++) {
        float score = d->scores[word];
        if (rule->on[word] > 1.0f) continue; /* silence or unknown */
        if (score < rule->off) {
            d->armed[word] = 1;
            d->active[word] = 0;
            continue;
        }
        if (!d->active[word]) d->first[word] = d->window;
        d->active[word] = 1;
        if (!d->armed[word] || score < rule->on[word] || d->window < d->ready) continue;
        if (!found || score > d->scores[*best]) *best = word;
        found = 1;
    }
    return found;
}

/* Where a word lies that is active since window `first` and was decided by `window`. */
static void set_place(const dk_decider *d, uint64_t first, uint64_t window, dk_word *word) {
    const uint64_t hop = (uint64_t)d->rule->hop * DK_HOP, late = (d->rule->smooth - 1) * hop / 2;
    const uint64_t known = first * hop + DK_SECOND;
    const uint64_t middle = known > late + WORD / 2 ? known - late : (uint64_t)(WORD / 2);
    word->time = window * hop + DK_SECOND + d->delay;
    word->start = first ? middle - WORD / 2 : 0;
    word->end = first ? middle + WORD / 2 : (uint64_t)DK_SECOND;
    if (word->end > word->time) word->end = word->time;
}

int dk_decider_push(dk_decider *d, const float *logits, dk_word *word) {
    const uint64_t window = d->window;
    uint32_t best = 0;
    smooth(d, logits);
    if (best_word(d, &best) && (!d->candidate.is_there || d->scores[best] > d->candidate.score)) {
        if (!d->candidate.is_there) d->candidate.window = window;
        d->candidate.is_there = 1;
        d->candidate.label = best;
        d->candidate.score = d->scores[best];
        d->candidate.first = d->first[best];
        d->candidate.peak = window;
    }
    d->window++;
    if (!d->candidate.is_there || window - d->candidate.window < d->rule->patience) return 0;
    word->label = d->candidate.label;
    word->score = d->candidate.score;
    set_place(d, d->candidate.first, window, word);
    word->window = d->candidate.peak * d->rule->hop * DK_HOP;
    d->candidate.is_there = 0;
    d->armed[word->label] = d->scores[word->label] < d->rule->off;
    d->ready = window + 1 + d->rule->refractory;
    return 1;
}

int dk_decider_end_of_clip(const dk_decider *d, dk_word *word) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < d->labels; i++)
        if (d->scores[i] > d->scores[best]) best = i;
    if (!d->window || d->ready || d->rule->on[best] > 1.0f || d->scores[best] < d->rule->off)
        return 0;
    word->label = best;
    word->score = d->scores[best];
    set_place(d, 0, 0, word);
    word->window = 0;
    return 1;
}
