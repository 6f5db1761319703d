/* Sixteen lanes of float or int32, by the instructions of one processor family.
 *
 * Everything above this file is written with these names. Sums of integer products are exact, and every
 * float operation is the same in whatever loop it stands: so a row's result does not depend on its company.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

#if defined(__AVX512VNNI__)
#include "simd_avx512.h"
#else
#include "simd_avx2.h"
#endif

INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void relax(void) { _mm_pause(); }
