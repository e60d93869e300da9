/* The ceilings of the machine, measured: how fast every level of memory is read, how fast dot
 * products on registers go, and the clock. */
#ifndef CASCADIA_BENCH_CEILINGS_H
#define CASCADIA_BENCH_CEILINGS_H

#include "base/err.h"
#include "bench/bench.h"

#include <stdbool.h>
#include <stdint.h>

#define CEILINGS_CAP 160u

struct ceiling_row {
    char what[48];    // "read DRAM", "vpdpbusd zmm"
    const char *unit; // "GB/s", "GOPS", "GHz"
    uint32_t threads;
    uint32_t streams;               // a thread; 0: not a read
    double median, low, high, best; // low, high: quartiles
};

struct ceilings {
    uint32_t n_rows;
    struct ceiling_row rows[CEILINGS_CAP];
};

/* With 1, 2, 4, ... and all threads. ERR_SYSTEM. */
bool ceilings_measure(struct bench *bench, struct ceilings *out, struct err *err);

#endif
