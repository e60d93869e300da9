/* Two looks at the clock lie some tens of nanoseconds apart. Gaps of at least two microseconds are
 * preemption, interrupts, or a hypervisor that ran somebody else. */
#include "bench/noise.h"

#include "base/clock.h"

#define GAP_NS 2000u

struct probe {
    uint64_t duration_ns;
    uint64_t lost_ns[TEAM_THREADS_CAP];
};

static void look(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct probe *const probe = context;
    const uint64_t start = clock_ns();
    uint64_t before = start, now = start, lost = 0;
    (void)first;
    (void)last;
    while (now - start < probe->duration_ns) {
        now = clock_ns();
        if (now - before >= GAP_NS)
            lost += now - before;
        before = now;
    }
    probe->lost_ns[thread] = lost;
}

double noise_probe(struct team *team, uint32_t ms)
{
    struct probe probe = { .duration_ns = (uint64_t)ms * 1000000u };
    uint64_t most = 0;
    team_each(team, look, &probe);
    for (uint32_t i = 0; i < team_threads(team); i++)
        most = probe.lost_ns[i] > most ? probe.lost_ns[i] : most;
    return (double)most / (double)probe.duration_ns;
}
