/* The walk over panels, tiles and halves that every rung's matrix product shares.
 *
 * Weights are the stream that counts when there are few rows: panels are then walked front to back,
 * each block once, all rows of the one tile beside it. With more rows than a tile the arithmetic
 * counts: a panel stays in the cache while all tiles pass by, each multiplied with one strip of 16
 * rows after the other. Rows are cut into tiles by a rule that knows only their number, and no
 * output depends on its neighbours, so neither choice can be seen in a result. */
#include "kernel/kernel_internal.h"

#include "base/err.h"

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

/* Columns of a dot; 0: the weights are taken as floats, by rule 3. */
static uint32_t dot_group(const struct activation *a, const struct matmul_part *part)
{
    const uint32_t group = part->weights.group, of_x = activation_group(a->mode);
    if (group == 0 || a->mode == ACTIVATION_NONE)
        return 0;
    must(a->quantised);
    return of_x ? min_u32(group, of_x) : group;
}

static const float *row_scales(const struct activation *a, const struct panel_job *job)
{
    return a->mode == ACTIVATION_ROW && job->dot_group ? job->tile->row_scales : NULL;
}

/* Items [first, end) of one part: some panels at a time, and all tiles beside them. */
static void run_by_panels(const struct matmul *mm, const struct matmul_part *part, uint32_t first,
                          uint32_t end, const struct matmul_leaves *leaves)
{
    const struct activation *const a = mm->activation;
    const struct matmul_tuning *const tuning = mm->tuning ? mm->tuning : &leaves->tuning;
    _Alignas(64) float acc[PANELS_CAP * TILE_ROWS_CAP * QUANT_PANEL_ROWS];
    const uint32_t per_item = part->epilogue == MATMUL_SILU_MUL ? 2 : 1;
    const uint32_t step = tuning->n_panels < per_item ? 1 : tuning->n_panels / per_item;
    const uint32_t columns = part_columns(part);
    struct panel_job job = {
        .panel_bytes = panel_bytes(&part->weights),
        .cols = part->weights.cols,
        .group = part->weights.group,
        .dot_group = dot_group(a, part),
        .is_plain = a->mode == ACTIVATION_ROW,
        .tuning = tuning,
    };
    panels_leaf *const panels =
        job.dot_group ? leaves->panels[part->weights.format] : leaves->floats[part->weights.format];
    for (uint32_t item = first; item < end; item += step) {
        const uint32_t n_items = min_u32(step, end - item);
        job.data = part->weights.data + (size_t)item * per_item * job.panel_bytes;
        job.n_panels = n_items * per_item;
        for (uint32_t t = 0; t < a->n_tiles; t++) {
            struct tile tile;
            tile_view(a, t, &tile);
            job.tile = &tile;
            panels(&job, acc);
            const size_t panel_floats = (size_t)tile.size * QUANT_PANEL_ROWS;
            for (uint32_t i = 0; i < n_items; i++) {
                const uint32_t column = (item + i) * QUANT_PANEL_ROWS;
                leaves->finish(&(struct finish_job){
                    .part = part,
                    .tile = &tile,
                    .row_scales = row_scales(a, &job),
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
static void run_by_strips(const struct matmul *mm, const struct matmul_part *part, uint32_t item,
                          const struct matmul_leaves *leaves)
{
    enum { WIDTH = QUANT_PANEL_ROWS / 2 };
    const struct activation *const a = mm->activation;
    _Alignas(64) float acc[2][TILE_ROWS_CAP * WIDTH];
    const uint32_t per_item = part->epilogue == MATMUL_SILU_MUL ? 2 : 1;
    const uint32_t columns = part_columns(part);
    strip_leaf *const strip = leaves->strip[part->weights.format];
    struct panel_job job = {
        .panel_bytes = panel_bytes(&part->weights),
        .n_panels = 1,
        .cols = part->weights.cols,
        .group = part->weights.group,
        .dot_group = dot_group(a, part),
        .is_plain = a->mode == ACTIVATION_ROW,
        .tuning = mm->tuning ? mm->tuning : &leaves->tuning,
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
                .row_scales = row_scales(a, &job),
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
        if (few || !dot_group(a, part) || !leaves->strip[part->weights.format]) {
            if (from < to)
                run_by_panels(mm, part, from, to, leaves);
            continue;
        }
        for (uint32_t item = from; item < to; item++)
            run_by_strips(mm, part, item, leaves);
    }
}
