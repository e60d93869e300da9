/* The machine that is measured: what it is called, what it has, and its ceilings. */
#ifndef CASCADIA_BENCH_MACHINE_H
#define CASCADIA_BENCH_MACHINE_H

#include "kernel/cpu.h"

#include <stddef.h>
#include <stdint.h>

struct machine {
    struct cpu cpu;
    uint32_t threads;                     // processors this process may use
    size_t l1d_bytes, l2_bytes, l3_bytes; // of one cache; 0: unknown
};

void machine_describe(struct machine *machine);

#endif
