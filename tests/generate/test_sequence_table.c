/* Slots, pages and plans, without a thread or a pipeline. */
#include "generate/sequence_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "generate/request_internal.h"
#include "helpers/cm.h"

#define SLOTS 6u
#define FLIGHTS 3u

struct bench {
    struct sequence_table table;
    struct batch batch;
    struct request requests[8];
    int32_t ids[8][600];
    uint64_t n_requests;
};

static struct bench *bench_new(void)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct err err;
    sequence_table_init(&bench->table, SLOTS, FLIGHTS);
    bench->table.limits = (struct sequence_limits){ .max_sequences = SLOTS,
                                                    .n_pages = 100,
                                                    .page_rows = 64,
                                                    .max_rows = 32,
                                                    .prefill_rows = 20,
                                                    .mixed_rows = 32,
                                                    .n_groups = 1 };
    assert_true(batch_init(&bench->batch, 64, 0, &err));
    return bench;
}

static void bench_free(struct bench *bench)
{
    sequence_table_release(&bench->table);
    batch_release(&bench->batch);
    free(bench);
}

static struct request *make_request(struct bench *bench, uint32_t n_prompt)
{
    const uint64_t i = bench->n_requests++;
    struct request *request = &bench->requests[i];
    request->ids = bench->ids[i];
    request->n_ids = request->n_prompt = n_prompt;
    request->admission = i + 1;
    for (uint32_t j = 0; j < n_prompt; j++)
        request->ids[j] = (int32_t)(1000 * i + j);
    return request;
}

static struct flight *plan(struct bench *bench)
{
    struct flight *flight = sequence_table_plan(&bench->table, &bench->batch);
    if (flight != NULL)
        sequence_table_commit(&bench->table, flight);
    return flight;
}

/* Lands it; sequences that sampled get a token. */
static void land(struct bench *bench, struct flight *flight)
{
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        struct request *request = bench->table.sequences[flight->parts[i].sequence].request;
        if (flight->parts[i].samples && request != NULL)
            request->ids[request->n_ids++] = 7;
    }
    sequence_table_land(&bench->table, flight);
}

static void test_prompt_in_chunks(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    const uint32_t slot = sequence_table_admit(&bench->table, make_request(bench, 45));
    /* Chunks go back to back: three batches before any answer. */
    struct flight *flights[3];
    const uint32_t sizes[3] = { 20, 20, 5 };
    uint32_t position = 0;
    for (int i = 0; i < 3; i++) {
        flights[i] = plan(bench);
        assert_non_null(flights[i]);
        assert_int_equal(bench->batch.id, i + 1);
        assert_int_equal(bench->batch.n_rows, sizes[i]);
        for (uint32_t r = 0; r < sizes[i]; r++, position++) {
            const struct row *row = &bench->batch.rows[r];
            assert_int_equal(row->sequence, slot);
            assert_int_equal(row->position, position);
            assert_int_equal(row->token, position);
            assert_int_equal(row->flags, position == 44 ? ROW_SAMPLE | ROW_LAST_OF_PROMPT : 0);
        }
        assert_int_equal(flights[i]->parts[0].samples, i == 2);
        assert_false(flights[i]->parts[0].decodes);
    }
    assert_null(plan(bench)); // no flight is free
    land(bench, flights[0]);
    assert_null(plan(bench)); // nothing to feed before its token is there
    land(bench, flights[1]);
    land(bench, flights[2]);
    struct flight *flight = plan(bench);
    assert_non_null(flight);
    assert_int_equal(bench->batch.n_rows, 1);
    assert_int_equal(bench->batch.rows[0].position, 45);
    assert_int_equal(bench->batch.rows[0].token, 7);
    assert_int_equal(bench->batch.rows[0].flags, ROW_SAMPLE);
    assert_true(flight->parts[0].decodes);
    bench_free(bench);
}

static void test_decode_before_prompts(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    for (int i = 0; i < 3; i++)
        sequence_table_admit(&bench->table, make_request(bench, 4));
    struct flight *flight = plan(bench);
    assert_int_equal(bench->batch.n_rows, 12);
    land(bench, flight);
    sequence_table_admit(&bench->table, make_request(bench, 100));
    sequence_table_admit(&bench->table, make_request(bench, 100));
    flight = plan(bench);
    assert_int_equal(flight->n_parts, 5);
    assert_int_equal(bench->batch.n_rows,
                     32); // 3 decode rows, 20 of the older prompt, 9 of the other
    for (uint32_t r = 0; r < 32; r++)
        assert_int_equal(bench->batch.rows[r].sequence, r < 3 ? r : r < 23 ? 3 : 4);
    bench_free(bench);
}

/* While answers are written, prompts come in smaller pieces; alone, in large ones. */
static void test_mixed_rows(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    bench->table.limits.mixed_rows = 8;
    const uint32_t slot = sequence_table_admit(&bench->table, make_request(bench, 4));
    land(bench, plan(bench));
    sequence_table_admit(&bench->table, make_request(bench, 100));
    struct flight *flight = plan(bench);
    assert_int_equal(bench->batch.n_rows, 1 + 8);
    assert_non_null(plan(bench)); // the first is in flight, and still it is waited for
    assert_int_equal(bench->batch.n_rows, 8);
    land(bench, flight);
    sequence_table_leave(&bench->table, slot);
    assert_non_null(plan(bench));
    assert_int_equal(bench->batch.n_rows, 20);
    bench_free(bench);
}

/* Over three stages six decoding sequences make three batches of two, in turn. */
static void test_decode_groups(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    bench->table.limits.n_groups = 3;
    for (uint32_t i = 0; i < SLOTS; i++)
        sequence_table_admit(&bench->table, make_request(bench, 2));
    land(bench, plan(bench));
    uint32_t rows[SLOTS] = { 0 };
    for (int round = 0; round < 4; round++) {
        struct flight *flights[FLIGHTS];
        for (uint32_t i = 0; i < FLIGHTS; i++) {
            flights[i] = plan(bench);
            assert_non_null(flights[i]);
            assert_int_equal(bench->batch.n_rows, 2);
            rows[bench->batch.rows[0].sequence]++;
            rows[bench->batch.rows[1].sequence]++;
        }
        for (uint32_t i = 0; i < FLIGHTS; i++)
            land(bench, flights[i]);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(rows[i], 4); // nobody waits longer than the others
    bench_free(bench);
}

static void test_slot_is_free_after_its_flights(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    bench->table.limits.max_sequences = 1;
    struct request *first = make_request(bench, 30), *second = make_request(bench, 5);
    const uint32_t slot = sequence_table_admit(&bench->table, first);
    struct flight *flights[2] = { plan(bench), plan(bench) };
    assert_false(sequence_table_has_room(&bench->table, second));
    sequence_table_leave(&bench->table, slot);
    assert_null(plan(bench));
    assert_false(sequence_table_has_room(&bench->table, second));
    land(bench, flights[0]);
    assert_false(sequence_table_has_room(&bench->table, second));
    land(bench, flights[1]);
    assert_true(sequence_table_has_room(&bench->table, second));
    assert_int_equal(sequence_table_admit(&bench->table, second), slot);
    struct flight *flight = plan(bench);
    assert_non_null(flight);
    assert_int_equal(bench->batch.rows[0].position, 0);
    sequence_table_leave(&bench->table, slot);
    assert_false(sequence_table_has_room(&bench->table, first));
    sequence_table_land_all(&bench->table); // the epoch is over
    assert_true(sequence_table_has_room(&bench->table, first));
    assert_int_equal(bench->table.n_flights, 0);
    bench_free(bench);
}

static void test_pages(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    bench->table.limits.n_pages = 5;
    struct request *old = make_request(bench, 64), *young = make_request(bench, 65);
    struct request *third = make_request(bench, 1);
    assert_true(sequence_table_has_room(&bench->table, old));
    sequence_table_admit(&bench->table, old);
    assert_int_equal(sequence_table_pages(&bench->table), 1);
    assert_true(sequence_table_has_room(&bench->table, young)); // 1 + 2, and growth of each
    const uint32_t young_slot = sequence_table_admit(&bench->table, young);
    assert_int_equal(sequence_table_pages(&bench->table), 3);
    assert_false(sequence_table_has_room(&bench->table, third));
    uint32_t slot = 99;
    old->n_ids = 192;
    assert_false(sequence_table_victim(&bench->table, &slot)); // 3 + 2: full, not over
    old->n_ids = 193;
    assert_true(sequence_table_victim(&bench->table, &slot));
    assert_int_equal(slot, young_slot);
    sequence_table_leave(&bench->table, slot);
    assert_false(sequence_table_victim(&bench->table, &slot));
    old->n_ids = 500; // alone, it is never a victim: its length was checked when it came
    assert_false(sequence_table_victim(&bench->table, &slot));
    bench_free(bench);
}

/* Computed again, prompt and answer are fed in chunks, and only the last row draws. */
static void test_again_after_preemption(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    struct request *request = make_request(bench, 10);
    request->n_ids = 25;
    sequence_table_admit(&bench->table, request);
    struct flight *flight = plan(bench);
    assert_int_equal(bench->batch.n_rows, 20);
    assert_int_equal(bench->batch.rows[9].flags, ROW_LAST_OF_PROMPT);
    assert_false(flight->parts[0].samples);
    flight = plan(bench);
    assert_int_equal(bench->batch.n_rows, 5);
    assert_int_equal(bench->batch.rows[4].flags, ROW_SAMPLE);
    assert_true(flight->parts[0].samples);
    bench_free(bench);
}

static void test_find(void **state)
{
    (void)state;
    struct bench *bench = bench_new();
    sequence_table_admit(&bench->table, make_request(bench, 10));
    struct flight *flight = plan(bench);
    assert_ptr_equal(sequence_table_find(&bench->table, 1), flight);
    assert_null(sequence_table_find(&bench->table, 2));
    land(bench, flight);
    assert_null(sequence_table_find(&bench->table, 1));
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_in_chunks),
        cmocka_unit_test(test_decode_before_prompts),
        cmocka_unit_test(test_mixed_rows),
        cmocka_unit_test(test_decode_groups),
        cmocka_unit_test(test_slot_is_free_after_its_flights),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_again_after_preemption),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
