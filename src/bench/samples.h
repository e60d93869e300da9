/* Measured values of one thing, and what is said about them. One owner. */
#ifndef CASCADIA_BENCH_SAMPLES_H
#define CASCADIA_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#define SAMPLES_CAP 4096u

struct samples {
    double *values; // [SAMPLES_CAP], the heap's after the first add
    uint32_t n_values;
};

/* Past SAMPLES_CAP a value is dropped: whoever measures stops before. Finite values only. */
void samples_add(struct samples *samples, double value);
void samples_release(struct samples *samples); // zeroed values are fine

/* The value below which a share of 0..1 of all lies, interpolated; 0 when there are none. */
double samples_quantile(const struct samples *samples, double share);
double samples_median(const struct samples *samples);

#endif
