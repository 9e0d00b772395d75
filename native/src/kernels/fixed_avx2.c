/* x86-64 with AVX2: sixteen lanes of 16 bits, sixteen registers. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERNEL(name) avx2_##name

#include "fixed_256.inc.h"
#include "fixed_vector.inc.h"

const dk_fixed_kernels dk_fixed_avx2 = KERNEL_TABLE;
