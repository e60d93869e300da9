/* Activations, and the walk over panels, tiles and halves that every rung's matrix product shares.
 *
 * Weights are the stream that counts when there are few rows: panels are then walked front to back,
 * each block once, all rows of the one tile beside it. With more rows than a tile the arithmetic
 * counts: a panel stays in the cache while all tiles pass by, each multiplied with one strip of 16
 * rows after the other. Rows are cut into tiles by a rule that knows only their number, and no
 * output depends on its neighbours, so neither choice can be seen in a result. */
#include <string.h>

#include "base/err.h"
#include "kernel/kernel_internal.h"

/* ---- activations ---- */

static size_t round_64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Packed room for `count` rows: the sizes that the rungs have code for. */
static uint32_t tile_size(uint32_t count)
{
    if (count <= 4)
        return count;
    return count <= 6 ? 6 : count <= 8 ? 8 : TILE_ROWS_CAP;
}

size_t activation_bytes(uint32_t rows, uint32_t cols)
{
    const size_t packed_rows = (size_t)rows + TILE_ROWS_CAP - 1;
    const size_t groups = ((size_t)cols + ACTIVATION_GROUP - 1) / ACTIVATION_GROUP;
    const size_t scales = packed_rows * groups * sizeof(float);
    /* A line of slack after each part: vector loads of a tile's row of words may pass its end. */
    return round_64(packed_rows * groups * ACTIVATION_GROUP) + round_64(scales) +
           3 * round_64(scales * (ACTIVATION_GROUP / SUM_GROUP)) + 5 * (size_t)64;
}

void activation_init(struct activation *a, const struct kernel *kernel, void *memory,
                     const float *x, size_t x_stride, uint32_t rows, uint32_t cols, bool quantised)
{
    const size_t packed_rows = (size_t)rows + TILE_ROWS_CAP - 1;
    const size_t groups = ((size_t)cols + ACTIVATION_GROUP - 1) / ACTIVATION_GROUP;
    const size_t scales = round_64(packed_rows * groups * sizeof(float)) + 64;
    const size_t sums = round_64(packed_rows * groups * sizeof(float) * 4) + 64;
    uint8_t *at = memory;
    *a = (struct activation){
        .rows = rows,
        .cols = cols,
        .quantised = quantised,
        .x = x,
        .x_stride = x_stride,
        .tile_rows = kernel->matmul->tile_rows,
        .cols_padded = (uint32_t)groups * ACTIVATION_GROUP,
    };
    a->n_tiles = (rows + a->tile_rows - 1) / a->tile_rows;
    a->q = (int8_t *)at;
    at += round_64(packed_rows * groups * ACTIVATION_GROUP) + 64;
    a->scales = (float *)at;
    at += scales;
    a->sums = (int32_t *)at;
    at += sums;
    a->scaled_sums = (float *)at;
    at += sums;
    a->starts = (uint32_t *)at;
}

/* Rows are cut into full tiles and a rest; a rest of at most a third joins the last full tile and
 * both are halved, so that no tile is too small to pay for unpacking its weights. */
void activation_tile(const struct activation *a, uint32_t tile, uint32_t *first, uint32_t *end)
{
    const uint32_t cap = a->tile_rows, full = a->rows / cap, rest = a->rows % cap;
    *first = tile * cap;
    *end = min_u32(*first + cap, a->rows);
    if (rest == 0 || full == 0 || rest > cap / 3 || tile + 1 < full)
        return;
    const uint32_t from = (full - 1) * cap, middle = from + (cap + rest + 1) / 2;
    *first = tile + 1 == full ? from : middle;
    *end = tile + 1 == full ? middle : a->rows;
}

void tile_view(const struct activation *a, uint32_t index, struct tile *tile)
{
    uint32_t first, end, packed = index * a->tile_rows;
    activation_tile(a, index, &first, &end);
    if (first < packed) { // the last of two that share a rest
        uint32_t before;
        activation_tile(a, index - 1, &before, &first);
        packed = before + tile_size(first - before);
    }
    const size_t groups = a->cols_padded / ACTIVATION_GROUP;
    *tile = (struct tile){
        .row = first,
        .count = end - first,
        .size = tile_size(end - first),
        .q = a->q + (size_t)packed * a->cols_padded,
        .scales = a->scales + packed * groups,
        .sums = a->sums + packed * groups * 4,
        .scaled_sums = a->scaled_sums + packed * groups * 4,
        .starts = a->starts + packed * groups * 4,
        .x = a->x + first * a->x_stride,
        .x_stride = a->x_stride,
    };
}

static bool all_finite(const float *x, uint32_t n)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000u;
}

static int32_t sum_group(const int8_t *q)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < SUM_GROUP; i++)
        sum += q[i];
    return sum;
}

/* Puts group `group` of row i, q[128] and its scale, in place. */
static void pack_group(const struct tile *tile, uint32_t i, uint32_t group, const int8_t *q,
                       float scale, start_leaf *start)
{
    const uint32_t size = tile->size;
    int8_t *to = tile->q + ((size_t)group * (ACTIVATION_GROUP / 4) * size + i) * 4;
    for (uint32_t word = 0; word < ACTIVATION_GROUP / 4; word++)
        memcpy(to + (size_t)word * size * 4, q + 4 * word, 4);
    tile->scales[(size_t)group * size + i] = scale;
    for (uint32_t part = 0; part < ACTIVATION_GROUP / SUM_GROUP; part++) {
        const size_t at = ((size_t)group * 4 + part) * size + i;
        const int32_t sum = sum_group(q + part * SUM_GROUP);
        tile->sums[at] = sum;
        tile->scaled_sums[at] = scale * (float)sum;
        if (start)
            tile->starts[at] = start(q + part * SUM_GROUP, sum);
    }
}

static bool pack_tile(const struct activation *a, const struct tile *tile, quantise_leaf *quantise,
                      start_leaf *start)
{
    static const int8_t zeros[ACTIVATION_GROUP];
    _Alignas(64) int8_t q[ACTIVATION_GROUP];
    const uint32_t groups = a->cols_padded / ACTIVATION_GROUP;
    bool finite = true;
    for (uint32_t i = 0; i < tile->count; i++) {
        for (uint32_t group = 0; group < groups; group++) {
            const uint32_t col = group * ACTIVATION_GROUP;
            float scale = 0.0f;
            finite &= quantise(tile->x + i * tile->x_stride + col,
                               min_u32(ACTIVATION_GROUP, a->cols - col), q, &scale);
            pack_group(tile, i, group, q, scale, start);
        }
    }
    for (uint32_t i = tile->count; i < tile->size; i++) {
        for (uint32_t group = 0; group < groups; group++)
            pack_group(tile, i, group, zeros, 0.0f, start);
    }
    return finite;
}

bool activation_pack(struct activation *a, uint32_t first, uint32_t end, quantise_leaf *quantise,
                     start_leaf *start)
{
    bool finite = true;
    for (uint32_t index = first; index < end; index++) {
        struct tile tile;
        tile_view(a, index, &tile);
        if (a->quantised) {
            finite &= pack_tile(a, &tile, quantise, start);
            continue;
        }
        for (uint32_t i = 0; i < tile.count; i++)
            finite &= all_finite(tile.x + i * tile.x_stride, a->cols);
    }
    return finite;
}

void matrix_decode_row(const struct matrix *matrix, uint32_t row, float *out)
{
    quant_decode_matrix_row(matrix->format, matrix->data, row, matrix->cols, matrix->group, out);
}

/* ---- the walk ---- */

uint32_t block_header_bytes(enum quant_format format)
{
    return quant_formats[format]->header_bytes;
}

uint32_t block_bytes(enum quant_format format, uint32_t group)
{
    const struct quant_format_ops *const ops = quant_formats[format];
    return ops->header_bytes + QUANT_PANEL_ROWS * group * ops->value_bits / 8;
}

static size_t panel_bytes(const struct matrix *m)
{
    size_t bytes;
    must(quant_panel_bytes(m->format, m->cols, m->group, &bytes));
    return bytes;
}

/* Columns of out that a part fills. */
static uint32_t part_columns(const struct matmul_part *part)
{
    return part->epilogue == MATMUL_SILU_MUL ? part->weights.rows / 2 : part->weights.rows;
}

static uint32_t part_items(const struct matmul_part *part)
{
    return (part_columns(part) + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS;
}

uint32_t matmul_items(const struct matmul *mm)
{
    uint32_t items = 0;
    for (uint32_t i = 0; i < mm->n_parts; i++)
        items += part_items(&mm->parts[i]);
    return items;
}

/* Items [first, end) of one part: some panels at a time, and all tiles beside them. */
static void run_by_panels(const struct activation *a, const struct matmul_part *part,
                          uint32_t first, uint32_t end, const struct matmul_leaves *leaves)
{
    _Alignas(64) float acc[PANELS_CAP * TILE_ROWS_CAP * QUANT_PANEL_ROWS];
    const uint32_t per_item = part->epilogue == MATMUL_SILU_MUL ? 2 : 1;
    const uint32_t step = leaves->n_panels < per_item ? 1 : leaves->n_panels / per_item;
    const uint32_t columns = part_columns(part);
    struct panel_job job = {
        .panel_bytes = panel_bytes(&part->weights),
        .cols = part->weights.cols,
        .group = part->weights.group,
    };
    for (uint32_t item = first; item < end; item += step) {
        const uint32_t n_items = min_u32(step, end - item);
        job.data = part->weights.data + (size_t)item * per_item * job.panel_bytes;
        job.n_panels = n_items * per_item;
        for (uint32_t t = 0; t < a->n_tiles; t++) {
            struct tile tile;
            tile_view(a, t, &tile);
            job.tile = &tile;
            leaves->panels[part->weights.format](&job, acc);
            const size_t panel_floats = (size_t)tile.size * QUANT_PANEL_ROWS;
            for (uint32_t i = 0; i < n_items; i++) {
                const uint32_t column = (item + i) * QUANT_PANEL_ROWS;
                leaves->finish(&(struct finish_job){
                    .part = part,
                    .tile = &tile,
                    .column = column,
                    .n = min_u32(QUANT_PANEL_ROWS, columns - column),
                    .acc = acc + i * per_item * panel_floats,
                    .up_acc = acc + (i * per_item + 1) * panel_floats,
                    .width = QUANT_PANEL_ROWS,
                });
            }
        }
    }
}

/* One item of one part, 16 rows at a time. A tile's activations stay in the first-level cache for
 * all the strips of the item. */
static void run_by_strips(const struct activation *a, const struct matmul_part *part, uint32_t item,
                          const struct matmul_leaves *leaves)
{
    enum { WIDTH = QUANT_PANEL_ROWS / 2 };
    _Alignas(64) float acc[2][TILE_ROWS_CAP * WIDTH];
    const uint32_t per_item = part->epilogue == MATMUL_SILU_MUL ? 2 : 1;
    const uint32_t columns = part_columns(part);
    strip_leaf *const strip = leaves->strip[part->weights.format];
    struct panel_job job = {
        .panel_bytes = panel_bytes(&part->weights),
        .n_panels = 1,
        .cols = part->weights.cols,
        .group = part->weights.group,
    };
    const uint8_t *const data = part->weights.data + (size_t)item * per_item * job.panel_bytes;
    for (uint32_t t = 0; t < a->n_tiles; t++) {
        struct tile tile;
        tile_view(a, t, &tile);
        job.tile = &tile;
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t column = item * QUANT_PANEL_ROWS + half * WIDTH;
            if (column >= columns)
                break;
            job.is_first = t == 0 && half == 0;
            for (uint32_t i = 0; i < per_item; i++) {
                job.data = data + i * job.panel_bytes;
                strip(&job, half, acc[i]);
            }
            leaves->finish(&(struct finish_job){
                .part = part,
                .tile = &tile,
                .column = column,
                .n = min_u32(WIDTH, columns - column),
                .acc = acc[0],
                .up_acc = acc[1],
                .width = WIDTH,
            });
        }
    }
}

void matmul_drive(const struct matmul *mm, uint32_t first, uint32_t end,
                  const struct matmul_leaves *leaves)
{
    const struct activation *const a = mm->activation;
    struct tile tile;
    tile_view(a, 0, &tile);
    const bool few = a->n_tiles == 1 && tile.size <= leaves->panels_rows;
    uint32_t before = 0; // items of the parts before
    for (uint32_t i = 0; i < mm->n_parts && before < end; i++) {
        const struct matmul_part *const part = &mm->parts[i];
        const uint32_t items = part_items(part);
        const uint32_t from = first > before ? first - before : 0;
        const uint32_t to = min_u32(items, end - before);
        before += items;
        if (few || !leaves->strip[part->weights.format]) {
            if (from < to)
                run_by_panels(a, part, from, to, leaves);
            continue;
        }
        for (uint32_t item = from; item < to; item++)
            run_by_strips(a, part, item, leaves);
    }
}
