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
typedef __m128i v8;

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
    vi index = _mm256_or_si256(n, _mm256_slli_epi16(n, 8));     /* the same for both bytes, but */
    index = _mm256_xor_si256(index, _mm256_set1_epi16(0x0800)); /* the high one eight further on */
    index = _mm256_add_epi16(index, _mm256_set1_epi16(0x7070)); /* bit 7 of an index reads zero */
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

static inline v8 w_load(const int16_t *p) { return _mm_loadu_si128((const __m128i *)p); }
static inline void w_store(int16_t *p, v8 a) { _mm_storeu_si128((__m128i *)p, a); }
static inline v8 w_set(int16_t a) { return _mm_set1_epi16(a); }
static inline v8 w_q15(v8 a, v8 b) { return _mm_mulhrs_epi16(a, b); }
static inline v8 w_max(v8 a, v8 b) { return _mm_max_epi16(a, b); }
static inline v8 w_zip_low(v8 a, v8 b) { return _mm_unpacklo_epi16(a, b); }
static inline v8 w_zip_high(v8 a, v8 b) { return _mm_unpackhi_epi16(a, b); }
