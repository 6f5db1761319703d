/* exp and what is made of it, to about two units in the last place. */
#pragma once

#include "simd.h"

INLINE vf vf_exp(vf x) {
    /* Beyond these a float is zero or infinite anyway; a NaN stays one. */
    x = vf_min(vf_all(89.0f), vf_max(vf_all(-104.0f), x));
    vf n = vf_round(vf_mul(x, vf_all(1.44269504088896341f)));
    vf r = vf_fma(n, vf_all(-0.693145751953125f), x);
    r = vf_fma(n, vf_all(-1.42860682030941723e-6f), r);
    vf p = vf_all(1.0f / 5040.0f);
    p = vf_fma(p, r, vf_all(1.0f / 720.0f));
    p = vf_fma(p, r, vf_all(1.0f / 120.0f));
    p = vf_fma(p, r, vf_all(1.0f / 24.0f));
    p = vf_fma(p, r, vf_all(1.0f / 6.0f));
    p = vf_fma(p, r, vf_all(0.5f));
    p = vf_fma(p, r, vf_all(1.0f));
    p = vf_fma(p, r, vf_all(1.0f));
    return vf_scale2(p, n);
}

INLINE vf vf_tanh(vf x) {
    /* 1 - 2 / (exp(2x) + 1) loses the small ones; there x - x^3 / 3 + 2 x^5 / 15 is exact enough. */
    vf e = vf_exp(vf_add(x, x));
    vf far = vf_sub(vf_all(1.0f), vf_div(vf_all(2.0f), vf_add(e, vf_all(1.0f))));
    vf square = vf_mul(x, x);
    vf near = vf_fma(vf_fma(square, vf_all(2.0f / 15.0f), vf_all(-1.0f / 3.0f)), square, vf_all(1.0f));
    near = vf_mul(near, x);
    return vf_if_less(vf_abs(x), vf_all(0.05f), near, far);
}

INLINE vf vf_silu(vf x) { return vf_div(x, vf_add(vf_all(1.0f), vf_exp(vf_sub(vf_zero(), x)))); }

INLINE vf vf_gelu_tanh(vf x) {
    vf inner =
        vf_mul(vf_fma(vf_mul(x, x), vf_all(0.044715f), vf_all(1.0f)), vf_mul(x, vf_all(0.7978845608f)));
    return vf_mul(vf_mul(x, vf_all(0.5f)), vf_add(vf_all(1.0f), vf_tanh(inner)));
}

/* By Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7. */
INLINE vf vf_gelu(vf x) {
    vf z = vf_mul(vf_abs(x), vf_all(0.70710678118654752f));
    vf t = vf_div(vf_all(1.0f), vf_fma(z, vf_all(0.3275911f), vf_all(1.0f)));
    vf p = vf_fma(t, vf_all(1.061405429f), vf_all(-1.453152027f));
    p = vf_fma(p, t, vf_all(1.421413741f));
    p = vf_fma(p, t, vf_all(-0.284496736f));
    p = vf_mul(vf_fma(p, t, vf_all(0.254829592f)), t);
    vf tail = vf_mul(vf_mul(p, vf_exp(vf_sub(vf_zero(), vf_mul(z, z)))), vf_all(0.5f));
    /* tail = (1 - erf z) / 2: what is left of x beyond |x|. */
    vf right = vf_sub(x, vf_mul(x, tail));
    return vf_if_less(x, vf_zero(), vf_mul(x, tail), right);
}

enum { SILU = 0, GELU = 1, GELU_TANH = 2, RELU = 3 };

INLINE vf vf_activate(vf x, int kind) {
    switch (kind) {
        case SILU: return vf_silu(x);
        case GELU: return vf_gelu(x);
        case GELU_TANH: return vf_gelu_tanh(x);
        default: return vf_max(x, vf_zero());
    }
}
