/* Attention: random shapes, windows and positions, each rung against scalar, whole against by
 * segment, many rows against one by one; and scalar against a softmax in double. Pages hold NaNs
 * wherever no row may look. */
#include "check_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_CAP 40u

/* One call, its pages, and K and V as they were given (for the check in double). */
struct attention {
    struct kv_shape shape;
    struct attend call;
    uint32_t n_positions;
    struct guarded pages[PAGES_CAP];
    const void *page_data[PAGES_CAP];
    struct guarded q, k, v; // k and v [n_positions][n_kv_heads][head_dim]
};

static float *floats(const struct guarded *g)
{
    return (float *)(void *)g->data;
}

/* Pages are filled with NaN (all ones), then each position is stored. */
static void store_positions(struct attention *t, const struct kernel *kernel)
{
    const size_t row = (size_t)t->shape.n_kv_heads * t->shape.head_dim;
    for (uint32_t i = 0; i <= (t->n_positions - 1) / ATTEND_PAGE_ROWS; i++) {
        t->pages[i] = guarded_new(kv_page_bytes(&t->shape));
        memset(t->pages[i].data, 0xff, t->pages[i].bytes);
        t->page_data[i] = t->pages[i].data;
    }
    for (uint32_t at = 0; at < t->n_positions; at++) {
        expect(kernel->attend->store(&t->shape, t->pages[at / ATTEND_PAGE_ROWS].data,
                                     at % ATTEND_PAGE_ROWS, floats(&t->k) + at * row,
                                     floats(&t->v) + at * row),
               "%s store refuses", kernel->name);
    }
}

/* is_q8: pages of q8; else of f16 or f32 as it is drawn. */
static struct attention draw_attention(struct draw *draw, const struct kernel *kernel,
                                       uint32_t positions_cap, bool is_q8)
{
    /* One draw a statement: the order of others is the compiler's. */
    struct attention t = { .shape = { .n_kv_heads = draw_between(draw, 1, 3) } };
    t.shape.type = draw_below(draw, 2) ? KV_F16 : KV_F32;
    if (is_q8)
        t.shape.type = KV_Q8;
    const uint32_t dims = draw_below(draw, 4);
    t.shape.head_dim = dims == 0   ? 64
                       : dims == 1 ? 2 * draw_between(draw, 1, 128)
                                   : 2 * draw_between(draw, 1, 35);
    const uint32_t n_rows = draw_below(draw, 3) ? draw_between(draw, 1, ATTEND_TILE_ROWS_CAP) : 1;
    const uint32_t position = draw_below(draw, positions_cap);
    const uint32_t n_heads = draw_between(draw, 1, 9);
    t.n_positions = position + n_rows;
    t.call = (struct attend){
        .n_heads = n_heads,
        .position = position,
        .n_rows = n_rows,
        .scale = 1.0f / sqrtf((float)t.shape.head_dim),
    };
    t.call.kv_head = draw_below(draw, t.shape.n_kv_heads);
    t.call.window = draw_below(draw, 2) ? draw_between(draw, 1, positions_cap) : 0;
    t.call.q_stride = (size_t)n_heads * t.shape.head_dim + draw_below(draw, 7);
    t.call.out_stride = (size_t)n_heads * t.shape.head_dim + draw_below(draw, 7);
    const size_t row = (size_t)t.shape.n_kv_heads * t.shape.head_dim;
    guarded_floats(&t.k, t.n_positions * row, draw);
    guarded_floats(&t.v, t.n_positions * row, draw);
    guarded_floats(&t.q, (n_rows - 1) * t.call.q_stride + (size_t)n_heads * t.shape.head_dim, draw);
    for (size_t i = 0; i < t.q.bytes / sizeof(float); i++)
        floats(&t.q)[i] *= 8.0f;
    t.call.q = floats(&t.q);
    store_positions(&t, kernel);
    return t;
}

static void attention_free(struct attention *t)
{
    for (uint32_t i = 0; i < PAGES_CAP; i++) {
        if (t->pages[i].map)
            guarded_free(&t->pages[i]);
    }
    guarded_free(&t->q);
    guarded_free(&t->k);
    guarded_free(&t->v);
}

static struct attend call_of(const struct attention *t, const struct guarded *out)
{
    struct attend call = t->call;
    call.shape = &t->shape;
    call.pages = t->page_data;
    call.out = floats(out);
    return call;
}

static struct guarded out_new(const struct attention *t)
{
    const struct attend *const c = &t->call;
    return guarded_new(((c->n_rows - 1) * c->out_stride + (size_t)c->n_heads * t->shape.head_dim) *
                       sizeof(float));
}

static struct guarded scratch_new(const struct attention *t)
{
    return guarded_new(attend_scratch_bytes(&t->shape, t->call.n_heads, t->call.n_rows));
}

static struct guarded attend_whole(const struct attention *t, const struct kernel *kernel)
{
    struct guarded out = out_new(t), scratch = scratch_new(t);
    const struct attend call = call_of(t, &out);
    kernel->attend->run(&call, scratch.data);
    expect(guarded_intact(&out) && guarded_intact(&scratch), "%s attend writes too early",
           kernel->name);
    guarded_free(&scratch);
    return out;
}

/* Segments in falling order, then merged. */
static struct guarded attend_by_segment(const struct attention *t, const struct kernel *kernel)
{
    struct guarded out = out_new(t), scratch = scratch_new(t);
    const struct attend call = call_of(t, &out);
    uint32_t first, end;
    attend_segments(&call, &first, &end);
    const size_t bytes = attend_partial_bytes(&t->shape, call.n_heads, call.n_rows);
    struct guarded partials = guarded_new(bytes * (end - first));
    for (uint32_t segment = end; segment-- > first;)
        kernel->attend->part(&call, segment, partials.data + (segment - first) * bytes,
                             scratch.data);
    kernel->attend->merge(&call, partials.data, scratch.data);
    expect(guarded_intact(&partials), "%s attend part writes too early", kernel->name);
    guarded_free(&partials);
    guarded_free(&scratch);
    return out;
}

/* Each row in a call of its own. */
static struct guarded attend_by_row(const struct attention *t, const struct kernel *kernel)
{
    struct guarded out = out_new(t), scratch = scratch_new(t);
    const struct attend whole = call_of(t, &out);
    for (uint32_t row = 0; row < whole.n_rows; row++) {
        struct attend one = whole;
        one.position += row;
        one.n_rows = 1;
        one.q += row * whole.q_stride;
        one.out += row * whole.out_stride;
        kernel->attend->run(&one, scratch.data);
    }
    guarded_free(&scratch);
    return out;
}

static void judge_out(const struct attention *t, const struct kernel *kernel, const char *what,
                      const struct guarded *expected, struct guarded *out)
{
    expect(memcmp(expected->data, out->data, out->bytes) == 0,
           "%s attend %s: head_dim %u, %u heads, %u rows from %u, window %u, %s", kernel->name,
           what, t->shape.head_dim, t->call.n_heads, t->call.n_rows, t->call.position,
           t->call.window,
           t->shape.type == KV_Q8    ? "q8"
           : t->shape.type == KV_F16 ? "f16"
                                     : "f32");
    guarded_free(out);
}

/* Both rungs store the same bytes. */
static void judge_pages(const struct attention *t, const struct kernel *kernel)
{
    struct attention other = {
        .shape = t->shape, .n_positions = t->n_positions, .k = t->k, .v = t->v
    };
    store_positions(&other, kernel);
    for (uint32_t i = 0; i < PAGES_CAP && other.pages[i].map; i++) {
        expect(memcmp(t->pages[i].data, other.pages[i].data, t->pages[i].bytes) == 0 &&
                   guarded_intact(&other.pages[i]),
               "%s store, head_dim %u", kernel->name, t->shape.head_dim);
        guarded_free(&other.pages[i]);
    }
}

/* q8 has no NaN: what is not finite is refused, be it in K or V, wherever it lies. */
static void check_refusal(const struct kernel *kernel, struct draw *draw)
{
    static const float strange[] = { NAN, INFINITY, -INFINITY };
    for (uint32_t i = 0; i < 30; i++) {
        const struct kv_shape shape = { 2, 2 * draw_between(draw, 1, 70), KV_Q8 };
        const uint32_t n = shape.n_kv_heads * shape.head_dim, slot = draw_below(draw, 64);
        struct guarded page = guarded_new(kv_page_bytes(&shape)), k, v;
        guarded_floats(&k, n, draw);
        guarded_floats(&v, n, draw);
        floats(i % 2 ? &k : &v)[draw_below(draw, n)] = strange[i % 3];
        expect(!kernel->attend->store(&shape, page.data, slot, floats(&k), floats(&v)) &&
                   guarded_intact(&page),
               "%s store takes %f", kernel->name, (double)strange[i % 3]);
        guarded_free(&page);
        guarded_free(&k);
        guarded_free(&v);
    }
}

static void check_call(const struct kernel *scalar, const struct kernel *kernel,
                       uint32_t positions_cap, bool is_q8, struct draw *draw)
{
    struct attention t = draw_attention(draw, scalar, positions_cap, is_q8);
    judge_pages(&t, kernel);
    struct guarded expected = attend_whole(&t, scalar);
    pin(expected.data, expected.bytes);
    struct guarded out = attend_whole(&t, kernel);
    judge_out(&t, kernel, "whole", &expected, &out);
    out = attend_by_segment(&t, kernel);
    judge_out(&t, kernel, "by segment", &expected, &out);
    out = attend_by_row(&t, kernel);
    judge_out(&t, kernel, "by row", &expected, &out);
    guarded_free(&expected);
    attention_free(&t);
}

static void check_calls(const struct kernel *scalar, const struct kernel *kernel, bool is_q8,
                        struct draw *draw)
{
    for (uint32_t i = 0; i < check_count(100); i++)
        check_call(scalar, kernel, 200, is_q8, draw);
    for (uint32_t i = 0; i < check_count(20); i++)
        check_call(scalar, kernel, 1500, is_q8, draw);
}

void check_attend(const struct kernel *scalar, const struct kernel *kernel)
{
    struct draw draw = { 5 };
    check_calls(scalar, kernel, false, &draw);
}

void check_attend_q8(const struct kernel *scalar, const struct kernel *kernel)
{
    struct draw draw = { 9 };
    check_calls(scalar, kernel, true, &draw);
    check_refusal(kernel, &draw);
}

/* ---- the definition ---- */

/* One output row of one head in double, from K and V as they were given: f32 pages keep them. */
static void judge_head(const struct attention *t, uint32_t row, uint32_t head, const float *out,
                       double tolerance)
{
    const struct attend *const c = &t->call;
    const uint32_t d = t->shape.head_dim, last = c->position + row;
    const uint32_t first = c->window && last >= c->window ? last - c->window + 1 : 0;
    const size_t stride = (size_t)t->shape.n_kv_heads * d, at = (size_t)c->kv_head * d;
    const float *const q = c->q + row * c->q_stride + (size_t)head * d;
    double *const mix = calloc(d, sizeof(double)), sum = 0.0;
    for (uint32_t position = first; position <= last; position++) {
        double score = 0.0;
        for (uint32_t i = 0; i < d; i++)
            score += (double)q[i] * floats(&t->k)[position * stride + at + i];
        const double weight = exp(score * c->scale);
        sum += weight;
        for (uint32_t i = 0; i < d; i++)
            mix[i] += weight * floats(&t->v)[position * stride + at + i];
    }
    for (uint32_t i = 0; i < d; i++)
        expect(fabs(mix[i] / sum - (double)out[i]) < tolerance, "scalar attend: %g is not %g",
               (double)out[i], mix[i] / sum);
    free(mix);
}

static void judge_whole(const struct attention *t, double tolerance)
{
    struct guarded out = attend_whole(t, kernels[0]);
    for (uint32_t row = 0; row < t->call.n_rows; row++) {
        for (uint32_t head = 0; head < t->call.n_heads; head++)
            judge_head(t, row, head,
                       floats(&out) + row * t->call.out_stride + (size_t)head * t->shape.head_dim,
                       tolerance);
    }
    guarded_free(&out);
}

/* Makes every head of x one that int8 keeps exactly: multiples of `unit`, the first 127 of them. */
static void snap(float *x, size_t n, uint32_t head_dim, float unit)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % head_dim == 0 ? 127.0f * unit : rintf(x[i] * 127.0f) * unit;
}

void check_attend_definition(void)
{
    struct draw draw = { 6 };
    for (uint32_t i = 0; i < 20; i++) {
        struct attention t = draw_attention(&draw, kernels[0], 1200, false);
        if (t.shape.type == KV_F32)
            judge_whole(&t, 2e-5);
        attention_free(&t);
    }
    for (uint32_t i = 0; i < 10; i++) {
        struct attention t = draw_attention(&draw, kernels[0], 1200, true);
        snap(floats(&t.k), t.k.bytes / sizeof(float), t.shape.head_dim, 0x1p-7f);
        snap(floats(&t.v), t.v.bytes / sizeof(float), t.shape.head_dim, 0x1p-7f);
        for (uint32_t page = 0; page < PAGES_CAP && t.pages[page].map; page++)
            guarded_free(&t.pages[page]);
        store_positions(&t, kernels[0]);
        judge_whole(&t, 2e-3); // int16 q and weights: some 2^-15 of scores up to 40
        attention_free(&t);
    }
}
