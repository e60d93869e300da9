/* Files of importance: what is written comes back, and what is none is refused. */
#include "shard/importance.h"

#include "base/file.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/temporary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_there_and_back(void **state)
{
    struct importance made, read;
    struct err err = { 0 };
    (void)state;
    char *dir = temporary_dir(), *path = path_join(dir, "importance.json");
    importance_init(&made, 2);
    for (uint32_t i = 0; i < 2 * IMPORTANCE_INPUT_COUNT; i++) {
        struct importance_vector *vector = &made.vectors[i];
        vector->cols = 3 + i;
        vector->values = xcalloc(vector->cols, sizeof(float));
        for (uint32_t k = 0; k < vector->cols; k++)
            vector->values[k] = k == 0 ? 0.0f : ldexpf(1.0f + (float)k / 8, (int)i * 5 - 20);
    }
    assert_true(importance_write(&made, path, &err));
    if (!importance_read(&read, path, &err))
        fail_msg("%s", err.text);
    assert_int_equal(read.n_layers, 2);
    assert_true(read.hash != 0);
    for (uint32_t i = 0; i < 2 * IMPORTANCE_INPUT_COUNT; i++) {
        assert_int_equal(read.vectors[i].cols, 3 + i);
        for (uint32_t k = 0; k < 3 + i; k++)
            assert_true(fabsf(read.vectors[i].values[k] - made.vectors[i].values[k]) <=
                        1e-5f * made.vectors[i].values[k]);
    }
    /* matrices that read the same rows share a vector; others have none */
    assert_ptr_equal(importance_find(&read, 1, TENSOR_Q), importance_find(&read, 1, TENSOR_V));
    assert_ptr_equal(importance_find(&read, 1, TENSOR_UP),
                     importance_find(&read, 1, TENSOR_GATE_UP));
    assert_ptr_not_equal(importance_find(&read, 1, TENSOR_O), importance_find(&read, 0, TENSOR_O));
    assert_null(importance_find(&read, 1, TENSOR_ATTN_NORM));
    assert_null(importance_find(&read, 2, TENSOR_Q));
    assert_null(importance_find(&read, TENSOR_NO_LAYER, TENSOR_HEAD));
    importance_release(&made);
    importance_release(&read);
    free(path);
    temporary_remove(dir);
}

static void test_what_is_none(void **state)
{
#define HEAD "{\"format\":\"cascadia-importance\",\"layers\":"
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "" },
        { "{}", "not a file" },
        { "{\"format\":\"other\",\"layers\":[{}]}", "not a file" },
        { HEAD "[]}", "not a file" },
        { HEAD "{}}", "not a file" },
        { HEAD "[7]}", "layer 0, attention" },
        { HEAD "[{\"attention\":[]}]}", "layer 0, attention" },
        { HEAD "[{\"attention\":[1,\"2\"]}]}", "number 1" },
        { HEAD "[{\"attention\":[-1]}]}", "number 0" },
        { HEAD "[{\"attention\":[1e31]}]}", "number 0" },
        { HEAD "[{\"attention\":[1],\"output\":[1],\"mlp\":[1]}]}", "layer 0, down" },
    };
    (void)state;
    char *dir = temporary_dir(), *path = path_join(dir, "importance.json");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct importance importance;
        struct err err = { 0 };
        assert_true(file_write_atomic(path, str_from(cases[i].text), &err));
        assert_false(importance_read(&importance, path, &err));
        if (err.code != ERR_FORMAT || !strstr(err.text, cases[i].words))
            fail_msg("case %zu: %s", i, err.text);
        assert_null(importance.vectors);
    }
    free(path);
    temporary_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
