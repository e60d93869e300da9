/* What is drawn, against distributions of the NumPy reference, by definition, and pinned. */
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/sampling_golden.h"
#include "sample/candidates.h"
#include "sample/rng.h"

static struct sampler *make_sampler(uint32_t vocab_size)
{
    struct err err;
    struct sampler *sampler = sampler_new(vocab_size, &err);
    assert_non_null(sampler);
    return sampler;
}

static int32_t draw(struct sampler *sampler, const struct sampler_row *row)
{
    struct sampled_token out;
    struct err err;
    if (!sampler_draw(sampler, row, &out, &err))
        fail_msg("%s", err.text);
    return out.token;
}

/* Logits with no pattern, the same on every machine. */
static void fill_logits(float *logits, uint32_t n, uint64_t seed, double spread)
{
    for (uint32_t i = 0; i < n; i++) {
        const double sum = rng_uniform(seed, 3u * (uint64_t)i) +
                           rng_uniform(seed, 3u * (uint64_t)i + 1) +
                           rng_uniform(seed, 3u * (uint64_t)i + 2);
        logits[i] = (float)((sum - 1.5) * 2.0 * spread); // near a normal distribution
    }
}

/* ---- against the reference ---- */

/* Chi-square's 0.9999 quantile by Wilson and Hilferty's approximation. */
static double chi_square_limit(uint32_t freedom)
{
    const double part = 2.0 / (9.0 * freedom);
    return freedom * pow(1.0 - part + 3.719 * sqrt(part), 3.0);
}

static void check_distribution(const struct json *object, uint32_t n_draws)
{
    float logits[SAMPLING_GOLDEN_CAP];
    int32_t ids[SAMPLING_GOLDEN_CAP];
    uint32_t drawn[SAMPLING_GOLDEN_CAP] = { 0 };
    struct sampling_params params;
    sampling_golden_params(json_get(object, "params"), &params);
    const uint32_t n = sampling_golden_floats(json_get(object, "logits"), logits);
    const uint32_t n_ids = sampling_golden_ids(json_get(object, "ids"), ids);
    struct sampler *sampler = make_sampler(n);
    const struct sampler_row row = {
        .logits = logits, .params = &params, .ids = ids, .n_ids = n_ids
    };
    for (params.seed = 0; params.seed < n_draws; params.seed++)
        drawn[draw(sampler, &row)]++;
    sampler_free(sampler);

    const struct json *expected = json_get(object, "expected");
    double chi_square = 0.0, rest = 0.0;
    uint32_t n_bins = 0, n_drawn = 0, rest_drawn = 0;
    for (size_t i = 0; i < json_size(expected); i++) {
        const struct json *pair = json_at(expected, i);
        const uint32_t count = drawn[json_int(json_at(pair, 0), 0)];
        const double mean = json_number(json_at(pair, 1), 0.0) * n_draws;
        n_drawn += count;
        if (mean < 8.0) { // too rare for a bin of its own
            rest += mean;
            rest_drawn += count;
            continue;
        }
        chi_square += ((double)count - mean) * ((double)count - mean) / mean;
        n_bins++;
    }
    if (rest > 0.0) {
        chi_square += ((double)rest_drawn - rest) * ((double)rest_drawn - rest) / rest;
        n_bins++;
    }
    assert_int_equal(n_drawn, n_draws); // nothing that was cut
    if (n_bins > 1)
        assert_true(chi_square < chi_square_limit(n_bins - 1));
}

static void test_distributions(void **state)
{
    (void)state;
    struct json *golden = sampling_golden_open();
    const struct json *cases = json_get(golden, "distributions");
    assert_true(json_size(cases) >= 15);
    for (size_t i = 0; i < json_size(cases); i++)
        check_distribution(json_at(cases, i), 20000);
    json_free(golden);
}

static void test_logprobs(void **state)
{
    (void)state;
    struct json *golden = sampling_golden_open();
    const struct json *cases = json_get(golden, "logprobs");
    for (size_t i = 0; i < json_size(cases); i++) {
        float logits[SAMPLING_GOLDEN_CAP];
        const struct json *expected = json_get(json_at(cases, i), "expected");
        const uint32_t n = sampling_golden_floats(json_get(json_at(cases, i), "logits"), logits);
        struct sampler *sampler = make_sampler(n);
        struct sampling_params params; // everything that must not matter is on
        sampling_params_init(&params);
        params.temperature = 3.0f;
        params.top_k = 2;
        params.repetition_penalty = 5.0f;
        params.n_bias = 1;
        params.bias[0] = (struct sampling_bias){ 17, 100.0f };
        params.want_logprob = true;
        params.n_top = 20;
        const int32_t id = 17;
        const struct sampler_row row = {
            .logits = logits, .params = &params, .ids = &id, .n_ids = 1
        };
        struct sampled_token out;
        struct err err;
        assert_true(sampler_draw(sampler, &row, &out, &err));
        assert_int_equal(out.token, 17);
        assert_float_equal(out.logprob, json_number(json_at(expected, 17), 1.0), 2e-5);
        assert_int_equal(out.n_top, 20);
        for (uint32_t j = 0; j < out.n_top; j++) {
            const double value = json_number(json_at(expected, (size_t)out.top_tokens[j]), 1.0);
            assert_float_equal(out.top_logprobs[j], value, 2e-5);
            assert_true(j == 0 || out.top_logprobs[j - 1] >= out.top_logprobs[j]);
        }
        sampler_free(sampler);
    }
    json_free(golden);
}

/* ---- by definition ---- */

static void test_greedy_ties(void **state)
{
    (void)state;
    float logits[200];
    for (int i = 0; i < 200; i++)
        logits[i] = i % 3 == 1 ? 2.5f : -1.0f;
    struct sampler *sampler = make_sampler(200);
    struct sampling_params params;
    sampling_params_init(&params);
    const struct sampler_row row = { .logits = logits, .params = &params };
    assert_int_equal(draw(sampler, &row), 1);
    params.temperature = 1.0f;
    params.top_k = 1; // and so the cut of one
    assert_int_equal(draw(sampler, &row), 1);
    params.temperature = SAMPLING_TEMPERATURE_LOW / 2;
    params.top_k = 0;
    assert_int_equal(draw(sampler, &row), 1);
    sampler_free(sampler);
}

/* With equal logits the kept ids are the lowest ones, whichever cut keeps them. */
static void check_kept_of_equals(const struct sampling_params *cuts, int32_t n_kept)
{
    enum { N = 200 };
    float logits[N] = { 0 };
    bool seen[N] = { 0 };
    struct sampling_params params = *cuts;
    struct sampler *sampler = make_sampler(N);
    const struct sampler_row row = { .logits = logits, .params = &params };
    int32_t n_seen = 0;
    for (params.seed = 0; params.seed < (uint64_t)n_kept * 30; params.seed++) {
        const int32_t token = draw(sampler, &row);
        assert_in_range(token, 0, n_kept - 1);
        n_seen += !seen[token];
        seen[token] = true;
    }
    assert_int_equal(n_seen, n_kept); // each is missed once in 10^13
    sampler_free(sampler);
}

static void test_cuts_of_equals(void **state)
{
    (void)state;
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 1.0f;
    check_kept_of_equals(&params, 200);
    params.top_k = 7;
    check_kept_of_equals(&params, 7);
    params.top_p = 0.5f; // of the seven: 3.5
    check_kept_of_equals(&params, 4);
    params.top_k = 0; // of all
    check_kept_of_equals(&params, 100);
    params.top_p = 0.0f;
    check_kept_of_equals(&params, 1);
    params.top_p = 1.0f;
    params.min_p = 1.0f; // equals of the best stay
    check_kept_of_equals(&params, 200);
    params.token_cap = 10;
    check_kept_of_equals(&params, 10);
}

/* A long, flat tail: the kept prefix, worked out by sorting everything, is what is drawn from. */
static void test_top_p_of_many(void **state)
{
    (void)state;
    enum { N = 4000 };
    float *logits = xcalloc(N, sizeof(*logits));
    uint32_t *order = xcalloc(N, sizeof(*order)), *place = xcalloc(N, sizeof(*place));
    fill_logits(logits, N, 3, 2.0);
    for (uint32_t i = 0; i < N; i++)
        order[i] = i;
    candidates_sort(logits, order, N);
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 1.3f;
    double whole = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < N; i++) {
        place[order[i]] = i;
        whole += exp(((double)logits[i] - (double)logits[order[0]]) / 1.3);
    }
    uint32_t n_kept = 0;
    params.top_p = 0.8f;
    for (; sum < 0.8 * whole; n_kept++)
        sum += exp(((double)logits[order[n_kept]] - (double)logits[order[0]]) / 1.3);
    assert_in_range(n_kept, 300, N / 2);

    struct sampler *sampler = make_sampler(N);
    const struct sampler_row row = { .logits = logits, .params = &params };
    uint32_t deepest = 0;
    for (params.seed = 0; params.seed < 3000; params.seed++) {
        const uint32_t at = place[draw(sampler, &row)];
        assert_true(at < n_kept + 1); // one for a border that rounding may move
        if (at > deepest)
            deepest = at;
    }
    assert_true(deepest > n_kept * 9 / 10);
    sampler_free(sampler);
    free(place);
    free(order);
    free(logits);
}

static void test_position_and_seed(void **state)
{
    (void)state;
    float logits[64] = { 0 };
    int32_t ids[64] = { 0 };
    struct sampler *sampler = make_sampler(64);
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 1.0f;
    struct sampler_row row = { .logits = logits, .params = &params, .ids = ids, .n_ids = 5 };
    const int32_t first = draw(sampler, &row);
    int same_seed = 0, same_position = 0;
    for (uint32_t i = 1; i < 50; i++) {
        row.n_ids = 5 + i;
        same_seed += draw(sampler, &row) == first;
        row.n_ids = 5;
        params.seed = i;
        same_position += draw(sampler, &row) == first;
        params.seed = 0;
        assert_int_equal(draw(sampler, &row), first); // nothing was kept of the draws between
    }
    assert_true(same_seed < 8 && same_position < 8);
    sampler_free(sampler);
}

static void test_bad_logits(void **state)
{
    (void)state;
    enum { N = 133 };
    float logits[N];
    struct sampler *sampler = make_sampler(N);
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 1.0f;
    const struct sampler_row row = { .logits = logits, .params = &params, .n_ids = 9 };
    const float bad[] = { NAN, -NAN, INFINITY };
    for (size_t b = 0; b < 3; b++) {
        for (uint32_t at = 0; at < N; at++) {
            fill_logits(logits, N, 1, 2.0);
            logits[at] = bad[b];
            struct sampled_token out = { .token = 1234 };
            struct err err = { 0 };
            assert_false(sampler_draw(sampler, &row, &out, &err));
            assert_int_equal(err.code, ERR_BATCH_LOST);
            assert_int_equal(out.token, 1234);
        }
    }
    for (uint32_t i = 0; i < N; i++)
        logits[i] = -INFINITY;
    struct sampled_token out;
    struct err err;
    assert_false(sampler_draw(sampler, &row, &out, &err));
    logits[77] = -3.0f; // one that can be drawn is enough, for any way of drawing
    for (params.seed = 0; params.seed < 20; params.seed++) {
        params.top_p = params.seed % 2 ? 0.9f : 1.0f;
        params.top_k = params.seed % 3 ? 50 : 0;
        assert_int_equal(draw(sampler, &row), 77);
    }
    params.token_cap = 100;
    logits[120] = NAN; // padding may hold anything
    assert_int_equal(draw(sampler, &row), 77);
    sampler_free(sampler);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    struct err err;
    assert_null(sampler_new(0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_null(sampler_new(UINT32_MAX, &err));
    sampler_free(NULL);
}

/* ---- pinned ---- */

/* A long run with everything on. The hash is the same on every machine, compiler and library: one
 * that gives another breaks the contract of docs/numerics.md. */
static void test_pinned_run(void **state)
{
    (void)state;
    enum { N = 5000, STEPS = 600 };
    float *logits = xcalloc(N, sizeof(*logits));
    int32_t ids[STEPS + 1] = { 1 };
    struct sampler *sampler = make_sampler(N);
    struct sampling_params params;
    sampling_params_init(&params);
    params.seed = 42;
    params.want_logprob = true;
    params.n_top = 3;
    struct sampler_row row = { .logits = logits, .params = &params, .ids = ids };
    struct hash_stream *hash = hash_stream_new();
    for (row.n_ids = 1; row.n_ids <= STEPS; row.n_ids++) {
        fill_logits(logits, N, row.n_ids / 3, 4.0);
        params.temperature = row.n_ids % 7 == 0 ? 0.0f : 0.4f + (float)(row.n_ids % 11) / 8.0f;
        params.top_k = row.n_ids % 3 == 0 ? 40 : 0;
        params.top_p = row.n_ids % 4 == 0 ? 0.9f : 1.0f;
        params.min_p = row.n_ids % 5 == 0 ? 0.05f : 0.0f;
        params.repetition_penalty = 1.2f;
        params.frequency_penalty = 0.3f;
        params.presence_penalty = 0.1f;
        struct sampled_token out;
        struct err err;
        assert_true(sampler_draw(sampler, &row, &out, &err));
        if (row.n_ids < STEPS)
            ids[row.n_ids] = out.token;
        hash_stream_add(hash, &out.token, sizeof(out.token));
        hash_stream_add(hash, &out.logprob, sizeof(out.logprob));
        hash_stream_add(hash, out.top_tokens, 3 * sizeof(out.top_tokens[0]));
        hash_stream_add(hash, out.top_logprobs, 3 * sizeof(out.top_logprobs[0]));
    }
    char hex[17];
    hash_hex(hash_stream_value(hash), hex);
    assert_string_equal(hex, "cea936ae432b5058");
    hash_stream_free(hash);
    sampler_free(sampler);
    free(logits);
}

/* A mask is -inf for what it lacks, after penalties and before everything else: drawn from logits
 * that have it already, the token is the same. Log-probabilities are those of the row as it came.
 */
static void test_masks(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 63, 64, 65, 130, 1000 };
    static const float temperatures[] = { 0.0f, 0.7f, 5.0f };
    float logits[1000], masked[1000];
    uint64_t allowed[16];
    const int32_t ids[] = { 0, 1, 2, 0 };
    for (uint32_t round = 0; round < 6 * 3 * 40; round++) {
        const uint32_t n = sizes[round % 6];
        struct sampling_params params;
        sampling_params_init(&params);
        params.temperature = temperatures[round / 6 % 3];
        params.top_k = round % 5 == 4 ? 7 : 0;
        params.top_p = round % 7 == 6 ? 0.5f : 1.0f;
        params.presence_penalty = round % 4 == 3 ? 2.0f : 0.0f;
        params.seed = round;
        params.want_logprob = true;
        fill_logits(logits, n, round, 3.0);
        for (uint32_t i = 0; i < 16; i++) // sparse, dense and whole words in turn
            allowed[i] =
                (i + round) % 4 == 0 ? UINT64_MAX : (uint64_t)(rng_uniform(round, i) * 0x1p64);
        for (uint32_t i = 0; i < 16; i++)
            allowed[i] &= (i + round) % 4 == 1 ? allowed[i] >> 7 & allowed[i] << 3 : UINT64_MAX;
        allowed[(n - 1) / 64] |= 1ull << ((n - 1) & 63);
        for (uint32_t i = 0; i < n; i++)
            masked[i] = allowed[i / 64] >> (i & 63) & 1 ? logits[i] : -INFINITY;
        struct sampler *sampler = make_sampler(n);
        const struct sampler_row row = { logits, &params, ids, 4, allowed };
        const struct sampler_row already = { masked, &params, ids, 4, NULL };
        const struct sampler_row whole = { logits, &params, ids, 4, NULL };
        struct sampled_token out, other;
        struct err err;
        assert_true(sampler_draw(sampler, &row, &out, &err));
        assert_int_equal(out.token, draw(sampler, &already));
        assert_true(sampler_draw(sampler, &whole, &other, &err));
        if (other.token == out.token)
            assert_true(other.logprob == out.logprob);
        sampler_free(sampler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_greedy_ties),   cmocka_unit_test(test_cuts_of_equals),
        cmocka_unit_test(test_top_p_of_many), cmocka_unit_test(test_position_and_seed),
        cmocka_unit_test(test_bad_logits),    cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_masks),         cmocka_unit_test(test_pinned_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
