/* The self-test: a word, noise and silence, each dense and with deltas, then the word in a stream.
 * Prints the results and the instructions they took. Clips named on the command line run too. */
#include "board.h"
#include "clip.h"
#include "clips.h"
#include "config.h"
#include "dk.h"

#include <string.h>

enum { SECOND = 16000 };

static int16_t clip[SECOND];

static void print_number(uint32_t number, uint32_t base, uint32_t least) {
    char text[12];
    uint32_t at = sizeof text - 1, digits = 0;
    text[at] = '\0';
    do {
        text[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (++digits < least || number);
    board_print(text + at);
}

static void print_decimal(const char *before, uint32_t number) {
    board_print(before);
    print_number(number, 10, 1);
}

/* Prints a label as one word: bytes that are not printable, and spaces, as \xx. */
static void print_label(const char *label) {
    for (; *label; label++) {
        char one[2] = {*label, '\0'};
        if (*label > ' ' && *label < 127 && *label != '\\') {
            board_print(one);
        } else {
            board_print("\\");
            print_number((uint8_t)*label, 16, 2);
        }
    }
}

/* Prints the logits before they become floats, so that two machines can be compared exactly. */
static void print_logits(const char *name, const char *how, const int32_t *logits) {
    board_print("logits ");
    board_print(name);
    board_print(how);
    for (uint32_t i = 0; i < DK_LABELS; i++) {
        board_print(" ");
        print_number((uint32_t)logits[i], 16, 8);
    }
    board_print("\n");
}

static uint32_t best_of(const int32_t *logits) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < DK_LABELS; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static uint32_t macs_of_last(void) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 6; i++) sum += dk_macs()[i];
    return sum;
}

static void run_clip(const char *name, const int16_t *samples, int32_t *dense, int32_t *delta) {
    uint32_t start = board_instructions();
    dk_clip_features(samples);
    uint32_t featured = board_instructions();
    dk_clip_infer(dense, 1);
    uint32_t full = macs_of_last(), densed = board_instructions();
    dk_clip_infer(delta, 0);
    uint32_t end = board_instructions();
    board_print("clip ");
    board_print(name);
    board_print(" label ");
    print_label(dk_labels[best_of(delta)]);
    print_decimal(" dense ", densed - featured);
    print_decimal(" delta ", end - densed);
    print_decimal(" front_end ", featured - start);
    print_decimal(" macs ", macs_of_last());
    print_decimal(" of ", full);
    board_print("\n");
    print_logits(name, " dense", dense);
    print_logits(name, " delta", delta);
}

/* Runs the files of 16-bit samples that the command line names. */
static void run_files(void) {
    static char line[8192];
    int32_t dense[DK_LABELS], delta[DK_LABELS];
    size_t length = board_arguments(line, sizeof line - 1);
    uint32_t word = 0;
    for (size_t at = 0; at < length; word++) {
        size_t end = at;
        while (end < length && line[end] != ' ' && line[end] != '\0') end++;
        line[end] = '\0';
        if (word && end > at) {
            memset(clip, 0, sizeof clip);
            if (board_read_file(line + at, clip, sizeof clip)) {
                run_clip(line + at, clip, dense, delta);
            } else {
                board_print(line + at);
                board_print(": cannot be read\n");
            }
        }
        at = end + 1;
    }
}

/* Streams silence, the word and silence again, in blocks of different sizes. */
static uint32_t run_stream(void) {
    dk_event event;
    uint32_t events = 0;
    dk_init();
    memset(clip, 0, sizeof clip);
    for (uint32_t part = 0; part < 3; part++) {
        const int16_t *samples = part == 1 ? test_word : clip;
        for (uint32_t at = 0, size = 1; at < SECOND; at += size, size = size % 400 + 1) {
            if (size > SECOND - at) size = SECOND - at;
            dk_push(samples + at, size);
            while (dk_result(&event)) {
                events++;
                board_print("event ");
                print_label(dk_labels[event.label]);
                print_decimal(" score ", (uint32_t)(event.score * 1e6f + 0.5f));
                print_decimal("e-6 start ", (uint32_t)event.start);
                print_decimal(" end ", (uint32_t)event.end);
                print_decimal(" time ", (uint32_t)event.time);
                board_print("\n");
            }
        }
    }
    return events;
}

static int is_expected(const int32_t *dense, const int32_t *delta) {
    size_t size = DK_LABELS * sizeof *dense;
    return !memcmp(dense, test_dense, size) && !memcmp(delta, test_delta, size);
}

int board_main(void) {
    int32_t dense[DK_LABELS], delta[DK_LABELS], word_dense[DK_LABELS], word_delta[DK_LABELS];
    board_print("board ");
    board_print(board_name);
    board_print("\nmodel " DK_MODEL_NAME "\n");
    board_paint_stack();
    run_clip("word", test_word, word_dense, word_delta);
    uint32_t random = 1;
    for (uint32_t i = 0; i < SECOND; i++) {
        random = random * 1664525u + 1013904223u;
        clip[i] = (int16_t)((int32_t)(random >> 16) % 64 - 32);
    }
    run_clip("hiss", clip, dense, delta);
    memset(clip, 0, sizeof clip);
    run_clip("silence", clip, dense, delta);
    run_files();
    uint32_t events = run_stream();
    print_decimal("ram ", DK_RAM_BYTES);
    print_decimal("\nstack ", (uint32_t)board_stack_used());
    print_decimal("\nevents ", events);
    int passed = is_expected(word_dense, word_delta);
    board_print(passed ? "\nself-test passed\n"
                       : "\nself-test FAILED: other logits than expected\n");
    return !passed;
}
