#include "model/profile.h"

#include "helpers/cm.h"

#include <string.h>

static void test_times_add_up_by_name(void **state)
{
    struct profile profile = { .n_rows = 1 };
    struct buf text;
    (void)state;
    for (int step = 0; step < 2; step++) {
        profile_add(&profile, "short", 1000);
        profile_add(&profile, "long", 2500);
        profile_add(&profile, "long", 2500);
        profile.n_steps++;
        profile.ns += 6000;
    }
    assert_int_equal(profile.n_entries, 2);
    assert_int_equal(profile.entries[1].n, 4);
    assert_int_equal(profile.entries[1].ns, 10000);
    buf_init(&text, 4096);
    profile_report(&profile, &text);
    assert_string_equal(text.data, "loops             us a step   share  number\n"
                                   "long                    5.0   83.3%       2\n"
                                   "short                   1.0   16.7%       1\n"
                                   "a step                  6.0, of 2 steps\n");
    buf_release(&text);
}

static void test_too_many_names_share_the_last(void **state)
{
    static char names[PROFILE_ENTRIES_CAP + 3][2];
    struct profile profile = { .n_rows = 1 };
    (void)state;
    for (uint32_t i = 0; i < PROFILE_ENTRIES_CAP + 3; i++) {
        names[i][0] = (char)('0' + i);
        profile_add(&profile, names[i], 1);
    }
    assert_int_equal(profile.n_entries, PROFILE_ENTRIES_CAP);
    assert_int_equal(profile.entries[PROFILE_ENTRIES_CAP - 1].n, 4);
}

static void test_nothing_counted(void **state)
{
    const struct profile profile = { .n_rows = 1 };
    struct buf text;
    (void)state;
    buf_init(&text, 4096);
    profile_report(&profile, &text);
    assert_non_null(strstr(text.data, "of 0 steps"));
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_add_up_by_name),
        cmocka_unit_test(test_too_many_names_share_the_last),
        cmocka_unit_test(test_nothing_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
