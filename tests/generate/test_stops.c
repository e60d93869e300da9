/* The matcher against a search of the whole text after every byte. */
#include "generate/stops.h"

#include "helpers/cm.h"
#include "sample/rng.h"

/* What the contract says, by trying everything. */
static uint32_t longest_at_end(struct str text, const struct str *stops, uint32_t n_stops)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        if (str_ends(text, stops[i]) && stops[i].size > longest)
            longest = (uint32_t)stops[i].size;
    }
    return longest;
}

static uint32_t longest_beginning(struct str text, const struct str *stops, uint32_t n_stops)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        for (size_t size = 1; size <= stops[i].size && size <= text.size; size++) {
            if (size > longest && str_ends(text, str_slice(stops[i], 0, size)))
                longest = (uint32_t)size;
        }
    }
    return longest;
}

static void check_text(struct str text, const struct str *texts, uint32_t n_texts)
{
    struct stops stops;
    struct err err;
    assert_true(stops_init(&stops, texts, n_texts, &err));
    for (size_t i = 0; i < text.size; i++) {
        const struct str so_far = str_slice(text, 0, i + 1);
        assert_int_equal(stops_push(&stops, (uint8_t)text.data[i]),
                         longest_at_end(so_far, texts, n_texts));
        assert_int_equal(stops_held(&stops), longest_beginning(so_far, texts, n_texts));
    }
    stops_release(&stops);
}

static void test_known(void **state)
{
    (void)state;
    const struct str texts[] = { STR("abcd"), STR("bc"), STR("aab"), STR("\n\nUser:") };
    check_text(STR("xabcabcdaaab\n\n\nUser: bc"), texts, 4);
    check_text(STR("abababaabaab"), texts, 3);
    check_text(STR("anything"), NULL, 0);
}

/* Texts of two letters overlap in every way there is. */
static void test_random(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        char letters[5][16], text[120];
        struct str texts[5];
        uint64_t at = 0;
        for (int i = 0; i < 5; i++) {
            texts[i].size = 1 + (size_t)(rng_uniform(round, at++) * (i + 3));
            texts[i].data = letters[i];
            for (size_t j = 0; j < texts[i].size; j++)
                letters[i][j] = rng_uniform(round, at++) < 0.5 ? 'a' : 'b';
        }
        for (size_t j = 0; j < sizeof(text); j++)
            text[j] = rng_uniform(round, at++) < 0.5 ? 'a' : 'b';
        check_text((struct str){ text, sizeof(text) }, texts, 1 + (uint32_t)(round % 5));
    }
}

static void check_refused(const struct str *texts, uint32_t n_texts)
{
    struct stops stops;
    struct err err = { 0 };
    assert_false(stops_init(&stops, texts, n_texts, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    stops_release(&stops);
}

static void test_limits(void **state)
{
    (void)state;
    static char long_text[STOP_BYTES_CAP + 1];
    memset(long_text, 'x', sizeof(long_text));
    struct str texts[STOPS_CAP + 1];
    for (uint32_t i = 0; i <= STOPS_CAP; i++)
        texts[i] = (struct str){ long_text, STOP_BYTES_CAP };
    check_refused(texts, STOPS_CAP + 1);
    struct stops stops;
    struct err err;
    assert_true(stops_init(&stops, texts, STOPS_CAP, &err));
    stops_release(&stops);
    check_refused(&(struct str){ long_text, STOP_BYTES_CAP + 1 }, 1);
    check_refused(&STR_NONE, 1);
    check_refused(&STR("\xc3"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
