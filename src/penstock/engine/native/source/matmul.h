/* Matrices of small integers by rows of small integers.
 *
 * A weight is d q + m, with q unsigned of 4 or 8 bits and d, m of half precision for each 32 weights of a
 * row; that holds what most GGUF files store. An activation is s a, with a signed of 8 bits and s for
 * each 32 of a row. The sum over 32 products is then s (d sum(q a) + m sum(a)): integers inside, two float
 * operations outside.
 *
 * A panel is 32 rows of the matrix (columns of the result), group by group: 32 d, 32 m, then the q of four
 * columns at a time for 16 rows and for the 16 others. With 4 bits a byte holds columns c and c + 16.
 */
#pragma once

#include "functions.h"
#include "threads.h"

#define GROUP 32
#define PANEL 32
#define MOST_ROWS 4 /* of the activations at once: what the registers hold */

typedef struct {
    const uint8_t *panels;
    const float *bias; /* or NULL; one for each padded row */
    float scale;       /* of all of it, a power of two */
    int32_t inputs, outputs, bits, gated;
} Matrix;

/* Rows of activations in small integers. */
typedef struct {
    int8_t *values; /* [rows, groups * 32] */
    float *scales;  /* [rows, groups] */
    float *sums;    /* [rows, groups]: of scaled values */
    int groups;
} Small;

INLINE int groups_of(int inputs) { return (inputs + GROUP - 1) / GROUP; }
INLINE int panels_of(int outputs) { return (outputs + PANEL - 1) / PANEL; }
INLINE size_t group_bytes(int bits) { return 4 * PANEL + (size_t)PANEL * GROUP * (size_t)bits / 8; }

/* Where results go. */
typedef struct {
    float *to;
    int64_t stride;
    float multiplier; /* of what is added */
    int adds;         /* to what is there */
    int activation;   /* of a gated matrix */
} Output;

INLINE void put(const Matrix *matrix, const Output *out, int row, int panel, vf first, vf second) {
    vf scale = vf_all(matrix->scale);
    first = vf_mul(first, scale);
    second = vf_mul(second, scale);
    if (matrix->bias != NULL) {
        first = vf_add(first, vf_load(matrix->bias + panel * PANEL));
        second = vf_add(second, vf_load(matrix->bias + panel * PANEL + LANES));
    }
    if (matrix->gated) {
        int left = matrix->outputs / 2 - panel * LANES;
        vf result = vf_mul(vf_activate(first, out->activation), second);
        vf_store_n(out->to + row * out->stride + panel * LANES, result, left);
        return;
    }
    float *to = out->to + row * out->stride + panel * PANEL;
    int left = matrix->outputs - panel * PANEL;
    if (out->adds) {
        first = vf_fma(first, vf_all(out->multiplier), vf_load_n(to, left));
        second = left > LANES ? vf_fma(second, vf_all(out->multiplier), vf_load_n(to + LANES, left - LANES))
                              : second;
    }
    vf_store_n(to, first, left);
    if (left > LANES) vf_store_n(to + LANES, second, left - LANES);
}

/* `rows` and `bits` are constants wherever this is used: the arrays live in registers. */
INLINE void panel_rows(
    const Matrix *matrix, const Small *x, const Output *out, int panel, int row, const int rows,
    const int bits
) {
    const int groups = x->groups;
    const uint8_t *at = matrix->panels + (size_t)panel * (size_t)groups * group_bytes(bits);
    const int8_t *values = x->values + (size_t)row * (size_t)groups * GROUP;
    const float *scales = x->scales + (size_t)row * (size_t)groups;
    const float *sums = x->sums + (size_t)row * (size_t)groups;
    vf result[MOST_ROWS][2];
    for (int r = 0; r < rows; r++) result[r][0] = result[r][1] = vf_zero();
    for (int group = 0; group < groups; group++) {
        const uint8_t *q = at + 4 * PANEL;
        vi dots[MOST_ROWS][2];
        for (int r = 0; r < rows; r++) dots[r][0] = dots[r][1] = vi_zero();
        if (rows <= 2) {
            const uint8_t *ahead = at + 2048;
#pragma GCC unroll 20
            for (int line = 0; line < (int)group_bytes(bits) / 64; line++) prefetch(ahead + 64 * line);
        }
        if (bits == 8) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                vi first = vi_load(q + 128 * j), second = vi_load(q + 128 * j + 64);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    vi four = vi_all_quads(values + (size_t)r * (size_t)groups * GROUP + 4 * j);
                    dots[r][0] = vi_dot(dots[r][0], first, four);
                    dots[r][1] = vi_dot(dots[r][1], second, four);
                }
            }
        } else {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                vi first = vi_load(q + 128 * j), second = vi_load(q + 128 * j + 64);
                vi first_high = vi_high_nibbles(first), second_high = vi_high_nibbles(second);
                first = vi_and(first, vi_all_bytes(15));
                second = vi_and(second, vi_all_bytes(15));
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    const int8_t *here = values + (size_t)r * (size_t)groups * GROUP + 4 * j;
                    vi four = vi_all_quads(here), later = vi_all_quads(here + 16);
                    dots[r][0] = vi_dot_small(dots[r][0], first, four);
                    dots[r][1] = vi_dot_small(dots[r][1], second, four);
                    dots[r][0] = vi_dot_small(dots[r][0], first_high, later);
                    dots[r][1] = vi_dot_small(dots[r][1], second_high, later);
                }
            }
        }
        const uint16_t *halves = (const uint16_t *)at;
        vf d0 = vf_load_half(halves), d1 = vf_load_half(halves + LANES);
        vf m0 = vf_load_half(halves + 2 * LANES), m1 = vf_load_half(halves + 3 * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vf scale = vf_all(scales[(size_t)r * (size_t)groups + group]);
            vf sum = vf_all(sums[(size_t)r * (size_t)groups + group]);
            result[r][0] = vf_fma(vf_mul(vf_of_ints(dots[r][0]), scale), d0, vf_fma(m0, sum, result[r][0]));
            result[r][1] = vf_fma(vf_mul(vf_of_ints(dots[r][1]), scale), d1, vf_fma(m1, sum, result[r][1]));
        }
        values += GROUP;
        at += group_bytes(bits);
    }
    for (int r = 0; r < rows; r++) put(matrix, out, row + r, panel, result[r][0], result[r][1]);
}

#define PANEL_BY_BITS(name, bits)                                                              \
    static inline void name(                                                                   \
        const Matrix *matrix, const Small *x, int rows, const Output *out, int from, int until \
    ) {                                                                                        \
        for (int panel = from; panel < until; panel++) {                                       \
            int row = 0;                                                                       \
            for (; row + MOST_ROWS <= rows; row += MOST_ROWS)                                  \
                panel_rows(matrix, x, out, panel, row, MOST_ROWS, bits);                       \
            switch (rows - row) {                                                              \
                case 3: panel_rows(matrix, x, out, panel, row, 3, bits); break;                \
                case 2: panel_rows(matrix, x, out, panel, row, 2, bits); break;                \
                case 1: panel_rows(matrix, x, out, panel, row, 1, bits); break;                \
            }                                                                                  \
        }                                                                                      \
    }
PANEL_BY_BITS(panels_of_4_bits, 4)
PANEL_BY_BITS(panels_of_8_bits, 8)

/* One x W^T on its way. */
typedef struct {
    const Matrix *matrix;
    Small x;
    Output out;
    int rows, pieces;
} Product;

static inline void multiply_piece(void *argument, int piece, int thread) {
    (void)thread;
    const Product *product = argument;
    int from, until;
    part_of(panels_of(product->matrix->outputs), piece, product->pieces, &from, &until);
    if (product->matrix->bits == 4)
        panels_of_4_bits(product->matrix, &product->x, product->rows, &product->out, from, until);
    else
        panels_of_8_bits(product->matrix, &product->x, product->rows, &product->out, from, until);
}

static inline void multiply(Pool *pool, const Matrix *matrix, const Small *x, int rows, Output out) {
    const int panels = panels_of(matrix->outputs), groups = groups_of(matrix->inputs);
    /* A panel's group takes some 20 ns from memory, and 10 for each row. */
    Product product = {matrix, *x, out, rows, pieces_for(pool, panels, (int64_t)groups * (10 + 10 * rows))};
    product.x.groups = groups;
    pool_each(pool, product.pieces, multiply_piece, &product);
}
