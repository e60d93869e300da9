/* Bars of a whole model, which bench_options.model names: what its loops cost beside their work,
 * and how long it takes to open. Neither has a spec; without a model they are not measured. */
#ifndef CASCADIA_BENCH_MODEL_BAR_H
#define CASCADIA_BENCH_MODEL_BAR_H

#include "bench/bar.h"

/* T2: percent of a decode step that its loops would take if they were empty. */
bool model_bar_sync(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err);
/* L1: milliseconds from opening to the first step, for each GiB of weights; the page cache warm. */
bool model_bar_open(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err);

#endif
