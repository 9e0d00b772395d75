/* x86-64 with AVX-512 F, DQ, BW and VL: sixteen lanes, thirty-two registers. */
#ifdef DK_AVX512_HEADER /* the instructions emulated, to test this file on any processor */
#include DK_AVX512_HEADER
#else
#include <immintrin.h>
#endif
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL(name) avx512_##name
#define LANES 16
#define TILE_ROWS 6
#define TILE_VECTORS(rows) ((rows) > 2 ? 4u : (rows) > 1 ? 6u : 12u)
#define BLOCK_VECTORS 8 /* 128 columns of weights, which a first-level cache holds */
#define MANY_VECTORS 16
#define PANEL_FLOATS 64 /* four vectors, and two sums of each: fewer would wait for each other */
#define PANEL_HALVES 64

typedef __m512 vf;
typedef __mmask16 vm;

static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf v_load_halves(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf v_set(float a) { return _mm512_set1_ps(a); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }

static inline __mmask16 first_lanes(uint32_t n) { return (__mmask16)((1u << n) - 1u); }
static inline vf v_load_n(const float *p, uint32_t n, float fill) {
    return _mm512_mask_loadu_ps(v_set(fill), first_lanes(n), p);
}
static inline void v_store_n(float *p, vf a, uint32_t n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), a);
}

static inline float v_sum(vf a) {
    a = _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    __m128 s = _mm512_castps512_ps128(a);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float v_largest(vf a) {
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    __m128 s = _mm512_castps512_ps128(a);
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vm v_beyond(vf a, vf limit) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), limit, _CMP_GT_OQ);
}
static inline vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
static inline vm v_first(uint32_t n) { return first_lanes(n); }
static inline uint32_t v_bits(vm m) { return m; }
static inline uint32_t v_count(uint32_t bits) { return (uint32_t)_mm_popcnt_u32(bits); }
static inline void v_tally(uint32_t *counts, vm m) {
    __m512i old = _mm512_loadu_si512(counts);
    _mm512_storeu_si512(counts, _mm512_mask_add_epi32(old, m, old, _mm512_set1_epi32(1)));
}

typedef __m512i vn;
static inline vn v_number(uint32_t base) {
    return _mm512_add_epi32(
        _mm512_set1_epi32((int)base),
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
static inline vn v_next(vn numbers) { return _mm512_add_epi32(numbers, _mm512_set1_epi32(LANES)); }

/* Compress in a register and store all of it: the compressing store is slow on some processors. */
static inline uint32_t v_keep(vf a, vn numbers, uint32_t bits, float *value, uint16_t *index) {
    v_store(value, _mm512_maskz_compress_ps((__mmask16)bits, a));
    numbers = _mm512_maskz_compress_epi32((__mmask16)bits, numbers);
    _mm256_storeu_si256((__m256i *)index, _mm512_cvtepi32_epi16(numbers));
    return v_count(bits);
}

static inline void v_set_four(const float *p, vf x[4]) {
    vf four = _mm512_broadcast_f32x4(_mm_loadu_ps(p));
    x[0] = _mm512_permute_ps(four, 0x00);
    x[1] = _mm512_permute_ps(four, 0x55);
    x[2] = _mm512_permute_ps(four, 0xaa);
    x[3] = _mm512_permute_ps(four, 0xff);
}

/* The integer in the low mantissa bits of n is added to the exponent of p. */
static inline vf v_scale(vf p, vf n) {
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
}

static inline vf v_split(vf x, vf *e) {
    const __m512i root = _mm512_set1_epi32(0x3f3504f3); /* sqrt(1/2) */
    __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(x), root);
    __m512i power = _mm512_srai_epi32(bits, 23);
    *e = _mm512_cvtepi32_ps(power);
    return _mm512_castsi512_ps(
        _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(power, 23)));
}

static inline void v_transpose(vf rows[16]) {
    vf t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 blocks transposed within each quarter */
        u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) { /* the quarters themselves */
        t[i] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        rows[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        rows[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#include "vector.inc.h"

const dk_kernels dk_avx512 = KERNEL_TABLE("avx512");
