/* What a measurement is printed as: a table for people, JSON for programs. Pure functions of what
 * was measured. */
#ifndef CASCADIA_BENCH_BENCH_REPORT_H
#define CASCADIA_BENCH_BENCH_REPORT_H

#include "base/buf.h"
#include "bench/bar.h"
#include "bench/ceilings.h"
#include "bench/machine.h"
#include "bench/model_bench.h"

#include <stdbool.h>

struct bench_noise {
    double before, after; // share of time that others took (noise.h)
};

/* "Intel(R) ... | avx512 | 2 threads | caches | lost to others: 0.3 % before, 0.4 % after" */
void report_machine(struct buf *out, const struct machine *machine, const struct kernel *kernel);
void report_noise(struct buf *out, const struct bench_noise *noise);
void report_ceilings(struct buf *out, const struct ceilings *ceilings);
/* One bar with its cases. */
void report_bar(struct buf *out, const struct bar *bar, const struct bar_result *result);

void report_model(struct buf *out, const struct model_bench_result *result);

/* "name":{...} without a comma: members of the document that the command writes. */
void report_machine_json(struct buf *out, const struct machine *machine,
                         const struct kernel *kernel);
void report_noise_json(struct buf *out, const struct bench_noise *noise);
void report_ceilings_json(struct buf *out, const struct ceilings *ceilings);
void report_model_json(struct buf *out, const struct model_bench_result *result);
/* {...}: an element of "bars". */
void report_bar_json(struct buf *out, const struct bar *bar, const struct bar_result *result);

#endif
