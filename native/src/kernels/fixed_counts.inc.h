/* Counting of kept features, in plain C: each set of kernels compiles it with its own flags. */

/* The eight bits of a byte as the bytes of a word, each 0 or 1. */
static inline uint64_t spread_bits(uint64_t byte) {
    uint64_t bits = byte * 0x0101010101010101u & 0x8040201008040201u;
    return (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/* A full adder in each of 64 lanes: a + b + c = sum + 2 * carry. */
static inline uint64_t add3(uint64_t a, uint64_t b, uint64_t c, uint64_t *carry) {
    uint64_t half = a ^ b;
    *carry = (a & b) | (half & c);
    return half ^ c;
}

enum { PLANES = 8, MOST_COUNTED = (1 << PLANES) - 1 };

/* Adds seven masks to counters of eight bits, of which each plane holds one bit. */
static inline void add_masks(const uint64_t *m, uint64_t *planes) {
    uint64_t two[3], four[2], carry;
    uint64_t sum = add3(m[0], m[1], m[2], &two[0]);
    sum = add3(sum, m[3], m[4], &two[1]);
    sum = add3(sum, m[5], m[6], &two[2]);
    planes[0] = add3(planes[0], sum, 0, &carry);
    uint64_t twos = add3(two[0], two[1], two[2], &four[0]);
    planes[1] = add3(planes[1], twos, carry, &four[1]);
    planes[2] = add3(planes[2], four[0], four[1], &carry);
    for (uint32_t i = 3; i < PLANES; i++) planes[i] = add3(planes[i], carry, 0, &carry);
}

/* One word of the mask of row t. It is computed for unchanged rows too: a branch takes longer. */
static inline uint64_t mask_of(const dk_changes *c, uint32_t t, uint32_t w) {
    return c->mask[(size_t)t * c->words + w] & (0 - (uint64_t)(c->changed[t] != 0));
}

/* Adds to `counts` what word w of the masks keeps in rows first .. end-1: at most MOST_COUNTED
 * rows, so that no counter overflows. */
static void count_features(const dk_changes *c, uint32_t w, uint32_t first, uint32_t end,
                           uint32_t *counts) {
    uint64_t planes[PLANES] = {0}, some[7];
    uint32_t t = first;
    for (; end - t >= 7; t += 7) {
        for (uint32_t i = 0; i < 7; i++) some[i] = mask_of(c, t + i, w);
        add_masks(some, planes);
    }
    for (uint32_t i = 0; i < 7; i++) some[i] = t + i < end ? mask_of(c, t + i, w) : 0;
    add_masks(some, planes);
    for (uint32_t k = 0; k < 8 && 64 * w + 8 * k < c->stride; k++) {
        uint64_t sums = 0; /* a byte for each of eight features */
        for (uint32_t i = 0; i < PLANES; i++) sums += spread_bits(planes[i] >> 8 * k & 0xff) << i;
        for (uint32_t f = 0; f < 8; f++) counts[64 * w + 8 * k + f] += sums >> 8 * f & 0xff;
    }
}

static int64_t count_kept(const dk_changes *c, uint32_t *counts) {
    int64_t kept = 0;
    for (uint32_t t = c->first; t < c->rows; t++)
        for (uint32_t w = 0; w < c->words; w++) kept += dk_bit_count(mask_of(c, t, w));
    for (uint32_t w = 0; counts && w < c->words; w++)
        for (uint32_t t = c->first; t < c->rows; t += MOST_COUNTED)
            count_features(c, w, t, c->rows - t < MOST_COUNTED ? c->rows : t + MOST_COUNTED,
                           counts);
    return kept;
}
