#include "base/err.h"
#include "helpers/cm.h"

#include <errno.h>
#include <string.h>

static void test_set_and_wrap(void **state)
{
    struct err err = { 0 };
    (void)state;
    assert_false(err_set(&err, ERR_FORMAT, "layer %d: no tensor %s", 3, "q"));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_string_equal(err.text, "layer 3: no tensor q");
    assert_false(err_wrap(&err, "%s", "file.gguf"));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_string_equal(err.text, "file.gguf: layer 3: no tensor q");
}

static void test_errno_codes(void **state)
{
    struct err err = { 0 };
    (void)state;
    errno = ENOENT;
    err_set_errno(&err, "%s", "x");
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.text, "x: No such file or directory");
    errno = EACCES;
    err_set_errno(&err, "x");
    assert_int_equal(err.code, ERR_SYSTEM);
}

static void test_long_sentences_are_cut(void **state)
{
    struct err err = { 0 };
    char text[2000];
    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    err_set(&err, ERR_FORMAT, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    err_wrap(&err, "front");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text, "front: aaa", 10);
}

static void test_each_code_has_a_row(void **state)
{
    (void)state;
    for (unsigned code = 0; code < ERR_CODE_COUNT; code++) {
        const struct err_kind *kind = err_kind((enum err_code)code);
        assert_non_null(kind->name);
        assert_true(kind->http_status >= 200 && kind->http_status < 600);
        assert_int_equal(kind->exit_status == 0, code == ERR_NONE);
    }
    assert_int_equal(err_kind(ERR_BUSY)->http_status, 503);
    assert_int_equal(err_kind(ERR_ARGUMENT)->exit_status, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_wrap),
        cmocka_unit_test(test_errno_codes),
        cmocka_unit_test(test_long_sentences_are_cut),
        cmocka_unit_test(test_each_code_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
