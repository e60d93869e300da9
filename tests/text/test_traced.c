/* Traced text: views, origins, growth in place. */
#include "helpers/cm.h"
#include "text/traced.h"

#include <string.h>

static struct arena arena;

static int open_arena(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 16);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

static struct traced view(const char *text, bool from_template)
{
    struct traced out;
    assert_true(traced_view(&arena, str_from(text), from_template, &out));
    return out;
}

static struct traced concat(struct traced a, struct traced b)
{
    struct traced out;
    assert_true(traced_concat(&arena, a, b, &out));
    return out;
}

/* `marks` has a T or an R for each byte. */
static void assert_text(struct traced text, const char *bytes, const char *marks)
{
    size_t end = 0;
    assert_int_equal(traced_size(text), strlen(bytes));
    assert_true(str_is(traced_str(text), bytes));
    for (size_t at = 0; at < traced_size(text); at++) {
        bool from_template = traced_origin(text, at, &end);
        assert_int_equal(from_template, marks[at] == 'T');
        assert_true(end > at && end <= traced_size(text));
        for (size_t i = at; i < end; i++)
            assert_int_equal(marks[i], marks[at]);
        assert_true(end == traced_size(text) || marks[end] != marks[at]);
    }
}

static void test_concatenation_keeps_origins(void **state)
{
    struct traced text = concat(concat(view("ab", true), view("cd", false)), view("e", true));
    (void)state;
    assert_text(text, "abcde", "TTRRT");
    assert_text(traced_slice(text, 1, 4), "bcd", "TRR");
    assert_text(concat(traced_slice(text, 3, 5), traced_slice(text, 0, 3)), "deabc", "RTTTR");
    assert_text(concat(TRACED_EMPTY, text), "abcde", "TTRRT");
    assert_text(concat(text, TRACED_EMPTY), "abcde", "TTRRT");
    assert_text(concat(TRACED_EMPTY, TRACED_EMPTY), "", "");
}

static void test_growth_in_place_disturbs_nobody(void **state)
{
    struct traced base = concat(view("x", true), view("y", true));
    struct traced first = concat(base, view("1", false));
    struct traced second = concat(base, view("22", true));
    struct traced twice = concat(first, first);
    (void)state;
    assert_ptr_equal(first.store, base.store); // there was room behind it
    assert_ptr_not_equal(second.store, base.store);
    assert_text(base, "xy", "TT");
    assert_text(first, "xy1", "TTR");
    assert_text(second, "xy22", "TTTT");
    assert_text(twice, "xy1xy1", "TTRTTR");
    for (int i = 0; i < 8; i++) // a text that is appended to itself while its store moves
        twice = concat(twice, twice);
    assert_int_equal(traced_size(twice), 6 << 8);
    assert_text(traced_slice(twice, 1533, 1536), "xy1", "TTR");
    assert_text(first, "xy1", "TTR");
}

static void test_sealed_texts_are_never_written(void **state)
{
    char bytes[] = "abcdef";
    struct traced text;
    (void)state;
    assert_true(traced_view(&arena, (struct str){ bytes, 3 }, true, &text));
    assert_text(concat(text, view("X", true)), "abcX", "TTTT");
    assert_string_equal(bytes, "abcdef");
}

static void test_builder_tells_its_ceilings(void **state)
{
    struct traced_builder builder;
    struct traced text;
    (void)state;
    traced_begin(&builder, &arena, 5);
    traced_add(&builder, STR("abc"), true);
    traced_add_point(&builder, 0xe9, false);
    assert_true(traced_finish(&builder, &text));
    assert_text(text, "abc\xc3\xa9", "TTTRR");
    traced_add(&builder, STR("d"), true);
    assert_true(builder.overflowed);
    assert_false(traced_finish(&builder, &text));
    traced_begin(&builder, &arena, 1 << 20);
    for (int i = 0; i < 1 << 12; i++)
        traced_add(&builder, STR("0123456789abcdef"), i % 2 == 0);
    assert_true(builder.exhausted);
    assert_false(traced_finish(&builder, &text));
    traced_begin(&builder, &arena, 10);
    assert_true(traced_finish(&builder, &text));
    assert_text(text, "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_concatenation_keeps_origins, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(test_growth_in_place_disturbs_nobody, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(test_sealed_texts_are_never_written, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(test_builder_tells_its_ceilings, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
