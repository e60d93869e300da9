/* Two looks at the clock lie some tens of nanoseconds apart. Gaps of at least two microseconds are
 * preemption, interrupts, or a hypervisor that ran somebody else.
 *
 * The threads are new ones, each held to a processor: those of a fresh team share one for some tens
 * of milliseconds, and would take each other for a neighbour. */
#include "bench/noise.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/processors.h"
#include "base/thread.h"

#define GAP_NS 2000u

struct looker {
    struct thread thread;
    uint32_t processor;
    uint64_t duration_ns, lost_ns;
};

static void look(void *context)
{
    struct looker *const looker = context;
    thread_hold(&looker->processor, 1);
    const uint64_t start = clock_ns();
    uint64_t before = start, now = start;
    while (now - start < looker->duration_ns) {
        now = clock_ns();
        if (now - before >= GAP_NS)
            looker->lost_ns += now - before;
        before = now;
    }
}

double noise_probe(uint32_t n_threads, uint32_t ms)
{
    struct looker *const lookers = xcalloc(n_threads, sizeof(*lookers));
    struct processors processors;
    struct err err;
    uint64_t most = 0;
    processors_read(&processors, &(struct processors_source){ 0 });
    for (uint32_t i = 0; i < n_threads; i++) {
        lookers[i].processor = processors.of[i % processors.n].id;
        lookers[i].duration_ns = (uint64_t)ms * 1000000u;
        thread_start(&lookers[i].thread, "noise", look, &lookers[i], &err);
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        thread_join(&lookers[i].thread);
        most = lookers[i].lost_ns > most ? lookers[i].lost_ns : most;
    }
    processors_release(&processors);
    free(lookers);
    return (double)most / ((double)ms * 1e6);
}
