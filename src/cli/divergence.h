/* How far one model's distributions lie from another's: the figures of rows, and what they amount
 * to. Numbers only: where rows come from is the caller's. */
#ifndef CASCADIA_CLI_DIVERGENCE_H
#define CASCADIA_CLI_DIVERGENCE_H

#include "kernel/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct divergence_row {
    double divergence; // sum of p ln(p / q), in nats; p the reference, q the model
    double loss;       // -ln q of the id that follows
    double reference_loss;
    bool is_same_top; // both find the same id most likely
};

/* One row: the reference's ln_p[n], p[n] and most likely id; the model's logits[n]; the id that
 * follows. False when a logit is not finite. Any thread. */
struct divergence_input {
    const float *ln_p, *p;
    uint32_t top;
    const float *logits;
    uint32_t n, next;
};
bool divergence_measure(const struct vec_ops *vec, const struct divergence_input *input,
                        struct divergence_row *row);

/* A mean with its standard error, rows taken as independent. */
struct divergence_mean {
    double value, error;
};

struct divergence_summary {
    size_t n_rows;
    struct divergence_mean divergence;
    double divergence_median, divergence_99, divergence_max; // 99: the quantile of 99 %
    struct divergence_mean same_top;                         // share of rows
    struct divergence_mean perplexity, reference_perplexity;
    struct divergence_mean ratio; // of the two; its error is that of paired rows
};

/* Of rows[n_rows], n_rows > 0; sorts them. */
void divergence_summarise(struct divergence_row *rows, size_t n_rows,
                          struct divergence_summary *summary);

#endif
