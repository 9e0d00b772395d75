/* aarch64: four lanes, thirty-two registers. */
#include <arm_neon.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL(name) neon_##name
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECTORS(rows) ((rows) > 3 ? 4u : (rows) > 1 ? 6u : 12u)
#define BLOCK_VECTORS 13
#define MANY_VECTORS 20
#define PANEL_FLOATS 32
#define PANEL_HALVES 32

typedef float32x4_t vf;
typedef uint32x4_t vm;

static inline vf v_load(const float *p) { return vld1q_f32(p); }
static inline vf v_load_halves(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void v_store(float *p, vf a) { vst1q_f32(p, a); }
static inline vf v_set(float a) { return vdupq_n_f32(a); }
static inline vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf v_sqrt(vf a) { return vsqrtq_f32(a); }
static inline vf v_min(vf a, vf b) { return vminq_f32(a, b); }
static inline vf v_max(vf a, vf b) { return vmaxq_f32(a, b); }

static inline vf v_load_n(const float *p, uint32_t n, float fill) {
    float lanes[4] = {fill, fill, fill, fill};
    for (uint32_t i = 0; i < n; i++) lanes[i] = p[i];
    return vld1q_f32(lanes);
}
static inline void v_store_n(float *p, vf a, uint32_t n) {
    float lanes[4];
    vst1q_f32(lanes, a);
    for (uint32_t i = 0; i < n; i++) p[i] = lanes[i];
}

static inline float v_sum(vf a) { return vaddvq_f32(a); }
static inline float v_largest(vf a) { return vmaxvq_f32(a); }

static inline vm v_beyond(vf a, vf limit) { return vcgtq_f32(vabsq_f32(a), limit); }
static inline vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
static inline vm v_first(uint32_t n) {
    static const uint32_t lane[4] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(lane), vdupq_n_u32(n));
}
static inline uint32_t v_bits(vm m) {
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
/* Entry b: how many bits are set in b. */
static const uint8_t COUNTS[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
static inline uint32_t v_count(uint32_t bits) { return COUNTS[bits]; }
static inline void v_tally(uint32_t *counts, vm m) {
    vst1q_u32(counts, vsubq_u32(vld1q_u32(counts), m));
}

typedef uint16x4_t vn;
static inline vn v_number(uint32_t base) {
    static const uint16_t lane[4] = {0, 1, 2, 3};
    return vadd_u16(vdup_n_u16((uint16_t)base), vld1_u16(lane));
}
static inline vn v_next(vn numbers) { return vadd_u16(numbers, vdup_n_u16(LANES)); }

/* Entry b: the bytes that bring the lanes set in b to the front, of floats and of numbers. */
#define FLOAT_AT(l) 4 * (l), 4 * (l) + 1, 4 * (l) + 2, 4 * (l) + 3
#define FRONT(a, b, c, d) {FLOAT_AT(a), FLOAT_AT(b), FLOAT_AT(c), FLOAT_AT(d)}
static const uint8_t FRONT_FLOATS[16][16] = {
    FRONT(0, 0, 0, 0), FRONT(0, 0, 0, 0), FRONT(1, 0, 0, 0), FRONT(0, 1, 0, 0),
    FRONT(2, 0, 0, 0), FRONT(0, 2, 0, 0), FRONT(1, 2, 0, 0), FRONT(0, 1, 2, 0),
    FRONT(3, 0, 0, 0), FRONT(0, 3, 0, 0), FRONT(1, 3, 0, 0), FRONT(0, 1, 3, 0),
    FRONT(2, 3, 0, 0), FRONT(0, 2, 3, 0), FRONT(1, 2, 3, 0), FRONT(0, 1, 2, 3)};
#define FRONT_16(a, b, c, d)                                                                       \
    {2 * a, 2 * a + 1, 2 * b, 2 * b + 1, 2 * c, 2 * c + 1, 2 * d, 2 * d + 1}
static const uint8_t FRONT_NUMBERS[16][8] = {
    FRONT_16(0, 0, 0, 0), FRONT_16(0, 0, 0, 0), FRONT_16(1, 0, 0, 0), FRONT_16(0, 1, 0, 0),
    FRONT_16(2, 0, 0, 0), FRONT_16(0, 2, 0, 0), FRONT_16(1, 2, 0, 0), FRONT_16(0, 1, 2, 0),
    FRONT_16(3, 0, 0, 0), FRONT_16(0, 3, 0, 0), FRONT_16(1, 3, 0, 0), FRONT_16(0, 1, 3, 0),
    FRONT_16(2, 3, 0, 0), FRONT_16(0, 2, 3, 0), FRONT_16(1, 2, 3, 0), FRONT_16(0, 1, 2, 3)};

static inline uint32_t v_keep(vf a, vn numbers, uint32_t bits, float *value, uint16_t *index) {
    uint8x16_t packed = vqtbl1q_u8(vreinterpretq_u8_f32(a), vld1q_u8(FRONT_FLOATS[bits]));
    vst1q_f32(value, vreinterpretq_f32_u8(packed));
    uint8x8_t which = vtbl1_u8(vreinterpret_u8_u16(numbers), vld1_u8(FRONT_NUMBERS[bits]));
    vst1_u16(index, vreinterpret_u16_u8(which));
    return v_count(bits);
}

static inline void v_set_four(const float *p, vf x[4]) {
    vf four = vld1q_f32(p);
    x[0] = vdupq_laneq_f32(four, 0);
    x[1] = vdupq_laneq_f32(four, 1);
    x[2] = vdupq_laneq_f32(four, 2);
    x[3] = vdupq_laneq_f32(four, 3);
}

/* The integer in the low mantissa bits of n is added to the exponent of p. */
static inline vf v_scale(vf p, vf n) {
    int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), power));
}

static inline vf v_split(vf x, vf *e) {
    const int32x4_t root = vdupq_n_s32(0x3f3504f3); /* sqrt(1/2) */
    int32x4_t bits = vreinterpretq_s32_f32(x);
    int32x4_t power = vshrq_n_s32(vsubq_s32(bits, root), 23);
    *e = vcvtq_f32_s32(power);
    return vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(power, 23)));
}

static inline void v_transpose(vf rows[4]) {
    float32x4x2_t a = vtrnq_f32(rows[0], rows[1]), b = vtrnq_f32(rows[2], rows[3]);
    rows[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    rows[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    rows[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    rows[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#include "vector.inc.h"

const dk_kernels dk_neon = KERNEL_TABLE("neon");
