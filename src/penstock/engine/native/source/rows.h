/* What is done to one row at a time: norm, small integers, look-up. */
#pragma once

#include "matmul.h"

/* 1 / sqrt(mean square + eps) */
INLINE float inverse_rms(const float *x, int size, float eps) {
    vf sum = vf_zero();
    int i = 0;
    for (; i + LANES <= size; i += LANES) {
        vf v = vf_load(x + i);
        sum = vf_fma(v, v, sum);
    }
    if (i < size) {
        vf v = vf_load_n(x + i, size - i);
        sum = vf_fma(v, v, sum);
    }
    return 1.0f / __builtin_sqrtf(vf_sum(sum) / (float)size + eps);
}

/* May be in place. */
INLINE void norm_row(const float *x, const float *weight, int size, float eps, float *to) {
    vf factor = vf_all(inverse_rms(x, size, eps));
    for (int i = 0; i < size; i += LANES) {
        int left = size - i;
        vf_store_n(to + i, vf_mul(vf_mul(vf_load_n(x + i, left), factor), vf_load_n(weight + i, left)), left);
    }
}

/* The row as small integers, after `factor` and `weight` (NULL: none). */
INLINE void shrink_row(const float *x, const float *weight, float factor, int size, Small *to, int row) {
    int8_t *values = to->values + (size_t)row * (size_t)to->groups * GROUP;
    for (int group = 0; group < to->groups; group++) {
        int left = size - group * GROUP;
        const float *at = x + group * GROUP;
        vf a = vf_load_n(at, left), b = left > LANES ? vf_load_n(at + LANES, left - LANES) : vf_zero();
        if (weight != NULL) {
            const float *w = weight + group * GROUP;
            a = vf_mul(vf_mul(a, vf_all(factor)), vf_load_n(w, left));
            if (left > LANES) b = vf_mul(vf_mul(b, vf_all(factor)), vf_load_n(w + LANES, left - LANES));
        }
        float largest = vf_largest(vf_max(vf_abs(a), vf_abs(b)));
        /* The inverse of a smaller number might be infinite: such a group is zero. */
        float scale = largest / 127.0f, inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
        /* What is not a number must not become one. */
        if (!vf_all_finite(a) || !vf_all_finite(b)) {
            scale = __builtin_nanf("");
            a = b = vf_zero();
        }
        vi qa = vi_nearest(vf_mul(a, vf_all(inverse))), qb = vi_nearest(vf_mul(b, vf_all(inverse)));
        vi_store_bytes(values + group * GROUP, qa);
        vi_store_bytes(values + group * GROUP + LANES, qb);
        to->scales[(size_t)row * (size_t)to->groups + group] = scale;
        to->sums[(size_t)row * (size_t)to->groups + group] = scale * (float)(vi_sum(qa) + vi_sum(qb));
    }
}

/* One row of a matrix, as floats. */
static void look_up(const Matrix *matrix, int row, float multiplier, float *to) {
    int groups = groups_of(matrix->inputs), lane = row % PANEL;
    const uint8_t *at = matrix->panels + (size_t)(row / PANEL) * (size_t)groups * group_bytes(matrix->bits);
    float factor = matrix->scale * multiplier;
    for (int group = 0; group < groups; group++, at += group_bytes(matrix->bits)) {
        const uint16_t *halves = (const uint16_t *)at;
        float d = _cvtsh_ss(halves[lane]), m = _cvtsh_ss(halves[PANEL + lane]);
        const uint8_t *q = at + 4 * PANEL + 64 * (lane / LANES) + 4 * (lane % LANES);
        for (int i = 0; i < GROUP && group * GROUP + i < matrix->inputs; i++) {
            int value;
            if (matrix->bits == 8)
                value = q[128 * (i / 4) + i % 4];
            else
                value = q[128 * (i % 16 / 4) + i % 4] >> (i < 16 ? 0 : 4) & 15;
            to[group * GROUP + i] = (d * (float)value + m) * factor;
        }
    }
}
