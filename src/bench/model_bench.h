/* A model measured as a whole, without server, sampler and network: prefill of some lengths, decode
 * at some depths for one or several sequences, with some numbers of threads; each beside the limit
 * of the machine that was measured in the same run. Ids are fixed pseudo-random ones: speed does
 * not depend on them. */
#ifndef CASCADIA_BENCH_MODEL_BENCH_H
#define CASCADIA_BENCH_MODEL_BENCH_H

#include "base/err.h"
#include "bench/bench.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_BENCH_LIST_CAP 8u
#define MODEL_BENCH_ROWS_CAP 256u
#define MODEL_BENCH_FILL_CAP 8192u // rows that several sequences may have together

struct model_bench_list {
    uint32_t values[MODEL_BENCH_LIST_CAP];
    uint32_t n_values;
};

struct model_bench_options {
    struct engine_options engine; // threads 0: 1, 2, 4, ... and all
    struct model_bench_list prefill, depth, batch;
};

enum model_bench_kind { MODEL_BENCH_PREFILL, MODEL_BENCH_DECODE };

struct model_bench_row {
    enum model_bench_kind kind;
    uint32_t threads;
    uint32_t length; // rows of a prefill, or depth
    uint32_t batch;  // sequences
    uint32_t rounds; // 0: not measured, see `why`
    const char *why;
    double rate, rate_low, rate_high; // tokens a second, of all sequences; median and quartiles
    double share, share_low, share_high;
    bool has_share; // prefill: of the dot product's peak; decode: of paired reads
};

struct model_bench_result {
    struct engine_cost cost;
    double open_s; // of the first opening
    uint32_t n_rows;
    struct model_bench_row rows[MODEL_BENCH_ROWS_CAP];
};

/* The engine's errors; ERR_ARGUMENT when the lists make more than MODEL_BENCH_ROWS_CAP rows.
 * `bench` gives cold memory, rounds and seconds (for each number of threads). */
bool model_bench_measure(struct bench *bench, const struct model_bench_options *options,
                         struct model_bench_result *result, struct err *err);

#endif
