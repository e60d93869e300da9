/* Quantiles by sorting a copy: some thousand values at the end of a measurement, never within. */
#include "bench/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void samples_add(struct samples *samples, double value)
{
    if (!samples->values)
        samples->values = xcalloc(SAMPLES_CAP, sizeof(*samples->values));
    if (samples->n_values < SAMPLES_CAP)
        samples->values[samples->n_values++] = value;
}

void samples_release(struct samples *samples)
{
    free(samples->values);
    *samples = (struct samples){ 0 };
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_quantile(const struct samples *samples, double share)
{
    const uint32_t n = samples->n_values;
    if (n == 0)
        return 0.0;
    double *const sorted = xcalloc(n, sizeof(*sorted));
    memcpy(sorted, samples->values, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare);
    const double at = share * (n - 1);
    const uint32_t below = (uint32_t)at;
    const uint32_t above = below + 1 < n ? below + 1 : below;
    const double value = sorted[below] + (sorted[above] - sorted[below]) * (at - below);
    free(sorted);
    return value;
}

double samples_median(const struct samples *samples)
{
    return samples_quantile(samples, 0.5);
}
