/* A pipeline without stages, for tests of the scheduler: the functions of pipeline/pipeline.h over
 * a made-up model, with answers, losses and faults when the test says so.
 *
 * It holds the scheduler to the contract and aborts when it breaks it: rows out of order, a
 * sequence drawn from twice at once, parameters missing, more pages than there are, a slot given
 * away while batches of its last occupant are under way.
 *
 * The model: the next token is a letter that depends on all ids and the seed. A prompt that begins
 * with 'q' and a digit ends after so many tokens. Its vocabulary is the mock tokenizer's. */
#ifndef CASCADIA_TESTS_SCHEDULER_FAKE_H
#define CASCADIA_TESTS_SCHEDULER_FAKE_H

#include "pipeline/pipeline.h"

#define FAKE_SEQUENCES_CAP 16u
#define FAKE_ROWS_CAP 4096u

struct fake_counts {
    uint64_t n_batches, n_rows, n_drops, n_answers;
    uint32_t rows_max;      // of a batch
    uint32_t sequences_max; // of a batch
    uint32_t flights_max;
    uint32_t pages_max;
};

/* info: max_rows, max_sequences, n_pages, page_rows, ctx_size. Ready at once if `ready`. */
struct pipeline *fake_open(const struct engine_info *info, uint32_t batches_cap, bool ready);
void fake_close(struct pipeline *fake);

/* Any thread. */
void fake_answer(struct pipeline *fake, uint64_t n_batches); // UINT64_MAX: at once (as at open)
void fake_fail_batch(struct pipeline *fake, uint64_t batch, enum err_code code);
void fake_lose(struct pipeline *fake);    // the chain, and with it what is in flight
void fake_connect(struct pipeline *fake); // a new epoch
void fake_shrink(struct pipeline *fake, uint32_t ctx_size);        // before fake_connect
void fake_wait_flights(struct pipeline *fake, uint32_t n_flights); // until so many wait for answers
struct fake_counts fake_counts(struct pipeline *fake);

/* The model. */
int32_t fake_next_token(const int32_t *ids, uint32_t n_ids, uint32_t prompt_rows, uint64_t seed);

#endif
