/* x86-64 with AVX-512 F, DQ, BW and VL: products in 512 bits, everything else in 256. Rows are
 * padded to sixteen values, so that a row may end in the middle of a vector of thirty-two. */
#ifdef DK_AVX512_HEADER /* the instructions emulated, to test this file on any processor */
#include DK_AVX512_HEADER
#endif
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERNEL(name) avx512_##name

#include "fixed_256.inc.h"

#define PER_WIDE 2

typedef __m512i vp;

static inline vp p_load(const int16_t *p) { return _mm512_loadu_si512(p); }
static inline void p_store(int16_t *p, vp a) { _mm512_storeu_si512(p, a); }
static inline vp p_set(int16_t a) { return _mm512_set1_epi16(a); }
static inline vp p_zero(void) { return _mm512_setzero_si512(); }
static inline vp p_q15(vp a, vp b) { return _mm512_mulhrs_epi16(a, b); }
static inline vp p_sum(vp s, vp p) { return _mm512_add_epi16(s, p); }
static inline vi p_first(vp a) { return _mm512_castsi512_si256(a); }
static inline vi p_max_size(vi peak, vp a) {
    return v_max_size(v_max_size(peak, p_first(a)), _mm512_extracti64x4_epi64(a, 1));
}

#include "fixed_vector.inc.h"

const dk_fixed_kernels dk_fixed_avx512 = KERNEL_TABLE;
