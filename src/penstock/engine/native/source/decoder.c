/* One decoder: a step over the granted tokens of all sequences, from token ids to hidden states, and from
 * those to logits. The counterpart of `models/decoder.py` for small integers. */
#include <stdlib.h>

#include "attention.h"

enum { NO_NORM = 0, HEAD_NORM = 1, PROJECTION_NORM = 2 };

typedef struct {
    Matrix qkv, attention_output, gate_up, down;
    const float *attention_norm, *attention_post_norm, *mlp_norm, *mlp_post_norm; /* NULL: none */
    const float *query_norm, *key_norm;
    const float *cos, *sin; /* [positions, rotated / 2]; NULL: positions are not marked */
    uint16_t *keys, *values;
    int32_t rotated, window; /* dimensions; positions, 0: all */
} Layer;

typedef struct {
    Pool *pool;
    Layer *layers;
    Matrix embedding, head;
    const float *final_norm;
    int32_t num_layers, hidden, intermediate, query_key_norm, activation, max_rows, max_positions;
    float norm_eps, embedding_multiplier, residual_multiplier, attention_scale;
    Heads heads;
    /* Room for a step: */
    float *states, *normed, *projected, *attended, *inner;
    Small small;
    float *scratch; /* for each thread */
} Model;

/* Tokens `start` to `start + count` of each sequence, which has a slot in the tables. */
typedef struct {
    int32_t sequences, rows;
    const int32_t *slots, *starts, *counts;
    const int32_t *tokens, *blocks;
    int64_t tokens_stride, blocks_stride;
    /* Made by `penstock_forward`: */
    int32_t *row_sequence, *row_position; /* [rows] */
    int32_t *tile_first;                  /* [tiles + 1] first row of each group of neighbouring rows */
    int32_t tiles;
} Step;

INLINE size_t score_stride(const Model *model) {
    return ((size_t)model->max_positions + 2 * LANES + 31) / 32 * 32;
}
INLINE size_t scratch_floats(const Model *model) {
    return MOST_QUERIES * (score_stride(model) + (size_t)model->heads.dim + LANES);
}

/* By these the other side knows that it means the same structures. */
EXPORT int penstock_model_size(void) { return (int)sizeof(Model); }
EXPORT int penstock_layer_size(void) { return (int)sizeof(Layer); }
EXPORT int penstock_step_size(void) { return (int)sizeof(Step); }

static void *room(size_t bytes) {
    void *found = NULL;
    return posix_memalign(&found, 64, bytes + 64) ? NULL : found;
}

/* 0 if there is no memory for it. */
EXPORT int penstock_model_prepare(Model *model) {
    size_t rows = (size_t)model->max_rows, heads = (size_t)(model->heads.heads + 2 * model->heads.kv_heads);
    size_t dim = (size_t)model->heads.dim, widest = (size_t)model->hidden;
    if ((size_t)model->intermediate > widest) widest = (size_t)model->intermediate;
    if ((size_t)model->heads.heads * dim > widest) widest = (size_t)model->heads.heads * dim;
    size_t groups = (widest + GROUP - 1) / GROUP;
    model->states = room(rows * (size_t)model->hidden * 4);
    model->normed = room(rows * (size_t)model->hidden * 4);
    model->projected = room(rows * heads * dim * 4);
    model->attended = room(rows * (size_t)model->heads.heads * dim * 4);
    model->inner = room(rows * (size_t)model->intermediate * 4);
    model->small.values = room(rows * groups * GROUP);
    model->small.scales = room(rows * groups * 4);
    model->small.sums = room(rows * groups * 4);
    model->scratch = room((size_t)model->pool->threads * scratch_floats(model) * 4);
    return model->states && model->normed && model->projected && model->attended && model->inner &&
           model->small.values && model->small.scales && model->small.sums && model->scratch;
}

EXPORT void penstock_model_release(Model *model) {
    void *all[] = {model->states,       model->normed,       model->projected,  model->attended, model->inner,
                   model->small.values, model->small.scales, model->small.sums, model->scratch};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) free(all[i]);
}

/* Something done to rows, each by itself. */
typedef struct {
    Model *model;
    const Layer *layer;
    const Step *step;
    const float *from, *weight;
    int size, rows, pieces;
} Rows;

INLINE void each_rows(Rows *rows, Work work) {
    rows->pieces = pieces_for(rows->model->pool, rows->rows, 300);
    pool_each(rows->model->pool, rows->pieces, work, rows);
}

static void shrink_rows(void *argument, int piece, int thread) {
    (void)thread;
    const Rows *rows = argument;
    const Model *model = rows->model;
    Small small = model->small;
    small.groups = groups_of(rows->size);
    int from, until;
    part_of(rows->rows, piece, rows->pieces, &from, &until);
    for (int row = from; row < until; row++) {
        const float *at = rows->from + (size_t)row * (size_t)rows->size;
        float factor = rows->weight ? inverse_rms(at, rows->size, model->norm_eps) : 1.0f;
        shrink_row(at, rows->weight, factor, rows->size, &small, row);
    }
}

/* Rows, after a norm if there is one, as small integers. */
static void shrink(Model *model, const float *x, const float *weight, int size, int rows) {
    Rows work = {.model = model, .from = x, .weight = weight, .size = size, .rows = rows};
    each_rows(&work, shrink_rows);
}

static void add_normed_rows(void *argument, int piece, int thread) {
    (void)thread;
    const Rows *rows = argument;
    const Model *model = rows->model;
    int from, until;
    part_of(rows->rows, piece, rows->pieces, &from, &until);
    for (int row = from; row < until; row++) {
        float *x = model->normed + (size_t)row * (size_t)model->hidden;
        float *to = model->states + (size_t)row * (size_t)model->hidden;
        norm_row(x, rows->weight, model->hidden, model->norm_eps, x);
        for (int i = 0; i < model->hidden; i++) to[i] += model->residual_multiplier * x[i];
    }
}

/* states += multiplier * (x W^T), normed before it is added where there is a norm. */
static void project_back(Model *model, const Matrix *matrix, const float *post_norm, int rows) {
    Output out = {model->states, model->hidden, model->residual_multiplier, 1, 0};
    if (post_norm != NULL) {
        out.to = model->normed;
        out.adds = 0;
    }
    multiply(model->pool, matrix, &model->small, rows, out);
    if (post_norm != NULL) {
        Rows work = {.model = model, .weight = post_norm, .rows = rows};
        each_rows(&work, add_normed_rows);
    }
}

INLINE void rotate(float *head, const float *cos, const float *sin, int half) {
    for (int i = 0; i < half; i += LANES) {
        int left = half - i;
        vf c = vf_load_n(cos + i, left), s = vf_load_n(sin + i, left);
        vf a = vf_load_n(head + i, left), b = vf_load_n(head + half + i, left);
        vf_store_n(head + i, vf_sub(vf_mul(a, c), vf_mul(b, s)), left);
        vf_store_n(head + half + i, vf_add(vf_mul(b, c), vf_mul(a, s)), left);
    }
}

INLINE vf bounded(vf x) { return vf_max(vf_all(-65504.0f), vf_min(vf_all(65504.0f), x)); }

/* Query and key of a row: normed, turned, the query scaled; key and value into the cache. */
static void place_row(const Model *model, const Layer *layer, const Step *step, int row, int position) {
    const Heads *heads = &model->heads;
    const int dim = heads->dim, turning = heads->heads + heads->kv_heads;
    float *at = model->projected + (size_t)row * (size_t)(turning + heads->kv_heads) * (size_t)dim;
    if (model->query_key_norm == PROJECTION_NORM) {
        float *key = at + heads->heads * dim;
        norm_row(at, layer->query_norm, heads->heads * dim, model->norm_eps, at);
        norm_row(key, layer->key_norm, heads->kv_heads * dim, model->norm_eps, key);
    }
    for (int head = 0; head < turning; head++) {
        float *x = at + head * dim;
        if (model->query_key_norm == HEAD_NORM)
            norm_row(x, head < heads->heads ? layer->query_norm : layer->key_norm, dim, model->norm_eps, x);
        if (layer->cos != NULL) {
            size_t half = (size_t)(layer->rotated / 2), turn = (size_t)position * half;
            rotate(x, layer->cos + turn, layer->sin + turn, (int)half);
        }
        if (head < heads->heads)
            for (int d = 0; d < dim; d++) x[d] *= model->attention_scale;
    }
    const int sequence = step->row_sequence[row], size = heads->block_size, offset = position % size;
    const size_t block =
        (size_t)step
            ->blocks[(size_t)step->slots[sequence] * (size_t)step->blocks_stride + (size_t)(position / size)];
    for (int head = 0; head < heads->kv_heads; head++) {
        size_t cell = (block * (size_t)heads->kv_heads + (size_t)head) * (size_t)dim * (size_t)size;
        const float *key = at + (heads->heads + head) * dim, *value = at + (turning + head) * dim;
        uint16_t *keys = layer->keys + cell + offset,
                 *values = layer->values + cell + (size_t)offset * (size_t)dim;
        for (int d = 0; d < dim; d += LANES) {
            uint16_t halves[LANES];
            int left = dim - d < LANES ? dim - d : LANES;
            vf_store_half_n(halves, bounded(vf_load_n(key + d, left)), LANES);
            for (int i = 0; i < left; i++) keys[(size_t)(d + i) * (size_t)size] = halves[i];
            vf_store_half_n(values + d, bounded(vf_load_n(value + d, left)), left);
        }
    }
}

static void place_rows(void *argument, int piece, int thread) {
    (void)thread;
    const Rows *rows = argument;
    int from, until;
    part_of(rows->rows, piece, rows->pieces, &from, &until);
    for (int row = from; row < until; row++)
        place_row(rows->model, rows->layer, rows->step, row, rows->step->row_position[row]);
}

/* A piece is one group of neighbouring rows and one key head, or some of the heads that share it. */
INLINE int heads_together(const Heads *heads) {
    int shared = heads->heads / heads->kv_heads;
    return shared < MOST_QUERIES ? shared : MOST_QUERIES;
}

static void attend_piece(void *argument, int piece, int thread) {
    const Rows *rows = argument;
    const Model *model = rows->model;
    const Step *step = rows->step;
    const Heads *heads = &model->heads;
    const int shared = heads->heads / heads->kv_heads, chunk = heads_together(heads),
              chunks = (shared + chunk - 1) / chunk;
    const int tile = piece / (heads->kv_heads * chunks), kv_head = piece / chunks % heads->kv_heads;
    const int head = kv_head * shared + piece % chunks * chunk, left = (kv_head + 1) * shared - head;
    const int first = step->tile_first[tile], sequence = step->row_sequence[first];
    const int stride = (heads->heads + 2 * heads->kv_heads) * heads->dim, width = heads->heads * heads->dim;
    Piece work = {
        .query = model->projected + (size_t)first * (size_t)stride + (size_t)(head * heads->dim),
        .query_stride = stride,
        .to = model->attended + (size_t)first * (size_t)width + (size_t)(head * heads->dim),
        .to_stride = width,
        .keys = rows->layer->keys,
        .values = rows->layer->values,
        .blocks = step->blocks + (size_t)step->slots[sequence] * (size_t)step->blocks_stride,
        .kv_head = kv_head,
        .rows = step->tile_first[tile + 1] - first,
        .heads = left < chunk ? left : chunk,
        .position = step->row_position[first],
        .window = rows->layer->window,
    };
    attend(heads, &work, model->scratch + (size_t)thread * scratch_floats(model), score_stride(model));
}

static void look_up_rows(void *argument, int piece, int thread) {
    (void)thread;
    const Rows *rows = argument;
    const Model *model = rows->model;
    const Step *step = rows->step;
    int from, until;
    part_of(rows->rows, piece, rows->pieces, &from, &until);
    for (int row = from; row < until; row++) {
        size_t slot = (size_t)step->slots[step->row_sequence[row]];
        int token = step->tokens[slot * (size_t)step->tokens_stride + (size_t)step->row_position[row]];
        look_up(
            &model->embedding, token, model->embedding_multiplier,
            model->states + (size_t)row * (size_t)model->hidden
        );
    }
}

static void forward(Model *model, const Step *step) {
    const Heads *heads = &model->heads;
    const int rows = step->rows, shared = heads->heads / heads->kv_heads, chunk = heads_together(heads);
    const int pieces = step->tiles * heads->kv_heads * ((shared + chunk - 1) / chunk);
    Rows work = {.model = model, .step = step, .rows = rows};
    each_rows(&work, look_up_rows);
    for (int number = 0; number < model->num_layers; number++) {
        const Layer *layer = work.layer = &model->layers[number];
        shrink(model, model->states, layer->attention_norm, model->hidden, rows);
        Output qkv = {model->projected, (heads->heads + 2 * heads->kv_heads) * heads->dim, 1.0f, 0, 0};
        multiply(model->pool, &layer->qkv, &model->small, rows, qkv);
        each_rows(&work, place_rows);
        pool_each(model->pool, pieces, attend_piece, &work);
        shrink(model, model->attended, NULL, heads->heads * heads->dim, rows);
        project_back(model, &layer->attention_output, layer->attention_post_norm, rows);
        shrink(model, model->states, layer->mlp_norm, model->hidden, rows);
        Output inner = {model->inner, model->intermediate, 1.0f, 0, model->activation};
        multiply(model->pool, &layer->gate_up, &model->small, rows, inner);
        shrink(model, model->inner, NULL, model->intermediate, rows);
        project_back(model, &layer->down, layer->mlp_post_norm, rows);
    }
}

/* The hidden states after the last layer are in `model->states`; 0 if there is no memory for the step. */
EXPORT int penstock_forward(Model *model, Step *step) {
    pool_enter(model->pool);
    const int shared = model->heads.heads / model->heads.kv_heads;
    const int neighbours = shared < MOST_QUERIES ? MOST_QUERIES / shared : 1;
    int32_t *numbers = malloc(sizeof(int32_t) * 3 * ((size_t)step->rows + 1));
    if (numbers == NULL) return 0;
    step->row_sequence = numbers;
    step->row_position = numbers + step->rows;
    step->tile_first = numbers + 2 * step->rows;
    step->tiles = 0;
    for (int sequence = 0, row = 0; sequence < step->sequences; sequence++) {
        for (int i = 0; i < step->counts[sequence]; i++, row++) {
            if (i % neighbours == 0) step->tile_first[step->tiles++] = row;
            step->row_sequence[row] = sequence;
            step->row_position[row] = step->starts[sequence] + i;
        }
    }
    step->tile_first[step->tiles] = step->rows;
    forward(model, step);
    free(numbers);
    return 1;
}

/* Rows of hidden states, at most `max_rows`, to logits [rows, vocabulary]. */
EXPORT void penstock_logits(Model *model, const float *states, int rows, float *logits) {
    pool_enter(model->pool);
    shrink(model, states, model->final_norm, model->hidden, rows);
    Output out = {logits, model->head.outputs, 1.0f, 0, 0};
    multiply(model->pool, &model->head, &model->small, rows, out);
}
