/* What every engine owes the waist, tried on any engine: the same tests for all of them.
 *
 * A suite runs on engines opened with the options given (contexts, pools and layers are varied by
 * the tests themselves); results are compared bit for bit. */
#ifndef CASCADIA_TESTS_ENGINE_SUITE_H
#define CASCADIA_TESTS_ENGINE_SUITE_H

#include "engine/engine.h"

#include <stdint.h>

struct engine_suite {
    struct engine_options options; // model, engine, isa, threads, kv_type
    int32_t ids[200];              // a text in the engine's vocabulary
};

/* Runs all of it as one cmocka group; returns the number of failures. */
int engine_suite_run(const char *name, const struct engine_suite *suite);

/* For other tests too: a pipeline of engines in one process, cut before the layers given. */
#define ENGINE_CHAIN_CAP 8u
struct engine_chain {
    struct engine engines[ENGINE_CHAIN_CAP];
    struct engine_info infos[ENGINE_CHAIN_CAP];
    struct batch between[ENGINE_CHAIN_CAP]; // output of each stage
    struct batch in;
    uint32_t n_engines;
};

/* Opens n_cuts + 1 engines; cuts rise. False and `err` on failure. */
bool engine_chain_open(struct engine_chain *chain, const struct engine_options *options,
                       const uint32_t *cuts, uint32_t n_cuts, struct err *err);
void engine_chain_close(struct engine_chain *chain);
/* Rows one by one into chain->in, then a step through all stages; the logits are in the returned
 * batch until the next step. NULL and `err` on failure. */
void engine_chain_add(struct engine_chain *chain, uint32_t sequence, uint32_t position,
                      int32_t token, uint32_t flags);
const struct batch *engine_chain_step(struct engine_chain *chain, struct err *err);
/* ids[first .. end) of one sequence at positions from `first`, all wanting logits. */
const struct batch *engine_chain_run(struct engine_chain *chain, uint32_t sequence,
                                     const int32_t *ids, uint32_t first, uint32_t end,
                                     struct err *err);

#endif
