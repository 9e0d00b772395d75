/* The logits of many clips on one target, as one number for each of its instruction sets. Run by
 * `python benchmarks/fixed_targets.py`, which writes the file.
 *   fixed_logits < FILE
 */
#include "fixed_file.h"

/* FNV-1a over the integers of all logits, settings first, then clips. */
static uint64_t checksum(const fixed_file *f, dk_isa isa) {
    const dk_config *c = &f->config;
    size_t size = dk_fixed_model_size(c), scratch_size = dk_fixed_scratch_size(c);
    void *memory = malloc(size), *scratch = malloc(scratch_size);
    int32_t *logits = (int32_t *)malloc(c->labels * sizeof *logits);
    const dk_fixed_model *model;
    uint64_t hash = 14695981039346656037u;
    if (!memory || !scratch || !logits) exit(2);
    if (dk_fixed_init(memory, size, c, &f->source, isa, &model)) exit(2);
    for (uint32_t s = 0; s < f->settings; s++)
        for (uint32_t i = 0; i < f->count; i++) {
            const int16_t *clip = f->clips + (size_t)i * c->frames * c->features;
            const int32_t *thresholds = f->thresholds + (size_t)s * c->layers * DK_SITES;
            if (dk_fixed_run(model, clip, thresholds, scratch, scratch_size, logits, NULL)) exit(2);
            for (uint32_t j = 0; j < c->labels; j++)
                hash = (hash ^ (uint32_t)logits[j]) * 1099511628211u;
        }
    free(memory), free(scratch), free(logits);
    return hash;
}

int main(void) {
    const fixed_file f = read_file(stdin);
    for (int isa = 0; isa < DK_ISAS; isa++)
        if (dk_isa_available((dk_isa)isa))
            printf("%s %016llx\n", dk_isa_name((dk_isa)isa),
                   (unsigned long long)checksum(&f, (dk_isa)isa));
    return 0;
}
