#include "shard/shard_cache.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/shard_files.h"
#include "helpers/temporary.h"
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

struct place {
    char *dir, *hf, *root;
};

static void place_make(struct place *place, uint64_t seed)
{
    struct small_model model = { .seed = seed };
    struct err err = { 0 };
    place->dir = temporary_dir();
    place->hf = path_join(place->dir, "hf");
    place->root = path_join(place->dir, "cache");
    assert_true(dir_make(place->hf, &err));
    small_model_write_hf(&model, place->hf);
}

static void place_drop(struct place *place)
{
    free(place->hf);
    free(place->root);
    temporary_remove(place->dir);
}

static char *open_or_fail(const char *model, const struct shard_cache_options *options)
{
    struct err err = { 0 };
    char *path = shard_cache_open(model, options, &err);
    if (!path)
        fail_msg("%s", err.text);
    return path;
}

static void test_first_use_and_second(void **state)
{
    struct place place;
    struct err err = { 0 };
    struct file_stat first, second;
    (void)state;
    place_make(&place, 1);
    struct shard_cache_options options = { .root = place.root, .quiet = true, .tool_version = "t" };
    char *path = open_or_fail(place.hf, &options);
    assert_true(weights_is_shard(path));
    char *manifest = path_join(path, MANIFEST_NAME);
    assert_true(file_stat(manifest, &first, &err));
    char *again = open_or_fail(place.hf, &options);
    assert_string_equal(path, again);
    assert_true(file_stat(manifest, &second, &err));
    assert_true(first.inode == second.inode && first.modified_ns == second.modified_ns);
    /* other settings, other shard; a changed source, another one too */
    options.quantization = "f32";
    char *floats = open_or_fail(place.hf, &options);
    assert_string_not_equal(path, floats);
    options.quantization = NULL;
    struct small_model other = { .seed = 2 };
    small_model_write_hf(&other, place.hf);
    char *changed = open_or_fail(place.hf, &options);
    assert_string_not_equal(path, changed);
    free(path);
    free(again);
    free(floats);
    free(changed);
    free(manifest);
    place_drop(&place);
}

static void test_a_shard_is_taken_as_it_is(void **state)
{
    struct place place;
    struct err err = { 0 };
    (void)state;
    place_make(&place, 3);
    char *shard = path_join(place.dir, "shard");
    shard_files_make_default(place.hf, shard, "int8");
    struct shard_cache_options options = { .root = place.root, .quiet = true, .tool_version = "t" };
    char *path = open_or_fail(shard, &options);
    assert_string_equal(path, shard);
    free(path);
    assert_false(file_exists(place.root));
    options.quantization = "int8";
    free(open_or_fail(shard, &options));
    options.quantization = "f32";
    assert_null(shard_cache_open(shard, &options, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "int8"));
    free(shard);
    place_drop(&place);
}

struct racer {
    const struct shard_cache_options *options;
    const char *model;
    char *path;
    struct err err;
};

static void race(void *context)
{
    struct racer *racer = context;
    racer->path = shard_cache_open(racer->model, racer->options, &racer->err);
}

static void test_at_once_it_is_made_once(void **state)
{
    struct place place;
    struct thread threads[4];
    struct racer racers[4];
    struct err err = { 0 };
    char **names;
    size_t n_names;
    (void)state;
    place_make(&place, 4);
    struct shard_cache_options options = {
        .root = place.root, .quiet = true, .threads = 1, .tool_version = "t"
    };
    for (size_t i = 0; i < 4; i++) {
        racers[i] = (struct racer){ .options = &options, .model = place.hf };
        assert_true(thread_start(&threads[i], "race", race, &racers[i], &err));
    }
    for (size_t i = 0; i < 4; i++) {
        thread_join(&threads[i]);
        if (!racers[i].path)
            fail_msg("%s", racers[i].err.text);
        assert_string_equal(racers[i].path, racers[0].path);
    }
    char *shards = path_join(place.root, "shards");
    assert_true(dir_list(shards, &names, &n_names, &err));
    assert_int_equal(n_names, 2); // the shard and its lock
    dir_list_free(names, n_names);
    for (size_t i = 0; i < 4; i++)
        free(racers[i].path);
    free(shards);
    place_drop(&place);
}

/* What a killed process left is swept away by the next one; a failure leaves nothing that loads. */
static void test_left_overs(void **state)
{
    struct place place;
    struct err err = { 0 };
    (void)state;
    place_make(&place, 5);
    struct shard_cache_options options = { .root = place.root, .quiet = true, .tool_version = "t" };
    char *path = open_or_fail(place.hf, &options);
    char *stale = xasprintf("%s.tmp-123", path);
    assert_true(dir_make(stale, &err));
    assert_true(dir_remove(path, &err));
    char *again = open_or_fail(place.hf, &options);
    assert_string_equal(path, again);
    assert_false(file_exists(stale));
    atomic_bool cancel;
    atomic_init(&cancel, true);
    options.cancel = &cancel;
    options.quantization = "int8";
    assert_null(shard_cache_open(place.hf, &options, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    options.quantization = "int3";
    assert_null(shard_cache_open(place.hf, &options, &err));
    options.quantization = "int4-min";
    assert_null(shard_cache_open(place.hf, &options, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    options.quantization = NULL;
    assert_null(shard_cache_open("/nowhere", &options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    free(path);
    free(again);
    free(stale);
    place_drop(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_use_and_second),
        cmocka_unit_test(test_a_shard_is_taken_as_it_is),
        cmocka_unit_test(test_at_once_it_is_made_once),
        cmocka_unit_test(test_left_overs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
