#include "engine_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a chain of engines ---- */

bool engine_chain_open(struct engine_chain *chain, const struct engine_options *options,
                       const uint32_t *cuts, uint32_t n_cuts, struct err *err)
{
    *chain = (struct engine_chain){ 0 };
    for (uint32_t stage = 0; stage <= n_cuts; stage++) {
        struct engine_options own = *options;
        own.layer_first = stage == 0 ? options->layer_first : cuts[stage - 1];
        own.layer_end = stage == n_cuts ? options->layer_end : cuts[stage];
        struct engine_info *info = &chain->infos[stage];
        if (!engine_open(&chain->engines[stage], &own, info, err))
            goto fail;
        chain->n_engines++;
        const size_t width = engine_is_last(info) ? info->vocab_size : info->carry;
        if (!batch_init(&chain->between[stage], info->max_rows, info->max_rows * width, err))
            goto fail;
    }
    if (!batch_init(&chain->in, chain->infos[0].max_rows, 0, err))
        goto fail;
    return true;
fail:
    engine_chain_close(chain);
    return false;
}

void engine_chain_close(struct engine_chain *chain)
{
    for (uint32_t stage = 0; stage < ENGINE_CHAIN_CAP; stage++) {
        engine_close(&chain->engines[stage]);
        batch_release(&chain->between[stage]);
    }
    batch_release(&chain->in);
    *chain = (struct engine_chain){ 0 };
}

void engine_chain_add(struct engine_chain *chain, uint32_t sequence, uint32_t position,
                      int32_t token, uint32_t flags)
{
    assert_true(chain->in.n_rows < chain->in.rows_cap);
    chain->in.rows[chain->in.n_rows++] =
        (struct row){ .sequence = sequence, .position = position, .token = token, .flags = flags };
}

const struct batch *engine_chain_step(struct engine_chain *chain, struct err *err)
{
    const struct batch *in = &chain->in;
    for (uint32_t stage = 0; stage < chain->n_engines; stage++) {
        struct engine *engine = &chain->engines[stage];
        if (!engine->ops->step(engine, in, &chain->between[stage], err)) {
            in = NULL;
            break;
        }
        in = &chain->between[stage];
    }
    chain->in.n_rows = 0;
    chain->in.id++;
    return in;
}

const struct batch *engine_chain_run(struct engine_chain *chain, uint32_t sequence,
                                     const int32_t *ids, uint32_t first, uint32_t end,
                                     struct err *err)
{
    for (uint32_t position = first; position < end; position++)
        engine_chain_add(chain, sequence, position, ids[position], ROW_LOGITS);
    return engine_chain_step(chain, err);
}

/* ---- the tests ---- */

struct suite_state {
    const struct engine_suite *suite;
    float *reference; // logits of all positions of the text, from one batch
    uint32_t vocab_size, n_layers;
};

#define TEXT 200u

static void open_chain(struct engine_chain *chain, const struct engine_options *options)
{
    struct err err = { 0 };
    if (!engine_chain_open(chain, options, NULL, 0, &err))
        fail_msg("%s", err.text);
}

static void assert_rows(const struct suite_state *state, const float *logits, uint32_t first,
                        uint32_t n_rows)
{
    const size_t row_bytes = state->vocab_size * sizeof(float);
    for (uint32_t r = 0; r < n_rows; r++) {
        if (memcmp(logits + (size_t)r * state->vocab_size,
                   state->reference + (size_t)(first + r) * state->vocab_size, row_bytes) != 0)
            fail_msg("logits of position %u differ", first + r);
    }
}

static void run_and_assert(struct engine_chain *chain, const struct suite_state *state,
                           uint32_t sequence, uint32_t first, uint32_t end)
{
    struct err err = { 0 };
    const struct batch *out =
        engine_chain_run(chain, sequence, state->suite->ids, first, end, &err);
    if (out == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(out->n_logits, end - first);
    assert_rows(state, out->values, first, end - first);
}

static int setup(void **test_state)
{
    struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    state->vocab_size = chain.infos[0].vocab_size;
    state->n_layers = chain.infos[0].n_layers;
    struct err err = { 0 };
    const struct batch *out = engine_chain_run(&chain, 0, state->suite->ids, 0, TEXT, &err);
    if (out == NULL)
        fail_msg("%s", err.text);
    const size_t bytes = (size_t)TEXT * state->vocab_size * sizeof(float);
    state->reference = malloc(bytes);
    assert_non_null(state->reference);
    memcpy(state->reference, out->values, bytes);
    engine_chain_close(&chain);
    return 0;
}

static int teardown(void **test_state)
{
    struct suite_state *state = *test_state;
    free(state->reference);
    return 0;
}

/* The negative control of all comparisons here: rows do differ with their text. */
static void test_rows_differ(void **test_state)
{
    const struct suite_state *state = *test_state;
    uint32_t n_equal = 0;
    for (uint32_t position = 1; position < TEXT; position++) {
        n_equal += memcmp(state->reference + (size_t)(position - 1) * state->vocab_size,
                          state->reference + (size_t)position * state->vocab_size,
                          state->vocab_size * sizeof(float)) == 0;
    }
    assert_true(n_equal < TEXT / 2);
}

static void test_chunks(void **test_state)
{
    static const uint32_t ends[] = { 1, 2, 65, 66, 70, 128, 129, 200 };
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    uint32_t first = 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        run_and_assert(&chain, state, 3, first, ends[i]);
        first = ends[i];
    }
    engine_chain_close(&chain);
}

static void test_one_by_one(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    for (uint32_t position = 0; position < 80; position++)
        run_and_assert(&chain, state, 0, position, position + 1);
    engine_chain_close(&chain);
}

/* Three sequences at different places of the text share batches, rows of them interleaved. */
static void test_mixed_batch(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    run_and_assert(&chain, state, 5, 0, 60);
    run_and_assert(&chain, state, 1, 0, 7);
    for (uint32_t i = 0; i < 20; i++) {
        engine_chain_add(&chain, 5, 60 + i, state->suite->ids[60 + i], ROW_SAMPLE);
        engine_chain_add(&chain, 1, 7 + i, state->suite->ids[7 + i], i % 2 == 0 ? ROW_LOGITS : 0);
        engine_chain_add(&chain, 0, i, state->suite->ids[i], 0);
    }
    struct err err = { 0 };
    const struct batch *out = engine_chain_step(&chain, &err);
    assert_non_null(out);
    assert_int_equal(out->n_rows, 60);
    assert_int_equal(out->n_logits, 30);
    uint32_t next = 0;
    for (uint32_t i = 0; i < 20; i++) {
        assert_rows(state, out->values + (size_t)next++ * state->vocab_size, 60 + i, 1);
        if (i % 2 == 0)
            assert_rows(state, out->values + (size_t)next++ * state->vocab_size, 7 + i, 1);
    }
    run_and_assert(&chain, state, 0, 20, 30);
    engine_chain_close(&chain);
}

static void test_stages(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct err err = { 0 };
    for (uint32_t cut = 1; cut < state->n_layers; cut++) {
        struct engine_chain chain;
        assert_true(engine_chain_open(&chain, &state->suite->options, &cut, 1, &err));
        run_and_assert(&chain, state, 2, 0, 90);
        run_and_assert(&chain, state, 2, 90, 91);
        engine_chain_close(&chain);
    }
    const uint32_t cuts[] = { 1, 2 };
    if (state->n_layers > 2) {
        struct engine_chain chain;
        assert_true(engine_chain_open(&chain, &state->suite->options, cuts, 2, &err));
        assert_int_equal(chain.infos[0].carry, chain.infos[1].carry);
        assert_true(chain.infos[0].model_hash == chain.infos[2].model_hash);
        assert_true(chain.infos[0].settings_hash == chain.infos[2].settings_hash);
        run_and_assert(&chain, state, 0, 0, TEXT);
        engine_chain_close(&chain);
    }
}

static void test_stepping_back(void **test_state)
{
    const struct suite_state *state = *test_state;
    int32_t other[TEXT];
    for (uint32_t i = 0; i < TEXT; i++)
        other[i] = state->suite->ids[TEXT - 1 - i];
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    struct err err = { 0 };
    run_and_assert(&chain, state, 0, 0, 50);
    assert_non_null(engine_chain_run(&chain, 0, other, 50, 150, &err));
    run_and_assert(&chain, state, 0, 50, 70);
    assert_non_null(engine_chain_run(&chain, 0, other, 70, 71, &err));
    run_and_assert(&chain, state, 0, 70, 130);
    assert_non_null(engine_chain_run(&chain, 0, other, 0, 10, &err));
    run_and_assert(&chain, state, 0, 0, TEXT);
    engine_chain_close(&chain);
}

static void test_keep(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    struct engine *engine = &chain.engines[0];
    struct err err = { 0 };
    run_and_assert(&chain, state, 0, 0, 100);
    engine->ops->keep(engine, 0, 1, 100);
    engine->ops->keep(engine, 0, 2, 64);
    engine->ops->keep(engine, 0, 3, 70);
    engine->ops->keep(engine, 0, 9, 0);
    /* The copy writes something else into the shared page; the first does not notice. */
    int32_t other[TEXT];
    for (uint32_t i = 0; i < TEXT; i++)
        other[i] = state->suite->ids[TEXT - 1 - i];
    assert_non_null(engine_chain_run(&chain, 1, other, 100, 110, &err));
    run_and_assert(&chain, state, 0, 100, 150);
    run_and_assert(&chain, state, 2, 64, 150);
    run_and_assert(&chain, state, 3, 70, 80);
    run_and_assert(&chain, state, 9, 0, 10);
    engine->ops->drop(engine, 0);
    run_and_assert(&chain, state, 3, 80, 150);
    engine->ops->keep(engine, 3, 3, 65);
    run_and_assert(&chain, state, 3, 65, 90);
    /* Nothing happens to or through sequences that do not exist. */
    engine->ops->keep(engine, 9999, 3, 1);
    engine->ops->keep(engine, 3, 9999, 1);
    engine->ops->drop(engine, 9999);
    run_and_assert(&chain, state, 3, 90, 92);
    engine_chain_close(&chain);
}

static void assert_fails(struct engine_chain *chain, enum err_code code, const char *word)
{
    struct err err = { 0 };
    assert_null(engine_chain_step(chain, &err));
    assert_int_equal(err.code, code);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

static void test_refused_rows(void **test_state)
{
    const struct suite_state *state = *test_state;
    const int32_t *ids = state->suite->ids;
    struct engine_options options = state->suite->options;
    options.ctx_size = 100;
    struct engine_chain chain;
    open_chain(&chain, &options);
    run_and_assert(&chain, state, 0, 0, 20);
    engine_chain_add(&chain, 0, 21, ids[21], ROW_SAMPLE); // a gap
    assert_fails(&chain, ERR_BATCH_LOST, "position 21");
    engine_chain_add(&chain, 0, 20, ids[20], 0); // a gap inside the batch, after a good row
    engine_chain_add(&chain, 0, 22, ids[22], ROW_SAMPLE);
    assert_fails(&chain, ERR_BATCH_LOST, "position 22");
    engine_chain_add(&chain, 1, 1, ids[0], 0); // an empty sequence begins at 0
    assert_fails(&chain, ERR_BATCH_LOST, "position 1");
    engine_chain_add(&chain, chain.infos[0].max_sequences, 0, ids[0], 0);
    assert_fails(&chain, ERR_BATCH_LOST, "sequence");
    engine_chain_add(&chain, 1, 0, -1, 0);
    assert_fails(&chain, ERR_BATCH_LOST, "token");
    engine_chain_add(&chain, 1, 0, (int32_t)state->vocab_size, 0);
    assert_fails(&chain, ERR_BATCH_LOST, "token");
    run_and_assert(&chain, state, 0, 20, 100); // nothing of this has moved it
    engine_chain_add(&chain, 0, 100, ids[100], ROW_SAMPLE);
    assert_fails(&chain, ERR_BATCH_LOST, "context");
    run_and_assert(&chain, state, 0, 90, 100);
    engine_chain_close(&chain);
}

/* Too little memory for all: BUSY, nothing lost, and room again after a drop. */
static void test_no_page(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_options options = state->suite->options;
    options.ctx_size = 256;
    options.max_sequences = 2;
    struct engine_chain chain;
    open_chain(&chain, &options);
    const uint32_t all = chain.infos[0].n_pages;
    engine_chain_close(&chain);
    /* A pool of about half of what the two could fill: find the memory by the pages it gives. */
    assert_true(all >= 8);
    for (uint64_t bytes = 1024;; bytes += bytes / 4) {
        options.kv_memory_bytes = bytes;
        struct err err = { 0 };
        if (!engine_chain_open(&chain, &options, NULL, 0, &err)) {
            assert_int_equal(err.code, ERR_ARGUMENT);
            continue;
        }
        if (chain.infos[0].n_pages >= 4)
            break;
        engine_chain_close(&chain);
    }
    const uint32_t n_pages = chain.infos[0].n_pages;
    assert_true(n_pages < 7);
    run_and_assert(&chain, state, 0, 0, 190); // 3 pages
    for (uint32_t i = 0; i < 200; i++) {      // 4 more
        engine_chain_add(&chain, 1, i, state->suite->ids[i], 0);
    }
    assert_fails(&chain, ERR_BUSY, "page");
    run_and_assert(&chain, state, 1, 0, 64 * (n_pages - 3)); // all that is left
    run_and_assert(&chain, state, 0, 190, 192);
    engine_chain_add(&chain, 0, 192, state->suite->ids[192], 0);
    assert_fails(&chain, ERR_BUSY, "page");
    struct engine *engine = &chain.engines[0];
    engine->ops->drop(engine, 1);
    run_and_assert(&chain, state, 0, 192, TEXT);
    engine_chain_close(&chain);
}

static void test_empty_batch(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    open_chain(&chain, &state->suite->options);
    struct err err = { 0 };
    const struct batch *out = engine_chain_step(&chain, &err);
    assert_non_null(out);
    assert_int_equal(out->n_rows, 0);
    assert_int_equal(out->n_logits, 0);
    engine_chain_close(&chain);
}

static void test_refused_options(void **test_state)
{
    const struct suite_state *state = *test_state;
    struct engine_chain chain;
    struct err err = { 0 };
    struct engine_options options = state->suite->options;
    options.layer_end = state->n_layers + 1;
    assert_false(engine_chain_open(&chain, &options, NULL, 0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    options.layer_end = 1;
    options.layer_first = 1;
    assert_false(engine_chain_open(&chain, &options, NULL, 0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    options = state->suite->options;
    options.device = "typewriter";
    assert_false(engine_chain_open(&chain, &options, NULL, 0, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "typewriter"));
    assert_non_null(strstr(err.text, "mock on cpu"));
    options.engine = "steam";
    assert_false(engine_chain_open(&chain, &options, NULL, 0, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "steam"));
    options = state->suite->options;
    options.max_rows = ENGINE_MAX_ROWS_CAP + 1;
    assert_false(engine_chain_open(&chain, &options, NULL, 0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

int engine_suite_run(const char *name, const struct engine_suite *suite)
{
    struct suite_state state = { .suite = suite };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_rows_differ, &state),
        cmocka_unit_test_prestate(test_chunks, &state),
        cmocka_unit_test_prestate(test_one_by_one, &state),
        cmocka_unit_test_prestate(test_mixed_batch, &state),
        cmocka_unit_test_prestate(test_stages, &state),
        cmocka_unit_test_prestate(test_stepping_back, &state),
        cmocka_unit_test_prestate(test_keep, &state),
        cmocka_unit_test_prestate(test_refused_rows, &state),
        cmocka_unit_test_prestate(test_no_page, &state),
        cmocka_unit_test_prestate(test_empty_batch, &state),
        cmocka_unit_test_prestate(test_refused_options, &state),
    };
    void *pointer = &state;
    setup(&pointer);
    const int failed = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    teardown(&pointer);
    return failed;
}
