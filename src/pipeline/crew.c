/* Workers and head are started as separate processes would be, in any order, and find each other by
 * names that hold the crew's own address, so that several crews live side by side. */
#include "pipeline/crew.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "pipeline/worker.h"

#define JOIN_MS 60000 // opening an engine may read a model
#define LOOK_MS 20

struct crew_member {
    struct pipeline_options options;
    struct thread thread;
    const atomic_int *stop;
    atomic_bool failed;
    struct err err; // of a failed one
};

struct crew {
    struct pipeline *pipeline;
    atomic_int stop;
    uint32_t n_stages;
    char (*addresses)[48];       // [n_stages]
    struct crew_member *members; // [n_stages]; the first is the head and has no thread
};

static void run_member(void *context)
{
    struct crew_member *member = context;
    if (!worker_run(&member->options, member->stop, &member->err))
        atomic_store(&member->failed, true);
}

/* The parts of all stages: layers, names, neighbours. */
static void lay_out(struct crew *crew, const struct crew_options *options)
{
    for (uint32_t rank = 0; rank < crew->n_stages; rank++)
        snprintf(crew->addresses[rank], sizeof crew->addresses[rank], "local:crew-%p-%u",
                 (void *)crew, rank);
    for (uint32_t rank = 0; rank < crew->n_stages; rank++) {
        struct crew_member *member = &crew->members[rank];
        member->stop = &crew->stop;
        member->options = (struct pipeline_options){
            .engine = options->engine,
            .rank = rank,
            .total = crew->n_stages,
            .batches_cap = options->batches_cap,
            .tokenizer = options->tokenizer,
            .listen = crew->addresses[rank],
            .next = rank + 1 < crew->n_stages ? crew->addresses[rank + 1] : NULL,
        };
        member->options.engine.layer_first = rank ? options->layer_ends[rank - 1] : 0;
        member->options.engine.layer_end = options->layer_ends[rank];
    }
}

static bool find_failure(const struct crew *crew, struct err *err)
{
    for (uint32_t rank = 1; rank < crew->n_stages; rank++) {
        if (atomic_load(&crew->members[rank].failed)) {
            *err = crew->members[rank].err;
            return true;
        }
    }
    return false;
}

static bool wait_until_joined(struct crew *crew, struct err *err)
{
    const struct pipeline_result *result;
    const uint64_t started = clock_ms();
    while (pipeline_state(crew->pipeline) != PIPELINE_READY) {
        if (find_failure(crew, err))
            return false;
        if (clock_ms() - started > JOIN_MS)
            return err_set(err, ERR_TIMEOUT, "the stages did not join within %d ms", JOIN_MS);
        pipeline_poll(crew->pipeline, LOOK_MS, &result);
    }
    return true;
}

struct crew *crew_open(const struct crew_options *options, struct err *err)
{
    if (options->n_stages == 0 || options->n_stages > CREW_STAGES_CAP) {
        err_set(err, ERR_ARGUMENT, "1 to %d stages, not %u", CREW_STAGES_CAP, options->n_stages);
        return NULL;
    }
    struct crew *crew = xcalloc(1, sizeof *crew);
    crew->n_stages = options->n_stages;
    crew->addresses = xcalloc(crew->n_stages, sizeof crew->addresses[0]);
    crew->members = xcalloc(crew->n_stages, sizeof crew->members[0]);
    lay_out(crew, options);
    for (uint32_t rank = 1; rank < crew->n_stages; rank++) {
        struct crew_member *member = &crew->members[rank];
        if (!thread_start(&member->thread, "worker", run_member, member, err))
            goto fail;
    }
    crew->pipeline = pipeline_open(&crew->members[0].options, err);
    if (crew->pipeline && wait_until_joined(crew, err))
        return crew;
fail:
    crew_close(crew);
    return NULL;
}

void crew_close(struct crew *crew)
{
    if (!crew)
        return;
    pipeline_close(crew->pipeline);
    atomic_store(&crew->stop, 1);
    for (uint32_t rank = 1; rank < crew->n_stages; rank++)
        thread_join(&crew->members[rank].thread);
    free(crew->addresses);
    free(crew->members);
    free(crew);
}

struct pipeline *crew_pipeline(struct crew *crew)
{
    return crew->pipeline;
}
