/* AVX-512 on a processor without it: SIMDe, and the few intrinsics that older releases of it lack,
 * lane by lane. Only for tests. */
#ifndef AVX512_EMULATED_H
#define AVX512_EMULATED_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <stdint.h>
#include <string.h>

typedef union {
    simde__m512 vector;
    simde__m512i integers;
    float f[16];
    int32_t i[16];
    uint16_t u[32];
} lanes512;

static inline simde__m512 emulated_mask_loadu_ps(simde__m512 fill, uint32_t mask, const float *p) {
    lanes512 a;
    a.vector = fill;
    for (int l = 0; l < 16; l++)
        if (mask >> l & 1) a.f[l] = p[l];
    return a.vector;
}

static inline void emulated_mask_storeu_ps(float *p, uint32_t mask, simde__m512 vector) {
    lanes512 a;
    a.vector = vector;
    for (int l = 0; l < 16; l++)
        if (mask >> l & 1) p[l] = a.f[l];
}

/* Each quarter of the result: lanes of the same quarter, chosen by two bits each. */
static inline simde__m512 emulated_permute_ps(simde__m512 vector, unsigned which) {
    lanes512 a, out;
    a.vector = vector;
    for (int l = 0; l < 16; l++) out.f[l] = a.f[(l & ~3) + (which >> 2 * (l & 3) & 3)];
    return out.vector;
}

/* Two quarters of a, then two of b. */
static inline simde__m512 emulated_shuffle_f32x4(simde__m512 a, simde__m512 b, unsigned which) {
    lanes512 from[2], out;
    from[0].vector = a;
    from[1].vector = b;
    for (int q = 0; q < 4; q++)
        memcpy(out.f + 4 * q, from[q / 2].f + 4 * (which >> 2 * q & 3), 4 * sizeof(float));
    return out.vector;
}

static inline simde__m512i emulated_srai_epi32(simde__m512i a, unsigned count) {
    lanes512 out;
    out.integers = a;
    for (int l = 0; l < 16; l++) out.i[l] >>= count;
    return out.integers;
}

static inline simde__m512 emulated_cvtepi32_ps(simde__m512i a) {
    lanes512 in, out;
    in.integers = a;
    for (int l = 0; l < 16; l++) out.f[l] = (float)in.i[l];
    return out.vector;
}

static inline simde__m256i emulated_cvtepi32_epi16(simde__m512i a) {
    lanes512 in;
    union {
        simde__m256i vector;
        int16_t i[16];
    } out;
    in.integers = a;
    for (int l = 0; l < 16; l++) out.i[l] = (int16_t)in.i[l];
    return out.vector;
}

static inline simde__m512 emulated_cvtph_ps(simde__m256i halves) {
    simde__m128i part[2];
    lanes512 out;
    memcpy(part, &halves, sizeof halves);
    for (int i = 0; i < 2; i++) {
        simde__m256 eight = simde_mm256_cvtph_ps(part[i]);
        memcpy(out.f + 8 * i, &eight, sizeof eight);
    }
    return out.vector;
}

/* Modulo 2^16: SIMDe adds signed numbers, which must not overflow. */
static inline simde__m512i emulated_add_epi16(simde__m512i a, simde__m512i b) {
    lanes512 x, y;
    x.integers = a;
    y.integers = b;
    for (int l = 0; l < 32; l++) x.u[l] = (uint16_t)(x.u[l] + y.u[l]);
    return x.integers;
}

#undef _mm512_add_epi16
#undef _mm512_cvtph_ps
#undef _mm512_mask_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_permute_ps
#undef _mm512_shuffle_f32x4
#undef _mm512_srai_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi32_epi16
#define _mm512_add_epi16 emulated_add_epi16
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_mask_loadu_ps emulated_mask_loadu_ps
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_permute_ps emulated_permute_ps
#define _mm512_shuffle_f32x4 emulated_shuffle_f32x4
#define _mm512_srai_epi32 emulated_srai_epi32
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16

#endif
