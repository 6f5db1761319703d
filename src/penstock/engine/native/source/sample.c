/* From logits to tokens: the draw and log-probabilities, as the torch sampler defines them.
 *
 * A row is computed by one thread and depends on nothing else. Each is surveyed once: the largest logit of
 * every block of tokens tells which blocks the rest need not look at.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "functions.h"
#include "threads.h"

#define BLOCK 128 /* tokens */
#define NO_TOKEN -1
#define LN2 0.693147180559945f

typedef struct {
    const float *logits;
    int vocab, blocks;
    float largest, temperature;
    float *block_largest;
    float *values; /* room for a vocabulary and a vector */
} Row;

static int blocks_of(int vocab) { return (vocab + BLOCK - 1) / BLOCK; }

/* Whether the row's largest logit is a number. */
static int survey(Row *row) {
    vm broken = 0;
    float largest = -INFINITY;
    const vf none = vf_all(-INFINITY);
    for (int block = 0; block < row->blocks; block++) {
        int from = block * BLOCK, until = from + BLOCK;
        vf most = none;
        if (until <= row->vocab) {
            for (int i = from; i < until; i += LANES) {
                vf x = vf_load(row->logits + i);
                broken |= vm_nan(x);
                most = vf_max(most, x);
            }
        } else {
            for (int i = from; i < row->vocab; i += LANES) {
                vf x = vf_load_or(row->logits + i, row->vocab - i, none);
                broken |= vm_nan(x);
                most = vf_max(most, x);
            }
        }
        float found = row->block_largest[block] = vf_largest(most);
        if (found > largest) largest = found;
    }
    row->largest = largest;
    return !broken && isfinite(largest);
}

/* Logits with the largest put at 0, by the temperature. Division is monotonic: no order changes. */
INLINE vf scaled(const Row *row, vf logits) {
    return vf_div(vf_sub(logits, vf_all(row->largest)), vf_all(row->temperature));
}
INLINE float scaled_one(const Row *row, float logit) { return (logit - row->largest) / row->temperature; }
INLINE vf scaled_at(const Row *row, int i) {
    return scaled(row, vf_load_or(row->logits + i, row->vocab - i, vf_all(-INFINITY)));
}
INLINE int block_end(const Row *row, int block) {
    int end = (block + 1) * BLOCK;
    return end < row->vocab ? end : row->vocab;
}

static int first_best(const Row *row) {
    int block = 0;
    while (row->block_largest[block] != row->largest) block++;
    int i = block * BLOCK;
    while (row->logits[i] != row->largest) i++;
    return i;
}

/* exp of all scaled logits from `least` on, added up. */
static double mass_from(const Row *row, float least) {
    Wide sum = wide_zero();
    for (int block = 0; block < row->blocks; block++) {
        if (scaled_one(row, row->block_largest[block]) < least) continue;
        vf part = vf_zero();
        for (int i = block * BLOCK; i < block_end(row, block); i += LANES) {
            vf x = scaled_at(row, i);
            part = vf_add(part, vf_masked(vm_at_least(x, vf_all(least)), vf_exp(x)));
        }
        sum = wide_add(sum, part);
    }
    return wide_total(sum);
}

/* Scaled logits from `least` on, into `values`; how many. */
static int gather(const Row *row, float least) {
    int count = 0;
    for (int block = 0; block < row->blocks; block++) {
        if (scaled_one(row, row->block_largest[block]) < least) continue;
        for (int i = block * BLOCK; i < block_end(row, block); i += LANES) {
            vf x = scaled_at(row, i);
            vm kept = (vm)(vm_at_least(x, vf_all(least)) & first_lanes(row->vocab - i));
            vf_store_packed(row->values + count, kept, x);
            count += vm_count(kept);
        }
    }
    return count;
}

INLINE float middle(float a, float b, float c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }

/* The value at which the largest, taken one after another, come to the goal: each counts exp(value), or 1.
 * The values, at least one, are spent; there must be room for a vector behind them. */
INLINE float border(float *values, int count, double goal, const int by_mass) {
    for (;;) {
        float pivot = middle(values[0], values[count / 2], values[count - 1]);
        int above = 0, equal = 0;
        Wide sum = wide_zero();
        for (int i = 0; i < count; i += LANES) {
            vf x = vf_load(values + i);
            vm there = first_lanes(count - i);
            vm larger = (vm)(there & vm_above(x, vf_all(pivot)));
            above += vm_count(larger);
            equal += vm_count((vm)(there & vm_equal(x, vf_all(pivot))));
            if (by_mass) sum = wide_add(sum, vf_masked(larger, vf_exp(x)));
        }
        double over = by_mass ? wide_total(sum) : above;
        double with = over + (by_mass ? equal * (double)expf(pivot) : equal);
        int upwards = above > 0 && goal <= over;
        /* Nothing is left below where rounding makes the goal a little more than all. */
        if (!upwards && (goal <= with || above + equal == count)) return pivot;
        if (!upwards) goal -= with;
        int kept = 0;
        for (int i = 0; i < count; i += LANES) {
            vf x = vf_load(values + i);
            vm wanted = upwards ? vm_above(x, vf_all(pivot)) : vm_above(vf_all(pivot), x);
            wanted = (vm)(wanted & first_lanes(count - i));
            vf_store_packed(values + kept, wanted, x);
            kept += vm_count(wanted);
        }
        count = kept;
    }
}

/* A number of which at least `count` logits are not smaller: so many blocks have such a one. */
static float reached_by(const Row *row, int64_t count) {
    if (count > row->blocks) return -INFINITY;
    memcpy(row->values, row->block_largest, sizeof(float) * (size_t)row->blocks);
    return border(row->values, row->blocks, (double)count, 0);
}

/* The smallest scaled logit that top-k, then top-p of what that leaves, then min-p let through. */
static float threshold(const Row *row, int64_t top_k, float top_p, float min_p) {
    float least = -INFINITY;
    if (top_k > 0 && top_k < row->vocab) {
        int count = gather(row, scaled_one(row, reached_by(row, top_k)));
        least = border(row->values, count, (double)top_k, 0);
    }
    if (top_p < 1.0f) {
        double total = mass_from(row, least);
        /* All that is below this together weighs too little to be needed. */
        float low = (float)log(0.5 * (1.0 - (double)top_p) * total / row->vocab);
        int count = gather(row, fmaxf(low, least));
        least = fmaxf(least, border(row->values, count, (double)top_p * total, 1));
    }
    return min_p > 0.0f ? fmaxf(least, logf(min_p)) : least;
}

/* The noise: a pure function of seed, position and token, the same as `layers/noise.py` has. */
INLINE uint64_t mix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

INLINE vi mix32(vi x) {
    x = vi_mul(vi_xor(x, vi_shift_right(x, 16)), vi_all(0x7FEB352D));
    x = vi_mul(vi_xor(x, vi_shift_right(x, 15)), vi_all(0x846CA68B));
    return vi_xor(x, vi_shift_right(x, 16));
}

/* Sixteen uniform numbers above 0, of the tokens from `first` on. */
INLINE vf uniform(uint64_t key, int first) {
    vi bits = mix32(vi_xor(vi_from(first), vi_all((uint32_t)key)));
    bits = mix32(vi_xor(bits, vi_all((uint32_t)(key >> 32))));
    vf whole = vf_of_ints(vi_shift_right(bits, 1));
    return vf_mul(vf_add(whole, vf_all(0.5f)), vf_all(0x1p-31f));
}

INLINE float score(float value, float uniform_number) {
    float noise = -log1pf(-fminf(uniform_number, 1.0f - 0x1p-24f));
    return value - logf(noise);
}

typedef struct {
    float score;
    int token;
} Winner;

/* The noise is at least the uniform number u, so a score is at most value - log(u): only tokens that could
 * win by that are worth two logarithms. Of equals the first wins, in whatever order they come. */
static void race_block(const Row *row, int block, uint64_t key, float least, Winner *winner) {
    float best = scaled_one(row, row->block_largest[block]);
    if (best < least || best + (32.0f * LN2 + 0.01f) < winner->score) return;
    for (int i = block * BLOCK; i < block_end(row, block); i += LANES) {
        vf values = scaled_at(row, i), numbers = uniform(key, i);
        vf most = vf_add(values, vf_fma(vf_exponent(numbers), vf_all(-LN2), vf_all(0.01f)));
        vm able = (vm)(vm_at_least(most, vf_all(winner->score)) & vm_at_least(values, vf_all(least)));
        able = (vm)(able & first_lanes(row->vocab - i));
        if (!able) continue;
        float value[LANES], number[LANES];
        vf_store(value, values);
        vf_store(number, numbers);
        for (; able; able &= (vm)(able - 1)) {
            int lane = __builtin_ctz(able);
            float found = score(value[lane], number[lane]);
            if (found > winner->score || (found == winner->score && i + lane < winner->token))
                *winner = (Winner){found, i + lane};
        }
    }
}

static int race(const Row *row, int64_t seed, int64_t position, float least) {
    uint64_t key = mix64(mix64((uint64_t)seed) + (uint64_t)position);
    int likeliest = first_best(row);
    Winner winner = {-INFINITY, likeliest};
    /* First where the likeliest is: the sooner a score is high, the fewer others are worked out. */
    race_block(row, likeliest / BLOCK, key, least, &winner);
    for (int block = 0; block < row->blocks; block++) race_block(row, block, key, least, &winner);
    return winner.token;
}

/* Rows are the pieces of work. */
typedef struct {
    const float *logits;
    int vocab;
    float *scratch; /* for each thread */
} Rows;

static size_t scratch_floats(int vocab) { return (size_t)blocks_of(vocab) + (size_t)vocab + 2 * LANES; }

static Row row_at(const Rows *rows, int number, int thread) {
    float *scratch = rows->scratch + (size_t)thread * scratch_floats(rows->vocab);
    int blocks = blocks_of(rows->vocab);
    const float *logits = rows->logits + (size_t)number * (size_t)rows->vocab;
    return (Row){logits, rows->vocab, blocks, 0.0f, 1.0f, scratch, scratch + blocks};
}

/* 0 if there is no memory. */
static int each_row(Pool *pool, Rows *rows, int count, Work work, void *argument) {
    pool_enter(pool);
    /* Mostly untouched: values are few as a rule. */
    rows->scratch = malloc(sizeof(float) * (size_t)pool->threads * scratch_floats(rows->vocab));
    if (rows->scratch == NULL) return 0;
    pool_each(pool, count, work, argument);
    free(rows->scratch);
    return 1;
}

typedef struct {
    Rows rows;
    const float *temperature, *top_p, *min_p; /* by slot */
    const int64_t *top_k, *seeds;             /* by slot */
    const int64_t *slots, *positions;         /* by row */
    int64_t *tokens;
} DrawWork;

static void draw_row(void *argument, int number, int thread) {
    DrawWork *work = argument;
    Row row = row_at(&work->rows, number, thread);
    int64_t slot = work->slots[number];
    if (!survey(&row)) {
        work->tokens[number] = NO_TOKEN;
    } else if (work->temperature[slot] <= 0.0f) {
        work->tokens[number] = first_best(&row);
    } else {
        row.temperature = work->temperature[slot];
        float least = threshold(&row, work->top_k[slot], work->top_p[slot], work->min_p[slot]);
        work->tokens[number] = race(&row, work->seeds[slot], work->positions[number], least);
    }
}

/* A token for each row of logits [rows, vocabulary]; 0 if there is no memory. */
EXPORT int penstock_draw(
    Pool *pool, const float *logits, int rows, int vocab, const float *temperature, const int64_t *top_k,
    const float *top_p, const float *min_p, const int64_t *seeds, const int64_t *slots,
    const int64_t *positions, int64_t *tokens
) {
    DrawWork work = {
        {logits, vocab, NULL}, temperature, top_p, min_p, top_k, seeds, slots, positions, tokens
    };
    return each_row(pool, &work.rows, rows, draw_row, &work);
}

typedef struct {
    Rows rows;
    int most; /* alternatives */
    const int64_t *tokens;
    float *chosen, *top;
    int64_t *rank, *top_ids;
} LogprobsWork;

static int64_t rank_of(const Row *row, float logit) {
    int64_t larger = 0;
    for (int block = 0; block < row->blocks; block++) {
        if (!(row->block_largest[block] > logit)) continue;
        for (int i = block * BLOCK; i < block_end(row, block); i += LANES) {
            vf x = vf_load_or(row->logits + i, row->vocab - i, vf_all(-INFINITY));
            larger += vm_count(vm_above(x, vf_all(logit)));
        }
    }
    return larger + 1;
}

/* The `most` largest logits, at most as many as there are, the largest first and of equals the first. */
static void rank_largest(const Row *row, int most, float *top, int64_t *ids) {
    float least = reached_by(row, most);
    int count = 0;
    for (int block = 0; block < row->blocks; block++) {
        if (row->block_largest[block] < least) continue;
        for (int i = block * BLOCK; i < block_end(row, block); i++) {
            float x = row->logits[i];
            if (x < least || (count == most && x <= top[most - 1])) continue;
            int place = count < most ? count++ : most - 1;
            for (; place > 0 && top[place - 1] < x; place--) {
                top[place] = top[place - 1];
                ids[place] = ids[place - 1];
            }
            top[place] = x;
            ids[place] = i;
        }
    }
}

static void logprobs_of_row(void *argument, int number, int thread) {
    LogprobsWork *work = argument;
    Row row = row_at(&work->rows, number, thread);
    float *top = work->top + (size_t)number * (size_t)work->most;
    int64_t *ids = work->top_ids + (size_t)number * (size_t)work->most;
    if (!survey(&row)) {
        work->chosen[number] = NAN;
        work->rank[number] = 1;
        for (int i = 0; i < work->most; i++) top[i] = NAN, ids[i] = i;
        return;
    }
    double total = log(mass_from(&row, -INFINITY));
    float logit = row.logits[work->tokens[number]];
    work->chosen[number] = (float)((double)(logit - row.largest) - total);
    work->rank[number] = rank_of(&row, logit);
    if (work->most == 0) return;
    rank_largest(&row, work->most, top, ids);
    for (int i = 0; i < work->most; i++) top[i] = (float)((double)(top[i] - row.largest) - total);
}

/* Of each row's token: log-probability and rank; and of the `most` likeliest. 0 if there is no memory. */
EXPORT int penstock_logprobs(
    Pool *pool, const float *logits, int rows, int vocab, const int64_t *tokens, int most, float *chosen,
    int64_t *rank, int64_t *top_ids, float *top
) {
    LogprobsWork work = {{logits, vocab, NULL}, most, tokens, chosen, top, rank, top_ids};
    return each_row(pool, &work.rows, rows, logprobs_of_row, &work);
}
