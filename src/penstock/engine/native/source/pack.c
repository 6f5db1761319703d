/* Weights into panels: from what a GGUF file holds, or from floats. */
#include <string.h>

#include "matmul.h"

#define HALF_NAN 0x7e00

/* `map` says which source row each row of the panels is; -1: none. Columns come in whole groups. */
EXPORT void penstock_pack(
    uint8_t *panels, const uint8_t *values, const uint16_t *scales, const uint16_t *offsets,
    const int32_t *map, int32_t num_panels, int32_t groups, int32_t bits
) {
    for (int panel = 0; panel < num_panels; panel++) {
        for (int group = 0; group < groups; group++) {
            uint8_t *at = panels + ((size_t)panel * (size_t)groups + (size_t)group) * group_bytes(bits);
            uint16_t *halves = (uint16_t *)at;
            memset(at, 0, group_bytes(bits));
            for (int lane = 0; lane < PANEL; lane++) {
                int32_t row = map[panel * PANEL + lane];
                if (row < 0) continue;
                size_t cell = (size_t)row * (size_t)groups + (size_t)group;
                halves[lane] = scales[cell];
                halves[PANEL + lane] = offsets[cell];
                const uint8_t *from = values + cell * GROUP;
                uint8_t *to = at + 4 * PANEL + 64 * (lane / LANES) + 4 * (lane % LANES);
                if (bits == 8) {
                    for (int j = 0; j < 8; j++) memcpy(to + 128 * j, from + 4 * j, 4);
                } else {
                    for (int j = 0; j < 4; j++)
                        for (int i = 0; i < 4; i++)
                            to[128 * j + i] = (uint8_t)(from[4 * j + i] | from[4 * j + i + 16] << 4);
                }
            }
        }
    }
}

/* Rows of floats as d q + m with 8 bits, all divided by `scale`. Columns beyond `columns` are zero. A group
 * with a weight that is not finite is not a number as a whole. */
EXPORT void penstock_quantize(
    const float *weights, int64_t rows, int32_t columns, float scale, uint8_t *values, uint16_t *scales,
    uint16_t *offsets
) {
    int groups = groups_of(columns);
    float inverse = 1.0f / scale;
    for (int64_t row = 0; row < rows; row++) {
        for (int group = 0; group < groups; group++) {
            const float *from = weights + row * columns + group * GROUP;
            int count = columns - group * GROUP < GROUP ? columns - group * GROUP : GROUP;
            float low = from[0] * inverse, high = low;
            int finite = 1;
            for (int i = 0; i < count; i++) {
                float x = from[i] * inverse;
                low = x < low ? x : low;
                high = x > high ? x : high;
                finite &= __builtin_isfinite(x);
            }
            size_t cell = (size_t)(row * groups + group);
            if (!finite) {
                scales[cell] = 0;
                offsets[cell] = HALF_NAN;
                memset(values + cell * GROUP, 0, GROUP);
                continue;
            }
            offsets[cell] = _cvtss_sh(low, _MM_FROUND_TO_NEG_INF);
            float m = _cvtsh_ss(offsets[cell]);
            scales[cell] = _cvtss_sh((high - m) / 255.0f, _MM_FROUND_TO_POS_INF);
            float d = _cvtsh_ss(scales[cell]), step = d > 0.0f ? 1.0f / d : 0.0f;
            for (int i = 0; i < GROUP; i++) {
                int q = i < count ? (int)__builtin_rintf((from[i] * inverse - m) * step) : 0;
                values[cell * GROUP + (size_t)i] = (uint8_t)(q < 0 ? 0 : q > 255 ? 255 : q);
            }
        }
    }
}
