/* Attention over the paged cache: full or with a sliding window, grouped heads, optional biases and
 * per-head norms of q and k.
 *
 * Four loops: q, k and v as one product; norms, rotation and storing of each row; the attention
 * itself; the output product, added to the residual stream. K and V are read from pages only, the
 * batch's own rows included, so that no result depends on how a prompt was cut (docs/numerics.md,
 * rule 7). The batch is cut into tiles of rows of one sequence; an item is a tile with a kv head. A
 * few rows with long pasts would leave threads idle: their items are cut further, into segments,
 * which gives the same bits. */
#include "model/block.h"

#include <math.h>

#include "base/memory.h"

struct attention {
    struct product qkv, output;
    const float *q_norm, *k_norm; // [head_dim] or NULL
    const struct rope_table *rope;
    uint32_t kv_layer; // counted from the stage's first
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window; // 0: all
    float scale, epsilon;
};

/* ---- open ---- */

static bool open_biases(const struct block_parts *parts, uint32_t layer, const float *biases[4],
                        struct err *err)
{
    static const enum tensor_role roles[4] = { TENSOR_Q_BIAS, TENSOR_K_BIAS, TENSOR_V_BIAS,
                                               TENSOR_O_BIAS };
    const struct model_config *config = parts->config;
    for (uint32_t i = 0; i < 4; i++) {
        biases[i] = NULL;
        if ((i < 3 ? config->has_qkv_bias : config->has_o_bias) &&
            !block_vector(parts, layer, roles[i], &biases[i], err))
            return false;
    }
    return true;
}

static bool open_products(struct attention *attention, const struct block *block,
                          const struct block_parts *parts, struct err *err)
{
    static const enum tensor_role roles[3] = { TENSOR_Q, TENSOR_K, TENSOR_V };
    struct workspace *ws = parts->ws;
    float *const outs[3] = { ws->q, ws->k, ws->v };
    const float *biases[4];
    struct matrix matrix;
    if (!open_biases(parts, block->layer, biases, err))
        return false;
    attention->qkv = block_input(block, parts, "q, k, v", TENSOR_Q);
    for (uint32_t i = 0; i < 3; i++) {
        if (!block_matrix(parts, block->layer, roles[i], &matrix, err))
            return false;
        product_add(&attention->qkv, &(struct matmul_part){
                                         .weights = matrix,
                                         .bias = biases[i],
                                         .epilogue = MATMUL_STORE,
                                         .out = outs[i],
                                         .out_stride = matrix.rows,
                                     });
    }
    if (!block_matrix(parts, block->layer, TENSOR_O, &matrix, err))
        return false;
    attention->output = block_product(parts, "output", TENSOR_O, ws->attended);
    product_add(&attention->output, &(struct matmul_part){
                                        .weights = matrix,
                                        .bias = biases[3],
                                        .epilogue = MATMUL_ADD,
                                        .out = ws->hidden,
                                        .out_stride = parts->config->hidden,
                                    });
    return true;
}

static bool attention_open(struct block *block, const struct block_parts *parts, struct err *err)
{
    const struct model_config *config = parts->config;
    const uint32_t window = model_config_window(config, block->layer);
    struct attention *attention = arena_alloc(parts->arena, sizeof(*attention));
    must(attention != NULL);
    *attention = (struct attention){
        .rope = &parts->ropes[config->layer_kinds[block->layer]],
        .kv_layer = block->layer - parts->layer_first,
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
        .window = window == UINT32_MAX ? 0 : window,
        .scale = 1.0f / sqrtf((float)config->head_dim),
        .epsilon = config->norm_eps,
    };
    if (config->has_qk_norm &&
        (!block_vector(parts, block->layer, TENSOR_Q_NORM, &attention->q_norm, err) ||
         !block_vector(parts, block->layer, TENSOR_K_NORM, &attention->k_norm, err)))
        return false;
    block->state = attention;
    return open_products(attention, block, parts, err);
}

/* ---- norms, rotation, storing ---- */

struct attention_step {
    const struct attention *attention;
    const struct block *block;
    struct step *step;
    const struct kv_row *rows;    // of the step when the loop was appended
    const struct row_tile *tiles; // likewise
};

/* What the loops of a step share. */
struct split {
    struct attention_step run;
    uint32_t n_segments; // room for each item; the longest tile has as many
    size_t partial_bytes, item_bytes;
};

static void norm_heads(const struct kernel *kernel, float *x, const float *weight, uint32_t n_heads,
                       uint32_t head_dim, float epsilon)
{
    for (uint32_t head = 0; weight != NULL && head < n_heads; head++) {
        float *values = x + (size_t)head * head_dim;
        kernel->vec->rmsnorm(values, weight, head_dim, epsilon, values);
    }
}

static void turn_and_store(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct attention_step *run = &((const struct split *)context)->run;
    const struct attention *attention = run->attention;
    const struct step *step = run->step;
    const struct kernel *kernel = step->kernel;
    const uint32_t dim = attention->head_dim;
    (void)thread;
    for (uint32_t row = first; row < last; row++) {
        const struct kv_row at = run->rows[row];
        float *q = step->ws->q + (size_t)row * attention->n_heads * dim;
        float *k = step->ws->k + (size_t)row * attention->n_kv_heads * dim;
        const float *v = step->ws->v + (size_t)row * attention->n_kv_heads * dim;
        const float *cos = rope_cos(attention->rope, at.position);
        const float *sin = rope_sin(attention->rope, at.position);
        norm_heads(kernel, q, attention->q_norm, attention->n_heads, dim, attention->epsilon);
        norm_heads(kernel, k, attention->k_norm, attention->n_kv_heads, dim, attention->epsilon);
        kernel->vec->rope(q, attention->n_heads, dim, dim, cos, sin);
        kernel->vec->rope(k, attention->n_kv_heads, dim, dim, cos, sin);
        void *page = kv_cache_page(step->kv, attention->kv_layer, at.sequence, at.position);
        if (!kernel->attend->store(&step->kv->shape, page, at.position % KV_PAGE_ROWS, k, v))
            step_lose(run->step, run->block);
    }
}

/* ---- the attention itself ---- */

/* The call for a tile and a kv head; `pages` is the thread's room for page pointers. */
static struct attend make_call(const struct attention_step *run, const struct row_tile *tile,
                               uint32_t kv_head, const void **pages)
{
    const struct attention *attention = run->attention;
    const struct step *step = run->step;
    const uint32_t group = attention->n_heads / attention->n_kv_heads;
    const size_t width = (size_t)attention->n_heads * attention->head_dim;
    const size_t at = tile->row * width + (size_t)kv_head * group * attention->head_dim;
    const struct attend call = {
        .shape = &step->kv->shape,
        .pages = pages,
        .kv_head = kv_head,
        .n_heads = group,
        .position = tile->position,
        .n_rows = tile->n_rows,
        .window = attention->window,
        .scale = attention->scale,
        .q = step->ws->q + at,
        .q_stride = width,
        .out = step->ws->attended + at,
        .out_stride = width,
    };
    const uint32_t seen_from = attention->window != 0 && tile->position >= attention->window
                                   ? tile->position - attention->window + 1
                                   : 0;
    kv_cache_view(step->kv, attention->kv_layer, tile->sequence, seen_from / KV_PAGE_ROWS,
                  (tile->position + tile->n_rows - 1) / KV_PAGE_ROWS + 1, pages);
    return call;
}

static const void **thread_pages(const struct workspace *ws, uint32_t thread)
{
    return ws->pages + (size_t)thread * ws->pages_cap;
}

static void *thread_scratch(const struct workspace *ws, uint32_t thread)
{
    return ws->scratch + thread * ws->scratch_bytes;
}

/* Items: tile by tile, each kv head. */
static void attend_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct attention_step *run = &((const struct split *)context)->run;
    const struct workspace *ws = run->step->ws;
    const uint32_t n_heads = run->attention->n_kv_heads;
    for (uint32_t item = first; item < last; item++) {
        const struct attend call =
            make_call(run, &run->tiles[item / n_heads], item % n_heads, thread_pages(ws, thread));
        run->step->kernel->attend->run(&call, thread_scratch(ws, thread));
    }
}

/* ---- split into segments ---- */

static void attend_parts(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct split *split = context;
    const struct workspace *ws = split->run.step->ws;
    const uint32_t n_heads = split->run.attention->n_kv_heads;
    for (uint32_t part = first; part < last; part++) {
        const uint32_t item = part / split->n_segments;
        const struct attend call = make_call(&split->run, &split->run.tiles[item / n_heads],
                                             item % n_heads, thread_pages(ws, thread));
        uint32_t segment, end;
        attend_segments(&call, &segment, &end);
        const uint32_t index = part % split->n_segments;
        if (segment + index < end) {
            split->run.step->kernel->attend->part(&call, segment + index,
                                                  ws->partials + item * split->item_bytes +
                                                      index * split->partial_bytes,
                                                  thread_scratch(ws, thread));
        }
    }
}

static void attend_merges(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct split *split = context;
    const struct workspace *ws = split->run.step->ws;
    const uint32_t n_heads = split->run.attention->n_kv_heads;
    for (uint32_t item = first; item < last; item++) {
        const struct attend call = make_call(&split->run, &split->run.tiles[item / n_heads],
                                             item % n_heads, thread_pages(ws, thread));
        split->run.step->kernel->attend->merge(&call, ws->partials + item * split->item_bytes,
                                               thread_scratch(ws, thread));
    }
}

/* True when the items are few, some are long, and there is room for their parts. */
static bool plan_split(struct split *split, uint32_t n_items)
{
    const struct step *step = split->run.step;
    const struct workspace *ws = step->ws;
    const struct attention *attention = split->run.attention;
    const uint32_t group = attention->n_heads / attention->n_kv_heads;
    if (team_threads(step->team) == 1 || n_items >= 2 * team_threads(step->team))
        return false;
    split->n_segments = 0;
    split->partial_bytes = 0;
    for (uint32_t i = 0; i < step->n_tiles; i++) {
        const struct attend call = {
            .position = step->tiles[i].position,
            .n_rows = step->tiles[i].n_rows,
            .window = attention->window,
        };
        uint32_t first, end;
        attend_segments(&call, &first, &end);
        const size_t bytes = attend_partial_bytes(&step->kv->shape, group, step->tiles[i].n_rows);
        split->n_segments = end - first > split->n_segments ? end - first : split->n_segments;
        split->partial_bytes = bytes > split->partial_bytes ? bytes : split->partial_bytes;
    }
    split->item_bytes = split->partial_bytes * split->n_segments;
    return split->n_segments > 1 && n_items * split->item_bytes <= ws->partials_bytes;
}

static void add_loop(struct step *step, const char *name, team_body *body,
                     const struct split *split, uint32_t n_items, uint32_t chunk)
{
    step_add(step, &(struct step_loop){
                       .name = name,
                       .body = body,
                       .context = split,
                       .context_bytes = sizeof(*split),
                       .n_items = n_items,
                       .chunk = chunk,
                   });
}

static void attention_step(const struct block *block, struct step *step)
{
    struct attention *attention = block->state;
    struct split split = { .run = { attention, block, step, step->rows, step->tiles } };
    step_product(step, &attention->qkv);
    add_loop(step, "rotate, store", turn_and_store, &split, step->n_rows, 4);
    if (block->is_last_reader) {
        step_gather(step, step->ws->q, (size_t)attention->n_heads * attention->head_dim);
        step_narrow(step);
        if (step->n_rows == 0)
            return;
        split.run.tiles = step->tiles;
    }
    const uint32_t n_items = step->n_tiles * attention->n_kv_heads;
    if (plan_split(&split, n_items)) {
        add_loop(step, "attend, parts", attend_parts, &split, n_items * split.n_segments, 1);
        add_loop(step, "attend, merge", attend_merges, &split, n_items, 1);
    } else {
        add_loop(step, "attend", attend_items, &split, n_items, 1);
    }
    step_product(step, &attention->output);
}

const struct block_ops block_attention = {
    .name = "attention",
    .mixes_rows = true,
    .open = attention_open,
    .step = attention_step,
};
