/* A whole chain in one process: workers on threads, joined to a head by local links.
 *
 * For parity checks and tests of a cut model. It is the pipeline and the worker as they are;
 * nothing is short-circuited. One owner. (`eval --stages` steps its engines one after another
 * instead.) */
#ifndef CASCADIA_PIPELINE_CREW_H
#define CASCADIA_PIPELINE_CREW_H

#include "base/err.h"
#include "pipeline/pipeline.h"

#include <stdint.h>

#define CREW_STAGES_CAP 64

struct crew;

struct crew_options {
    struct engine_options engine; // of every stage, but for the layers
    uint32_t n_stages;            // 1: no workers
    const uint32_t *layer_ends;   // [n_stages] rising; the last is the model's number of layers
    uint32_t batches_cap;         // as in pipeline_options
    const struct tokenizer *tokenizer; // the same
};

/* Opens all stages and waits until they are joined. ERR_ARGUMENT, ERR_TIMEOUT, or why a stage could
 * not be opened. */
struct crew *crew_open(const struct crew_options *options, struct err *err);
void crew_close(struct crew *crew); // the pipeline too; NULL is fine

struct pipeline *crew_pipeline(struct crew *crew); // borrowed

#endif
