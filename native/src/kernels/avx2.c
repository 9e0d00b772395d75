/* x86-64 with AVX2, FMA and F16C: eight lanes, sixteen registers. */
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL(name) avx2_##name
#define LANES 8
#define TILE_ROWS 6
#define TILE_VECTORS(rows) ((rows) > 3 ? 2u : (rows) > 1 ? 4u : 8u)
#define BLOCK_VECTORS 13
#define MANY_VECTORS 12
#define PANEL_FLOATS 32 /* with the 192 inputs of KWT-3, 24 KB */
#define PANEL_HALVES 64

typedef __m256 vf;
typedef __m256 vm;

static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf v_load_halves(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline vf v_set(float a) { return _mm256_set1_ps(a); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }

static inline __m256i first_lanes(uint32_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
static inline vf v_load_n(const float *p, uint32_t n, float fill) {
    __m256i wanted = first_lanes(n);
    return _mm256_blendv_ps(v_set(fill), _mm256_maskload_ps(p, wanted),
                            _mm256_castsi256_ps(wanted));
}
static inline void v_store_n(float *p, vf a, uint32_t n) {
    _mm256_maskstore_ps(p, first_lanes(n), a);
}

static inline float v_sum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float v_largest(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vm v_beyond(vf a, vf limit) {
    return _mm256_cmp_ps(_mm256_andnot_ps(v_set(-0.0f), a), limit, _CMP_GT_OQ);
}
static inline vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
static inline vm v_first(uint32_t n) { return _mm256_castsi256_ps(first_lanes(n)); }
static inline uint32_t v_bits(vm m) { return (uint32_t)_mm256_movemask_ps(m); }
static inline uint32_t v_count(uint32_t bits) { return (uint32_t)_mm_popcnt_u32(bits); }
static inline void v_tally(uint32_t *counts, vm m) {
    __m256i *at = (__m256i *)counts;
    _mm256_storeu_si256(at, _mm256_sub_epi32(_mm256_loadu_si256(at), _mm256_castps_si256(m)));
}

/* Entry b lists the set bits of b from the low end, a byte each. */
static const uint64_t SET_BITS[256] = {
#include "set_bits.inc.h"
};

typedef __m128i vn; /* the first number, eight times; SET_BITS adds the lane */
static inline vn v_number(uint32_t base) { return _mm_set1_epi16((short)base); }
static inline vn v_next(vn numbers) { return _mm_add_epi16(numbers, _mm_set1_epi16(LANES)); }

static inline uint32_t v_keep(vf a, vn numbers, uint32_t bits, float *value, uint16_t *index) {
    __m128i lanes = _mm_loadl_epi64((const __m128i *)&SET_BITS[bits]);
    v_store(value, _mm256_permutevar8x32_ps(a, _mm256_cvtepu8_epi32(lanes)));
    _mm_storeu_si128((__m128i *)index, _mm_add_epi16(_mm_cvtepu8_epi16(lanes), numbers));
    return v_count(bits);
}

static inline void v_set_four(const float *p, vf x[4]) {
    vf four = _mm256_broadcast_ps((const __m128 *)p);
    x[0] = _mm256_permute_ps(four, 0x00);
    x[1] = _mm256_permute_ps(four, 0x55);
    x[2] = _mm256_permute_ps(four, 0xaa);
    x[3] = _mm256_permute_ps(four, 0xff);
}

/* The integer in the low mantissa bits of n is added to the exponent of p. */
static inline vf v_scale(vf p, vf n) {
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

static inline vf v_split(vf x, vf *e) {
    const __m256i root = _mm256_set1_epi32(0x3f3504f3); /* sqrt(1/2) */
    __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(x), root);
    __m256i power = _mm256_srai_epi32(bits, 23);
    *e = _mm256_cvtepi32_ps(power);
    return _mm256_castsi256_ps(
        _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(power, 23)));
}

static inline void v_transpose(vf rows[8]) {
    vf t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

#include "vector.inc.h"

const dk_kernels dk_avx2 = KERNEL_TABLE("avx2");
