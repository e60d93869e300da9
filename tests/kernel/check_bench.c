/* Times what the checks call: decode and prefill products, and attention, in shapes of a 135M and a
 * 1B model. One rung, one thread; rates of different rungs compare within one run only. */
#include "check_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGES_BENCH_CAP 128u

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *aligned(size_t bytes)
{
    uint8_t *const memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory)
        abort();
    memset(memory, 0, (bytes + 4095) / 4096 * 4096);
    return memory;
}

/* A matrix several times over, so that each pass reads another copy. */
struct bench_matrix {
    struct matrix m;
    uint8_t *data;
    size_t bytes;
    uint32_t copies, at;
};

static struct bench_matrix bench_matrix_new(enum quant_format format, uint32_t group, uint32_t rows,
                                            uint32_t cols, size_t total_bytes)
{
    struct bench_matrix b = { .m = { format, group, rows, cols, NULL } };
    struct draw draw = { 7 };
    if (!quant_matrix_bytes(format, rows, cols, group, &b.bytes))
        abort();
    b.copies = (uint32_t)(total_bytes / b.bytes + 1);
    b.data = aligned(b.bytes * b.copies);
    for (size_t i = 0; i + 4 <= b.bytes; i += 4) {
        const uint32_t bits = draw_u32(&draw) & 0xbfffbfffu; // finite as f16, bf16 and f32
        memcpy(b.data + i, &bits, 4);
    }
    for (uint32_t i = 1; i < b.copies; i++)
        memcpy(b.data + i * b.bytes, b.data, b.bytes);
    return b;
}

static void bench_product(const struct kernel *kernel, struct bench_matrix *b, uint32_t rows)
{
    float *const x = (float *)(void *)aligned((size_t)rows * b->m.cols * sizeof(float));
    float *const out = (float *)(void *)aligned((size_t)rows * b->m.rows * sizeof(float));
    uint8_t *const memory = aligned(activation_bytes(rows, b->m.cols));
    struct draw draw = { 8 };
    for (size_t i = 0; i < (size_t)rows * b->m.cols; i++)
        x[i] = draw_float(&draw);
    struct activation a;
    activation_init(&a, kernel, memory,
                    &(struct activation_options){
                        .x = x,
                        .x_stride = b->m.cols,
                        .rows = rows,
                        .cols = b->m.cols,
                        .mode = ACTIVATION_G128,
                        .quantised = b->m.group != 0,
                    });
    struct matmul mm = { .activation = &a, .n_parts = 1 };
    mm.parts[0] = (struct matmul_part){ .weights = b->m, .out = out, .out_stride = b->m.rows };
    double best = 1e9, best_pack = 1e9, spent = 0.0;
    for (uint32_t i = 0; i < 5 || (spent < 0.15 && i < 2000); i++) {
        mm.parts[0].weights.data = b->data + b->at * b->bytes;
        b->at = (b->at + 1) % b->copies;
        const double start = now_s();
        kernel->matmul->pack(&a, 0, a.n_tiles);
        const double packed = now_s();
        kernel->matmul->run(&mm, 0, matmul_items(&mm));
        const double end = now_s();
        best = end - packed < best ? end - packed : best;
        best_pack = packed - start < best_pack ? packed - start : best_pack;
        spent += end - start;
    }
    printf("%-7s %-9s g%-3u %5u x %4u, %3u rows: %7.1f us, %6.1f GB/s, %6.1f GOPS, pack %5.1f us\n",
           kernel->name, quant_formats[b->m.format]->name, b->m.group, b->m.rows, b->m.cols, rows,
           best * 1e6, (double)b->bytes / best * 1e-9, 2e-9 * rows * b->m.rows * b->m.cols / best,
           best_pack * 1e6);
    free(memory);
    free(out);
    free(x);
}

/* A context of `position` rows, then n_rows rows of 3 query heads a kv head. */
static void bench_attend(const struct kernel *kernel, uint32_t position, uint32_t n_rows)
{
    const struct kv_shape shape = { .n_kv_heads = 3, .head_dim = 64, .type = KV_F16 };
    const uint32_t n_pages = (position + n_rows - 1) / ATTEND_PAGE_ROWS + 1, n_heads = 3;
    const void *pages[PAGES_BENCH_CAP];
    uint8_t *const data = aligned(n_pages * kv_page_bytes(&shape));
    float *const q = (float *)(void *)aligned((size_t)n_rows * n_heads * 64 * sizeof(float));
    float *const out = (float *)(void *)aligned((size_t)n_rows * n_heads * 64 * sizeof(float));
    void *const scratch = aligned(attend_scratch_bytes(&shape, n_heads, n_rows));
    for (uint32_t i = 0; i < n_pages; i++)
        pages[i] = data + i * kv_page_bytes(&shape);
    const struct attend call = { .shape = &shape,
                                 .pages = pages,
                                 .n_heads = n_heads,
                                 .position = position,
                                 .n_rows = n_rows,
                                 .scale = 0.125f,
                                 .q = q,
                                 .q_stride = 192,
                                 .out = out,
                                 .out_stride = 192 };
    double best = 1e9, spent = 0.0;
    for (uint32_t i = 0; i < 5 || (spent < 0.1 && i < 1000); i++) {
        const double start = now_s();
        kernel->attend->run(&call, scratch);
        const double took = now_s() - start;
        best = took < best ? took : best;
        spent += took;
    }
    printf("%-7s attend f16 64 x 3, %4u + %2u rows: %7.1f us, %6.1f GFLOPS\n", kernel->name,
           position, n_rows, best * 1e6,
           4e-9 * (double)n_rows * n_heads * 64 * (position + n_rows / 2.0) / best);
    free(scratch);
    free(out);
    free(q);
    free(data);
}

void bench_kernels(const struct kernel *kernel)
{
    static const struct {
        enum quant_format format;
        uint32_t group, rows, cols;
    } shapes[] = {
        { QUANT_INT4_MIN, 32, 3072, 576 },   { QUANT_INT4_MIN, 32, 576, 1536 },
        { QUANT_INT4, 32, 3072, 576 },       { QUANT_INT4, 128, 2048, 2048 },
        { QUANT_INT4_ASYM, 32, 2048, 2048 }, { QUANT_INT8, 32, 8192, 576 },
        { QUANT_F16, 0, 1024, 576 },
    };
    static const uint32_t rows[] = { 1, 2, 4, 8, 16, 48, 192 };
    const bool slow = strcmp(kernel->name, "scalar") == 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        struct bench_matrix b = bench_matrix_new(shapes[i].format, shapes[i].group, shapes[i].rows,
                                                 shapes[i].cols, slow ? 0 : (size_t)64 << 20);
        for (size_t j = 0; j < (slow ? 1 : sizeof(rows) / sizeof(*rows)); j++)
            bench_product(kernel, &b, rows[j]);
        free(b.data);
    }
    bench_attend(kernel, 511, 1);
    bench_attend(kernel, slow ? 511 : 4095, 1);
    bench_attend(kernel, 256, ATTEND_TILE_ROWS_CAP);
}
