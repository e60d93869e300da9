/* The walk over pages that every rung's attention shares.
 *
 * A row sees a contiguous run of positions, and of each page a contiguous run of places [first,
 * end). Pairs of (row, query head) that share the kv head are taken a dozen at a time, so that K
 * and V are read once for all of them; where the runs of a tile's pairs differ (the diagonal, a
 * window's edge) the places that all of them see are mixed together and the others pair by pair,
 * before and after, so each pair's order stays that of positions and a masked place is never
 * multiplied. f16 pages are widened once when more than one tile reads them.
 *
 * Three levels of partial softmax, each begun empty: a page into its segment, a segment into the
 * whole. `part` and `merge` stop and go on between the last two. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernel/kernel_internal.h"

enum { PAGE = ATTEND_PAGE_ROWS, LANES = 16 };

/* What a call needs, worked out once; the scratch is cut up by it. */
struct walk {
    const struct attend *a;
    const struct attend_leaves *leaves;
    size_t record_floats;
    uint32_t n_pairs;
    float *k, *v;   // a widened page
    float *scores;  // [ATTEND_PAIRS_CAP][64]
    float *page;    // [ATTEND_PAIRS_CAP] records
    float *segment; // [n_pairs] records, or the caller's partial
    float *whole;   // [n_pairs] records
    /* q8 */
    int16_t *q16; // [n_pairs][q16_stride]
    size_t q16_stride;
    float *q16_scales; // [n_pairs]
    int16_t *weights;  // [ATTEND_PAIRS_CAP][64]
};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static size_t record_floats(uint32_t head_dim)
{
    return ATTEND_RECORD_MIX + (head_dim + LANES - 1) / LANES * LANES;
}

static size_t element_bytes(enum kv_type type)
{
    return type == KV_Q8 ? 1 : type == KV_F16 ? 2 : 4;
}

static size_t q16_stride(uint32_t head_dim)
{
    return (head_dim + 31) / 32 * 32;
}

size_t attend_scales_offset(const struct kv_shape *shape)
{
    return (size_t)PAGE * shape->head_dim * element_bytes(shape->type);
}

size_t attend_v_offset(const struct kv_shape *shape)
{
    return attend_scales_offset(shape) + (shape->type == KV_Q8 ? 2 * PAGE * sizeof(float) : 0);
}

size_t attend_block_bytes(const struct kv_shape *shape)
{
    return attend_v_offset(shape) + attend_scales_offset(shape); // V is as large as K
}

size_t kv_page_bytes(const struct kv_shape *shape)
{
    return shape->n_kv_heads * attend_block_bytes(shape);
}

size_t attend_partial_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows)
{
    return record_floats(shape->head_dim) * n_heads * n_rows * sizeof(float);
}

size_t attend_scratch_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows)
{
    const size_t floats = (size_t)2 * PAGE * shape->head_dim + (size_t)ATTEND_PAIRS_CAP * PAGE +
                          ATTEND_PAIRS_CAP * record_floats(shape->head_dim);
    const size_t n_pairs = (size_t)n_heads * n_rows;
    const size_t q8 = shape->type != KV_Q8
                          ? 0
                          : ATTEND_PAIRS_CAP * PAGE * sizeof(int16_t) +
                                n_pairs * q16_stride(shape->head_dim) * sizeof(int16_t) +
                                (n_pairs + LANES - 1) / LANES * LANES * sizeof(float);
    return floats * sizeof(float) + 2 * attend_partial_bytes(shape, n_heads, n_rows) + q8;
}

/* The call's q as int16, once for all pages. */
static void quantise_q(const struct walk *w)
{
    const struct attend *const a = w->a;
    const uint32_t head_dim = a->shape->head_dim;
    for (uint32_t pair = 0; pair < w->n_pairs; pair++) {
        const float *const q =
            a->q + pair / a->n_heads * a->q_stride + (size_t)(pair % a->n_heads) * head_dim;
        w->q16_scales[pair] =
            w->leaves->quantise(q, head_dim, w->q16 + pair * w->q16_stride) * a->scale;
    }
}

static struct walk walk_init(const struct attend *a, void *scratch,
                             const struct attend_leaves *leaves)
{
    const size_t record = record_floats(a->shape->head_dim);
    const size_t block = (size_t)PAGE * a->shape->head_dim;
    struct walk w = { .a = a, .leaves = leaves, .record_floats = record };
    must(a->n_rows >= 1 && a->n_rows <= ATTEND_TILE_ROWS_CAP);
    must(a->shape->head_dim <= ATTEND_HEAD_DIM_CAP && a->shape->head_dim % 2 == 0);
    w.n_pairs = a->n_rows * a->n_heads;
    w.k = scratch;
    w.v = w.k + block;
    w.scores = w.v + block;
    w.page = w.scores + ATTEND_PAIRS_CAP * PAGE;
    w.segment = w.page + ATTEND_PAIRS_CAP * record;
    w.whole = w.segment + w.n_pairs * record;
    if (a->shape->type == KV_Q8) {
        w.q16_stride = q16_stride(a->shape->head_dim);
        w.weights = (int16_t *)(void *)(w.whole + w.n_pairs * record);
        w.q16 = w.weights + ATTEND_PAIRS_CAP * PAGE;
        w.q16_scales = (float *)(void *)(w.q16 + w.n_pairs * w.q16_stride);
    }
    return w;
}

/* The first position that a row at `position` sees; the last one is its own. */
static uint32_t first_seen(const struct attend *a, uint32_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

void attend_segments(const struct attend *a, uint32_t *first, uint32_t *end)
{
    const uint32_t positions = ATTEND_SEGMENT_PAGES * PAGE;
    *first = first_seen(a, a->position) / positions;
    *end = (a->position + a->n_rows - 1) / positions + 1;
}

/* Places [*first, *end) of page `page` that row `row` sees; none when *first >= *end. */
static void places_seen(const struct attend *a, uint32_t row, uint32_t page, uint32_t *first,
                        uint32_t *end)
{
    const uint32_t position = a->position + row, base = page * PAGE;
    const uint32_t from = first_seen(a, position);
    *first = from > base ? min_u32(from - base, PAGE) : 0;
    *end = position >= base ? min_u32(position + 1 - base, PAGE) : 0;
}

static void records_clear(float *records, size_t n, size_t floats)
{
    memset(records, 0, n * floats * sizeof(float));
    for (size_t i = 0; i < n; i++)
        records[i * floats] = -INFINITY;
}

/* The kv head's part of a page as the leaves read it. */
static struct attend_block block_view(const struct walk *w, uint32_t page, bool widen)
{
    const struct kv_shape *const shape = w->a->shape;
    const uint8_t *const k =
        (const uint8_t *)w->a->pages[page] + w->a->kv_head * attend_block_bytes(shape);
    const uint8_t *const v = k + attend_v_offset(shape);
    struct attend_block block = { .type = shape->type, .k = k, .v = v };
    if (shape->type == KV_Q8) {
        block.k_scales = (const float *)(const void *)(k + attend_scales_offset(shape));
        block.v_scales = block.k_scales + PAGE;
    } else if (widen && shape->type == KV_F16) {
        const uint32_t n = PAGE * shape->head_dim;
        w->leaves->widen((const uint16_t *)block.k, n, w->k);
        w->leaves->widen((const uint16_t *)block.v, n, w->v);
        block = (struct attend_block){ .type = KV_F32, .k = w->k, .v = w->v };
    }
    return block;
}

/* What a tile's pairs see of a page. */
struct places {
    uint32_t first[ATTEND_PAIRS_CAP], end[ATTEND_PAIRS_CAP];
    uint32_t any_first, any_end, all_first, all_end;
};

/* One pair alone over places [first, end). */
static void mix_pair(const struct walk *w, const struct attend_tile *tile, uint32_t pair,
                     const struct attend_block *block, uint32_t first, uint32_t end)
{
    if (first >= end)
        return;
    struct attend_tile one = { .n_pairs = 1, .head_dim = tile->head_dim };
    one.scores[0] = tile->scores[pair];
    one.part[0] = tile->part[pair];
    w->leaves->mix(&one, block->v, block->type, first, end);
}

/* Places that all pairs see together, the others before and after that. */
static void mix_tile(const struct walk *w, const struct attend_tile *tile,
                     const struct attend_block *block, const struct places *at)
{
    const bool shared = at->all_first < at->all_end;
    for (uint32_t i = 0; i < tile->n_pairs; i++)
        mix_pair(w, tile, i, block, at->first[i], shared ? at->all_first : at->end[i]);
    if (!shared)
        return;
    w->leaves->mix(tile, block->v, block->type, at->all_first, at->all_end);
    for (uint32_t i = 0; i < tile->n_pairs; i++)
        mix_pair(w, tile, i, block, at->all_end, at->end[i]);
}

/* Integers need no care for what is masked: its weight is 0. */
static void mix_tile_q8(const struct walk *w, struct attend_tile *tile,
                        const struct attend_block *block, const struct places *at)
{
    for (uint32_t i = 0; i < tile->n_pairs; i++) {
        tile->weights_scale[i] = w->leaves->weigh(tile->scores[i], block->v_scales, at->first[i],
                                                  at->end[i], tile->weights[i]);
    }
    w->leaves->mix_q8(tile, block, at->any_first / 2 * 2, (at->any_end + 1) / 2 * 2);
}

/* Pairs [first_pair, first_pair + n) of the call. */
static struct attend_tile tile_view_of(const struct walk *w, uint32_t page, uint32_t first_pair,
                                       uint32_t n, struct places *at)
{
    const struct attend *const a = w->a;
    const uint32_t head_dim = a->shape->head_dim;
    struct attend_tile tile = { .n_pairs = n, .head_dim = head_dim, .scale = a->scale };
    *at = (struct places){ .any_first = PAGE, .all_end = PAGE };
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pair = first_pair + i, row = pair / a->n_heads, head = pair % a->n_heads;
        tile.q[i] = a->q + row * a->q_stride + (size_t)head * head_dim;
        tile.scores[i] = w->scores + i * PAGE;
        tile.part[i] = w->page + i * w->record_floats;
        tile.into[i] = w->segment + pair * w->record_floats;
        if (a->shape->type == KV_Q8) {
            tile.q16[i] = w->q16 + pair * w->q16_stride;
            tile.q16_scale[i] = w->q16_scales[pair];
            tile.weights[i] = w->weights + i * PAGE;
        }
        places_seen(a, row, page, &at->first[i], &at->end[i]);
        at->any_first = min_u32(at->any_first, at->first[i]);
        at->any_end = max_u32(at->any_end, at->end[i]);
        at->all_first = max_u32(at->all_first, at->first[i]);
        at->all_end = min_u32(at->all_end, at->end[i]);
    }
    return tile;
}

/* Pairs [first_pair, first_pair + n) of the call, all of which see something of the page. */
static void attend_page_tile(const struct walk *w, const struct attend_block *block, uint32_t page,
                             uint32_t first_pair, uint32_t n)
{
    struct places at;
    struct attend_tile tile = tile_view_of(w, page, first_pair, n, &at);
    const uint32_t first = at.any_first / LANES, end = (at.any_end + LANES - 1) / LANES;
    if (block->type == KV_Q8)
        w->leaves->scores_q8(&tile, block, first, end);
    else
        w->leaves->scores(&tile, block->k, block->type, first, end);
    records_clear(w->page, n, w->record_floats);
    for (uint32_t i = 0; i < n; i++)
        w->leaves->softmax(tile.scores[i], at.first[i], at.end[i], tile.part[i]);
    if (block->type == KV_Q8)
        mix_tile_q8(w, &tile, block, &at);
    else
        mix_tile(w, &tile, block, &at);
    w->leaves->merge(&tile);
}

static void attend_page(const struct walk *w, uint32_t page)
{
    const struct attend *const a = w->a;
    /* Rows that see something of a page follow each other. */
    uint32_t row_first = a->n_rows, row_end = 0;
    for (uint32_t row = 0; row < a->n_rows; row++) {
        uint32_t first, end;
        places_seen(a, row, page, &first, &end);
        if (first < end) {
            row_first = min_u32(row_first, row);
            row_end = row + 1;
        }
    }
    if (row_first >= row_end)
        return;
    const uint32_t pair_end = row_end * a->n_heads, step = w->leaves->n_pairs;
    const bool widen = (row_end - row_first) * a->n_heads > step;
    const struct attend_block block = block_view(w, page, widen);
    for (uint32_t pair = row_first * a->n_heads; pair < pair_end; pair += step)
        attend_page_tile(w, &block, page, pair, min_u32(step, pair_end - pair));
}

static void attend_segment(const struct walk *w, uint32_t segment)
{
    const struct attend *const a = w->a;
    const uint32_t last = (a->position + a->n_rows - 1) / PAGE;
    const uint32_t first_page =
        max_u32(segment * ATTEND_SEGMENT_PAGES, first_seen(a, a->position) / PAGE);
    const uint32_t end_page = min_u32((segment + 1) * ATTEND_SEGMENT_PAGES, last + 1);
    records_clear(w->segment, w->n_pairs, w->record_floats);
    for (uint32_t page = first_page; page < end_page; page++)
        attend_page(w, page);
}

/* Merges one segment's records into the whole; what is empty is passed over. */
static void merge_segment(const struct walk *w, float *records)
{
    struct attend_tile tile = { .head_dim = w->a->shape->head_dim };
    for (uint32_t pair = 0; pair < w->n_pairs; pair++) {
        float *const record = records + pair * w->record_floats;
        if (record[1] > 0.0f || isnan(record[1])) {
            tile.part[tile.n_pairs] = record;
            tile.into[tile.n_pairs++] = w->whole + pair * w->record_floats;
        }
        if (tile.n_pairs == w->leaves->n_pairs || pair + 1 == w->n_pairs) {
            w->leaves->merge(&tile);
            tile.n_pairs = 0;
        }
    }
}

static void finish(const struct walk *w)
{
    const struct attend *const a = w->a;
    const uint32_t head_dim = a->shape->head_dim;
    for (uint32_t pair = 0; pair < w->n_pairs; pair++) {
        float *const out =
            a->out + pair / a->n_heads * a->out_stride + (size_t)(pair % a->n_heads) * head_dim;
        w->leaves->finish(w->whole + pair * w->record_floats, head_dim, out);
    }
}

void attend_drive(const struct attend *a, void *scratch, const struct attend_leaves *leaves)
{
    const struct walk w = walk_init(a, scratch, leaves);
    uint32_t first, end;
    attend_segments(a, &first, &end);
    records_clear(w.whole, w.n_pairs, w.record_floats);
    if (a->shape->type == KV_Q8)
        quantise_q(&w);
    for (uint32_t segment = first; segment < end; segment++) {
        attend_segment(&w, segment);
        merge_segment(&w, w.segment);
    }
    finish(&w);
}

void attend_drive_part(const struct attend *a, uint32_t segment, void *partial, void *scratch,
                       const struct attend_leaves *leaves)
{
    struct walk w = walk_init(a, scratch, leaves);
    w.segment = partial;
    if (a->shape->type == KV_Q8)
        quantise_q(&w);
    attend_segment(&w, segment);
}

void attend_drive_merge(const struct attend *a, const void *partials, void *scratch,
                        const struct attend_leaves *leaves)
{
    const struct walk w = walk_init(a, scratch, leaves);
    const size_t floats = w.n_pairs * w.record_floats;
    uint32_t first, end;
    attend_segments(a, &first, &end);
    records_clear(w.whole, w.n_pairs, w.record_floats);
    for (uint32_t segment = first; segment < end; segment++) {
        memcpy(w.segment, (const float *)partials + (segment - first) * floats,
               floats * sizeof(float));
        merge_segment(&w, w.segment);
    }
    finish(&w);
}
