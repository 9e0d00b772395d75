/* Three ways to compute the scores Q K^T of delta-encoded Q and K, on matrices of real clips:
 *   rows     changed values of Q times whole rows of K^T, as the core does it
 *   pairs    changed values of Q times changed values of K, the paper's delta-delta product
 *   mixed    each row of Q in the form that needs fewer operations at the given break-even
 * Run by `python benchmarks/score_products.py`, which writes the file.
 *   score_products FILE ISA FORM ROUNDS BREAK_EVEN
 * The file: count, tokens, width as uint32; then for each of `count` heads the references of Q and
 * of K, (tokens, width) floats each. Prints the nanoseconds of the fastest round, the largest
 * difference from a product in doubles, and the rows in the form `pairs` in percent.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../native/src/internal.h"

enum { MOST_TOKENS = 128, MOST_WIDTH = 64, EXACT = 2 };

static uint32_t tokens, width;
static const dk_kernels *kernels;
static float keys[MOST_WIDTH * MOST_TOKENS]; /* K transposed */
static float scores[MOST_TOKENS * MOST_TOKENS];

/* The changes of K, feature by feature: tokens and values. */
static uint16_t changed[MOST_WIDTH];
static uint16_t places[MOST_WIDTH * MOST_TOKENS];
static float changes[MOST_WIDTH * MOST_TOKENS];

static float list_value[MOST_TOKENS * (MOST_WIDTH + DK_PAD)];
static uint16_t list_index[MOST_TOKENS * (MOST_WIDTH + 2 * DK_PAD)];
static uint16_t list_row[MOST_TOKENS], list_length[MOST_TOKENS];
static dk_list list = {list_value, list_index, list_row, list_length, 0, 0};

static void list_query_changes(const float *q) {
    list.rows = list.groups = 0;
    for (uint32_t t = EXACT; t < tokens; t++) {
        const float *now = q + t * width, *before = now - width;
        uint32_t kept = 0;
        size_t at = (size_t)list.groups * DK_GROUP;
        for (uint32_t f = 0; f < width; f++)
            if (now[f] != before[f]) {
                list.value[at + kept] = now[f] - before[f];
                list.index[at + kept++] = (uint16_t)f;
            }
        dk_close_row(&list, t, kept);
    }
}

static void list_key_changes(const float *k) {
    memset(changed, 0, sizeof changed);
    for (uint32_t t = EXACT; t < tokens; t++) {
        const float *now = k + t * width, *before = now - width;
        for (uint32_t f = 0; f < width; f++)
            if (now[f] != before[f]) {
                uint32_t at = f * MOST_TOKENS + changed[f]++;
                places[at] = (uint16_t)t;
                changes[at] = now[f] - before[f];
            }
    }
}

/* One row by pairs: the changes of the scores, added up along the tokens. */
static void row_by_pairs(const float *k, const float *value, const uint16_t *index, uint32_t count,
                         const float *before, float *out) {
    float sum[MOST_TOKENS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t f = index[i], n = changed[f];
        const uint16_t *place = places + f * MOST_TOKENS;
        const float *change = changes + f * MOST_TOKENS;
        sum[0] += value[i] * k[f];
        sum[1] += value[i] * k[width + f];
        for (uint32_t j = 0; j < n; j++) sum[place[j]] += value[i] * change[j];
    }
    float running = 0.0f;
    out[0] = before[0] + sum[0];
    for (uint32_t t = 1; t < tokens; t++) {
        running += sum[t];
        out[t] = before[t] + running;
    }
}

static void multiply_rows(const float *q, const float *k) {
    dk_matrix w = {keys, width, (tokens + kernels->lanes - 1) / kernels->lanes * kernels->lanes,
                   MOST_TOKENS, DK_F32};
    kernels->transpose(k, width, tokens, width, 1.0f, keys, MOST_TOKENS);
    kernels->gemm(q, width, EXACT, &w, NULL, scores, MOST_TOKENS);
    kernels->accumulate(&list, &w, scores + (EXACT - 1) * MOST_TOKENS, scores, MOST_TOKENS);
}

/* Returns the rows that were computed by pairs. Rows without a change are copied. */
static uint32_t multiply_mixed(const float *q, const float *k, float break_even) {
    dk_matrix w = {keys, width, (tokens + kernels->lanes - 1) / kernels->lanes * kernels->lanes,
                   MOST_TOKENS, DK_F32};
    kernels->transpose(k, width, tokens, width, 1.0f, keys, MOST_TOKENS);
    kernels->gemm(q, width, EXACT, &w, NULL, scores, MOST_TOKENS);
    list_key_changes(k);
    uint32_t by_pairs = 0, group = 0, last = EXACT - 1;
    for (uint32_t i = 0; i < list.rows; i++) {
        const float *value = list.value + (size_t)group * DK_GROUP;
        const uint16_t *index = list.index + (size_t)group * DK_GROUP;
        uint32_t count = list.length[i] * DK_GROUP, pairs = tokens;
        while (count && value[count - 1] == 0.0f) count--;
        for (uint32_t j = 0; j < count; j++) pairs += changed[index[j]];
        float *out = scores + list.row[i] * MOST_TOKENS, *before = scores + last * MOST_TOKENS;
        if ((float)pairs < break_even * (float)(count * tokens)) {
            row_by_pairs(k, value, index, count, before, out);
            by_pairs++;
        } else {
            dk_list one = {(float *)value, (uint16_t *)index, list.row + i, list.length + i, 1,
                           list.length[i]};
            kernels->accumulate(&one, &w, before, scores, MOST_TOKENS);
        }
        group += list.length[i];
        last = list.row[i];
    }
    return by_pairs;
}

static float largest_difference(const float *q, const float *k) {
    double most = 0.0;
    for (uint32_t i = 0; i < list.rows; i++)
        for (uint32_t s = 0; s < tokens; s++) {
            double exact = 0.0;
            for (uint32_t f = 0; f < width; f++)
                exact += (double)q[list.row[i] * width + f] * k[s * width + f];
            double off = fabs(exact - scores[list.row[i] * MOST_TOKENS + s]);
            if (off > most) most = off;
        }
    return (float)most;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Its instructions are counted. */
__attribute__((noinline)) uint32_t score_products(const float *q, const float *k, float break_even);
uint32_t score_products(const float *q, const float *k, float break_even) {
    if (break_even > 0.0f) return multiply_mixed(q, k, break_even);
    multiply_rows(q, k);
    return 0;
}

int main(int given, char **argument) {
    FILE *file = given == 6 ? fopen(argument[1], "rb") : NULL;
    uint32_t sizes[3];
    if (!file || fread(sizes, sizeof sizes, 1, file) != 1) return 2;
    tokens = sizes[1];
    width = sizes[2];
    size_t each = 2 * (size_t)tokens * width;
    float *floats = malloc(sizes[0] * each * sizeof *floats);
    if (!floats || tokens > MOST_TOKENS || width > MOST_WIDTH) return 2;
    if (fread(floats, sizeof *floats, sizes[0] * each, file) != sizes[0] * each) return 2;
    for (int isa = 0; isa < DK_ISAS; isa++)
        if (!strcmp(argument[2], dk_isa_name(isa))) kernels = dk_kernels_for(isa);
    if (!kernels) return 2;
    float break_even = !strcmp(argument[3], "rows")    ? 0.0f
                       : !strcmp(argument[3], "pairs") ? 1e9f
                                                       : (float)atof(argument[5]);
    double best_sum = 0.0;
    float most = 0.0f;
    uint64_t pairs = 0, rows = 0;
    for (uint32_t i = 0; i < sizes[0]; i++) {
        const float *q = floats + i * each, *k = q + each / 2;
        double best = 1e18;
        list_query_changes(q);
        uint32_t used = 0;
        for (int round = 0; round < atoi(argument[4]); round++) {
            double began = now_ns();
            used = score_products(q, k, break_even);
            double took = now_ns() - began;
            if (took < best) best = took;
        }
        best_sum += best;
        pairs += used;
        rows += list.rows;
        float off = largest_difference(q, k);
        if (off > most) most = off;
    }
    printf("%.1f %g %.1f\n", best_sum / sizes[0], most,
           rows ? 100.0 * (double)pairs / (double)rows : 0.0);
    return 0;
}
