/* The primitives of fixed_vector.inc.h in 256 bits: for AVX2, and for most of AVX-512. */
#define LANES 16

#ifdef __GNUC__ /* whose own function extends the result to 64 bits once more */
#define LOWEST_BIT
static inline size_t lowest_bit(uint64_t x) { /* x > 0 */
    size_t bit;
    __asm__("tzcnt %1, %0" : "=r"(bit) : "r"(x) : "cc");
    return bit;
}
#endif

typedef __m256i vi, vs, vq;

static inline vi v_load(const int16_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void v_store(int16_t *p, vi a) { _mm256_storeu_si256((__m256i *)p, a); }
static inline vi v_set(int16_t a) { return _mm256_set1_epi16(a); }
static inline vi v_zero(void) { return _mm256_setzero_si256(); }
static inline vi v_add(vi a, vi b) { return _mm256_add_epi16(a, b); }
static inline vi v_sub(vi a, vi b) { return _mm256_sub_epi16(a, b); }
static inline vi v_adds(vi a, vi b) { return _mm256_adds_epi16(a, b); }
static inline vi v_subs(vi a, vi b) { return _mm256_subs_epi16(a, b); }
static inline vi v_q15(vi a, vi b) { return _mm256_mulhrs_epi16(a, b); }
static inline vi v_max(vi a, vi b) { return _mm256_max_epi16(a, b); }
static inline vi v_min(vi a, vi b) { return _mm256_min_epi16(a, b); }
static inline vi v_max_size(vi p, vi a) { return _mm256_max_epu16(p, _mm256_abs_epi16(a)); }
static inline vi v_least_size(vi a, vi b) { return _mm256_min_epu16(_mm256_abs_epi16(a), b); }
static inline vi v_select(vi m, vi a, vi b) { return _mm256_blendv_epi8(b, a, m); }
static inline vi v_and(vi a, vi b) { return _mm256_and_si256(a, b); }

static inline vi v_sum(vi s, vi p) {
#if defined(__GNUC__) &&                                                                           \
    !defined(__clang__) /* which else copies the sums from register to register */
    __asm__("vpaddw %1, %0, %0" : "+x"(s) : "x"(p));
    return s;
#else
    return v_add(s, p);
#endif
}

static inline __m128i count_of(uint32_t bits) { return _mm_cvtsi32_si128((int)bits); }
static inline vi v_left(vi a, uint32_t bits) { return _mm256_sll_epi16(a, count_of(bits)); }
static inline vi v_right(vi a, uint32_t bits) { return _mm256_srl_epi16(a, count_of(bits)); }
static inline vi v_right_signed(vi a, uint32_t bits) { return _mm256_sra_epi16(a, count_of(bits)); }

static inline uint32_t v_largest_size(vi a) { /* by the instruction for the smallest of eight */
    __m128i half = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return 0xffffu - (uint32_t)_mm_extract_epi16(half, 0);
}
static inline int32_t v_largest(vi a) {
    vi shifted = _mm256_xor_si256(a, _mm256_set1_epi16(-32768)); /* as unsigned, in order */
    return (int32_t)v_largest_size(shifted) - 32768;
}

static inline vi v_within(vi d, vi theta) {
    return _mm256_cmpeq_epi16(_mm256_subs_epu16(_mm256_abs_epi16(d), theta), v_zero());
}
static inline uint32_t v_kept_bits(vi a, vi b) {
    vi packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
    return ~(uint32_t)_mm256_movemask_epi8(packed);
}
static inline vi v_first(uint32_t n) {
    const vi lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm256_cmpgt_epi16(v_set((int16_t)n), lane);
}

/* By a product with 2^(15 - n) from a table of bytes. 2^15 reads as -32768: hence the magnitude. */
static inline vi v_halve(vi q, vi n) {
    const vi powers = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, (char)0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1));
    /* The low byte of a power is found at n, the high one eight further on; bit 7 of an index, as
     * of those from 16 on, reads zero. */
    vi index = _mm256_mullo_epi16(n, _mm256_set1_epi16(0x0101));
    index = _mm256_add_epi16(index, _mm256_set1_epi16(0x7870));
    return _mm256_abs_epi16(v_q15(q, _mm256_shuffle_epi8(powers, index)));
}

static inline vs s_zero(void) { return _mm256_setzero_si256(); }
static inline vs s_add_sum(vs s, vi a) {
    return _mm256_add_epi32(s, _mm256_madd_epi16(a, _mm256_set1_epi16(1)));
}
static inline int32_t s_total(vs s) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

static inline vq q_zero(void) { return _mm256_setzero_si256(); }
static inline vq q_add_squares(vq q, vi a) { /* two squares are at most 2^31: unsigned 32 bits */
    vi squares = _mm256_madd_epi16(a, a);
    vi even = _mm256_and_si256(squares, _mm256_set1_epi64x(0xffffffff));
    return _mm256_add_epi64(q, _mm256_add_epi64(even, _mm256_srli_epi64(squares, 32)));
}
static inline uint64_t q_total(vq q) {
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    half = _mm_add_epi64(half, _mm_unpackhi_epi64(half, half));
    return (uint64_t)_mm_cvtsi128_si64(half);
}

/* LayerNorm of eight rows of 64 at a time. If no centred value is larger than SMALL_SQUARES, 32
 * bits without a sign are enough for the squares in each lane of a row. */
#define SMALL_SQUARES 23170
static inline vs s_add_squares(vs s, vi a) { return _mm256_add_epi32(s, _mm256_madd_epi16(a, a)); }

static inline void s_totals(const vs *s, int32_t *totals) {
    vs a = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    vs b = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    vs low = _mm256_permute2x128_si256(a, b, 0x20), high = _mm256_permute2x128_si256(a, b, 0x31);
    _mm256_storeu_si256((__m256i *)totals, _mm256_add_epi32(low, high));
}

/* The sums of the squares of four rows, in 64 bits. */
static inline __m256i square_totals(const vs *s) {
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i q[4], two[2];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_add_epi64(_mm256_and_si256(s[i], low), _mm256_srli_epi64(s[i], 32));
    for (int i = 0; i < 2; i++)
        two[i] = _mm256_add_epi64(_mm256_unpacklo_epi64(q[2 * i], q[2 * i + 1]),
                                  _mm256_unpackhi_epi64(q[2 * i], q[2 * i + 1]));
    return _mm256_add_epi64(_mm256_permute2x128_si256(two[0], two[1], 0x20),
                            _mm256_permute2x128_si256(two[0], two[1], 0x31));
}

/* dk_scale_total of four totals below 2^52: the bit length is the exponent of a double. */
static inline __m256i scale_totals(__m256i totals, __m256i *p) {
    const __m256i magic = _mm256_set1_epi64x(0x4330000000000000); /* 2^52 */
    __m256d d = _mm256_castsi256_pd(_mm256_or_si256(totals, magic));
    d = _mm256_sub_pd(d, _mm256_castsi256_pd(magic));
    __m256i length = _mm256_srli_epi64(_mm256_castpd_si256(d), 52); /* 1022 more than that */
    *p = _mm256_srai_epi32(_mm256_sub_epi32(_mm256_set1_epi64x(30 + 1022), length), 1);
    __m256i left = _mm256_slli_epi32(*p, 1), right = _mm256_sub_epi32(_mm256_setzero_si256(), left);
    return _mm256_or_si256(_mm256_sllv_epi64(totals, left), /* a negative count gives zero */
                           _mm256_srlv_epi64(totals, right));
}

/* The lower halves of eight numbers of 64 bits. */
static inline __m256i lower_halves(__m256i a, __m256i b) {
    __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8);
}

/* dk_scale_total of eight rows, whose squares are still to be added up. */
static inline void s_scale_totals(const vs *s, uint32_t epsilon, uint32_t *scaled, int32_t *p) {
    const __m256i more = _mm256_set1_epi64x(epsilon);
    __m256i power[2], total[2];
    for (int i = 0; i < 2; i++)
        total[i] = scale_totals(_mm256_add_epi64(square_totals(s + 4 * i), more), &power[i]);
    _mm256_storeu_si256((__m256i *)p, lower_halves(power[0], power[1]));
    _mm256_storeu_si256((__m256i *)scaled, lower_halves(total[0], total[1]));
}

static inline vi s_pair(const int16_t *p) {
    int32_t two;
    memcpy(&two, p, sizeof two);
    return _mm256_set1_epi32(two);
}
static inline vs s_add_products(vs s, vi x, vi w) {
    return _mm256_add_epi32(s, _mm256_madd_epi16(x, w));
}
static inline vs rounded_shift(vs a, uint32_t shift) {
    const vs half = _mm256_set1_epi32(1 << shift >> 1);
    return _mm256_sra_epi32(_mm256_add_epi32(a, half), count_of(shift));
}
static inline vi s_narrow(vs low, vs high, uint32_t shift) {
    vi packed = _mm256_packs_epi32(rounded_shift(low, shift), rounded_shift(high, shift));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}
static inline vi v_scaled(vi a, vi b, uint32_t shift) {
    vi low = _mm256_mullo_epi16(a, b), high = _mm256_mulhi_epi16(a, b);
    vs first = _mm256_unpacklo_epi16(low, high), second = _mm256_unpackhi_epi16(low, high);
    return _mm256_packs_epi32(rounded_shift(first, shift), rounded_shift(second, shift));
}

/* Eight rows of sixteen columns are transposed as two squares side by side. */
static inline vi v_zip_low(vi a, vi b) { return _mm256_unpacklo_epi16(a, b); }
static inline vi v_zip_high(vi a, vi b) { return _mm256_unpackhi_epi16(a, b); }
static inline void v_store_eights(int16_t *p, size_t step, vi a) {
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(a));
    _mm_storeu_si128((__m128i *)(p + 8 * step), _mm256_extracti128_si256(a, 1));
}
static inline void fill_eight(int16_t *p, int16_t a) {
    _mm_storeu_si128((__m128i *)p, _mm_set1_epi16(a));
}
