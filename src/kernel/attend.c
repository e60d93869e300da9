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
    return type == KV_F16 ? 2 : 4;
}

size_t kv_page_bytes(const struct kv_shape *shape)
{
    return (size_t)shape->n_kv_heads * 2 * PAGE * shape->head_dim * element_bytes(shape->type);
}

size_t attend_partial_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows)
{
    return record_floats(shape->head_dim) * n_heads * n_rows * sizeof(float);
}

size_t attend_scratch_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows)
{
    const size_t floats = (size_t)2 * PAGE * shape->head_dim + (size_t)ATTEND_PAIRS_CAP * PAGE +
                          ATTEND_PAIRS_CAP * record_floats(shape->head_dim);
    return floats * sizeof(float) + 2 * attend_partial_bytes(shape, n_heads, n_rows);
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

/* A page as the leaves read it. */
struct page_view {
    const void *k, *v;
    enum kv_type type;
};

static struct page_view page_view(const struct walk *w, uint32_t page, bool widen)
{
    const struct kv_shape *const shape = w->a->shape;
    const size_t block = (size_t)PAGE * shape->head_dim;
    const uint8_t *const k =
        (const uint8_t *)w->a->pages[page] + w->a->kv_head * 2 * block * element_bytes(shape->type);
    struct page_view view = { k, k + block * element_bytes(shape->type), shape->type };
    if (widen && shape->type == KV_F16) {
        w->leaves->widen((const uint16_t *)view.k, (uint32_t)block, w->k);
        w->leaves->widen((const uint16_t *)view.v, (uint32_t)block, w->v);
        view = (struct page_view){ w->k, w->v, KV_F32 };
    }
    return view;
}

/* One pair alone over places [first, end). */
static void mix_pair(const struct walk *w, const struct attend_tile *tile, uint32_t pair,
                     const struct page_view *view, uint32_t first, uint32_t end)
{
    if (first >= end)
        return;
    struct attend_tile one = { .n_pairs = 1, .head_dim = tile->head_dim };
    one.scores[0] = tile->scores[pair];
    one.part[0] = tile->part[pair];
    w->leaves->mix(&one, view->v, view->type, first, end);
}

/* Pairs [first_pair, first_pair + n) of the call, all of which see something of the page. */
static void attend_page_tile(const struct walk *w, const struct page_view *view, uint32_t page,
                             uint32_t first_pair, uint32_t n)
{
    const struct attend *const a = w->a;
    const uint32_t head_dim = a->shape->head_dim;
    struct attend_tile tile = { .n_pairs = n, .head_dim = head_dim, .scale = a->scale };
    uint32_t first[ATTEND_PAIRS_CAP], end[ATTEND_PAIRS_CAP];
    uint32_t any_first = PAGE, any_end = 0, all_first = 0, all_end = PAGE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = (first_pair + i) / a->n_heads, head = (first_pair + i) % a->n_heads;
        tile.q[i] = a->q + row * a->q_stride + (size_t)head * head_dim;
        tile.scores[i] = w->scores + i * PAGE;
        tile.part[i] = w->page + i * w->record_floats;
        tile.into[i] = w->segment + (first_pair + i) * w->record_floats;
        places_seen(a, row, page, &first[i], &end[i]);
        any_first = min_u32(any_first, first[i]);
        any_end = max_u32(any_end, end[i]);
        all_first = max_u32(all_first, first[i]);
        all_end = min_u32(all_end, end[i]);
    }
    w->leaves->scores(&tile, view->k, view->type, any_first / LANES, (any_end + LANES - 1) / LANES);
    records_clear(w->page, n, w->record_floats);
    for (uint32_t i = 0; i < n; i++)
        w->leaves->softmax(tile.scores[i], first[i], end[i], tile.part[i]);
    const bool shared = all_first < all_end;
    for (uint32_t i = 0; i < n; i++)
        mix_pair(w, &tile, i, view, first[i], shared ? all_first : end[i]);
    if (shared) {
        w->leaves->mix(&tile, view->v, view->type, all_first, all_end);
        for (uint32_t i = 0; i < n; i++)
            mix_pair(w, &tile, i, view, all_end, end[i]);
    }
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
    const struct page_view view = page_view(w, page, widen);
    for (uint32_t pair = row_first * a->n_heads; pair < pair_end; pair += step)
        attend_page_tile(w, &view, page, pair, min_u32(step, pair_end - pair));
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
