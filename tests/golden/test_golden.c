/* Whole models against what transformers gives for them: the small copies kept here always, all
 * folders of ../shared/golden that this program serves when they are there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "helpers/golden.h"

#define TOLERANCE 1e-3f

static const struct engine_options options = { .engine = "native", .threads = 1, .max_rows = 128 };

static void check(const char *folder, const char *source, const char *what)
{
    struct err err = { 0 };
    struct golden_result result;
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    if (!golden_export(source, "f32", shard, &err) ||
        !golden_compare(folder, shard, &options, &result, &err))
        fail_msg("%s: %s", what, err.text);
    print_message("  %-32s %4u rows, worst %.1e, %u wrong ids\n", what, result.n_rows,
                  (double)result.worst, result.n_wrong);
    if (!(result.worst <= TOLERANCE) || result.n_wrong != 0)
        fail_msg("%s: worst %g, %u greedy ids differ", what, (double)result.worst, result.n_wrong);
    assert_true(result.n_rows > 60);
    free(shard);
    golden_remove_directory(directory);
}

/* The folder as transformers 5 would have saved it. */
static void check_new_config(const char *folder, const char *what)
{
    char *directory = golden_make_directory();
    const char *const links[][2] = { { "config.v5.json", "config.json" },
                                     { "model.safetensors", "model.safetensors" } };
    for (size_t i = 0; i < 2; i++) {
        char *from = path_join(folder, links[i][0]), *to = path_join(directory, links[i][1]);
        assert_int_equal(symlink(from, to), 0);
        free(from);
        free(to);
    }
    check(folder, directory, what);
    golden_remove_directory(directory);
}

static void check_folder(const char *root, const char *name)
{
    char what[64];
    char *folder = path_join(root, name), *gguf = path_join(folder, "model.gguf");
    if (file_exists(gguf)) {
        check(folder, gguf, name);
    } else {
        check(folder, folder, name);
        snprintf(what, sizeof(what), "%s, config.v5.json", name);
        check_new_config(folder, what);
    }
    free(gguf);
    free(folder);
}

static void test_kept_models(void **state)
{
    (void)state;
    static const char *const names[] = { "llama", "qwen2", "qwen3", "mistral" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_folder(SOURCE_DIR "/tests/golden", names[i]);
}

static void test_all_models(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama",
        "llama-tied-bias",
        "llama-rope-dynamic",
        "llama-rope-linear",
        "llama-rope-yarn",
        "llama-rope-llama3",
        "llama-rope-yarn-attn",
        "llama-rope-longrope",
        "mistral",
        "mistral-nemo",
        "qwen2",
        "qwen2-tied-window",
        "qwen3",
        "qwen3-yarn",
        "gguf-llama-f16",
        "gguf-llama-q8_0",
        "gguf-llama-q4_0",
    };
    if (!file_exists(SHARED_DIR "/golden/README.md")) {
        print_message("skipped: all golden models (no %s)\n", SHARED_DIR "/golden");
        skip();
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_folder(SHARED_DIR "/golden", names[i]);
}

/* The comparison can fail: another model's logits are far away. */
static void test_control(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct golden_result result;
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    assert_true(golden_export(SOURCE_DIR "/tests/golden/qwen3", "f32", shard, &err));
    assert_true(golden_compare(SOURCE_DIR "/tests/golden/llama", shard, &options, &result, &err));
    assert_true(result.worst > 0.1f);
    assert_true(result.n_wrong > 30);
    free(shard);
    golden_remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_models),
        cmocka_unit_test(test_all_models),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
