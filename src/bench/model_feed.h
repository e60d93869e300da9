/* An engine with batches to feed it: rows of fixed pseudo-random ids. One owner. */
#ifndef CASCADIA_BENCH_MODEL_FEED_H
#define CASCADIA_BENCH_MODEL_FEED_H

#include "base/err.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct model_feed {
    struct engine engine;
    struct engine_info info;
    struct batch in, out;
    uint32_t state; // of the ids
};

/* The whole model on the native engine. On failure the feed is zeroed. */
bool model_feed_open(struct model_feed *feed, const struct engine_options *options,
                     struct err *err);
void model_feed_close(struct model_feed *feed); // zeroed values are fine

/* n rows of `sequence` from `position` on, in batches as large as may be; logits of the last one if
 * asked for. */
bool model_feed_rows(struct model_feed *feed, uint32_t sequence, uint32_t position, uint32_t n,
                     bool logits, struct err *err);

/* One row of each of the sequences [first, first + n), all at `position`, all with logits. */
bool model_feed_step(struct model_feed *feed, uint32_t first, uint32_t n, uint32_t position,
                     struct err *err);

/* What a comparison with another program takes turns with: a prefill from empty, then `decode`
 * steps of one row behind `depth` rows. */
struct model_round {
    double prefill_per_s, decode_per_s; // tokens; decode 0 when there are no steps
};
bool model_feed_round(struct model_feed *feed, uint32_t prefill, uint32_t depth, uint32_t decode,
                      struct model_round *round, struct err *err);

#endif
