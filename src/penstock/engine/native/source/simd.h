/* Sixteen lanes of float or int32, by the instructions of one processor family.
 *
 * Everything above this file is written with these names. Sums of integer products are exact, and every
 * float operation is the same in whatever loop it stands: so a row's result does not depend on its company.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define LANES 16

typedef __m512 vf;
typedef __m512i vi;

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

INLINE __mmask16 first_lanes(int n) {
    return n >= LANES ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1u);
}

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_all(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
/* The first n lanes only: the others are zero, and not touched in memory. */
INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
INLINE void vf_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }  /* a b + c */
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }  /* a 2^n */
INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
INLINE float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }
/* Lanes from `from` up to `until` of a; `other` elsewhere. */
INLINE vf vf_between(vf a, int from, int until, float other) {
    __mmask16 kept = (__mmask16)(first_lanes(until) & ~first_lanes(from));
    return _mm512_mask_blend_ps(kept, vf_all(other), a);
}
INLINE int vf_all_finite(vf a) {
    return _mm512_cmp_ps_mask(vf_abs(a), vf_all(__builtin_inff()), _CMP_LT_OQ) == 0xffff;
}
/* Half precision in memory, float in the lanes. */
INLINE vf vf_load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf vf_load_half_n(const uint16_t *p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
INLINE void vf_store_half_n(uint16_t *p, vf x, int n) {
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_all_bytes(int x) { return _mm512_set1_epi8((char)x); }
INLINE vi vi_high_nibbles(vi a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), vi_all_bytes(15)); }
/* Four bytes in every lane. */
INLINE vi vi_all_quads(const int8_t *p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
/* In each lane: sum += the four products of unsigned and signed bytes. */
INLINE vi vi_dot(vi sum, vi unsigned_bytes, vi signed_bytes) {
    return _mm512_dpbusd_epi32(sum, unsigned_bytes, signed_bytes);
}
INLINE vf vf_of_ints(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_nearest(vf a) { return _mm512_cvtps_epi32(a); }
INLINE int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
INLINE void vi_store_bytes(int8_t *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }

INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void relax(void) { _mm_pause(); }
