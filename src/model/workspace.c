/* Parts are carved twice by the same code: once from nothing, to learn the size, and once from the
 * block. Each part starts on a line of its own with a free line behind it, so that threads never
 * share one and a vector load past a part's end stays inside the block. */
#include "model/workspace.h"

#include "base/memory.h"
#include "model/step.h"

#define LINE 64u

struct carving {
    uint8_t *block; // NULL: only the size is wanted
    size_t used;
    bool overflowed;
};

static void *carve(struct carving *carving, size_t count, size_t bytes)
{
    size_t size, end;
    if (!size_mul(count, bytes, &size) || size > SIZE_MAX - 2 * LINE ||
        !size_add(carving->used, size_round_up(size, LINE) + LINE, &end)) {
        carving->overflowed = true;
        return NULL;
    }
    uint8_t *part = carving->block == NULL ? NULL : carving->block + carving->used;
    carving->used = end;
    return part;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What threads pack for themselves: a line each for the struct, then its parts. */
static void carve_own(struct workspace *ws, struct carving *carving)
{
    const size_t head_bytes = size_round_up(sizeof(struct workspace_own), LINE);
    const size_t normed_bytes = WORKSPACE_OWN_FLOATS_CAP * sizeof(float) + LINE;
    /* One long row takes the most: the fewer columns, the less of it is room for whole tiles. */
    const size_t packed_bytes = activation_bytes(1, WORKSPACE_OWN_FLOATS_CAP);
    ws->own_bytes = head_bytes + normed_bytes + packed_bytes + LINE;
    ws->own = carve(carving, ws->n_threads, ws->own_bytes);
    for (uint32_t i = 0; carving->block != NULL && i < ws->n_threads; i++) {
        uint8_t *at = ws->own + i * ws->own_bytes;
        *workspace_own(ws, i) = (struct workspace_own){
            .normed = (float *)(void *)(at + head_bytes),
            .memory = at + head_bytes + normed_bytes,
        };
    }
}

static void carve_all(struct workspace *ws, const struct workspace_options *options,
                      struct carving *carving)
{
    const struct model_config *config = options->config;
    const size_t rows = options->max_rows, threads = options->n_threads;
    const size_t width_q = (size_t)config->n_heads * config->head_dim;
    const size_t width_kv = (size_t)config->n_kv_heads * config->head_dim;
    const uint32_t group = config->n_heads / config->n_kv_heads;
    const size_t n_pages = (options->ctx_size - 1) / KV_PAGE_ROWS + 1;
    const size_t n_segments = (n_pages - 1) / ATTEND_SEGMENT_PAGES + 1;
    *ws = (struct workspace){
        .max_rows = options->max_rows,
        .n_threads = options->n_threads,
        .hidden = carve(carving, rows, config->hidden * sizeof(float)),
        .normed = carve(carving, rows, config->hidden * sizeof(float)),
        .q = carve(carving, rows, width_q * sizeof(float)),
        .k = carve(carving, rows, width_kv * sizeof(float)),
        .v = carve(carving, rows, width_kv * sizeof(float)),
        .attended = carve(carving, rows, width_q * sizeof(float)),
        .gate = carve(carving, rows, config->intermediate * sizeof(float)),
        .up = carve(carving, rows, config->intermediate * sizeof(float)),
        .input_memory = carve(carving, 1, activation_bytes(options->max_rows, config->hidden)),
        .inner_memory = carve(
            carving, 1,
            activation_bytes(options->max_rows, (uint32_t)max_size(width_q, config->intermediate))),
        .rows = carve(carving, 2 * rows, sizeof(struct kv_row)),
        .tiles = carve(carving, 2 * rows, sizeof(struct row_tile)),
        .ops_cap = options->n_ops,
        .ops = carve(carving, options->n_ops, sizeof(struct team_op)),
        .op_names = carve(carving, options->n_ops, sizeof(char *)),
        .op_ended_ns = carve(carving, options->n_ops, sizeof(uint64_t)),
        .contexts = carve(carving, options->n_ops, STEP_CONTEXT_BYTES),
        .pages_cap = (uint32_t)n_pages,
        .pages = carve(carving, threads * n_pages, sizeof(void *)),
    };
    ws->scratch_bytes = attend_scratch_bytes(options->shape, group, ATTEND_TILE_ROWS_CAP);
    ws->scratch = carve(carving, threads, ws->scratch_bytes);
    /* Splitting pays while there are fewer items than twice the threads, mostly single rows. */
    ws->partials_bytes = 2 * threads * n_segments * attend_partial_bytes(options->shape, group, 1);
    ws->partials = carve(carving, 1, ws->partials_bytes);
    carve_own(ws, carving);
}

bool workspace_init(struct workspace *ws, const struct workspace_options *options, struct err *err)
{
    struct carving carving = { 0 };
    carve_all(ws, options, &carving);
    *ws = (struct workspace){ 0 };
    if (carving.overflowed)
        return err_set(err, ERR_NO_MEMORY, "a workspace of %u rows", options->max_rows);
    const size_t bytes = carving.used;
    carving = (struct carving){ .block = memory_pages(bytes, err) };
    if (carving.block == NULL)
        return err_wrap(err, "a workspace of %u rows", options->max_rows);
    carve_all(ws, options, &carving);
    ws->block = carving.block;
    ws->block_bytes = bytes;
    return true;
}

void workspace_release(struct workspace *ws)
{
    memory_pages_free(ws->block, ws->block_bytes);
    *ws = (struct workspace){ 0 };
}
