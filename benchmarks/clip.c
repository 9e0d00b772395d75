/* Runs one clip once, for an instruction counter: clip FILE [dense]
 *
 * FILE, as benchmarks/reach.py writes it: seven uint32 of the configuration, the tensors, the
 * features and the thresholds as floats, all in this machine's byte order. */
#include "deltakwt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float *take(const float **at, size_t count) {
    const float *here = *at;
    *at += count;
    return here;
}

int main(int count, char **arguments) {
    FILE *file = count > 1 ? fopen(arguments[1], "rb") : NULL;
    if (!file) return 2;
    dk_config c;
    if (fread(&c, sizeof c, 1, file) != 1) return 2;
    long start = ftell(file);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)(ftell(file) - start);
    fseek(file, start, SEEK_SET);
    float *floats = malloc(bytes);
    if (!floats || fread(floats, 1, bytes, file) != bytes) return 2;

    size_t d = c.dim, m = c.mlp;
    const size_t sizes[DK_BLOCK_TENSORS] = {d * d, d * d, d * d, d * d, d, d, d,
                                            d * m, m,     m * d, d,     d, d};
    const float *at = floats, **tensors = malloc(dk_tensor_count(&c) * sizeof *tensors);
    size_t n = 0;
    tensors[n++] = take(&at, c.features * d);
    tensors[n++] = take(&at, d);
    tensors[n++] = take(&at, d);
    tensors[n++] = take(&at, (c.frames + 1) * d);
    for (uint32_t layer = 0; layer < c.layers; layer++)
        for (int i = 0; i < DK_BLOCK_TENSORS; i++) tensors[n++] = take(&at, sizes[i]);
    tensors[n++] = take(&at, d * c.labels);
    tensors[n++] = take(&at, c.labels);
    const float *features = take(&at, c.frames * c.features), *thresholds = at;

    size_t model_size = dk_model_size(&c), scratch_size = dk_scratch_size(&c);
    void *memory = malloc(model_size), *scratch = malloc(scratch_size);
    float *logits = malloc(c.labels * sizeof *logits);
    const dk_model *model;
    if (!memory || !scratch || !logits ||
        dk_model_init(memory, model_size, &c, tensors, DK_SCALAR, &model))
        return 1;
    int dense = count > 2 && !strcmp(arguments[2], "dense");
    return dk_run(model, features, dense ? NULL : thresholds, scratch, scratch_size, logits, NULL);
}
