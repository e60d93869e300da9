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
    float *k, *v;  // a widened page
    float *scores; // [ATTEND_PAIRS_CAP][64]
    float *mixes;  // [ATTEND_PAIRS_CAP][mix_stride] of a page
    size_t mix_stride;
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
    w.mixes = w.scores + ATTEND_PAIRS_CAP * PAGE;
    w.mix_stride = record - ATTEND_RECORD_MIX;
    w.segment = w.mixes + ATTEND_PAIRS_CAP * w.mix_stride;
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

/* The kv head's part of a page as the leaves read it; `next` will be read after it, or is the same.
 */
static struct attend_block block_view(const struct walk *w, uint32_t page, uint32_t next,
                                      bool widen)
{
    const struct kv_shape *const shape = w->a->shape;
    const size_t at = w->a->kv_head * attend_block_bytes(shape);
    const uint8_t *const k = (const uint8_t *)w->a->pages[page] + at;
    const uint8_t *const v = k + attend_v_offset(shape);
    struct attend_block block = { shape->type, .k = k, .v = v, .ahead_of_k = v };
    block.ahead_of_v = (const uint8_t *)w->a->pages[next] + at;
    if (shape->type == KV_Q8) {
        block.k_scales = (const float *)(const void *)(k + attend_scales_offset(shape));
        block.v_scales = block.k_scales + PAGE;
    } else if (widen && shape->type == KV_F16) {
        const uint32_t n = PAGE * shape->head_dim;
        w->leaves->widen((const uint16_t *)block.k, n, w->k);
        w->leaves->widen((const uint16_t *)block.v, n, w->v);
        block = (struct attend_block){ KV_F32, w->k, w->v, NULL, NULL, w->k, w->v };
    }
    return block;
}

/* Pairs [first_pair, first_pair + n) of the call, all of which see something of the page. */
static void tile_init(struct attend_tile *tile, const struct walk *w, uint32_t page,
                      uint32_t first_pair, uint32_t n)
{
    const struct attend *const a = w->a;
    const uint32_t head_dim = a->shape->head_dim;
    tile->n_pairs = n;
    tile->head_dim = head_dim;
    tile->scale = a->scale;
    tile->scores = w->scores;
    tile->mixes = w->mixes;
    tile->mix_stride = w->mix_stride;
    tile->weights = w->weights;
    memset(tile->largest, 0, sizeof(tile->largest));
    memset(tile->into_largest, 0, sizeof(tile->into_largest));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pair = first_pair + i, row = pair / a->n_heads, head = pair % a->n_heads;
        tile->q[i] = a->q + row * a->q_stride + (size_t)head * head_dim;
        tile->into[i] = w->segment + pair * w->record_floats;
        if (a->shape->type == KV_Q8) {
            tile->q16[i] = w->q16 + pair * w->q16_stride;
            tile->q16_scale[i] = w->q16_scales[pair];
        }
        places_seen(a, row, page, &tile->first[i], &tile->end[i]);
    }
}

/* Pair `pair` alone over places [first, end). */
static void mix_pair(const struct walk *w, const struct attend_tile *tile, uint32_t pair,
                     const struct attend_block *block, uint32_t first, uint32_t end)
{
    if (first >= end)
        return;
    struct attend_tile one;
    one.n_pairs = 1;
    one.head_dim = tile->head_dim;
    one.scores = tile->scores + pair * PAGE;
    one.mixes = tile->mixes + pair * tile->mix_stride;
    one.mix_stride = tile->mix_stride;
    w->leaves->mix(&one, block, first, end, ATTEND_MIX_ADD);
}

/* Places that all pairs see together, [first, end), the others before and after that. */
static void mix_ragged(const struct walk *w, const struct attend_tile *tile,
                       const struct attend_block *block, uint32_t first, uint32_t end)
{
    const bool shared = first < end;
    memset(tile->mixes, 0, tile->n_pairs * tile->mix_stride * sizeof(float));
    for (uint32_t i = 0; i < tile->n_pairs; i++)
        mix_pair(w, tile, i, block, tile->first[i], shared ? first : tile->end[i]);
    if (shared) {
        w->leaves->mix(tile, block, first, end, ATTEND_MIX_ADD);
        for (uint32_t i = 0; i < tile->n_pairs; i++)
            mix_pair(w, tile, i, block, end, tile->end[i]);
    }
    w->leaves->merge(tile);
}

static void attend_tile(const struct walk *w, struct attend_tile *tile,
                        const struct attend_block *block)
{
    uint32_t any_first = PAGE, any_end = 0, all_first = 0, all_end = PAGE;
    for (uint32_t i = 0; i < tile->n_pairs; i++) {
        any_first = min_u32(any_first, tile->first[i]);
        any_end = max_u32(any_end, tile->end[i]);
        all_first = max_u32(all_first, tile->first[i]);
        all_end = min_u32(all_end, tile->end[i]);
    }
    w->leaves->scores(tile, block, any_first / LANES, (any_end + LANES - 1) / LANES);
    w->leaves->softmax(tile, block);
    w->leaves->weigh(tile);
    if (block->type == KV_Q8) // integers need no care for what is masked: its weight is 0
        w->leaves->mix(tile, block, any_first / 2 * 2, (any_end + 1) / 2 * 2, ATTEND_MIX_MERGE);
    else if (any_first == all_first && any_end == all_end)
        w->leaves->mix(tile, block, any_first, any_end, ATTEND_MIX_MERGE);
    else
        mix_ragged(w, tile, block, all_first, all_end);
}

static void attend_page(const struct walk *w, uint32_t page, uint32_t next)
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
    const struct attend_block block = block_view(w, page, next, widen);
    struct attend_tile tile;
    for (uint32_t pair = row_first * a->n_heads; pair < pair_end; pair += step) {
        tile_init(&tile, w, page, pair, min_u32(step, pair_end - pair));
        attend_tile(w, &tile, &block);
    }
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
        attend_page(w, page, min_u32(page + 1, last));
}

/* Merges one segment's records into the whole; what is empty is passed over. */
static void merge_segment(const struct walk *w, const float *records)
{
    struct attend_tile tile;
    const uint32_t head_dim = w->a->shape->head_dim;
    tile.n_pairs = 0;
    tile.head_dim = head_dim;
    tile.mixes = w->mixes;
    tile.mix_stride = w->mix_stride;
    memset(tile.largest, 0, sizeof(tile.largest));
    memset(tile.into_largest, 0, sizeof(tile.into_largest));
    for (uint32_t pair = 0; pair < w->n_pairs; pair++) {
        const float *const record = records + pair * w->record_floats;
        if (record[1] > 0.0f || isnan(record[1])) {
            const uint32_t i = tile.n_pairs++;
            tile.largest[i] = record[0];
            tile.sum[i] = record[1];
            tile.into[i] = w->whole + pair * w->record_floats;
            memcpy(tile.mixes + i * tile.mix_stride, record + ATTEND_RECORD_MIX,
                   head_dim * sizeof(float));
        }
        if (tile.n_pairs == w->leaves->n_pairs || pair + 1 == w->n_pairs) {
            w->leaves->weigh(&tile);
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
        merge_segment(&w, (const float *)partials + (segment - first) * floats);
    }
    finish(&w);
}
