/* The table and the probe.
 *
 * A probe's window is one product of 16 panels, some 20 microseconds: short enough that most are
 * undisturbed on a busy machine, and all candidates take turns, so that a disturbance that lasts
 * hits them alike. Each window reads weights that nothing has read since they were written. */
#include "kernel/tuning.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

enum { PANELS = 16, COLS = 1024, GROUP = 32, ROUNDS = 19 };

const struct matmul_tuning tuning_candidates[TUNING_CANDIDATES] = {
    { .prefetch_bytes = 0, .n_panels = 1 },
    { .prefetch_bytes = 0, .n_panels = 4 },
    { .prefetch_bytes = 512, .hint = MATMUL_HINT_T0, .n_panels = 4 },
    { .prefetch_bytes = 2048, .hint = MATMUL_HINT_T0, .n_panels = 4 },
    { .prefetch_bytes = 1024, .hint = MATMUL_HINT_T0, .n_panels = 2 },
    { .prefetch_bytes = 4096, .hint = MATMUL_HINT_T0, .n_panels = 1 },
    { .prefetch_bytes = 4096, .hint = MATMUL_HINT_T1, .n_panels = 2 },
};

/* Zen 2 and Zen 4 as in the measurements that the kernels were designed by; Emerald Rapids on a
 * guest with two processors. Sapphire Rapids has the same core and takes its values. */
static const struct {
    enum cpu_microarch microarch;
    struct matmul_tuning tuning;
} measured[] = {
    { CPU_ZEN2, { .prefetch_bytes = 512, .hint = MATMUL_HINT_T0, .n_panels = 4 } },
    { CPU_ZEN4, { .prefetch_bytes = 0, .n_panels = 1 } },
    { CPU_SAPPHIRE_RAPIDS, { .prefetch_bytes = 2048, .hint = MATMUL_HINT_T0, .n_panels = 4 } },
    { CPU_EMERALD_RAPIDS, { .prefetch_bytes = 2048, .hint = MATMUL_HINT_T0, .n_panels = 4 } },
};

bool tuning_find(enum cpu_microarch microarch, struct matmul_tuning *out)
{
    for (size_t i = 0; i < sizeof(measured) / sizeof(*measured); i++) {
        if (measured[i].microarch == microarch) {
            *out = measured[i].tuning;
            return true;
        }
    }
    return false;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct matmul_tuning tuning_probe(const struct kernel *kernel, const uint8_t *memory)
{
    static const float x[COLS]; // zeros take as long as anything
    _Alignas(64) uint8_t packed[40960];
    float out[PANELS * QUANT_PANEL_ROWS];
    uint64_t took_ns[TUNING_CANDIDATES][ROUNDS];
    struct activation activation;
    size_t bytes = 0, at = 0;
    must(activation_bytes(1, COLS) <= sizeof(packed));
    must(quant_matrix_bytes(QUANT_INT4, PANELS * QUANT_PANEL_ROWS, COLS, GROUP, &bytes) &&
         bytes * TUNING_CANDIDATES * ROUNDS <= TUNING_PROBE_BYTES);
    activation_init(
        &activation, kernel, packed,
        &(struct activation_options){
            .x = x, .rows = 1, .cols = COLS, .mode = ACTIVATION_G128, .quantised = true });
    kernel->matmul->pack(&activation, 0, 1);
    struct matmul mm = { .activation = &activation, .n_parts = 1 };
    mm.parts[0] = (struct matmul_part){
        .weights = { .format = QUANT_INT4,
                     .group = GROUP,
                     .rows = PANELS * QUANT_PANEL_ROWS,
                     .cols = COLS },
        .out = out,
    };
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < TUNING_CANDIDATES; i++, at += bytes) {
            mm.tuning = &tuning_candidates[i];
            mm.parts[0].weights.data = memory + at;
            const uint64_t start_ns = clock_ns();
            kernel->matmul->run(&mm, 0, PANELS);
            took_ns[i][round] = clock_ns() - start_ns;
        }
    }
    uint32_t best = 0;
    for (uint32_t i = 0; i < TUNING_CANDIDATES; i++) {
        qsort(took_ns[i], ROUNDS, sizeof(took_ns[i][0]), compare_times);
        if (took_ns[i][ROUNDS / 2] < took_ns[best][ROUNDS / 2])
            best = i;
    }
    return tuning_candidates[best];
}

const char *tuning_hint_name(const struct matmul_tuning *tuning)
{
    static const char *const names[] = {
        [MATMUL_HINT_T0] = "T0", [MATMUL_HINT_T1] = "T1", [MATMUL_HINT_NTA] = "NTA"
    };
    return tuning->prefetch_bytes == 0 ? "none" : names[tuning->hint];
}
