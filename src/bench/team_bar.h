/* Bars of the team: what a loop costs that does nothing, and what is left beside a busy stranger.
 */
#ifndef CASCADIA_BENCH_TEAM_BAR_H
#define CASCADIA_BENCH_TEAM_BAR_H

#include "bench/bar.h"

/* Both take no spec. T1: microseconds of an empty loop on all threads of the team; median. */
bool team_bar_empty(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err);
double team_bar_time_op(struct bench *bench); // seconds of one, the mean of a list
/* T3: products a second with one busy thread beside the team over those without it. */
bool team_bar_beside(const struct bar *bar, struct bench *bench, struct bar_result *result,
                     struct err *err);

#endif
