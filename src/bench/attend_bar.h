/* Bars of attention: one sequence's context, cold, and the query heads that share its KV heads. */
#ifndef CASCADIA_BENCH_ATTEND_BAR_H
#define CASCADIA_BENCH_ATTEND_BAR_H

#include "bench/bar.h"
#include "kernel/kernel.h"

enum attend_yardstick {
    ATTEND_OF_READ,     // KV bytes a second over a cold read's, paired; median
    ATTEND_OF_UNSHARED, // speed over that of a call for each query head, paired; median
    ATTEND_OF_DOT,      // operations of scores and mix over the dot's; best of each
};

struct attend_case {
    enum kv_type type;
    uint32_t n_kv_heads, group; // query heads: n_kv_heads x group
    uint32_t head_dim;
    uint32_t context; // positions, the rows' own included
    uint32_t n_rows;  // 1: decode; context: prefill from empty
};

struct attend_spec {
    enum attend_yardstick yardstick;
    const char *rung; // NULL: the one under test
    const char *dot;  // ATTEND_OF_DOT only
    uint32_t threads; // 1, or any other number for bench_options.threads
    uint32_t n_cases;
    const struct attend_case *cases;
};

/* bar->spec is a struct attend_spec. */
bool attend_bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                        struct err *err);

#endif
