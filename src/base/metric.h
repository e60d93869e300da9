/* Metrics as data: a row (name, labels, type, help) beside the struct that it reads. Whoever owns
 * the figures exports such a table; /metrics prints all of them in Prometheus' text format.
 *
 *     const struct metric_row pool_metrics[] = { // of struct pool_stats
 *         METRIC_GAUGE_U32(struct pool_stats, n_used, "pool_pages_used", "pages in use"),
 *         METRIC_END
 *     };
 *
 * Counters only rise and their names end in _total; a gauge that is not known is NaN. Rows of one
 * name differ in their labels and follow each other. */
#ifndef CASCADIA_BASE_METRIC_H
#define CASCADIA_BASE_METRIC_H

#include "base/buf.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* ---- histograms ---- */

#define METRIC_BOUNDS_CAP 16u

/* Upper bounds of the buckets, rising; a last one takes what is above all. Static data. */
struct metric_bounds {
    uint32_t n_bounds;
    double bounds[METRIC_BOUNDS_CAP];
};

/* Written by one thread, read by any. */
struct metric_histogram {
    const struct metric_bounds *bounds; // set before the first value, by its owner
    _Atomic uint64_t counts[METRIC_BOUNDS_CAP + 1];
    _Atomic double sum;
};

/* What a histogram held at one moment; plain data. */
struct metric_distribution {
    const struct metric_bounds *bounds;
    uint64_t counts[METRIC_BOUNDS_CAP + 1];
    double sum;
};

void metric_histogram_add(struct metric_histogram *histogram, double value);
void metric_histogram_read(const struct metric_histogram *histogram,
                           struct metric_distribution *out);

/* ---- rows ---- */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_DISTRIBUTION };
enum metric_kind { METRIC_U32, METRIC_U64, METRIC_DOUBLE, METRIC_BUCKETS };

struct metric_row {
    const char *name;   // without the prefix "cascadia_"
    const char *labels; // "outcome=\"done\"", or NULL
    enum metric_type type;
    enum metric_kind kind;
    size_t offset;    // in the struct
    const char *help; // a sentence
};

#define METRIC_COUNTER_U64(S, field, name, labels, help)                                           \
    {                                                                                              \
        name, labels, METRIC_COUNTER, METRIC_U64, offsetof(S, field), help                         \
    }
#define METRIC_GAUGE_U32(S, field, name, help)                                                     \
    {                                                                                              \
        name, NULL, METRIC_GAUGE, METRIC_U32, offsetof(S, field), help                             \
    }
#define METRIC_GAUGE_DOUBLE(S, field, name, help)                                                  \
    {                                                                                              \
        name, NULL, METRIC_GAUGE, METRIC_DOUBLE, offsetof(S, field), help                          \
    }
#define METRIC_HISTOGRAM(S, field, name, help)                                                     \
    {                                                                                              \
        name, NULL, METRIC_DISTRIBUTION, METRIC_BUCKETS, offsetof(S, field), help                  \
    }
#define METRIC_END                                                                                 \
    {                                                                                              \
        NULL, NULL, METRIC_COUNTER, METRIC_U32, 0, NULL                                            \
    }

/* Appends the rows' values in `values`, the struct they are of. */
void metric_write(const struct metric_row *rows, const void *values, struct buf *out);

#endif
