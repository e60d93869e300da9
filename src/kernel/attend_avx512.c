/* Attention, 16 values an instruction: 16 positions are one register. Twelve pairs with two columns
 * are 24 sums of 32 registers, six or fewer have four columns. */
#include "kernel/lanes_avx512.h"

#define ATTEND_PAIRS 12u
#define ATTEND_FEW 6u
#define ATTEND_FEW_Q8 6u
#define PAIR_COUNTS(COUNT) COUNT(12) COUNT(8) COUNT(6) COUNT(4) COUNT(3) COUNT(2) COUNT(1)

#include "kernel/attend_lanes.h"

const struct attend_ops attend_avx512 = {
    .store = store,
    .run = run,
    .part = part,
    .merge = merge_parts,
};
