/* The kernels of every vector instruction set, written once.
 *
 * The including file names itself with KERNEL(name) and gives the shape of its registers
 *   vf, vm              a vector of LANES floats, a mask of lanes
 *   LANES
 *   TILE_VECTORS(rows)  vectors of columns that a gemm tile of so many rows keeps in registers
 *   TILE_ROWS           rows of the largest tile
 *   BLOCK_VECTORS       vectors of running results that `accumulate` keeps in registers
 *   MANY_VECTORS        sums that may be under way at once
 *   PANEL_FLOATS        columns of a panel of weights
 *   PANEL_HALVES        and in half precision
 * and a few inline functions
 *   v_load v_store v_load_n v_store_n v_set v_add v_sub v_mul v_div v_fma v_sqrt v_min v_max
 *   v_load_halves       floats from half precision
 *   v_sum v_largest     over all lanes
 *   v_beyond(a, t)      mask: |a| > t
 *   v_select(m, a, b)   a where m, else b
 *   v_bits(m)           bit l is lane l
 *   v_tally(counts, m)  counts[l] += 1 where m
 *   v_first(n)          mask: lanes 0 .. n-1
 *   v_set_four(p, x)    p[0..3], each in all lanes of a vector of its own
 *   vn, v_number, v_next  the numbers base + lane, and those LANES further on
 *   v_keep(a, numbers, bits, value, index)   lanes of `bits`, packed, and their numbers
 *   v_scale(p, n)       p 2^n for n = integer + ROUNDER
 *   v_split(x, &e)      x > 0 as m 2^e with m in [sqrt(1/2), sqrt(2))
 *   v_transpose(rows)   LANES x LANES in place
 * v_load_n and v_store_n touch only the first n < LANES floats; other lanes read as `fill`.
 */
#include "../internal.h"
#include "unroll.h"

enum { MOST_VECTORS = 16 }; /* of any block or tile below */

#include "deltas.inc.h"
#include "energies.inc.h"
#include "functions.inc.h"
#include "norm.inc.h"
#include "products.inc.h"

#define KERNEL_TABLE(name)                                                                         \
    {name,                                                                                         \
     LANES,                                                                                        \
     {PANEL_FLOATS, PANEL_HALVES},                                                                 \
     KERNEL(gemm),                                                                                 \
     KERNEL(accumulate),                                                                           \
     KERNEL(scan),                                                                                 \
     KERNEL(hold),                                                                                 \
     KERNEL(softmax),                                                                              \
     KERNEL(gelu),                                                                                 \
     KERNEL(add_norm),                                                                             \
     KERNEL(transpose),                                                                            \
     KERNEL(energies),                                                                             \
     KERNEL(log_floor),                                                                            \
     KERNEL(dct)}
