/* aarch64: eight lanes of 16 bits, thirty-two registers. */
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERNEL(name) neon_##name
#define LANES 8

typedef int16x8_t vi;
typedef int32x4_t vs;
typedef uint64x2_t vq;

static inline uint16x8_t as_unsigned(vi a) { return vreinterpretq_u16_s16(a); }
static inline vi as_signed(uint16x8_t a) { return vreinterpretq_s16_u16(a); }

static inline vi v_load(const int16_t *p) { return vld1q_s16(p); }
static inline void v_store(int16_t *p, vi a) { vst1q_s16(p, a); }
static inline vi v_set(int16_t a) { return vdupq_n_s16(a); }
static inline vi v_zero(void) { return vdupq_n_s16(0); }
static inline vi v_add(vi a, vi b) { return vaddq_s16(a, b); }
static inline vi v_sum(vi s, vi p) { return vaddq_s16(s, p); }
static inline vi v_sub(vi a, vi b) { return vsubq_s16(a, b); }
static inline vi v_adds(vi a, vi b) { return vqaddq_s16(a, b); }
static inline vi v_subs(vi a, vi b) { return vqsubq_s16(a, b); }
static inline vi v_q15(vi a, vi b) { return vqrdmulhq_s16(a, b); }
static inline vi v_max(vi a, vi b) { return vmaxq_s16(a, b); }
static inline vi v_min(vi a, vi b) { return vminq_s16(a, b); }
static inline uint16x8_t size_of(vi a) { return as_unsigned(vabsq_s16(a)); }
static inline vi v_max_size(vi p, vi a) { return as_signed(vmaxq_u16(as_unsigned(p), size_of(a))); }
static inline vi v_least_size(vi a, vi b) {
    return as_signed(vminq_u16(size_of(a), as_unsigned(b)));
}
static inline vi v_select(vi m, vi a, vi b) { return vbslq_s16(as_unsigned(m), a, b); }
static inline vi v_and(vi a, vi b) { return vandq_s16(a, b); }

static inline vi v_left(vi a, uint32_t bits) { return vshlq_s16(a, v_set((int16_t)bits)); }
static inline vi v_right(vi a, uint32_t bits) {
    return as_signed(vshlq_u16(as_unsigned(a), v_set((int16_t)-(int32_t)bits)));
}
static inline vi v_right_signed(vi a, uint32_t bits) {
    return vshlq_s16(a, v_set((int16_t)-(int32_t)bits));
}

static inline uint32_t v_largest_size(vi a) { return vmaxvq_u16(as_unsigned(a)); }
static inline int32_t v_largest(vi a) { return vmaxvq_s16(a); }

static inline vi v_within(vi d, vi theta) {
    return as_signed(vcleq_u16(size_of(d), as_unsigned(theta)));
}
static inline uint32_t v_kept_bits(vi a, vi b) { /* each byte keeps a bit of its own */
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bytes = vcombine_u8(vmovn_u16(as_unsigned(a)), vmovn_u16(as_unsigned(b)));
    bytes = vbicq_u8(vld1q_u8(bit), bytes);
    return vaddv_u8(vget_low_u8(bytes)) | (uint32_t)vaddv_u8(vget_high_u8(bytes)) << 8;
}
static inline vi v_first(uint32_t n) {
    static const int16_t lane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return as_signed(vcltq_s16(vld1q_s16(lane), v_set((int16_t)n)));
}
static inline vi v_halve(vi q, vi n) { return vrshlq_s16(q, vnegq_s16(n)); }

static inline vs s_zero(void) { return vdupq_n_s32(0); }
static inline vs s_add_sum(vs s, vi a) { return vpadalq_s16(s, a); }
static inline int32_t s_total(vs s) { return vaddvq_s32(s); }

static inline vs product_low(vi a, vi b) { return vmull_s16(vget_low_s16(a), vget_low_s16(b)); }
static inline vs product_high(vi a, vi b) { return vmull_high_s16(a, b); }

static inline vq q_zero(void) { return vdupq_n_u64(0); }
static inline vq q_add_squares(vq q, vi a) {
    q = vpadalq_u32(q, vreinterpretq_u32_s32(product_low(a, a)));
    return vpadalq_u32(q, vreinterpretq_u32_s32(product_high(a, a)));
}
static inline uint64_t q_total(vq q) { return vaddvq_u64(q); }

static inline vi s_pair(const int16_t *p) {
    int32_t two;
    memcpy(&two, p, sizeof two);
    return vreinterpretq_s16_s32(vdupq_n_s32(two));
}
static inline vs s_add_products(vs s, vi x, vi w) {
    return vaddq_s32(s, vpaddq_s32(product_low(x, w), product_high(x, w)));
}
static inline vi s_narrow(vs low, vs high, uint32_t shift) {
    const int32x4_t down = vdupq_n_s32(-(int32_t)shift);
    return vcombine_s16(vqmovn_s32(vrshlq_s32(low, down)), vqmovn_s32(vrshlq_s32(high, down)));
}
static inline vi v_scaled(vi a, vi b, uint32_t shift) {
    return s_narrow(product_low(a, b), product_high(a, b), shift);
}

static inline void v_store_eights(int16_t *p, size_t step, vi a) {
    (void)step;
    vst1q_s16(p, a);
}
static inline void fill_eight(int16_t *p, int16_t a) { vst1q_s16(p, vdupq_n_s16(a)); }
static inline vi v_zip_low(vi a, vi b) { return vzip1q_s16(a, b); }
static inline vi v_zip_high(vi a, vi b) { return vzip2q_s16(a, b); }

#include "fixed_vector.inc.h"

const dk_fixed_kernels dk_fixed_neon = KERNEL_TABLE;
