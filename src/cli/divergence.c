/* Sums over a vocabulary run in eight lanes in index order, so they are the same on every machine
 * and no compiler has to be asked for speed. */
#include "cli/divergence.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "cli/logits_file.h"

#define LANES 8u

/* sum of p ln(p / q) = sum of p (ln p - logit) + ln of the sum of exp(logit), p summing to 1. */
static double relative_entropy(const struct divergence_input *input, double log_sum)
{
    double lanes[LANES] = { 0 };
    const float shift = (float)log_sum;
    uint32_t i = 0;
    for (; i + LANES <= input->n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const uint32_t at = i + lane;
            lanes[lane] += (double)(input->p[at] * (input->ln_p[at] - (input->logits[at] - shift)));
        }
    }
    for (; i < input->n; i++)
        lanes[0] += (double)(input->p[i] * (input->ln_p[i] - (input->logits[i] - shift)));
    double sum = 0;
    for (uint32_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum + log_sum - (double)shift;
}

bool divergence_measure(const struct vec_ops *vec, const struct divergence_input *input,
                        struct divergence_row *row)
{
    uint32_t top;
    must(input->next < input->n);
    const double log_sum = logits_log_sum(vec, input->logits, input->n);
    if (!isfinite(log_sum) || !vec->argmax(input->logits, input->n, &top))
        return false;
    *row = (struct divergence_row){
        .divergence = relative_entropy(input, log_sum),
        .loss = log_sum - (double)input->logits[input->next],
        .reference_loss = -(double)input->ln_p[input->next],
        .is_same_top = top == input->top,
    };
    return isfinite(row->divergence);
}

typedef double row_value(const struct divergence_row *row);

static double divergence_of(const struct divergence_row *row)
{
    return row->divergence;
}

static double loss_of(const struct divergence_row *row)
{
    return row->loss;
}

static double reference_loss_of(const struct divergence_row *row)
{
    return row->reference_loss;
}

static double excess_of(const struct divergence_row *row)
{
    return row->loss - row->reference_loss;
}

static double same_top_of(const struct divergence_row *row)
{
    return row->is_same_top ? 1.0 : 0.0;
}

static struct divergence_mean mean(const struct divergence_row *rows, size_t n_rows,
                                   row_value *value)
{
    const double n = (double)n_rows;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n_rows; i++)
        sum += value(&rows[i]);
    for (size_t i = 0; i < n_rows; i++) {
        const double off = value(&rows[i]) - sum / n;
        squares += off * off;
    }
    return (struct divergence_mean){
        .value = sum / n,
        .error = n_rows > 1 ? sqrt(squares / (n - 1) / n) : 0,
    };
}

/* exp of a mean; its error to first order. */
static struct divergence_mean exponential(struct divergence_mean of)
{
    return (struct divergence_mean){ exp(of.value), exp(of.value) * of.error };
}

static int compare(const void *a, const void *b)
{
    const double x = ((const struct divergence_row *)a)->divergence,
                 y = ((const struct divergence_row *)b)->divergence;
    return (x > y) - (x < y);
}

void divergence_summarise(struct divergence_row *rows, size_t n_rows,
                          struct divergence_summary *summary)
{
    must(n_rows > 0);
    *summary = (struct divergence_summary){
        .n_rows = n_rows,
        .divergence = mean(rows, n_rows, divergence_of),
        .same_top = mean(rows, n_rows, same_top_of),
        .perplexity = exponential(mean(rows, n_rows, loss_of)),
        .reference_perplexity = exponential(mean(rows, n_rows, reference_loss_of)),
        .ratio = exponential(mean(rows, n_rows, excess_of)),
    };
    qsort(rows, n_rows, sizeof(*rows), compare);
    summary->divergence_median = rows[(n_rows - 1) / 2].divergence;
    summary->divergence_99 = rows[(n_rows - 1) - (n_rows - 1) / 100].divergence;
    summary->divergence_max = rows[n_rows - 1].divergence;
}
