/* Which kernels this processor can run. */
#include "internal.h"

#if defined(DK_HAVE_X86) && defined(_MSC_VER)
#include <intrin.h>
#elif defined(DK_HAVE_X86)
#include <cpuid.h>
#endif

static const char *const NAMES[DK_ISAS] = {"scalar", "neon", "avx2", "avx512", "wasm"};

const char *dk_isa_name(dk_isa isa) { return (unsigned)isa < DK_ISAS ? NAMES[isa] : "unknown"; }

#ifdef DK_HAVE_X86

static void cpuid(uint32_t leaf, uint32_t r[4]) {
#ifdef _MSC_VER
    int out[4];
    __cpuidex(out, (int)leaf, 0);
    for (int i = 0; i < 4; i++) r[i] = (uint32_t)out[i];
#else
    if (!__get_cpuid_count(leaf, 0, &r[0], &r[1], &r[2], &r[3])) r[0] = r[1] = r[2] = r[3] = 0;
#endif
}

/* Returns the register files that the operating system saves: 0x6 are the 256-bit ones, 0xe6
 * all. */
static uint32_t saved_registers(void) {
#ifdef _MSC_VER
    return (uint32_t)_xgetbv(0);
#else
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
#endif
}

static int has_bit(uint32_t word, unsigned bit) { return word >> bit & 1u; }

static int x86_has(dk_isa isa) {
    uint32_t one[4], seven[4];
    cpuid(1, one);
    cpuid(7, seven);
    if (!has_bit(one[2], 27)) return 0; /* xgetbv itself */
    uint32_t saved = saved_registers();
    int avx2 = has_bit(one[2], 12) && has_bit(one[2], 23) && has_bit(one[2], 29) &&
               has_bit(seven[1], 3) && has_bit(seven[1], 5) &&
               (saved & 0x6u) == 0x6u; /* fma, popcnt, f16c, bmi, avx2 */
    int avx512 = has_bit(seven[1], 16) && has_bit(seven[1], 17) && has_bit(seven[1], 30) &&
                 has_bit(seven[1], 31) && (saved & 0xe6u) == 0xe6u; /* f, dq, bw, vl */
#ifdef DK_AVX512_HEADER
    avx512 = 1; /* emulated, in a test build */
#endif
    return isa == DK_AVX2 ? avx2 : avx2 && avx512;
}

#endif

const dk_kernels *dk_kernels_for(dk_isa isa) {
    switch (isa) {
    case DK_SCALAR:
        return &dk_scalar;
#ifdef DK_HAVE_NEON
    case DK_NEON:
        return &dk_neon;
#endif
#ifdef DK_HAVE_WASM
    case DK_WASM:
        return &dk_wasm;
#endif
#ifdef DK_HAVE_X86
    case DK_AVX2:
        return &dk_avx2;
    case DK_AVX512:
        return &dk_avx512;
#endif
    default:
        return NULL;
    }
}

int dk_isa_available(dk_isa isa) {
    if (!dk_kernels_for(isa)) return 0;
#ifdef DK_HAVE_X86
    if (isa == DK_AVX2 || isa == DK_AVX512) return x86_has(isa);
#endif
    return 1;
}

dk_isa dk_isa_best(void) {
    static const dk_isa order[] = {DK_AVX512, DK_AVX2, DK_NEON, DK_WASM};
    for (unsigned i = 0; i < sizeof order / sizeof *order; i++)
        if (dk_isa_available(order[i])) return order[i];
    return DK_SCALAR;
}
