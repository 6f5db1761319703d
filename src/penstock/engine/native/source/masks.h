/* Masks, compression and integer lanes: what looking through a vocabulary needs beside simd.h. */
#pragma once

#include "simd.h"

typedef __mmask16 vm;

INLINE vm vm_at_least(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
INLINE vm vm_above(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vm vm_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE vm vm_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
INLINE int vm_count(vm mask) { return __builtin_popcount(mask); }

/* The first n lanes; `other` in the rest. */
INLINE vf vf_load_or(const float *p, int n, vf other) { return _mm512_mask_loadu_ps(other, first_lanes(n), p); }
INLINE vf vf_masked(vm mask, vf a) { return _mm512_maskz_mov_ps(mask, a); }
/* The lanes of the mask one after another; rubbish behind them, up to sixteen lanes in all. */
INLINE void vf_store_packed(float *p, vm mask, vf a) { _mm512_storeu_ps(p, _mm512_maskz_compress_ps(mask, a)); }
/* The largest whole number not above log2 of a positive number. */
INLINE vf vf_exponent(vf a) { return _mm512_getexp_ps(a); }

INLINE vi vi_all(uint32_t x) { return _mm512_set1_epi32((int32_t)x); }
INLINE vi vi_from(int first) {
    const vi lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lanes, _mm512_set1_epi32(first));
}
INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
INLINE vi vi_shift_right(vi a, int by) { return _mm512_srli_epi32(a, (unsigned)by); }

/* A sum in double precision. */
typedef struct {
    __m512d low, high;
} Wide;

INLINE Wide wide_zero(void) { return (Wide){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
INLINE Wide wide_add(Wide sum, vf a) {
    sum.low = _mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
    sum.high = _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
    return sum;
}
INLINE double wide_total(Wide sum) { return _mm512_reduce_add_pd(_mm512_add_pd(sum.low, sum.high)); }
