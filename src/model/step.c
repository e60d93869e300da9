/* Appending loops, and those that all blocks share: norming, packing, products.
 *
 * A product of few rows is one loop: each thread that takes part norms and packs the rows into
 * memory of its own first. They are a few kilobytes and half a microsecond, about what a barrier
 * and the journey of the packed lines from another core would cost. */
#include "model/step.h"

#include <string.h>

#include "base/memory.h"
#include "model/block.h"

/* ---- the list ---- */

static uint32_t cut_tiles(const struct kv_row *rows, uint32_t n_rows, struct row_tile *tiles)
{
    uint32_t n_tiles = 0;
    for (uint32_t row = 0; row < n_rows; row++) {
        const struct kv_row at = rows[row];
        struct row_tile *tile = n_tiles > 0 ? &tiles[n_tiles - 1] : NULL;
        if (tile != NULL && tile->sequence == at.sequence &&
            tile->position + tile->n_rows == at.position && tile->n_rows < ATTEND_TILE_ROWS_CAP) {
            tile->n_rows++;
            continue;
        }
        tiles[n_tiles++] = (struct row_tile){
            .sequence = at.sequence,
            .position = at.position,
            .row = row,
            .n_rows = 1,
        };
    }
    return n_tiles;
}

void step_begin(struct step *step, const struct kv_row *rows, uint32_t n_rows,
                const uint32_t *wanted, uint32_t n_wanted)
{
    struct workspace *ws = step->ws;
    must(n_rows <= ws->max_rows);
    memcpy(ws->rows, rows, n_rows * sizeof(*rows));
    step->rows = ws->rows;
    step->n_rows = n_rows;
    step->tiles = ws->tiles;
    step->n_tiles = cut_tiles(rows, n_rows, ws->tiles);
    step->wanted = wanted;
    step->n_wanted = n_wanted;
}

void step_add(struct step *step, const struct step_loop *loop)
{
    struct workspace *ws = step->ws;
    must(step->n_ops < ws->ops_cap && loop->context_bytes <= STEP_CONTEXT_BYTES);
    uint8_t *context = ws->contexts + (size_t)step->n_ops * STEP_CONTEXT_BYTES;
    memcpy(context, loop->context, loop->context_bytes);
    ws->op_names[step->n_ops] = loop->name;
    ws->ops[step->n_ops++] = (struct team_op){
        .body = loop->body,
        .prepare = loop->prepare,
        .context = context,
        .n_items = loop->n_items,
        .chunk = loop->chunk,
    };
}

void step_lose(struct step *step, const struct block *block)
{
    atomic_store_explicit(&step->lost, block, memory_order_relaxed);
    atomic_store_explicit(&step->is_lost, true, memory_order_release);
}

/* ---- products ---- */

static enum activation_mode mode_for(enum model_activation rounding, uint32_t group)
{
    static const enum activation_mode modes[] = {
        [MODEL_ACTIVATION_G32] = ACTIVATION_G32,   [MODEL_ACTIVATION_G64] = ACTIVATION_G64,
        [MODEL_ACTIVATION_G128] = ACTIVATION_G128, [MODEL_ACTIVATION_ROW] = ACTIVATION_ROW,
        [MODEL_ACTIVATION_NONE] = ACTIVATION_NONE,
    };
    must(rounding != MODEL_ACTIVATION_DEFAULT);
    if (rounding != MODEL_ACTIVATION_WEIGHT)
        return modes[rounding];
    return group == 32 ? ACTIVATION_G32 : group == 64 ? ACTIVATION_G64 : ACTIVATION_G128;
}

void product_add(struct product *product, const struct matmul_part *part)
{
    struct matmul *matmul = &product->matmul;
    must(matmul->n_parts < MATMUL_PARTS_CAP);
    must(matmul->n_parts == 0 || part->weights.cols == matmul->parts[0].weights.cols);
    matmul->parts[matmul->n_parts++] = *part;
    if (quant_formats[part->weights.format]->is_float)
        return;
    const enum activation_mode mode = mode_for(product->rounding, part->weights.group);
    if (!product->is_quantised || mode < product->mode) // finer groups come first
        product->mode = mode;
    product->is_quantised = true;
}

struct product_run {
    struct step *step;
    const struct block *block;
    const struct product *product;
};

/* `normed`: NULL without a norm. */
static void init_rows(const struct product *product, const struct step *step, uint32_t n_rows,
                      const float *normed, void *memory, struct activation *out)
{
    const uint32_t cols = product->matmul.parts[0].weights.cols;
    activation_init(out, step->kernel, memory,
                    &(struct activation_options){
                        .x = normed != NULL ? normed : product->x,
                        .x_stride = cols,
                        .rows = n_rows,
                        .cols = cols,
                        .mode = product->mode,
                        .quantised = product->is_quantised,
                    });
}

static void norm_and_pack(const struct product_run *run, uint32_t tile, float *normed,
                          struct activation *out)
{
    const struct product *product = run->product;
    const struct kernel *kernel = run->step->kernel;
    uint32_t row, end;
    activation_tile(out, tile, &row, &end);
    for (; product->weight != NULL && row < end; row++) {
        const size_t at = (size_t)row * out->cols;
        kernel->vec->rmsnorm(product->x + at, product->weight, out->cols, product->epsilon,
                             normed + at);
    }
    if (!kernel->matmul->pack(out, tile, tile + 1))
        step_lose(run->step, run->block);
}

/* Few rows: all in each thread's own room. */

static void pack_own(void *context, uint32_t thread)
{
    const struct product_run *run = context;
    const struct product *product = run->product;
    struct workspace_own *own = workspace_own(run->step->ws, thread);
    float *normed = product->weight != NULL ? own->normed : NULL;
    init_rows(product, run->step, product->activation.rows, normed, own->memory, &own->activation);
    norm_and_pack(run, 0, normed, &own->activation);
}

static void run_own(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct product_run *run = context;
    struct matmul matmul = run->product->matmul;
    matmul.activation = &workspace_own(run->step->ws, thread)->activation;
    run->step->kernel->matmul->run(&matmul, first, last);
}

/* Many: packed once, tile by tile, for all. */

static void pack_shared(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct product_run *run = context;
    struct activation activation = run->product->activation;
    (void)thread;
    for (uint32_t tile = first; tile < last; tile++)
        norm_and_pack(run, tile, run->product->normed, &activation);
}

static void run_shared(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct product_run *run = context;
    (void)thread;
    run->step->kernel->matmul->run(&run->product->matmul, first, last);
}

struct observing {
    const struct model_observer *observer;
    uint32_t layer;
    enum tensor_role role;
    const float *x;
    uint32_t n_rows, cols;
};

static void observe(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct observing *of = context;
    (void)first, (void)last, (void)thread;
    of->observer->see(of->observer->context, of->layer, of->role, of->x, of->n_rows, of->cols);
}

static void add_observation(struct step *step, const struct product *product)
{
    const struct observing context = {
        .observer = step->observer,
        .layer = step->block != NULL ? step->block->layer : TENSOR_NO_LAYER,
        .role = product->role,
        .x = product->weight != NULL ? product->normed : product->x,
        .n_rows = step->n_rows,
        .cols = product->matmul.parts[0].weights.cols,
    };
    step_add(step, &(struct step_loop){
                       .name = "observe",
                       .body = observe,
                       .context = &context,
                       .context_bytes = sizeof(context),
                       .n_items = 1,
                       .chunk = 1,
                   });
}

void step_product(struct step *step, struct product *product)
{
    struct matmul *matmul = &product->matmul;
    const uint32_t n_items = matmul_items(matmul);
    const uint32_t cols = matmul->parts[0].weights.cols;
    /* Some panels at a time keep a thread's stream sequential, at least those that are walked
     * together; enough chunks to share the rest. */
    const uint32_t share = n_items / (8 * team_threads(step->team));
    const uint32_t least = step->tuning->n_panels;
    const uint32_t chunk = share < least ? least : share > 8 ? 8 : share;
    struct product_run run = { step, step->block, product };
    init_rows(product, step, step->n_rows, product->weight != NULL ? product->normed : NULL,
              product->memory, &product->activation);
    matmul->activation = &product->activation;
    matmul->tuning = step->tuning;
    const bool is_own = step->observer == NULL && product->activation.n_tiles == 1 &&
                        (size_t)step->n_rows * cols <= WORKSPACE_OWN_FLOATS_CAP;
    struct step_loop loop = {
        .name = "pack",
        .body = pack_shared,
        .context = &run,
        .context_bytes = sizeof(run),
        .n_items = product->activation.n_tiles,
        .chunk = 1,
    };
    if (!is_own)
        step_add(step, &loop);
    if (step->observer != NULL)
        add_observation(step, product); // what the loop before has normed
    loop.name = product->name;
    loop.body = is_own ? run_own : run_shared;
    loop.prepare = is_own ? pack_own : NULL;
    loop.n_items = n_items;
    loop.chunk = chunk;
    step_add(step, &loop);
}

/* ---- fewer rows ---- */

struct gathering {
    const uint32_t *wanted;
    uint32_t n_wanted;
    float *x;
    size_t width;
};

static void gather(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct gathering *of = context;
    (void)first, (void)last, (void)thread;
    for (uint32_t i = 0; i < of->n_wanted; i++) { // rows only move forward
        if (of->wanted[i] != i)
            memcpy(of->x + i * of->width, of->x + of->wanted[i] * of->width,
                   of->width * sizeof(*of->x));
    }
}

void step_gather(struct step *step, float *x, size_t width)
{
    if (step->n_wanted == step->n_rows)
        return;
    step_add(step, &(struct step_loop){
                       .name = "gather",
                       .body = gather,
                       .context = &(struct gathering){ step->wanted, step->n_wanted, x, width },
                       .context_bytes = sizeof(struct gathering),
                       .n_items = 1,
                       .chunk = 1,
                   });
}

void step_narrow(struct step *step)
{
    struct workspace *ws = step->ws;
    struct kv_row *rows = ws->rows + ws->max_rows;
    struct row_tile *tiles = ws->tiles + ws->max_rows;
    step_gather(step, ws->hidden, step->hidden_width);
    for (uint32_t i = 0; i < step->n_wanted; i++)
        rows[i] = step->rows[step->wanted[i]];
    step->rows = rows;
    step->n_rows = step->n_wanted;
    step->tiles = tiles;
    step->n_tiles = cut_tiles(rows, step->n_rows, tiles);
}
