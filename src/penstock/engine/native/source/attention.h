/* Attention over keys and values that lie in blocks, read where they are.
 *
 * Keys of a block and head are [head size, block size], so that sixteen positions are sixteen lanes; values
 * are [block size, head size]. Both are of half precision. All query heads that read one key head are
 * computed together, and with them a few neighbouring rows of a prompt. Scores are summed over dimensions,
 * weights over positions in lanes, values over positions: each in an order that the position alone fixes.
 */
#pragma once

#include "rows.h"

#define MOST_QUERIES 12 /* rows times heads of one piece of work */

typedef struct {
    int32_t heads, kv_heads, dim, block_size;
    float softcap; /* 0: none */
} Heads;

/* One piece: `rows` neighbouring rows of a sequence, some heads that share a key head. */
typedef struct {
    const float *query; /* of the first row and head; scaled and rotated */
    int64_t query_stride;
    float *to;
    int64_t to_stride;
    const uint16_t *keys, *values; /* of the layer */
    const int32_t *blocks;         /* of the sequence */
    int kv_head, rows, heads, position /* of the first row */, window /* 0: none */;
} Piece;

INLINE const float *query_of(const Piece *piece, int dim, int query) {
    return piece->query + (query / piece->heads) * piece->query_stride + (query % piece->heads) * dim;
}

INLINE const uint16_t *block_of(const Heads *heads, const Piece *piece, const uint16_t *cache, int position) {
    size_t block = (size_t)piece->blocks[position / heads->block_size];
    size_t size = (size_t)heads->dim * (size_t)heads->block_size;
    return cache + (block * (size_t)heads->kv_heads + (size_t)piece->kv_head) * size;
}

/* Scores of `count` queries from `first` on, for `tiles` tiles of `width` positions from `position` on.
 * Blocks lie anywhere in memory: those of the next tiles, up to `until`, are fetched meanwhile. */
INLINE void score_tiles(
    const Heads *heads, const Piece *piece, int first, const int count, int position, int until,
    const int width, const int tiles, float *scores, size_t stride
) {
    const size_t size = (size_t)heads->block_size;
    const uint16_t *keys[2], *ahead[2];
    const float *queries[6];
    vf sums[6][2];
    for (int t = 0; t < tiles; t++) {
        int at = position + t * width, next = at + tiles * width;
        keys[t] = block_of(heads, piece, piece->keys, at) + (size_t)at % size;
        ahead[t] = next < until ? block_of(heads, piece, piece->keys, next) + (size_t)next % size : keys[t];
    }
    for (int q = 0; q < count; q++) {
        queries[q] = query_of(piece, heads->dim, first + q);
        for (int t = 0; t < tiles; t++) sums[q][t] = vf_zero();
    }
    for (int d = 0; d < heads->dim; d++) {
        for (int t = 0; t < tiles; t++) {
            prefetch(ahead[t] + (size_t)d * size);
            const uint16_t *at = keys[t] + (size_t)d * size;
            vf key = width == LANES ? vf_load_half(at) : vf_load_half_n(at, width);
            for (int q = 0; q < count; q++) sums[q][t] = vf_fma(key, vf_all(queries[q][d]), sums[q][t]);
        }
    }
    for (int q = 0; q < count; q++)
        for (int t = 0; t < tiles; t++)
            vf_store_n(scores + (size_t)(first + q) * stride + t * width, sums[q][t], width);
}

/* Adds weight times value over positions [from, until) for `count` queries, `vectors` sixteens of dimensions.
 */
INLINE void sum_values(
    const Heads *heads, const Piece *piece, const float *weights, size_t stride, int first, const int count,
    int from, int until, int dimension, const int vectors, float *sums
) {
    vf totals[6][4];
    for (int q = 0; q < count; q++)
        for (int v = 0; v < vectors; v++)
            totals[q][v] = vf_load_n(
                sums + (first + q) * heads->dim + dimension + v * LANES, heads->dim - dimension - v * LANES
            );
    for (int position = from; position < until;) {
        int offset = position % heads->block_size, end = position + heads->block_size - offset;
        const size_t within = (size_t)offset * (size_t)heads->dim + (size_t)dimension;
        const uint16_t *value = block_of(heads, piece, piece->values, position) + within, *ahead = value;
        if (end < until) ahead = block_of(heads, piece, piece->values, end) + within;
        if (end > until) end = until;
        for (; position < end; position++, value += heads->dim, ahead += heads->dim) {
            vf parts[4];
            prefetch(ahead);
            if (vectors > 2) prefetch(ahead + 2 * LANES);
            for (int v = 0; v < vectors; v++) {
                const uint16_t *at = value + v * LANES;
                parts[v] =
                    vectors == 4 ? vf_load_half(at) : vf_load_half_n(at, heads->dim - dimension - v * LANES);
            }
            for (int q = 0; q < count; q++) {
                vf weight = vf_all(weights[(size_t)(first + q) * stride + (size_t)position]);
                for (int v = 0; v < vectors; v++) totals[q][v] = vf_fma(weight, parts[v], totals[q][v]);
            }
        }
    }
    for (int q = 0; q < count; q++)
        for (int v = 0; v < vectors; v++)
            vf_store_n(
                sums + (first + q) * heads->dim + dimension + v * LANES, totals[q][v],
                heads->dim - dimension - v * LANES
            );
}

#define FOR_COUNT(count, call) \
    switch (count) {           \
        case 1: {              \
            enum { N = 1 };    \
            call;              \
        } break;               \
        case 2: {              \
            enum { N = 2 };    \
            call;              \
        } break;               \
        case 3: {              \
            enum { N = 3 };    \
            call;              \
        } break;               \
        case 4: {              \
            enum { N = 4 };    \
            call;              \
        } break;               \
        case 5: {              \
            enum { N = 5 };    \
            call;              \
        } break;               \
        default: {             \
            enum { N = 6 };    \
            call;              \
        } break;               \
    }

static void attend_values(
    const Heads *heads, const Piece *piece, const float *weights, size_t stride, int first, int last,
    int from, int until, float *sums
) {
    for (int dimension = 0; dimension < heads->dim; dimension += 4 * LANES) {
        int whole = heads->dim - dimension >= 4 * LANES;
        for (int query = first; query < last;) {
            int count = last - query < 6 ? last - query : 6;
            for (int v = 0; v < 4 && dimension + v * LANES < heads->dim; v++) {
                if (whole) {
                    FOR_COUNT(
                        count,
                        sum_values(heads, piece, weights, stride, query, N, from, until, dimension, 4, sums)
                    )
                    break;
                }
                FOR_COUNT(
                    count,
                    sum_values(
                        heads, piece, weights, stride, query, N, from, until, dimension + v * LANES, 1, sums
                    )
                )
            }
            query += count;
        }
    }
}

/* `scratch` has room for MOST_QUERIES rows of `stride` scores, and MOST_QUERIES heads. */
static void attend(const Heads *heads, const Piece *piece, float *scratch, size_t stride) {
    const int queries = piece->rows * piece->heads,
              width = heads->block_size < LANES ? heads->block_size : LANES;
    const int until = piece->position + piece->rows;
    int begin =
        piece->window && piece->position + 1 > piece->window ? piece->position + 1 - piece->window : 0;
    begin -= begin % LANES; /* so that a position is always in the same lane */
    float *sums = scratch + MOST_QUERIES * stride;
    float largest[MOST_QUERIES], totals[MOST_QUERIES];

    for (int query = 0; query < queries;) {
        int count = queries - query < 6 ? queries - query : 6, position = begin;
        if (width == LANES)
            for (; position + LANES < until; position += 2 * LANES)
                FOR_COUNT(
                    count,
                    score_tiles(heads, piece, query, N, position, until, LANES, 2, scratch + position, stride)
                )
        for (; position < until; position += width)
            FOR_COUNT(
                count,
                score_tiles(heads, piece, query, N, position, until, width, 1, scratch + position, stride)
            )
        query += count;
    }
    for (int query = 0; query < queries; query++) {
        const int last = piece->position + query / piece->heads;
        const int sees = piece->window && last + 1 > piece->window ? last + 1 - piece->window : 0;
        float *scores = scratch + (size_t)query * stride;
        vf most = vf_all(-__builtin_inff()), total = vf_zero();
        for (int position = begin; position < until; position += LANES) {
            vf score = vf_load(scores + position);
            if (heads->softcap != 0.0f)
                score = vf_mul(vf_tanh(vf_div(score, vf_all(heads->softcap))), vf_all(heads->softcap));
            score = vf_between(score, sees - position, last + 1 - position, -__builtin_inff());
            vf_store(scores + position, score);
            most = vf_max(most, score);
        }
        largest[query] = vf_largest(most);
        for (int position = begin; position < until; position += LANES) {
            vf weight = vf_exp(vf_sub(vf_load(scores + position), vf_all(largest[query])));
            weight = vf_between(weight, sees - position, last + 1 - position, 0.0f);
            vf_store(scores + position, weight);
            total = vf_add(total, weight);
        }
        totals[query] = vf_sum(total);
    }
    for (int i = 0; i < queries * heads->dim; i++) sums[i] = 0.0f;
    /* What only later rows see is left out for earlier ones: a weight of zero does not hide a NaN. */
    attend_values(heads, piece, scratch, stride, 0, queries, begin, piece->position + 1, sums);
    for (int row = 1; row < piece->rows; row++) {
        int at = piece->position + row;
        attend_values(heads, piece, scratch, stride, row * piece->heads, queries, at, at + 1, sums);
    }
    for (int query = 0; query < queries; query++) {
        float *to =
            piece->to + (query / piece->heads) * piece->to_stride + (query % piece->heads) * heads->dim;
        vf inverse = vf_all(1.0f / totals[query]);
        for (int d = 0; d < heads->dim; d += LANES) {
            int left = heads->dim - d;
            vf_store_n(to + d, vf_mul(vf_load_n(sums + query * heads->dim + d, left), inverse), left);
        }
    }
}
