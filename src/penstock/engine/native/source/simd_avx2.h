/* AVX2 with FMA and F16C: sixteen lanes are two registers. */
#pragma once

#include <string.h>

typedef struct {
    __m256 low, high;
} vf;
typedef struct {
    __m256i low, high;
} vi;
typedef uint16_t vm; /* a bit for each lane */

#define BOTH(type, call_low, call_high) ((type){call_low, call_high})
/* One operation on both halves of one, two or three operands. */
#define EACH(type, operation, a) BOTH(type, operation((a).low), operation((a).high))
#define EACH2(type, operation, a, b) BOTH(type, operation((a).low, (b).low), operation((a).high, (b).high))
#define EACH3(type, operation, a, b, c) \
    BOTH(type, operation((a).low, (b).low, (c).low), operation((a).high, (b).high, (c).high))

INLINE vi vi_lanes(void) {
    return (vi){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
/* All bits of the first n lanes. */
INLINE vi first_lanes_mask(int n) {
    vi lanes = vi_lanes();
    __m256i count = _mm256_set1_epi32(n);
    return (vi){_mm256_cmpgt_epi32(count, lanes.low), _mm256_cmpgt_epi32(count, lanes.high)};
}
INLINE vm first_lanes(int n) { return n >= LANES ? (vm)0xffff : n <= 0 ? (vm)0 : (vm)((1u << n) - 1u); }

INLINE vf vf_zero(void) { return BOTH(vf, _mm256_setzero_ps(), _mm256_setzero_ps()); }
INLINE vf vf_all(float x) { return BOTH(vf, _mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE vf vf_load(const float *p) { return BOTH(vf, _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
/* The first n lanes only: the others are zero, and not touched in memory. */
INLINE vf vf_load_n(const float *p, int n) {
    if (n >= LANES) return vf_load(p);
    vi mask = first_lanes_mask(n);
    return BOTH(vf, _mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high));
}
INLINE void vf_store_n(float *p, vf x, int n) {
    if (n >= LANES) {
        vf_store(p, x);
        return;
    }
    vi mask = first_lanes_mask(n);
    _mm256_maskstore_ps(p, mask.low, x.low);
    _mm256_maskstore_ps(p + 8, mask.high, x.high);
}
INLINE vf vf_add(vf a, vf b) { return EACH2(vf, _mm256_add_ps, a, b); }
INLINE vf vf_sub(vf a, vf b) { return EACH2(vf, _mm256_sub_ps, a, b); }
INLINE vf vf_mul(vf a, vf b) { return EACH2(vf, _mm256_mul_ps, a, b); }
INLINE vf vf_div(vf a, vf b) { return EACH2(vf, _mm256_div_ps, a, b); }
INLINE vf vf_max(vf a, vf b) { return EACH2(vf, _mm256_max_ps, a, b); }
INLINE vf vf_min(vf a, vf b) { return EACH2(vf, _mm256_min_ps, a, b); }
INLINE vf vf_abs(vf a) { return EACH2(vf, _mm256_andnot_ps, vf_all(-0.0f), a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return EACH3(vf, _mm256_fmadd_ps, a, b, c); } /* a b + c */
INLINE __m256 round_half(__m256 a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf vf_round(vf a) { return EACH(vf, round_half, a); }
/* 2^n for whole n from -126 to 127. */
INLINE __m256 power_of_2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
INLINE __m256 scale2_half(__m256 a, __m256 n) {
    /* In two steps: the power itself may be beyond a float where the result is not. The first is exact. */
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(a, power_of_2(half)), power_of_2(_mm256_sub_epi32(whole, half)));
}
INLINE vf vf_scale2(vf a, vf n) { return EACH2(vf, scale2_half, a, n); } /* a 2^n, n from -252 to 254 */
INLINE float vf_sum(vf a) {
    __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float vf_largest(vf a) {
    __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/* Lanes where all bits of the mask are set from a, the others from b. */
INLINE vf vf_choose(vi mask, vf a, vf b) {
    return BOTH(
        vf, _mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(mask.low)),
        _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(mask.high))
    );
}
/* Lanes from `from` up to `until` of a; `other` elsewhere. */
INLINE vf vf_between(vf a, int from, int until, float other) {
    if (from <= 0 && until >= LANES) return a;
    vi before = first_lanes_mask(from), inside = first_lanes_mask(until);
    return vf_choose(EACH2(vi, _mm256_andnot_si256, before, inside), a, vf_all(other));
}
#define COMPARED(a, b, how) \
    BOTH(vf, _mm256_cmp_ps((a).low, (b).low, how), _mm256_cmp_ps((a).high, (b).high, how))
INLINE vm vm_of(vf compared) {
    return (vm)(_mm256_movemask_ps(compared.low) | _mm256_movemask_ps(compared.high) << 8);
}
/* `yes` in lanes where a < b, `no` in the others. */
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) {
    vf less = COMPARED(a, b, _CMP_LT_OQ);
    return EACH3(vf, _mm256_blendv_ps, no, yes, less);
}
INLINE int vf_all_finite(vf a) {
    vf size = vf_abs(a), limit = vf_all(__builtin_inff());
    return vm_of(COMPARED(size, limit, _CMP_LT_OQ)) == 0xffff;
}
/* Half precision in memory, float in the lanes. */
INLINE vf vf_load_half(const uint16_t *p) {
    const __m128i *at = (const __m128i *)p;
    return BOTH(vf, _mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1)));
}
INLINE vf vf_load_half_n(const uint16_t *p, int n) {
    if (n >= LANES) return vf_load_half(p);
    uint16_t halves[LANES] = {0};
    if (n > 0) memcpy(halves, p, 2 * (size_t)n);
    return vf_load_half(halves);
}
INLINE void vf_store_half_n(uint16_t *p, vf x, int n) {
    __m128i halves[2] = {
        _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT)
    };
    if (n > 0) memcpy(p, halves, n < LANES ? 2 * (size_t)n : sizeof(halves));
}

INLINE vi vi_zero(void) { return BOTH(vi, _mm256_setzero_si256(), _mm256_setzero_si256()); }
INLINE vi vi_load(const void *p) {
    const __m256i *at = p;
    return BOTH(vi, _mm256_loadu_si256(at), _mm256_loadu_si256(at + 1));
}
INLINE vi vi_and(vi a, vi b) { return EACH2(vi, _mm256_and_si256, a, b); }
INLINE vi vi_all_bytes(int x) { return BOTH(vi, _mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)); }
INLINE __m256i high_nibbles(__m256i a) {
    return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(15));
}
INLINE vi vi_high_nibbles(vi a) { return EACH(vi, high_nibbles, a); }
/* Four bytes in every lane. */
INLINE vi vi_all_quads(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return BOTH(vi, _mm256_set1_epi32(four), _mm256_set1_epi32(four));
}
/* Products of bytes are added in pairs of 16 bits where they fit, and bytes are widened first where not. */
INLINE __m256i dot_half(__m256i sum, __m256i u, __m256i s) {
    __m256i even = _mm256_madd_epi16(
        _mm256_and_si256(u, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8)
    );
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
INLINE __m256i dot_small_half(__m256i sum, __m256i u, __m256i s) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
/* In each lane: sum += the four products of unsigned and signed bytes. */
INLINE vi vi_dot(vi sum, vi unsigned_bytes, vi signed_bytes) {
    return EACH3(vi, dot_half, sum, unsigned_bytes, signed_bytes);
}
/* The same where the unsigned bytes are below 16. */
INLINE vi vi_dot_small(vi sum, vi unsigned_bytes, vi signed_bytes) {
    return EACH3(vi, dot_small_half, sum, unsigned_bytes, signed_bytes);
}
INLINE vf vf_of_ints(vi a) { return EACH(vf, _mm256_cvtepi32_ps, a); }
INLINE vi vi_nearest(vf a) { return EACH(vi, _mm256_cvtps_epi32, a); }
INLINE int32_t vi_sum(vi a) {
    __m256i eight = _mm256_add_epi32(a.low, a.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
INLINE __m128i words_of(__m256i a) {
    return _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
}
INLINE void vi_store_bytes(int8_t *p, vi a) {
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(words_of(a.low), words_of(a.high)));
}

/* What looking through a vocabulary needs beside: */
INLINE vm vm_at_least(vf a, vf b) { return vm_of(COMPARED(a, b, _CMP_GE_OQ)); }
INLINE vm vm_above(vf a, vf b) { return vm_of(COMPARED(a, b, _CMP_GT_OQ)); }
INLINE vm vm_equal(vf a, vf b) { return vm_of(COMPARED(a, b, _CMP_EQ_OQ)); }
INLINE vm vm_nan(vf a) { return vm_of(COMPARED(a, a, _CMP_UNORD_Q)); }
INLINE int vm_count(vm mask) { return __builtin_popcount(mask); }

/* The first n lanes; `other` in the rest. */
INLINE vf vf_load_or(const float *p, int n, vf other) {
    return n >= LANES ? vf_load(p) : vf_choose(first_lanes_mask(n), vf_load_n(p, n), other);
}
INLINE __m256 masked_half(__m256 a, int mask, __m256i bits) {
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask), bits), bits);
    return _mm256_and_ps(a, _mm256_castsi256_ps(set));
}
INLINE vf vf_masked(vm mask, vf a) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return BOTH(vf, masked_half(a.low, mask, bits), masked_half(a.high, mask >> 8, bits));
}
/* The lanes of the mask one after another; rubbish behind them, up to sixteen lanes in all. */
INLINE void vf_store_packed(float *p, vm mask, vf a) {
    float lanes[LANES];
    vf_store(lanes, a);
    for (; mask; mask &= (vm)(mask - 1)) *p++ = lanes[__builtin_ctz(mask)];
}
/* The largest whole number not above log2 of a positive number that is not denormal. */
INLINE __m256 exponent_half(__m256 a) {
    __m256i exponent = _mm256_srli_epi32(_mm256_castps_si256(a), 23);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(exponent, _mm256_set1_epi32(127)));
}
INLINE vf vf_exponent(vf a) { return EACH(vf, exponent_half, a); }

INLINE vi vi_all(uint32_t x) {
    return BOTH(vi, _mm256_set1_epi32((int32_t)x), _mm256_set1_epi32((int32_t)x));
}
INLINE vi vi_from(int first) { return EACH2(vi, _mm256_add_epi32, vi_lanes(), vi_all((uint32_t)first)); }
INLINE vi vi_xor(vi a, vi b) { return EACH2(vi, _mm256_xor_si256, a, b); }
INLINE vi vi_mul(vi a, vi b) { return EACH2(vi, _mm256_mullo_epi32, a, b); }
INLINE vi vi_shift_right(vi a, int by) {
    return BOTH(vi, _mm256_srli_epi32(a.low, by), _mm256_srli_epi32(a.high, by));
}

/* A sum in double precision. */
typedef struct {
    __m256d parts[4];
} Wide;

INLINE Wide wide_zero(void) {
    const __m256d zero = _mm256_setzero_pd();
    return (Wide){{zero, zero, zero, zero}};
}
INLINE Wide wide_add(Wide sum, vf a) {
    sum.parts[0] = _mm256_add_pd(sum.parts[0], _mm256_cvtps_pd(_mm256_castps256_ps128(a.low)));
    sum.parts[1] = _mm256_add_pd(sum.parts[1], _mm256_cvtps_pd(_mm256_extractf128_ps(a.low, 1)));
    sum.parts[2] = _mm256_add_pd(sum.parts[2], _mm256_cvtps_pd(_mm256_castps256_ps128(a.high)));
    sum.parts[3] = _mm256_add_pd(sum.parts[3], _mm256_cvtps_pd(_mm256_extractf128_ps(a.high, 1)));
    return sum;
}
INLINE double wide_total(Wide sum) {
    __m256d four =
        _mm256_add_pd(_mm256_add_pd(sum.parts[0], sum.parts[1]), _mm256_add_pd(sum.parts[2], sum.parts[3]));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
