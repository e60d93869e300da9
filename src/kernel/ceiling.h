/* What this machine can do at most: plain reads of memory and dot products on registers.
 *
 * No kernel is faster than these, so a figure of speed is a share of one of them, measured in the
 * same run (absolute figures of a shared machine mean little). The loops compute nothing that
 * anybody needs. Any thread; nothing is kept. */
#ifndef CASCADIA_KERNEL_CEILING_H
#define CASCADIA_KERNEL_CEILING_H

#include "base/team.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CEILING_READ_UNIT 4096u // bytes: what reads are a multiple of
#define CEILING_STREAMS_CAP 4u

/* Reads every byte of data[bytes] once, as 1, 2 or 4 streams walked together, each over its own
 * contiguous part. bytes is a multiple of CEILING_READ_UNIT, data 64-byte aligned. What it returns
 * depends on all bytes, so that nothing can be left out. */
typedef uint64_t ceiling_read_run(const uint8_t *data, size_t bytes, uint32_t streams);

struct ceiling_read {
    const char *name;  // "32-byte"
    uint32_t features; // of enum cpu_feature: what it asks of the CPU
    ceiling_read_run *run;
};

/* A dot-product instruction, or the shortest chain that does its work. */
struct ceiling_dot {
    const char *name; // "vpdpbusd zmm"
    uint32_t features;
    uint32_t ops_per_step;       // a multiply-add is two
    void (*run)(uint64_t steps); // on registers alone; steps > 0
};

extern const struct ceiling_read *const ceiling_reads[]; // narrowest first, NULL at the end
extern const struct ceiling_dot *const ceiling_dots[];   // NULL at the end

/* True when this CPU can run it. */
bool ceiling_read_usable(const struct ceiling_read *read);
bool ceiling_dot_usable(const struct ceiling_dot *dot);

/* The widest reading that this CPU has; never NULL. */
const struct ceiling_read *ceiling_read_best(void);

/* By name; NULL when this CPU lacks it. */
const struct ceiling_dot *ceiling_dot_find(const char *name);

/* Reads data with all threads of the team, each one contiguous part as `streams` streams. The same
 * rules for data and bytes. */
void ceiling_read_all(struct team *team, const struct ceiling_read *read, const uint8_t *data,
                      size_t bytes, uint32_t streams);

/* Runs `steps` steps on each thread of the team. */
void ceiling_dot_all(struct team *team, const struct ceiling_dot *dot, uint64_t steps);

/* Cycles of the core's clock in a second, from a chain of additions that takes one cycle each.
 * About a millisecond. */
double ceiling_clock_hz(void);

#endif
