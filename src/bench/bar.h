/* A bar: a ratio that a kernel must reach, measured. The rows are bars.c; how each is measured
 * belongs to the family of what it measures (matmul_bar.h, ...). */
#ifndef CASCADIA_BENCH_BAR_H
#define CASCADIA_BENCH_BAR_H

#include "base/err.h"
#include "bench/bench.h"

#include <stdbool.h>
#include <stdint.h>

#define BAR_CASES_CAP 16u

/* One case of a bar: a shape, a format, a number of rows. */
struct bar_case {
    char what[56];    // "int4 g32 4096x4096"
    double figure;    // the ratio
    double low, high; // quartiles of the paired ratios, or both the figure
    char rate[56];    // the same absolutely: "31.2 GB/s"; for the curious, never a bar
};

enum bar_state {
    BAR_MEASURED,
    BAR_NOT_HERE, // this CPU, or this number of processors, cannot
    BAR_NOT_ASKED // it needs something that was not given
};

struct bar_result {
    enum bar_state state;
    char why[96];  // when it is not measured
    double figure; // the worst case's
    uint32_t rounds;
    uint32_t n_cases;
    struct bar_case cases[BAR_CASES_CAP];
};

/* Machines with VNNI and those without have bars of their own; some hold for both. */
enum bar_stated_for { BAR_FOR_ALL, BAR_FOR_VNNI, BAR_FOR_AVX2 };

struct bar {
    const char *id;   // "K1"
    const char *what; // "GEMV int4 g32, 1 thread: GB/s over a paired read"
    double must, stretch;
    bool is_time; // less is better
    enum bar_stated_for stated_for;
    bool is_replaced; // by another bar where it is not stated for the machine: not listed there
    /* False with an err when it could not be measured at all (memory), or when the kernel's result
     * is not that of the scalar rung. Not being measurable here is a state of the result. */
    bool (*measure)(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err);
    const void *spec; // of the family
};

/* Every bar there is, in the order of its id. */
extern const struct bar bars[];
extern const uint32_t n_bars;

/* "stretch", "pass", "miss", or why it was not measured: "not on this CPU", "not built". */
const char *bar_verdict(const struct bar *bar, const struct bar_result *result);

/* False for a bar that says nothing about the rung under test because another one does. */
bool bar_is_listed(const struct bar *bar, const struct kernel *kernel);

/* bar->measure, if the bar is stated for the rung under test; the worst case becomes the figure. */
bool bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                 struct err *err);

/* True when `list`, ids with commas between them, names the bar; "K" names all that begin so. */
bool bar_is_named(const struct bar *bar, const char *list);

#endif
