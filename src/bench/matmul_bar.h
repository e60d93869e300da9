/* Bars of matrix products: weights of a format times some rows, against the limit that fits. */
#ifndef CASCADIA_BENCH_MATMUL_BAR_H
#define CASCADIA_BENCH_MATMUL_BAR_H

#include "bench/bar.h"
#include "quant/quant.h"

enum matmul_yardstick {
    MATMUL_OF_READ,       // weight bytes a second over a cold read's, paired; median
    MATMUL_OF_CACHE_READ, // the same, the weights staying in the second-level cache
    MATMUL_OF_DOT,        // operations a second over the dot product's; best of each
    MATMUL_OF_ONE_THREAD, // operations a second over one thread's; best of each
    MATMUL_OF_LIMIT,      // time over the longer of cold read and dot products, paired; median
};

struct matmul_case {
    enum quant_format format;
    uint32_t group;
    uint32_t rows; // of the weights; 0: as many as fill half of the second-level cache
    uint32_t cols;
    uint32_t m; // rows of the activation
};

struct matmul_spec {
    enum matmul_yardstick yardstick;
    const char *rung; // NULL: the one under test
    const char *dot;  // the yardstick of arithmetic; NULL: the one that fits the rung
    enum activation_mode mode;
    uint32_t threads; // 1, or any other number for bench_options.threads
    uint32_t n_cases;
    const struct matmul_case *cases;
};

/* bar->spec is a struct matmul_spec. */
bool matmul_bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                        struct err *err);

#endif
