/* The plan of a batch. Decode rows come first: each is a person waiting for the next word. Over
 * several stages the decoding sequences are spread over as many batches as there are stages, since
 * one batch with all of them would keep one stage busy and the others waiting. Which ones: those
 * that have waited longest. The rest of the batch is prompts, the oldest request first, so that a
 * long prompt is never overtaken for ever, and not too many rows at once while others wait for
 * words; chunks of one prompt go back to back without waiting for each other's answers.
 *
 * Pages are counted by ids, not by rows fed: a prompt that is admitted has its pages from then on,
 * and a drawn token takes its page before its row is planned. */
#include "generate/sequence_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/memory.h"
#include "generate/request_internal.h"

void sequence_table_init(struct sequence_table *table, uint32_t sequences_cap, uint32_t flights_cap)
{
    *table = (struct sequence_table){ .sequences_cap = sequences_cap, .flights_cap = flights_cap };
    table->sequences = xcalloc(sequences_cap, sizeof(*table->sequences));
    table->flights = xcalloc(flights_cap, sizeof(*table->flights));
    for (uint32_t i = 0; i < flights_cap; i++)
        table->flights[i].parts = xcalloc(sequences_cap, sizeof(*table->flights[i].parts));
}

void sequence_table_release(struct sequence_table *table)
{
    for (uint32_t i = 0; i < table->flights_cap; i++)
        free(table->flights[i].parts);
    free(table->flights);
    free(table->sequences);
    *table = (struct sequence_table){ 0 };
}

static uint32_t pages_of(const struct sequence_table *table, const struct request *request)
{
    return (request->n_ids + table->limits.page_rows - 1) / table->limits.page_rows;
}

uint32_t sequence_table_pages(const struct sequence_table *table)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < table->sequences_cap; i++) {
        if (table->sequences[i].request != NULL)
            pages += pages_of(table, table->sequences[i].request);
    }
    return pages;
}

static bool find_free(const struct sequence_table *table, uint32_t *slot)
{
    for (uint32_t i = 0; i < table->limits.max_sequences; i++) {
        if (table->sequences[i].request == NULL && table->sequences[i].n_flights == 0) {
            *slot = i;
            return true;
        }
    }
    return false;
}

bool sequence_table_has_room(const struct sequence_table *table, const struct request *request)
{
    uint32_t slot;
    if (!find_free(table, &slot))
        return false;
    if (table->n_running == 0)
        return true;
    const uint64_t needed =
        (uint64_t)sequence_table_pages(table) + table->n_running + pages_of(table, request) + 1;
    return needed <= table->limits.n_pages;
}

uint32_t sequence_table_admit(struct sequence_table *table, struct request *request)
{
    uint32_t slot = 0;
    must(find_free(table, &slot));
    table->sequences[slot] = (struct sequence){ .request = request };
    table->n_running++;
    return slot;
}

void sequence_table_leave(struct sequence_table *table, uint32_t slot)
{
    struct sequence *sequence = &table->sequences[slot];
    must(sequence->request != NULL);
    sequence->request = NULL;
    table->n_running--;
}

bool sequence_table_victim(const struct sequence_table *table, uint32_t *slot)
{
    if (table->n_running < 2 || sequence_table_pages(table) <= table->limits.n_pages)
        return false;
    const struct request *youngest = NULL;
    for (uint32_t i = 0; i < table->sequences_cap; i++) {
        const struct request *request = table->sequences[i].request;
        if (request != NULL && (youngest == NULL || request->admission > youngest->admission)) {
            youngest = request;
            *slot = i;
        }
    }
    return true;
}

/* All ids but the last have been fed: its next row draws a token. */
static bool is_decoding(const struct sequence *sequence)
{
    return sequence->request != NULL && sequence->n_fed + 1 >= sequence->request->n_ids &&
           sequence->n_fed >= sequence->request->n_prompt;
}

static bool has_rows(const struct sequence *sequence)
{
    return sequence->request != NULL && sequence->n_fed < sequence->request->n_ids;
}

static void add_rows(struct sequence_table *table, uint32_t slot, uint32_t n_rows,
                     struct batch *batch, struct flight *flight)
{
    struct sequence *sequence = &table->sequences[slot];
    const struct request *request = sequence->request;
    for (uint32_t i = 0; i < n_rows; i++) {
        const uint32_t position = sequence->n_fed + i;
        uint32_t flags = position + 1 == request->n_prompt ? ROW_LAST_OF_PROMPT : 0;
        if (position + 1 == request->n_ids)
            flags |= ROW_SAMPLE;
        batch->rows[batch->n_rows++] = (struct row){
            .sequence = slot, .position = position, .token = request->ids[position], .flags = flags
        };
    }
    flight->parts[flight->n_parts++] =
        (struct flight_part){ .sequence = slot,
                              .row_last = batch->n_rows - 1,
                              .n_rows = n_rows,
                              .samples = sequence->n_fed + n_rows == request->n_ids,
                              .decodes = is_decoding(sequence) };
}

static bool is_planned(const struct flight *flight, uint32_t slot)
{
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        if (flight->parts[i].sequence == slot)
            return true;
    }
    return false;
}

/* The decoding sequence that has a row to feed and has waited longest. */
static bool next_decode(const struct sequence_table *table, const struct flight *flight,
                        uint32_t *slot)
{
    bool found = false;
    for (uint32_t i = 0; i < table->sequences_cap; i++) {
        const struct sequence *sequence = &table->sequences[i];
        if (!is_decoding(sequence) || !has_rows(sequence) || is_planned(flight, i))
            continue;
        if (!found || sequence->last_fed < table->sequences[*slot].last_fed) {
            *slot = i;
            found = true;
        }
    }
    return found;
}

/* The oldest request that still has ids of a prompt (or of a text computed again) to feed. */
static bool next_prefill(const struct sequence_table *table, const struct flight *flight,
                         uint32_t *slot)
{
    bool found = false;
    for (uint32_t i = 0; i < table->sequences_cap; i++) {
        const struct sequence *sequence = &table->sequences[i];
        if (is_decoding(sequence) || !has_rows(sequence) || is_planned(flight, i))
            continue;
        if (!found || sequence->request->admission < table->sequences[*slot].request->admission) {
            *slot = i;
            found = true;
        }
    }
    return found;
}

static uint32_t count_decoding(const struct sequence_table *table)
{
    uint32_t n_decoding = 0;
    for (uint32_t i = 0; i < table->sequences_cap; i++)
        n_decoding += is_decoding(&table->sequences[i]);
    return n_decoding;
}

struct flight *sequence_table_plan(struct sequence_table *table, struct batch *batch)
{
    struct flight *flight = sequence_table_find(table, 0);
    if (flight == NULL)
        return NULL;
    const uint32_t max_rows = table->limits.max_rows;
    flight->n_parts = 0;
    flight->probe = false;
    batch->n_rows = 0;
    const uint32_t n_decoding = count_decoding(table);
    const uint32_t n_groups = table->limits.n_groups;
    uint32_t slot = 0;
    for (uint32_t left = (n_decoding + n_groups - 1) / n_groups;
         left > 0 && batch->n_rows < max_rows && next_decode(table, flight, &slot); left--)
        add_rows(table, slot, 1, batch, flight);
    uint32_t rows_end = max_rows;
    if (n_decoding > 0 && table->limits.mixed_rows < max_rows - batch->n_rows)
        rows_end = batch->n_rows + table->limits.mixed_rows;
    while (batch->n_rows < rows_end && next_prefill(table, flight, &slot)) {
        const struct sequence *sequence = &table->sequences[slot];
        uint32_t n_rows = sequence->request->n_ids - sequence->n_fed;
        if (n_rows > table->limits.prefill_rows)
            n_rows = table->limits.prefill_rows;
        if (n_rows > rows_end - batch->n_rows)
            n_rows = rows_end - batch->n_rows;
        add_rows(table, slot, n_rows, batch, flight);
    }
    batch->id = table->n_batches + 1;
    return batch->n_rows > 0 ? flight : NULL;
}

void sequence_table_commit(struct sequence_table *table, struct flight *flight)
{
    flight->batch = ++table->n_batches;
    table->n_flights++;
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        const struct flight_part *part = &flight->parts[i];
        struct sequence *sequence = &table->sequences[part->sequence];
        sequence->n_fed += part->n_rows;
        sequence->n_flights++;
        sequence->last_fed = flight->batch;
    }
}

struct flight *sequence_table_find(struct sequence_table *table, uint64_t batch)
{
    for (uint32_t i = 0; i < table->flights_cap; i++) {
        if (table->flights[i].batch == batch)
            return &table->flights[i];
    }
    return NULL;
}

void sequence_table_land(struct sequence_table *table, struct flight *flight)
{
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        struct sequence *sequence = &table->sequences[flight->parts[i].sequence];
        sequence->n_flights--;
        if (sequence->n_flights == 0 && sequence->request == NULL)
            sequence->lost = false;
    }
    flight->batch = 0;
    table->n_flights--;
}

void sequence_table_land_all(struct sequence_table *table)
{
    for (uint32_t i = 0; i < table->flights_cap; i++) {
        if (table->flights[i].batch != 0)
            sequence_table_land(table, &table->flights[i]);
    }
}
