/* Counting of kept features, in plain C: each set of kernels compiles it with its own flags. */

/* The eight bits of a byte as the bytes of a word, each 0 or 1. */
static inline uint64_t spread_bits(uint64_t byte) {
    uint64_t bits = byte * 0x0101010101010101u & 0x8040201008040201u;
    return (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/* One word of the masks of rows first .. end-1, of which there are fewer than 256. */
static void count_features(const dk_changes *c, uint32_t w, uint32_t first, uint32_t end,
                           uint32_t *counts) {
    uint64_t sums[8] = {0}; /* a byte for each feature */
    for (uint32_t t = first; t < end; t++) {
        if (!c->changed[t]) continue;
        uint64_t mask = c->mask[(size_t)t * c->words + w];
        for (uint32_t k = 0; k < 8; k++) sums[k] += spread_bits(mask >> 8 * k & 0xff);
    }
    for (uint32_t f = 0; f < 64 && 64 * w + f < c->stride; f++)
        counts[64 * w + f] += sums[f / 8] >> f % 8 * 8 & 0xff;
}

static int64_t count_kept(const dk_changes *c, uint32_t *counts) {
    int64_t kept = 0;
    for (uint32_t t = c->first; t < c->rows; t++)
        for (uint32_t w = 0; c->changed[t] && w < c->words; w++)
            kept += dk_bit_count(c->mask[(size_t)t * c->words + w]);
    for (uint32_t w = 0; counts && w < c->words; w++)
        for (uint32_t t = c->first; t < c->rows; t += 255)
            count_features(c, w, t, c->rows - t < 255 ? c->rows : t + 255, counts);
    return kept;
}
