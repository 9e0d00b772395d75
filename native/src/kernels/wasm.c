/* WebAssembly: four lanes. An engine maps them to 16 registers on x86-64 and 32 on aarch64; the
 * blocks are sized for 16, of which an engine keeps one for itself. With relaxed SIMD, a
 * multiply-add is one instruction. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <wasm_simd128.h>

#define KERNEL(name) wasm_##name
#define LANES 4
#define TILE_ROWS 4
#define TILE_VECTORS(rows) ((rows) > 3 ? 2u : (rows) > 2 ? 3u : (rows) > 1 ? 4u : 8u)
#define BLOCK_VECTORS 8
#define MANY_VECTORS 8
#define PANEL_FLOATS 32
#define PANEL_HALVES 0 /* widening them costs more than it saves */

typedef v128_t vf;
typedef v128_t vm;

static inline vf v_load(const float *p) { return wasm_v128_load(p); }
static inline void v_store(float *p, vf a) { wasm_v128_store(p, a); }
static inline vf v_set(float a) { return wasm_f32x4_splat(a); }
static inline vf v_add(vf a, vf b) { return wasm_f32x4_add(a, b); }
static inline vf v_sub(vf a, vf b) { return wasm_f32x4_sub(a, b); }
static inline vf v_mul(vf a, vf b) { return wasm_f32x4_mul(a, b); }
static inline vf v_div(vf a, vf b) { return wasm_f32x4_div(a, b); }
#ifdef __wasm_relaxed_simd__
static inline vf v_fma(vf a, vf b, vf c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#else
static inline vf v_fma(vf a, vf b, vf c) { return wasm_f32x4_add(wasm_f32x4_mul(a, b), c); }
#endif
static inline vf v_sqrt(vf a) { return wasm_f32x4_sqrt(a); }
static inline vf v_min(vf a, vf b) { return wasm_f32x4_pmin(a, b); }
static inline vf v_max(vf a, vf b) { return wasm_f32x4_pmax(a, b); }

/* Half precision: the exponent is moved into place by a multiplication, which is exact. */
static inline vf v_load_halves(const uint16_t *p) {
    vf wide = wasm_u32x4_load16x4(p);
    vf size = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_splat(0x7fff)), 13);
    vf sign = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_splat(0x8000)), 16);
    return wasm_v128_or(wasm_f32x4_mul(size, wasm_f32x4_splat(0x1p112f)), sign);
}

static inline vf v_load_n(const float *p, uint32_t n, float fill) {
    float lanes[4] = {fill, fill, fill, fill};
    for (uint32_t i = 0; i < n; i++) lanes[i] = p[i];
    return wasm_v128_load(lanes);
}
static inline void v_store_n(float *p, vf a, uint32_t n) {
    float lanes[4];
    wasm_v128_store(lanes, a);
    for (uint32_t i = 0; i < n; i++) p[i] = lanes[i];
}

static inline float v_sum(vf a) {
    vf pairs = wasm_f32x4_add(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(pairs, 0) + wasm_f32x4_extract_lane(pairs, 1);
}
static inline float v_largest(vf a) {
    vf pairs = wasm_f32x4_pmax(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));
    float even = wasm_f32x4_extract_lane(pairs, 0), odd = wasm_f32x4_extract_lane(pairs, 1);
    return even > odd ? even : odd;
}

static inline vm v_beyond(vf a, vf limit) { return wasm_f32x4_gt(wasm_f32x4_abs(a), limit); }
static inline vf v_select(vm m, vf a, vf b) { return wasm_v128_bitselect(a, b, m); }
static inline vm v_first(uint32_t n) {
    return wasm_i32x4_lt(wasm_i32x4_make(0, 1, 2, 3), wasm_i32x4_splat((int32_t)n));
}
static inline uint32_t v_bits(vm m) { return (uint32_t)wasm_i32x4_bitmask(m); }
static inline uint32_t v_count(uint32_t bits) { return (uint32_t)__builtin_popcount(bits); }
static inline void v_tally(uint32_t *counts, vm m) {
    wasm_v128_store(counts, wasm_i32x4_sub(wasm_v128_load(counts), m));
}

typedef v128_t vn; /* eight 16-bit numbers, of which four count */
static inline vn v_number(uint32_t base) {
    return wasm_i16x8_add(wasm_i16x8_splat((int16_t)base), wasm_i16x8_make(0, 1, 2, 3, 0, 0, 0, 0));
}
static inline vn v_next(vn numbers) { return wasm_i16x8_add(numbers, wasm_i16x8_splat(LANES)); }

/* Entry b: the bytes that bring the lanes set in b to the front, of floats and of numbers. */
#define FLOAT_AT(l) 4 * (l), 4 * (l) + 1, 4 * (l) + 2, 4 * (l) + 3
#define FRONT(a, b, c, d) {FLOAT_AT(a), FLOAT_AT(b), FLOAT_AT(c), FLOAT_AT(d)}
#define NUMBER_AT(l) 2 * (l), 2 * (l) + 1
#define FRONT_16(a, b, c, d)                                                                       \
    {NUMBER_AT(a), NUMBER_AT(b), NUMBER_AT(c), NUMBER_AT(d), 16, 16, 16, 16, 16, 16, 16, 16}
#define ALL_FRONTS(F)                                                                              \
    {F(0, 0, 0, 0), F(0, 0, 0, 0), F(1, 0, 0, 0), F(0, 1, 0, 0), F(2, 0, 0, 0), F(0, 2, 0, 0),     \
     F(1, 2, 0, 0), F(0, 1, 2, 0), F(3, 0, 0, 0), F(0, 3, 0, 0), F(1, 3, 0, 0), F(0, 1, 3, 0),     \
     F(2, 3, 0, 0), F(0, 2, 3, 0), F(1, 2, 3, 0), F(0, 1, 2, 3)}
static const uint8_t FRONT_FLOATS[16][16] = ALL_FRONTS(FRONT);
static const uint8_t FRONT_NUMBERS[16][16] = ALL_FRONTS(FRONT_16);

static inline uint32_t v_keep(vf a, vn numbers, uint32_t bits, float *value, uint16_t *index) {
    wasm_v128_store(value, wasm_i8x16_swizzle(a, wasm_v128_load(FRONT_FLOATS[bits])));
    vn which = wasm_i8x16_swizzle(numbers, wasm_v128_load(FRONT_NUMBERS[bits]));
    wasm_v128_store64_lane(index, which, 0);
    return v_count(bits);
}

static inline void v_set_four(const float *p, vf x[4]) {
    for (int i = 0; i < 4; i++) x[i] = wasm_v128_load32_splat(p + i);
}

/* The integer in the low mantissa bits of n is added to the exponent of p. */
static inline vf v_scale(vf p, vf n) { return wasm_i32x4_add(p, wasm_i32x4_shl(n, 23)); }

static inline vf v_split(vf x, vf *e) {
    const vf root = wasm_i32x4_splat(0x3f3504f3); /* sqrt(1/2) */
    vf power = wasm_i32x4_shr(wasm_i32x4_sub(x, root), 23);
    *e = wasm_f32x4_convert_i32x4(power);
    return wasm_i32x4_sub(x, wasm_i32x4_shl(power, 23));
}

static inline void v_transpose(vf rows[4]) {
    vf a = wasm_i32x4_shuffle(rows[0], rows[1], 0, 4, 1, 5);
    vf b = wasm_i32x4_shuffle(rows[2], rows[3], 0, 4, 1, 5);
    vf c = wasm_i32x4_shuffle(rows[0], rows[1], 2, 6, 3, 7);
    vf d = wasm_i32x4_shuffle(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = wasm_i64x2_shuffle(a, b, 0, 2);
    rows[1] = wasm_i64x2_shuffle(a, b, 1, 3);
    rows[2] = wasm_i64x2_shuffle(c, d, 0, 2);
    rows[3] = wasm_i64x2_shuffle(c, d, 1, 3);
}

#include "vector.inc.h"

const dk_kernels dk_wasm = KERNEL_TABLE("wasm");
