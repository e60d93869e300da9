/* Counters and gauges that owners bump and a reader prints. A metric is a static object with a
 * name; bumping is a relaxed atomic add from any thread. */
#ifndef CASCADIA_BASE_METRIC_H
#define CASCADIA_BASE_METRIC_H

#include <stdatomic.h>
#include <stdint.h>

struct metric {
    const char *name; // snake case, unit last: "requests_total"
    const char *help; // a sentence
    _Atomic int64_t value;
};

static inline void metric_add(struct metric *metric, int64_t amount)
{
    atomic_fetch_add_explicit(&metric->value, amount, memory_order_relaxed);
}

static inline int64_t metric_value(const struct metric *metric)
{
    return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

#endif
