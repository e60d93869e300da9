/* check_kernels: every rung that this CPU has against the scalar one, bit by bit.
 *
 * Inputs and outputs end at a page that may not be touched, so that one byte too many ends the
 * program; what lies before an output and between its rows is filled with canaries. Sizes and
 * values come from a counter-based generator, so every machine draws the same cases, and the hash
 * of the scalar results is pinned: another machine or compiler must give it too.
 *
 * `check_kernels --brief RUNG` draws a fortieth of the random cases, for an emulated CPU (make
 * check-rungs), and demands that RUNG is the one that is chosen there. */
#ifndef CASCADIA_TESTS_KERNEL_CHECK_KERNELS_H
#define CASCADIA_TESTS_KERNEL_CHECK_KERNELS_H

#include "kernel/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- drawing ---- */

struct draw {
    uint64_t state;
};

uint32_t draw_u32(struct draw *draw);
uint32_t draw_below(struct draw *draw, uint32_t n); // 0 .. n-1
uint32_t draw_between(struct draw *draw, uint32_t low, uint32_t high);
float draw_float(struct draw *draw); // (-1, 1)
/* Mostly 1 .. 70, now and then up to `large`. */
uint32_t draw_size(struct draw *draw, uint32_t large);

/* ---- memory ---- */

#define CANARY 0xa5

/* `bytes` bytes that end at a forbidden page and begin `bytes` before it, canaries in front. */
struct guarded {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *data;
    size_t bytes;
};

struct guarded guarded_new(size_t bytes); // filled with canaries
void guarded_free(struct guarded *g);
bool guarded_intact(const struct guarded *g);                          // what is before the data
float *guarded_floats(struct guarded *g, size_t n, struct draw *draw); // allocates and draws

/* ---- judging ---- */

/* Counts a check; a failure is printed with what the format says. */
void expect(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds scalar results to the hash of the family that runs. */
void pin(const void *bytes, size_t n);

/* How many of n random cases to draw: all, or in a brief run some. */
uint32_t check_count(uint32_t n);

/* ---- families ---- */

void check_vec(const struct kernel *scalar, const struct kernel *kernel);
void check_matmul(const struct kernel *scalar, const struct kernel *kernel);
void check_tunings(const struct kernel *scalar, const struct kernel *kernel); // not pinned
void check_matmul_modes(const struct kernel *scalar, const struct kernel *kernel);
void check_attend(const struct kernel *scalar, const struct kernel *kernel);
void check_attend_q8(const struct kernel *scalar, const struct kernel *kernel);
void check_fmath(void);      // against libm, with a tolerance
void check_definition(void); // scalar products against sums in double
void check_attend_definition(void);

#endif
