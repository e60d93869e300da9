/* The pages of a context follow each other in a piece of the cold block; calls are cut as a model
 * cuts them (model/block_attention.c): an item a KV head and tile of rows, or, where these are too
 * few for the team, a part a segment and a merge. */
#include "bench/attend_bar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/samples.h"

#define ROUNDS_LOW 100u
#define ROUNDS_LOW_COMPUTE 7u

struct attention {
    const struct kernel *kernel;
    struct attend_case of;
    struct kv_shape shape;
    uint32_t n_pages, n_segments, n_tiles;
    uint32_t n_threads; // that scratch is for
    uint32_t n_shared;  // query heads of one call: the group, or 1
    size_t bytes;       // of the context's pages
    size_t partial_bytes, scratch_bytes;
    const void **pages; // [n_pages]
    float *q, *out;     // [n_rows][n_kv_heads x group x head_dim]
    uint8_t *partials, *scratch;
    struct team *team;
    struct samples ratios;
    double best_s;
};

static const char *const type_names[] = { [KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8" };

static uint32_t width(const struct attention *a)
{
    return a->of.n_kv_heads * a->of.group * a->of.head_dim;
}

static void attention_release(struct attention *a)
{
    free(a->pages);
    free(a->q);
    free(a->out);
    free(a->partials);
    free(a->scratch);
    samples_release(&a->ratios);
    *a = (struct attention){ 0 };
}

static void attention_init(struct attention *a, const struct kernel *kernel,
                           const struct attend_case *of, uint32_t n_threads)
{
    const uint32_t tile = of->n_rows < ATTEND_TILE_ROWS_CAP ? of->n_rows : ATTEND_TILE_ROWS_CAP;
    *a = (struct attention){
        .kernel = kernel,
        .of = *of,
        .shape = { of->n_kv_heads, of->head_dim, of->type },
        .n_pages = (of->context + ATTEND_PAGE_ROWS - 1) / ATTEND_PAGE_ROWS,
        .n_tiles = (of->n_rows + tile - 1) / tile,
        .n_threads = n_threads,
        .n_shared = of->group,
        .best_s = INFINITY,
    };
    a->n_segments = (a->n_pages + ATTEND_SEGMENT_PAGES - 1) / ATTEND_SEGMENT_PAGES;
    a->bytes = a->n_pages * kv_page_bytes(&a->shape);
    a->partial_bytes = attend_partial_bytes(&a->shape, of->group, tile);
    a->scratch_bytes = attend_scratch_bytes(&a->shape, of->group, tile);
    a->pages = xcalloc(a->n_pages, sizeof(*a->pages));
    const size_t floats = (size_t)of->n_rows * width(a);
    a->q = xaligned(size_round_up(floats * sizeof(float), 64));
    a->out = xaligned(size_round_up(floats * sizeof(float), 64));
    a->scratch = xaligned(a->scratch_bytes * n_threads);
    a->partials = xaligned(a->partial_bytes * a->n_segments * a->n_tiles * of->n_kv_heads);
    for (size_t i = 0; i < floats; i++)
        a->q[i] = (float)((i * 2654435761u >> 8 & 0xffff)) * 0x1p-16f - 0.5f;
}

static void place(struct attention *a, const uint8_t *piece)
{
    for (uint32_t i = 0; i < a->n_pages; i++)
        a->pages[i] = piece + i * kv_page_bytes(&a->shape);
}

/* ---- calls ---- */

/* Tile and KV head of an item, tile by tile; query head `head` of the group is the first. */
static struct attend make_call(const struct attention *a, uint32_t item, uint32_t head)
{
    const uint32_t tile = item / a->of.n_kv_heads, kv_head = item % a->of.n_kv_heads;
    const uint32_t row = tile * ATTEND_TILE_ROWS_CAP, left = a->of.n_rows - row;
    const size_t at =
        (size_t)row * width(a) + ((size_t)kv_head * a->of.group + head) * a->of.head_dim;
    return (struct attend){
        .shape = &a->shape,
        .pages = a->pages,
        .kv_head = kv_head,
        .n_heads = a->n_shared,
        .position = a->of.context - a->of.n_rows + row,
        .n_rows = left < ATTEND_TILE_ROWS_CAP ? left : ATTEND_TILE_ROWS_CAP,
        .scale = 1.0f / sqrtf((float)a->of.head_dim),
        .q = a->q + at,
        .q_stride = width(a),
        .out = a->out + at,
        .out_stride = width(a),
    };
}

static void run_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct attention *const a = context;
    for (uint32_t item = first; item < last; item++) {
        for (uint32_t head = 0; head < a->of.group; head += a->n_shared) {
            const struct attend call = make_call(a, item, head);
            a->kernel->attend->run(&call, a->scratch + thread * a->scratch_bytes);
        }
    }
}

static void run_parts(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct attention *const a = context;
    for (uint32_t part = first; part < last; part++) {
        const uint32_t item = part / a->n_segments, segment = part % a->n_segments;
        const struct attend call = make_call(a, item, 0);
        uint32_t begin, end;
        attend_segments(&call, &begin, &end);
        if (segment >= begin && segment < end)
            a->kernel->attend->part(&call, segment, a->partials + part * a->partial_bytes,
                                    a->scratch + thread * a->scratch_bytes);
    }
}

static void run_merges(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct attention *const a = context;
    for (uint32_t item = first; item < last; item++) {
        const struct attend call = make_call(a, item, 0);
        a->kernel->attend->merge(&call, a->partials + item * a->n_segments * a->partial_bytes,
                                 a->scratch + thread * a->scratch_bytes);
    }
}

static void run_attention(void *context)
{
    struct attention *const a = context;
    const uint32_t n_items = a->n_tiles * a->of.n_kv_heads, n_threads = team_threads(a->team);
    const bool is_split = n_threads > 1 && n_items < 2 * n_threads && a->n_segments > 1;
    if (!is_split || a->n_shared != a->of.group) {
        team_for(a->team, n_items, 1, run_items, a);
        return;
    }
    team_for(a->team, n_items * a->n_segments, 1, run_parts, a);
    team_for(a->team, n_items, 1, run_merges, a);
}

/* ---- measure ---- */

struct setting {
    const struct attend_spec *spec;
    struct bench *bench;
    struct team *team;
    const struct ceiling_dot *dot;
    uint64_t dot_steps;
    double best_dot_s;
};

/* The rung's result against the scalar one's, bit by bit. */
static bool check_attention(struct attention *a, struct setting *s, struct err *err)
{
    const struct kernel *const kernel = a->kernel;
    const size_t bytes = (size_t)a->of.n_rows * width(a) * sizeof(float);
    float *const expected = xaligned(size_round_up(bytes, 64));
    place(a, cold_next(&s->bench->cold, a->bytes));
    a->team = s->team;
    a->kernel = kernels[0];
    run_attention(a);
    memcpy(expected, a->out, bytes);
    memset(a->out, 0, bytes);
    a->kernel = kernel;
    run_attention(a);
    const bool agree = memcmp(expected, a->out, bytes) == 0;
    free(expected);
    if (agree)
        return true;
    return err_set(err, ERR_CORRUPT,
                   "attention %s, %u heads of %u, context %u: rung %s does not give the bits of "
                   "the scalar one",
                   type_names[a->of.type], a->of.n_kv_heads, a->of.head_dim, a->of.context,
                   kernel->name);
}

/* Of scores and mix: four a position, dimension and query head. */
static double ops(const struct attention *a)
{
    const double before = a->of.context - a->of.n_rows, n = a->of.n_rows;
    return 4.0 * width(a) * (n * before + n * (n + 1) / 2);
}

static double timed(struct attention *a, struct setting *s)
{
    place(a, cold_next(&s->bench->cold, a->bytes));
    return bench_time(s->team, run_attention, a);
}

static void measure(struct setting *s, struct attention *a)
{
    if (s->spec->yardstick == ATTEND_OF_READ) {
        const size_t bytes = a->bytes / CEILING_READ_UNIT * CEILING_READ_UNIT;
        const uint8_t *const piece = cold_next(&s->bench->cold, bytes);
        const double read_s = bench_time_read(s->bench, s->team, piece, bytes);
        const double took_s = timed(a, s);
        samples_add(&a->ratios, (double)a->bytes / took_s / ((double)bytes / read_s));
        a->best_s = fmin(a->best_s, took_s);
    } else if (s->spec->yardstick == ATTEND_OF_UNSHARED) {
        a->n_shared = 1;
        const double alone_s = timed(a, s);
        a->n_shared = a->of.group;
        const double took_s = timed(a, s);
        samples_add(&a->ratios, alone_s / took_s);
        a->best_s = fmin(a->best_s, took_s);
    } else {
        s->best_dot_s = fmin(s->best_dot_s, bench_time_dot(s->team, s->dot, s->dot_steps));
        a->best_s = fmin(a->best_s, bench_time(s->team, run_attention, a));
    }
}

static void describe(const struct setting *s, struct attention *a, struct bar_case *out)
{
    if (s->spec->yardstick == ATTEND_OF_DOT) {
        const double peak =
            (double)s->dot_steps * s->dot->ops_per_step * team_threads(s->team) / s->best_dot_s;
        samples_add(&a->ratios, ops(a) / a->best_s / peak);
    }
    *out = (struct bar_case){
        .figure = samples_median(&a->ratios),
        .low = samples_quantile(&a->ratios, 0.25),
        .high = samples_quantile(&a->ratios, 0.75),
    };
    snprintf(out->what, sizeof(out->what), "%s %u x %u heads of %u, context %u",
             type_names[a->of.type], a->of.n_kv_heads, a->of.group, a->of.head_dim, a->of.context);
    if (s->spec->yardstick == ATTEND_OF_DOT)
        snprintf(out->rate, sizeof(out->rate), "%.0f GFLOPS", ops(a) / a->best_s * 1e-9);
    else
        snprintf(out->rate, sizeof(out->rate), "%.1f GB/s", (double)a->bytes / a->best_s * 1e-9);
}

static bool can_measure(const struct attend_spec *spec, struct bench *bench,
                        const struct kernel **kernel, struct setting *s, struct bar_result *result)
{
    *kernel = spec->rung ? kernel_find(spec->rung) : bench->options.kernel;
    *s = (struct setting){ .spec = spec, .bench = bench, .best_dot_s = INFINITY };
    s->team = bench_team(bench, spec->threads);
    s->dot = spec->dot ? ceiling_dot_find(spec->dot) : NULL;
    if (*kernel && s->team && (!spec->dot || s->dot))
        return true;
    result->state = BAR_NOT_HERE;
    if (!*kernel)
        snprintf(result->why, sizeof(result->why), "no rung %s", spec->rung);
    else if (!s->team)
        snprintf(result->why, sizeof(result->why), "fewer than %u processors",
                 bench->options.threads);
    else
        snprintf(result->why, sizeof(result->why), "no %s", spec->dot);
    return false;
}

bool attend_bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                        struct err *err)
{
    const struct attend_spec *const spec = bar->spec;
    struct attention cases[BAR_CASES_CAP] = { 0 };
    const struct kernel *kernel;
    struct setting s;
    bool is_right = true;
    must(spec->n_cases <= BAR_CASES_CAP);
    if (!can_measure(spec, bench, &kernel, &s, result))
        return true;
    if (s.dot)
        s.dot_steps = bench_dot_steps(s.dot);
    for (uint32_t i = 0; is_right && i < spec->n_cases; i++) {
        attention_init(&cases[i], kernel, &spec->cases[i], team_threads(s.team));
        is_right = check_attention(&cases[i], &s, err);
    }
    const uint32_t rounds_low = s.dot ? ROUNDS_LOW_COMPUTE : ROUNDS_LOW;
    const uint64_t start = clock_ns();
    while (is_right && bench_goes_on(bench, start, result->rounds, rounds_low)) {
        for (uint32_t i = 0; i < spec->n_cases; i++)
            measure(&s, &cases[i]);
        result->rounds++;
    }
    for (uint32_t i = 0; is_right && i < spec->n_cases; i++)
        describe(&s, &cases[i], &result->cases[i]);
    result->n_cases = spec->n_cases;
    for (uint32_t i = 0; i < spec->n_cases; i++)
        attention_release(&cases[i]);
    return is_right;
}
