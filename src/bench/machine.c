/* Caches by CPUID: leaf 4, or 0x8000001d, which AMD fills alike. */
#include "bench/machine.h"

#include <cpuid.h>
#include <stdbool.h>

#include "base/processors.h"

/* The caches that `leaf` lists; false when it lists none. */
static bool read_caches(uint32_t leaf, struct machine *machine)
{
    uint32_t a, b, c, d, index = 0;
    for (; __get_cpuid_count(leaf, index, &a, &b, &c, &d) && (a & 31) != 0; index++) {
        const size_t line = (b & 0xfff) + 1, partitions = (b >> 12 & 0x3ff) + 1;
        const size_t ways = (b >> 22) + 1, bytes = line * partitions * ways * ((size_t)c + 1);
        const uint32_t kind = a & 31, level = a >> 5 & 7;
        if (kind == 2) // of instructions
            continue;
        size_t *const levels[] = { &machine->l1d_bytes, &machine->l2_bytes, &machine->l3_bytes };
        if (level >= 1 && level <= 3)
            *levels[level - 1] = bytes;
    }
    return index > 0;
}

void machine_describe(struct machine *machine)
{
    *machine = (struct machine){ .cpu = cpu_detect(), .threads = processors_threads_here() };
    if (!read_caches(4, machine))
        read_caches(0x8000001du, machine);
}
