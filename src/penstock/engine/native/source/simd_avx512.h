/* AVX-512 with VNNI: a lane for a lane. */
#pragma once

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

INLINE vm first_lanes(int n) { return n >= LANES ? (vm)0xffff : n <= 0 ? (vm)0 : (vm)((1u << n) - 1u); }

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
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); } /* a b + c */
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); } /* a 2^n */
INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
INLINE float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }
/* Lanes from `from` up to `until` of a; `other` elsewhere. */
INLINE vf vf_between(vf a, int from, int until, float other) {
    vm kept = (vm)(first_lanes(until) & ~first_lanes(from));
    return _mm512_mask_blend_ps(kept, vf_all(other), a);
}
/* `yes` in lanes where a < b, `no` in the others. */
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
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
/* The same where the unsigned bytes are below 16. */
INLINE vi vi_dot_small(vi sum, vi unsigned_bytes, vi signed_bytes) {
    return vi_dot(sum, unsigned_bytes, signed_bytes);
}
INLINE vf vf_of_ints(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_nearest(vf a) { return _mm512_cvtps_epi32(a); }
INLINE int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
INLINE void vi_store_bytes(int8_t *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }

/* What looking through a vocabulary needs beside: */
INLINE vm vm_at_least(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
INLINE vm vm_above(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vm vm_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE vm vm_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
INLINE int vm_count(vm mask) { return __builtin_popcount(mask); }

/* The first n lanes; `other` in the rest. */
INLINE vf vf_load_or(const float *p, int n, vf other) {
    return _mm512_mask_loadu_ps(other, first_lanes(n), p);
}
INLINE vf vf_masked(vm mask, vf a) { return _mm512_maskz_mov_ps(mask, a); }
/* The lanes of the mask one after another; rubbish behind them, up to sixteen lanes in all. */
INLINE void vf_store_packed(float *p, vm mask, vf a) {
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(mask, a));
}
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
