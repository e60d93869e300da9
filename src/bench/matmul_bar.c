/* All cases of a bar take turns, round by round: yardstick, then product, both on pieces of the
 * same cold block. Activations are packed before the clock starts, as a model packs them once for
 * several matrices; each product is compared with the scalar rung's before it is timed. */
#include "bench/matmul_bar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/samples.h"

#define ROUNDS_LOW_MEMORY 100u
#define ROUNDS_LOW_COMPUTE 7u
#define CHECK_MACS (UINT64_C(16) << 20) // of the scalar rung, about, a case
#define CHECK_ITEMS_CAP 8u
#define CACHE_PASSES 4u // over weights in the cache, a window

struct product {
    const struct kernel *kernel;
    struct matmul_case of; // rows filled in
    enum activation_mode mode;
    const struct matmul_tuning *tuning;
    size_t bytes; // of the weights
    float *x, *out;
    void *memory; // of the activation
    struct activation a;
    struct matmul mm;
    struct team *team;
    uint32_t passes; // over the weights in one window
    struct samples ratios;
    double best_s, best_alone_s; // a pass; alone: on one thread
};

static float *floats(size_t n)
{
    return xaligned(size_round_up(n * sizeof(float), 64));
}

static void product_release(struct product *p)
{
    free(p->x);
    free(p->out);
    free(p->memory);
    samples_release(&p->ratios);
    *p = (struct product){ 0 };
}

static void product_init(struct product *p, const struct kernel *kernel,
                         const struct matmul_spec *spec, uint32_t index, const struct bench *bench)
{
    const struct matmul_case *const of = &spec->cases[index];
    *p = (struct product){
        .kernel = kernel, .of = *of, .mode = spec->mode, .tuning = &bench->tuning, .passes = 1
    };
    p->best_s = p->best_alone_s = INFINITY;
    if (p->of.rows == 0) {
        size_t panel;
        must(quant_panel_bytes(of->format, of->cols, of->group, &panel));
        const size_t room = (bench->machine.l2_bytes ? bench->machine.l2_bytes : 1u << 19) / 2;
        p->of.rows = (uint32_t)(room / panel ? room / panel : 1) * QUANT_PANEL_ROWS;
        p->passes = CACHE_PASSES;
    }
    must(quant_matrix_bytes(of->format, p->of.rows, of->cols, of->group, &p->bytes));
    p->x = floats((size_t)of->m * of->cols);
    p->out = floats((size_t)of->m * p->of.rows);
    p->memory = xaligned(activation_bytes(of->m, of->cols));
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)of->m * of->cols; i++) {
        state = state * 1664525u + 1013904223u;
        p->x[i] = (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-23f;
    }
}

static void pack(struct product *p, const struct kernel *kernel, float *out)
{
    const struct matmul_case *const of = &p->of;
    const struct activation_options options = {
        .x = p->x,
        .x_stride = of->cols,
        .rows = of->m,
        .cols = of->cols,
        .mode = p->mode,
        .quantised = of->group != 0,
    };
    activation_init(&p->a, kernel, p->memory, &options);
    must(kernel->matmul->pack(&p->a, 0, p->a.n_tiles));
    p->mm = (struct matmul){ .activation = &p->a, .tuning = p->tuning, .n_parts = 1 };
    p->mm.parts[0] = (struct matmul_part){
        .weights = { of->format, of->group, of->rows, of->cols, NULL },
        .out = out,
        .out_stride = of->rows,
    };
}

static void run_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct product *const p = context;
    (void)thread;
    p->kernel->matmul->run(&p->mm, first, last);
}

/* Items are handed out as the model hands them out (model/step.c). */
static void run_product(void *context)
{
    struct product *const p = context;
    const uint32_t n_items = matmul_items(&p->mm);
    const uint32_t share = n_items / (8 * team_threads(p->team));
    const uint32_t least = p->tuning->n_panels;
    const uint32_t chunk = share < least ? least : share > 8 ? 8 : share;
    for (uint32_t pass = 0; pass < p->passes; pass++)
        team_for(p->team, n_items, chunk, run_items, p);
}

/* ---- check ---- */

static bool items_agree(const struct product *p, const float *expected, uint32_t item)
{
    const uint32_t first = item * QUANT_PANEL_ROWS;
    const uint32_t left = p->of.rows - first;
    const uint32_t n = left < QUANT_PANEL_ROWS ? left : QUANT_PANEL_ROWS;
    for (uint32_t row = 0; row < p->of.m; row++) {
        const size_t at = (size_t)row * p->of.rows + first;
        if (memcmp(p->out + at, expected + at, n * sizeof(float)) != 0)
            return false;
    }
    return true;
}

/* Some items of the product against the scalar rung, bit by bit. Leaves the product ready to run.
 */
static bool check_product(struct product *p, struct bench *bench, struct err *err)
{
    const struct kernel *const kernel = p->kernel;
    const uint8_t *const weights = cold_next(&bench->cold, p->bytes);
    float *const expected = floats((size_t)p->of.m * p->of.rows);
    const uint64_t item_macs = (uint64_t)p->of.m * p->of.cols * QUANT_PANEL_ROWS;
    uint32_t n_checks = (uint32_t)(CHECK_MACS / item_macs) + 1;
    bool agree = true;
    p->kernel = kernels[0];
    pack(p, kernels[0], expected);
    p->mm.parts[0].weights.data = weights;
    const uint32_t n_items = matmul_items(&p->mm);
    n_checks = n_checks < CHECK_ITEMS_CAP ? n_checks : CHECK_ITEMS_CAP;
    n_checks = n_checks < n_items ? n_checks : n_items;
    for (uint32_t i = 0; i < n_checks; i++) {
        const uint32_t item = (uint32_t)((uint64_t)(n_items - 1) * i / n_checks);
        run_items(p, item, item + 1, 0);
    }
    p->kernel = kernel;
    pack(p, kernel, p->out);
    p->mm.parts[0].weights.data = weights;
    run_product(p);
    for (uint32_t i = 0; i < n_checks; i++)
        agree &= items_agree(p, expected, (uint32_t)((uint64_t)(n_items - 1) * i / n_checks));
    free(expected);
    if (agree)
        return true;
    return err_set(err, ERR_CORRUPT,
                   "%s g%u %ux%u times %u rows: rung %s does not give the bits of the scalar one",
                   quant_formats[p->of.format]->name, p->of.group, p->of.rows, p->of.cols, p->of.m,
                   kernel->name);
}

/* ---- measure ---- */

/* What one bar is measured with. */
struct setting {
    const struct matmul_spec *spec;
    struct bench *bench;
    struct team *team;
    const struct ceiling_dot *dot;
    uint64_t dot_steps;
    double dot_s;      // the last window's
    double best_dot_s; // of dot_steps on the team
};

static double ops(const struct product *p)
{
    return 2.0 * p->of.m * p->of.rows * p->of.cols;
}

/* Operations a second of the dot product on all threads of the team. */
static double dot_rate(const struct setting *s, double window_s)
{
    return (double)s->dot_steps * s->dot->ops_per_step * team_threads(s->team) / window_s;
}

static double timed(struct product *p, struct team *team)
{
    p->team = team;
    return bench_time(team, run_product, p) / p->passes;
}

static void measure_read(struct setting *s, struct product *p)
{
    const size_t bytes = p->bytes / CEILING_READ_UNIT * CEILING_READ_UNIT;
    const uint8_t *const piece = cold_next(&s->bench->cold, bytes);
    const double read_s = bench_time_read(s->bench, s->team, piece, bytes);
    p->mm.parts[0].weights.data = cold_next(&s->bench->cold, p->bytes);
    const double took_s = timed(p, s->team);
    samples_add(&p->ratios, (double)p->bytes / took_s / ((double)bytes / read_s));
    p->best_s = fmin(p->best_s, took_s);
}

static void measure_cache_read(struct setting *s, struct product *p)
{
    const uint8_t *const weights = p->mm.parts[0].weights.data;
    const size_t bytes = p->bytes / CEILING_READ_UNIT * CEILING_READ_UNIT;
    double read_s = 0.0;
    timed(p, s->team); // brings the weights in
    for (uint32_t pass = 0; pass < p->passes; pass++)
        read_s += bench_time_read(s->bench, s->team, weights, bytes) / p->passes;
    const double took_s = timed(p, s->team);
    samples_add(&p->ratios, (double)p->bytes / took_s / ((double)bytes / read_s));
    p->best_s = fmin(p->best_s, took_s);
}

/* The weights stay: with few rows, a machine of slow memory would be judged instead of the kernel.
 */
static void measure_best(struct setting *s, struct product *p)
{
    p->best_s = fmin(p->best_s, timed(p, s->team));
    if (s->spec->yardstick == MATMUL_OF_ONE_THREAD)
        p->best_alone_s = fmin(p->best_alone_s, timed(p, s->bench->one));
}

static void measure_limit(struct setting *s, struct product *p)
{
    const size_t bytes = p->bytes / CEILING_READ_UNIT * CEILING_READ_UNIT;
    const uint8_t *const piece = cold_next(&s->bench->cold, bytes);
    const double read_s = bench_time_read(s->bench, s->team, piece, bytes) / (double)bytes;
    p->mm.parts[0].weights.data = cold_next(&s->bench->cold, p->bytes);
    const double took_s = timed(p, s->team);
    const double dots_s = ops(p) / dot_rate(s, s->dot_s);
    samples_add(&p->ratios, took_s / fmax(read_s * (double)p->bytes, dots_s));
    p->best_s = fmin(p->best_s, took_s);
}

static void measure_round(struct setting *s, struct product *products, uint32_t n)
{
    const enum matmul_yardstick yardstick = s->spec->yardstick;
    if (yardstick == MATMUL_OF_DOT || yardstick == MATMUL_OF_LIMIT) {
        s->dot_s = bench_time_dot(s->team, s->dot, s->dot_steps);
        s->best_dot_s = fmin(s->best_dot_s, s->dot_s);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (yardstick == MATMUL_OF_READ)
            measure_read(s, &products[i]);
        else if (yardstick == MATMUL_OF_CACHE_READ)
            measure_cache_read(s, &products[i]);
        else if (yardstick == MATMUL_OF_LIMIT)
            measure_limit(s, &products[i]);
        else
            measure_best(s, &products[i]);
    }
}

static void describe(const struct setting *s, struct product *p, struct bar_case *out)
{
    const enum matmul_yardstick yardstick = s->spec->yardstick;
    const bool reads = yardstick == MATMUL_OF_READ || yardstick == MATMUL_OF_CACHE_READ;
    if (yardstick == MATMUL_OF_DOT)
        samples_add(&p->ratios, ops(p) / p->best_s / dot_rate(s, s->best_dot_s));
    else if (yardstick == MATMUL_OF_ONE_THREAD)
        samples_add(&p->ratios, p->best_alone_s / p->best_s);
    *out = (struct bar_case){
        .figure = samples_median(&p->ratios),
        .low = samples_quantile(&p->ratios, 0.25),
        .high = samples_quantile(&p->ratios, 0.75),
    };
    int n = snprintf(out->what, sizeof(out->what), "%s g%u %ux%u",
                     quant_formats[p->of.format]->name, p->of.group, p->of.rows, p->of.cols);
    if (!reads && n > 0 && (size_t)n < sizeof(out->what))
        snprintf(out->what + n, sizeof(out->what) - (size_t)n, " M %u", p->of.m);
    if (reads)
        snprintf(out->rate, sizeof(out->rate), "%.1f GB/s", (double)p->bytes / p->best_s * 1e-9);
    else if (yardstick == MATMUL_OF_LIMIT)
        snprintf(out->rate, sizeof(out->rate), "%.0f us", p->best_s * 1e6);
    else
        snprintf(out->rate, sizeof(out->rate), "%.0f GOPS", ops(p) / p->best_s * 1e-9);
}

/* What the bar needs and this machine may lack. */
static bool can_measure(const struct matmul_spec *spec, struct bench *bench,
                        const struct kernel **kernel, struct setting *s, struct bar_result *result)
{
    *kernel = spec->rung ? kernel_find(spec->rung) : bench->options.kernel;
    *s = (struct setting){ .spec = spec, .bench = bench, .best_dot_s = INFINITY };
    s->team = bench_team(bench, spec->threads);
    if (*kernel)
        s->dot = ceiling_dot_find(spec->dot ? spec->dot : bench_dot_name(*kernel));
    if (*kernel && s->team && s->dot)
        return true;
    result->state = BAR_NOT_HERE;
    if (!*kernel)
        snprintf(result->why, sizeof(result->why), "no rung %s", spec->rung);
    else if (!s->team)
        snprintf(result->why, sizeof(result->why), "fewer than %u processors",
                 bench->options.threads);
    else
        snprintf(result->why, sizeof(result->why), "no %s",
                 spec->dot ? spec->dot : bench_dot_name(*kernel));
    return false;
}

bool matmul_bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                        struct err *err)
{
    const struct matmul_spec *const spec = bar->spec;
    struct product products[BAR_CASES_CAP] = { 0 };
    const struct kernel *kernel;
    struct setting s;
    bool is_right = true;
    must(spec->n_cases <= BAR_CASES_CAP);
    if (!can_measure(spec, bench, &kernel, &s, result))
        return true;
    s.dot_steps = bench_dot_steps(s.dot);
    for (uint32_t i = 0; is_right && i < spec->n_cases; i++) {
        product_init(&products[i], kernel, spec, i, bench);
        products[i].team = s.team;
        is_right = check_product(&products[i], bench, err);
    }
    const bool is_compute =
        spec->yardstick == MATMUL_OF_DOT || spec->yardstick == MATMUL_OF_ONE_THREAD;
    const uint32_t rounds_low = is_compute ? ROUNDS_LOW_COMPUTE : ROUNDS_LOW_MEMORY;
    const uint64_t start = clock_ns();
    while (is_right && bench_goes_on(bench, start, result->rounds, rounds_low)) {
        measure_round(&s, products, spec->n_cases);
        result->rounds++;
    }
    for (uint32_t i = 0; is_right && i < spec->n_cases; i++)
        describe(&s, &products[i], &result->cases[i]);
    result->n_cases = spec->n_cases;
    for (uint32_t i = 0; i < spec->n_cases; i++)
        product_release(&products[i]);
    return is_right;
}
