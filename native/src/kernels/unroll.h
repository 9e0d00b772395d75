/* INLINE and UNROLL: loops over a constant number of vectors become straight code. */
#ifndef DK_UNROLL_H
#define DK_UNROLL_H

#if defined(DK_QUICK_BUILD) /* a test build: the same code, not unrolled */
#define INLINE static inline
#define UNROLL
#elif defined(__clang__) /* it unrolls too late with "GCC unroll": arrays stay in memory */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#else
#define INLINE static __forceinline
#define UNROLL
#endif

#endif
