/* The decision rule of the library: any rule within the limits of a model file, any finite logits.
 */
#include "../../native/src/decider.h"
#include "input.h"

enum { LABELS = 8 };

static dk_decision take_rule(input *in, uint32_t labels, float *on) {
    dk_decision rule;
    memset(&rule, 0, sizeof rule);
    rule.hop = 1 + take_byte(in) % 100;
    rule.onset = 98;
    rule.off = fmaxf(take_share(in), 1e-6f);
    rule.smooth = 1 + take_byte(in) % 100;
    rule.patience = take_byte(in) % 101;
    rule.refractory = take_short(in) % 6001;
    for (uint32_t i = 0; i < labels; i++) {
        uint8_t byte = take_byte(in);
        on[i] = byte == 255 ? 2.0f : fmaxf((float)byte / 254.0f, 1e-6f);
    }
    rule.on = on;
    return rule;
}

static void check_word(const dk_decider *decider, const dk_word *word) {
    EXPECT(word->label < decider->labels);
    EXPECT(decider->rule->on[word->label] <= 1.0f); /* never silence or unknown */
    EXPECT(word->score >= 0.0f && word->score <= 1.001f);
    EXPECT(word->start < word->end && word->end <= word->time);
    EXPECT(word->window + DK_SECOND <= word->time);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    uint32_t labels = 1 + take_byte(&in) % LABELS;
    float on[LABELS], logits[LABELS];
    dk_decision rule = take_rule(&in, labels, on);
    const size_t history = (size_t)rule.smooth * labels;
    dk_decider decider;
    memset(&decider, 0, sizeof decider);
    decider.rule = &rule;
    decider.labels = labels;
    decider.history = (float *)exactly(history * sizeof(float));
    decider.scores = (float *)exactly(labels * sizeof(float));
    decider.armed = (uint8_t *)exactly(labels);
    decider.active = (uint8_t *)exactly(labels);
    decider.first = (uint64_t *)exactly(labels * sizeof(uint64_t));
    dk_decider_start(&decider);
    dk_word word;
    uint64_t last = 0;
    for (uint32_t windows = 0; in.left && windows < 100; windows++) {
        uint8_t kind = take_byte(&in);
        for (uint32_t i = 0; i < labels; i++) {
            float value = kind % 4 ? (float)take_byte(&in) / 8.0f : take_any_float(&in);
            logits[i] = isfinite(value) ? value : 0.0f; /* dk_run refuses the others */
        }
        for (uint32_t again = kind / 4 % 8 + 1u; again; again--) {
            if (!dk_decider_push(&decider, logits, &word)) continue;
            check_word(&decider, &word);
            uint64_t decided = (word.time - DK_SECOND) / (rule.hop * DK_HOP);
            EXPECT(!last || decided > last + rule.refractory);
            last = decided;
        }
    }
    if (dk_decider_end_of_clip(&decider, &word)) EXPECT(word.label < labels);
    free(decider.history);
    free(decider.scores);
    free(decider.armed);
    free(decider.active);
    free(decider.first);
    return 0;
}
