/* Prometheus' text format, version 0.0.4: HELP and TYPE once a name, then its samples; the buckets
 * of a histogram are cumulative and end with le="+Inf", which equals the count. */
#include "base/metric.h"

#include <math.h>

#include "base/err.h"

#define PREFIX "cascadia_"

void metric_histogram_add(struct metric_histogram *histogram, double value)
{
    uint32_t i = 0;
    while (i < histogram->bounds->n_bounds && value > histogram->bounds->bounds[i])
        i++;
    atomic_fetch_add_explicit(&histogram->counts[i], 1, memory_order_relaxed);
    const double sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    atomic_store_explicit(&histogram->sum, sum + value, memory_order_relaxed); // one writer
}

void metric_histogram_read(const struct metric_histogram *histogram,
                           struct metric_distribution *out)
{
    *out = (struct metric_distribution){ .bounds = histogram->bounds };
    for (uint32_t i = 0; i <= histogram->bounds->n_bounds; i++)
        out->counts[i] = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
    out->sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
}

static void add_number(struct buf *out, double value)
{
    if (isnan(value))
        buf_add_text(out, "NaN");
    else
        buf_printf(out, "%.9g", value);
}

static void write_sample(const struct metric_row *row, const char *at, struct buf *out)
{
    uint32_t u32;
    uint64_t u64;
    double number;
    buf_printf(out, PREFIX "%s", row->name);
    if (row->labels)
        buf_printf(out, "{%s}", row->labels);
    buf_add_char(out, ' ');
    switch (row->kind) {
    case METRIC_U32:
        memcpy(&u32, at, sizeof(u32));
        buf_printf(out, "%u", u32);
        break;
    case METRIC_U64:
        memcpy(&u64, at, sizeof(u64));
        buf_printf(out, "%llu", (unsigned long long)u64);
        break;
    case METRIC_DOUBLE:
        memcpy(&number, at, sizeof(number));
        add_number(out, number);
        break;
    case METRIC_BUCKETS:
        must(false);
    }
    buf_add_char(out, '\n');
}

static void write_distribution(const struct metric_row *row, const struct metric_distribution *d,
                               struct buf *out)
{
    uint64_t count = 0;
    if (!d->bounds) // nothing was ever there to be measured
        return;
    for (uint32_t i = 0; i <= d->bounds->n_bounds; i++) {
        count += d->counts[i];
        buf_printf(out, PREFIX "%s_bucket{le=\"", row->name);
        if (i < d->bounds->n_bounds)
            add_number(out, d->bounds->bounds[i]);
        else
            buf_add_text(out, "+Inf");
        buf_printf(out, "\"} %llu\n", (unsigned long long)count);
    }
    buf_printf(out, PREFIX "%s_sum ", row->name);
    add_number(out, d->sum);
    buf_printf(out, "\n" PREFIX "%s_count %llu\n", row->name, (unsigned long long)count);
}

void metric_write(const struct metric_row *rows, const void *values, struct buf *out)
{
    static const char *const types[] = { "counter", "gauge", "histogram" };
    const char *before = "";
    for (const struct metric_row *row = rows; row->name; row++) {
        const char *const at = (const char *)values + row->offset;
        if (strcmp(before, row->name) != 0)
            buf_printf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", row->name,
                       row->help, row->name, types[row->type]);
        before = row->name;
        if (row->kind == METRIC_BUCKETS)
            write_distribution(row, (const struct metric_distribution *)(const void *)at, out);
        else
            write_sample(row, at, out);
    }
}
