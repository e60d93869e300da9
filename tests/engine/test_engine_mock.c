#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "helpers/engine_suite.h"

static const struct engine_options mock_options = { .model = "mock-model", .engine = "mock" };

/* user text in ids between its marks, the assistant's mark behind. */
static uint32_t put_question(int32_t *ids, const char *text)
{
    uint32_t n_ids = 0;
    ids[n_ids++] = 256;
    for (size_t i = 0; text[i] != '\0'; i++)
        ids[n_ids++] = (unsigned char)text[i];
    ids[n_ids++] = 259;
    ids[n_ids++] = 257;
    return n_ids;
}

static int32_t best_of(const struct batch *out, uint32_t row)
{
    const float *logits = out->values + (size_t)row * 260;
    int32_t best = 0;
    for (int32_t i = 1; i < 260; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void answer(struct engine_chain *chain, int32_t *ids, uint32_t *n_ids)
{
    struct err err = { 0 };
    const struct batch *out = engine_chain_run(chain, 0, ids, 0, *n_ids, &err);
    for (;;) {
        assert_non_null(out);
        ids[*n_ids] = best_of(out, out->n_logits - 1);
        if (ids[*n_ids] == 259)
            break;
        out = engine_chain_run(chain, 0, ids, *n_ids, *n_ids + 1, &err);
        (*n_ids)++;
    }
}

static void test_says_it_back(void **state)
{
    (void)state;
    static const uint32_t cuts[] = { 2, 5 };
    for (uint32_t n_cuts = 0; n_cuts <= 2; n_cuts++) {
        struct engine_chain chain;
        struct err err = { 0 };
        assert_true(engine_chain_open(&chain, &mock_options, cuts, n_cuts, &err));
        int32_t ids[256];
        uint32_t n_ids = put_question(ids, "What is it?");
        const uint32_t n_prompt = n_ids;
        answer(&chain, ids, &n_ids);
        assert_int_equal(n_ids - n_prompt, 11);
        assert_memory_equal(ids + n_prompt, ids + 1, 11 * sizeof(*ids));
        /* The next turn: the last message counts. */
        ids[n_ids++] = 259;
        n_ids += put_question(ids + n_ids, "No");
        const uint32_t n_before = n_ids;
        answer(&chain, ids, &n_ids);
        assert_int_equal(n_ids - n_before, 2);
        assert_int_equal(ids[n_before], 'N');
        assert_int_equal(ids[n_before + 1], 'o');
        engine_chain_close(&chain);
    }
}

/* Stages in the wrong order do not pass for right ones. */
static void test_wrong_order(void **state)
{
    (void)state;
    struct engine_chain chain;
    struct err err = { 0 };
    const uint32_t cuts[] = { 2, 4 };
    assert_true(engine_chain_open(&chain, &mock_options, cuts, 2, &err));
    engine_chain_add(&chain, 0, 0, 65, ROW_SAMPLE);
    struct engine *first = &chain.engines[0], *last = &chain.engines[2];
    assert_true(first->ops->step(first, &chain.in, &chain.between[0], &err));
    assert_false(last->ops->step(last, &chain.between[0], &chain.between[2], &err));
    assert_int_equal(err.code, ERR_BATCH_LOST);
    assert_non_null(strstr(err.text, "layers"));
    engine_chain_close(&chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_says_it_back),
        cmocka_unit_test(test_wrong_order),
    };
    struct engine_suite suite = { .options = mock_options };
    for (uint32_t i = 0; i < 200; i++)
        suite.ids[i] = (int32_t)((i * 37 + i * i) % 256);
    suite.ids[100] = 256;
    suite.ids[130] = 259;
    suite.ids[131] = 257;
    return engine_suite_run("engine suite: mock", &suite) +
           cmocka_run_group_tests_name("engine_mock", tests, NULL, NULL);
}
