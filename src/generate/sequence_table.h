/* Who occupies which sequence slot, which KV pages that costs, and what goes into the next batch.
 *
 * Pure bookkeeping: nothing here knows the pipeline, threads or time. A slot whose request has left
 * is not given away before every batch that has rows of it has been answered, so that no late
 * answer or failure reaches the next occupant. One owner, the scheduler's thread. */
#ifndef CASCADIA_GENERATE_SEQUENCE_TABLE_H
#define CASCADIA_GENERATE_SEQUENCE_TABLE_H

#include "engine/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct request;

struct sequence {
    struct request *request; // NULL: nobody
    uint32_t n_fed;          // rows handed to the pipeline
    uint32_t n_flights;      // batches with rows of this slot that are not answered
    bool lost;               // the last occupant ended by a lost batch; false again when it is free
    uint64_t last_fed;       // rising number of the last batch it had a row in
};

/* Rows of one sequence in one batch. */
struct flight_part {
    uint32_t sequence;
    uint32_t row_last; // index in the batch of its last row, the only one that may sample
    uint32_t n_rows;
    bool samples; // the last row draws a token
    bool decodes; // its one row is a drawn token, not a prompt's
};

/* A batch that has been handed on and not answered. */
struct flight {
    uint64_t batch; // id; 0: nothing
    bool probe;     // the scheduler's own
    uint32_t n_parts;
    struct flight_part *parts; // [max_sequences]
};

/* Set by the owner; may shrink when other stages offer less. */
struct sequence_limits {
    uint32_t max_sequences; // at most what the table was opened with
    uint32_t n_pages, page_rows;
    uint32_t max_rows;     // of a batch
    uint32_t prefill_rows; // of one prompt in a batch
    uint32_t mixed_rows;   // of all prompts in a batch while answers are being written
    uint32_t n_groups;     // decode rows are spread over so many batches
};

struct sequence_table {
    struct sequence *sequences; // [sequences_cap]
    uint32_t sequences_cap;
    struct flight *flights; // [flights_cap]
    uint32_t flights_cap;
    uint32_t n_running, n_flights;
    uint64_t n_batches; // planned so far: ids count up from 1
    struct sequence_limits limits;
};

void sequence_table_init(struct sequence_table *table, uint32_t sequences_cap,
                         uint32_t flights_cap);
void sequence_table_release(struct sequence_table *table); // zeroed values are fine

/* KV pages of the ids that running requests have now. */
uint32_t sequence_table_pages(const struct sequence_table *table);

/* There is a free slot, and pages for the request's ids and for a page of growth of everybody. An
 * empty table takes any request. */
bool sequence_table_has_room(const struct sequence_table *table, const struct request *request);

/* Gives the request a slot: there must be room. Returns the slot. */
uint32_t sequence_table_admit(struct sequence_table *table, struct request *request);
void sequence_table_leave(struct sequence_table *table, uint32_t slot); // the request keeps its ids

/* The running sequence that was admitted last, if pages must be given back and it is not alone. */
bool sequence_table_victim(const struct sequence_table *table, uint32_t *slot);

/* Plans the next batch: rows and id of `batch`, and its flight. NULL: there is nothing to feed, or
 * no flight is free. The batch must then be handed on (sequence_table_commit) or forgotten. */
struct flight *sequence_table_plan(struct sequence_table *table, struct batch *batch);
void sequence_table_commit(struct sequence_table *table, struct flight *flight);

struct flight *sequence_table_find(struct sequence_table *table, uint64_t batch); // NULL: unknown
/* The batch has been answered: its sequences have one less in flight. */
void sequence_table_land(struct sequence_table *table, struct flight *flight);
/* The epoch is over: nothing is in flight any more. */
void sequence_table_land_all(struct sequence_table *table);

#endif
