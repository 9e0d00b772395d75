/* Prefetching of weights. Between two clips the weights leave the near caches, and the processor's
 * own prefetcher looks only a little ahead. */
#ifndef DK_PREFETCH_H
#define DK_PREFETCH_H

#include "internal.h"

#if defined(__GNUC__)

/* Row r = 1..rows of a stage that computes more than it loads prefetches its share of the weights.
 * Always inlined: GCC removes calls of functions that only prefetch, because they have no
 * effect. */
__attribute__((always_inline)) static inline void dk_prefetch(const dk_matrix *w, uint32_t r,
                                                              uint32_t rows) {
    size_t lines = dk_weight_count(w) * dk_weight_size(w) / DK_ALIGN;
    size_t share = lines / rows + 1, first = (r - 1) * share;
    const char *data = (const char *)w->data;
    for (size_t i = first; i < first + share && i < lines; i++)
        __builtin_prefetch(data + i * DK_ALIGN, 0, 2);
}

#else

static inline void dk_prefetch(const dk_matrix *w, uint32_t r, uint32_t rows) {
    (void)w, (void)r, (void)rows;
}

#endif

#endif
