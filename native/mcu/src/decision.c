/* Posterior, smoothing, hysteresis, patience, refractory time: see deltakwt's listening guide. */
#include "decision.h"
#include "arithmetic.h"
#include "profile.h"

void dk_decider_init(dk_decider *decider) {
    memset(decider, 0, sizeof *decider);
    memset(decider->armed, 1, sizeof decider->armed);
    decider->candidate.label = DK_NEVER;
}

static void posteriors(const float *logits, float *out) {
    float top = logits[0], sum = 0.0f;
    for (uint32_t i = 1; i < DK_LABELS; i++)
        if (logits[i] > top) top = logits[i];
    for (uint32_t i = 0; i < DK_LABELS; i++) sum += out[i] = dk_exp(logits[i] - top);
    for (uint32_t i = 0; i < DK_LABELS; i++) out[i] /= sum;
}

int dk_maybe_word(const float *logits) {
    float scores[DK_LABELS];
    posteriors(logits, scores);
    for (uint32_t i = 0; i < DK_LABELS; i++)
        if (dk_on[i] <= 1.0f && scores[i] >= dk_maybe) return 1;
    return 0;
}

/* Posteriors of this window, averaged with those before it, oldest first. At the start of a stream
 * the mean is over the windows that exist. */
static void smooth(dk_decider *decider, const float *logits, float *smoothed) {
    posteriors(logits, decider->history[decider->oldest]);
    memset(smoothed, 0, DK_LABELS * sizeof *smoothed);
    for (uint32_t w = 0; w < DK_SMOOTH_WINDOWS; w++) {
        decider->oldest = decider->oldest + 1 < DK_SMOOTH_WINDOWS ? decider->oldest + 1 : 0;
        const float *row = decider->history[decider->oldest];
        for (uint32_t i = 0; i < DK_LABELS; i++) smoothed[i] += row[i];
    }
    decider->oldest = decider->oldest + 1 < DK_SMOOTH_WINDOWS ? decider->oldest + 1 : 0;
    uint32_t seen = decider->window < DK_SMOOTH_WINDOWS ? decider->window + 1 : DK_SMOOTH_WINDOWS;
    for (uint32_t i = 0; i < DK_LABELS; i++) smoothed[i] /= (float)seen;
}

/* The armed word with the highest score that reaches its threshold. */
static int32_t best_word(dk_decider *decider, const float *scores) {
    int32_t best = DK_NEVER;
    for (uint32_t word = 0; word < DK_LABELS; word++) {
        if (dk_on[word] > 1.0f) continue; /* silence or unknown */
        if (scores[word] < dk_off) {
            decider->armed[word] = 1;
            decider->active[word] = 0;
            continue;
        }
        if (!decider->active[word]) decider->first[word] = decider->window;
        decider->active[word] = 1;
        if (decider->armed[word] && scores[word] >= dk_on[word] &&
            decider->window >= decider->ready && (best < 0 || scores[word] > scores[best]))
            best = (int32_t)word;
    }
    return best;
}

int dk_decide(dk_decider *decider, const float *logits, dk_decided *event) {
    float scores[DK_LABELS];
    dk_decided *known = &decider->candidate;
    uint32_t window = decider->window;
    smooth(decider, logits, scores);
    int32_t best = best_word(decider, scores);
    if (best >= 0 && (known->label < 0 || scores[best] > known->score)) {
        if (known->label < 0) known->window = window;
        known->label = best;
        known->score = scores[best];
        known->first = decider->first[best];
        known->peak = window;
    }
    decider->window++;
    if (known->label < 0 || (int32_t)(window - known->window) < DK_PATIENCE_WINDOWS) return 0;
    decider->armed[known->label] = scores[known->label] < dk_off;
    decider->ready = window + 1 + DK_REFRACTORY_WINDOWS;
    *event = *known;
    event->window = window;
    known->label = DK_NEVER;
    return 1;
}
