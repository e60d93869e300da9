/* Attention, 8 values an instruction: 16 positions are two registers. Six pairs with two columns
 * are 12 sums of 16 registers; three or fewer have four columns. */
#include "kernel/lanes_avx2.h"

#define ATTEND_PAIRS 6u
#define ATTEND_FEW 3u
#define ATTEND_FEW_Q8 1u
#define PAIR_COUNTS(COUNT) COUNT(6) COUNT(4) COUNT(3) COUNT(2) COUNT(1)

#include "kernel/attend_lanes.h"

const struct attend_ops attend_avx2 = {
    .store = store,
    .run = run,
    .part = part,
    .merge = merge_parts,
};
