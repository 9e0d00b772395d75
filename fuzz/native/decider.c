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

static void check_word(const dk_library_decider *decider, const dk_decided_word *word) {
    EXPECT(word->label >= 0 && (uint32_t)word->label < decider->labels);
    EXPECT(decider->on[word->label] <= 1.0f); /* never silence or unknown */
    EXPECT(word->score >= 0.0f && word->score <= 1.001f);
    EXPECT(word->first <= word->peak && word->peak <= word->window);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    uint32_t labels = 1 + take_byte(&in) % LABELS;
    float on[LABELS], logits[LABELS];
    dk_decision rule = take_rule(&in, labels, on);
    dk_library_decider decider;
    dk_arena arena = dk_arena_at(NULL);
    dk_decider_layout(&decider, &arena, &rule, labels);
    void *memory = exactly(dk_arena_size(&arena));
    arena = dk_arena_at(memory);
    dk_decider_layout(&decider, &arena, &rule, labels);
    dk_decider_start(&decider);
    dk_decided_word word;
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
            EXPECT(!last || word.window > last + rule.refractory);
            last = word.window;
        }
    }
    if (dk_decider_end_of_clip(&decider, &word)) EXPECT((uint32_t)word.label < labels);
    free(memory);
    return 0;
}
