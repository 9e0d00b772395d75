/* WebAssembly with 128-bit vectors: eight lanes of 16 bits. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <wasm_simd128.h>

#define KERNEL(name) wasm_##name
#define LANES 8
/* Browsers on x86 have sixteen vector registers. */
#define TILE_16 2
#define BLOCK_16 4

typedef v128_t vi, vs, vq;

/* Relaxed instructions may differ only for -32768 times itself, which the arithmetic excludes, and
 * for masks whose lanes are not all ones or zeros. */
#ifdef __wasm_relaxed_simd__
static inline vi v_q15(vi a, vi b) { return wasm_i16x8_relaxed_q15mulr(a, b); }
static inline vi v_select(vi m, vi a, vi b) { return wasm_i16x8_relaxed_laneselect(a, b, m); }
#else
static inline vi v_q15(vi a, vi b) { return wasm_i16x8_q15mulr_sat(a, b); }
static inline vi v_select(vi m, vi a, vi b) { return wasm_v128_bitselect(a, b, m); }
#endif

static inline vi v_load(const int16_t *p) { return wasm_v128_load(p); }
static inline void v_store(int16_t *p, vi a) { wasm_v128_store(p, a); }
static inline vi v_set(int16_t a) { return wasm_i16x8_splat(a); }
static inline vi v_zero(void) { return wasm_i16x8_splat(0); }
static inline vi v_add(vi a, vi b) { return wasm_i16x8_add(a, b); }
static inline vi v_sum(vi s, vi p) { return wasm_i16x8_add(s, p); }
static inline vi v_sub(vi a, vi b) { return wasm_i16x8_sub(a, b); }
static inline vi v_adds(vi a, vi b) { return wasm_i16x8_add_sat(a, b); }
static inline vi v_subs(vi a, vi b) { return wasm_i16x8_sub_sat(a, b); }
static inline vi v_max(vi a, vi b) { return wasm_i16x8_max(a, b); }
static inline vi v_min(vi a, vi b) { return wasm_i16x8_min(a, b); }
static inline vi v_max_size(vi p, vi a) { return wasm_u16x8_max(p, wasm_i16x8_abs(a)); }
static inline vi v_least_size(vi a, vi b) { return wasm_u16x8_min(wasm_i16x8_abs(a), b); }
static inline vi v_and(vi a, vi b) { return wasm_v128_and(a, b); }

static inline vi v_left(vi a, uint32_t bits) { return wasm_i16x8_shl(a, bits); }
static inline vi v_right(vi a, uint32_t bits) { return wasm_u16x8_shr(a, bits); }
static inline vi v_right_signed(vi a, uint32_t bits) { return wasm_i16x8_shr(a, bits); }

static inline uint32_t v_largest_size(vi a) {
    a = wasm_u16x8_max(a, wasm_i64x2_shuffle(a, a, 1, 0));
    a = wasm_u16x8_max(a, wasm_i32x4_shuffle(a, a, 1, 0, 3, 2));
    uint32_t two = wasm_u32x4_extract_lane(a, 0), low = two & 0xffff, high = two >> 16;
    return low > high ? low : high;
}
static inline int32_t v_largest(vi a) {
    return (int32_t)v_largest_size(wasm_v128_xor(a, v_set(-32768))) - 32768;
}

static inline vi v_within(vi d, vi theta) { return wasm_u16x8_le(wasm_i16x8_abs(d), theta); }
static inline uint32_t v_kept_bits(vi a, vi b) {
    return ~(uint32_t)wasm_i8x16_bitmask(wasm_i8x16_narrow_i16x8(a, b)) & 0xffff;
}
static inline vi v_first(uint32_t n) {
    return wasm_i16x8_lt(wasm_i16x8_make(0, 1, 2, 3, 4, 5, 6, 7), v_set((int16_t)n));
}

/* By a product with 2^(15 - n) from a table of bytes. 2^15 reads as -32768, so q is negative: the
 * product of the two is q itself, negative, hence the magnitude. Indices above 15 read zero. */
static inline vi v_halve(vi q, vi n) {
    const v128_t powers =
        wasm_i8x16_make(0, 0, 0, 0, 0, 0, 0, 0, (int8_t)0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1);
    v128_t index = wasm_v128_or(n, wasm_i16x8_shl(n, 8));
    index = wasm_v128_xor(index, wasm_i16x8_splat(0x0800));
    return wasm_i16x8_abs(v_q15(q, wasm_i8x16_swizzle(powers, index)));
}

static inline vs s_zero(void) { return wasm_i32x4_splat(0); }
static inline vs s_add_sum(vs s, vi a) {
    return wasm_i32x4_add(s, wasm_i32x4_extadd_pairwise_i16x8(a));
}
static inline int32_t s_total(vs s) {
    s = wasm_i32x4_add(s, wasm_i64x2_shuffle(s, s, 1, 0));
    return wasm_i32x4_extract_lane(s, 0) + wasm_i32x4_extract_lane(s, 1);
}

static inline vq q_zero(void) { return wasm_i64x2_splat(0); }
static inline vq q_add_squares(vq q, vi a) { /* two squares are at most 2^31: unsigned 32 bits */
    v128_t squares = wasm_i32x4_dot_i16x8(a, a);
    q = wasm_i64x2_add(q, wasm_u64x2_extend_low_u32x4(squares));
    return wasm_i64x2_add(q, wasm_u64x2_extend_high_u32x4(squares));
}
static inline uint64_t q_total(vq q) {
    return (uint64_t)wasm_i64x2_extract_lane(q, 0) + (uint64_t)wasm_i64x2_extract_lane(q, 1);
}

static inline vi s_pair(const int16_t *p) { return wasm_v128_load32_splat(p); }
static inline vs s_add_products(vs s, vi x, vi w) {
    return wasm_i32x4_add(s, wasm_i32x4_dot_i16x8(x, w));
}
static inline vi s_narrow(vs low, vs high, uint32_t shift) {
    const v128_t half = wasm_i32x4_splat(1 << shift >> 1);
    low = wasm_i32x4_shr(wasm_i32x4_add(low, half), shift);
    high = wasm_i32x4_shr(wasm_i32x4_add(high, half), shift);
    return wasm_i16x8_narrow_i32x4(low, high);
}
static inline vi v_scaled(vi a, vi b, uint32_t shift) {
    return s_narrow(wasm_i32x4_extmul_low_i16x8(a, b), wasm_i32x4_extmul_high_i16x8(a, b), shift);
}

static inline void v_store_eights(int16_t *p, size_t step, vi a) {
    (void)step;
    wasm_v128_store(p, a);
}
static inline void fill_eight(int16_t *p, int16_t a) { wasm_v128_store(p, wasm_i16x8_splat(a)); }
static inline vi v_zip_low(vi a, vi b) {
    return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
static inline vi v_zip_high(vi a, vi b) {
    return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

#include "fixed_vector.inc.h"

const dk_fixed_kernels dk_fixed_wasm = KERNEL_TABLE;
