/* Opened shards: every damage is named, ranges open what they need, records save hash runs. */
#include "weights/weights.h"

#include "base/file.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/shard_files.h"
#include "helpers/temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CASCADIA_SANITIZED
#define CASCADIA_SANITIZED 0
#endif

struct fixture {
    char *dir, *model, *shard;
};

static void make_fixture(struct fixture *f, bool is_tied)
{
    struct small_model model = { .seed = 1, .is_tied = is_tied };
    struct err err = { 0 };
    f->dir = temporary_dir();
    f->model = path_join(f->dir, "model");
    f->shard = path_join(f->dir, "shard");
    assert_true(dir_make(f->model, &err));
    small_model_write_hf(&model, f->model);
    shard_files_make_default(f->model, f->shard, "int4");
}

static void drop_fixture(struct fixture *f)
{
    free(f->model);
    free(f->shard);
    temporary_remove(f->dir);
}

static void expect_open_error(const char *shard, const struct weights_options *options,
                              enum err_code code, const char *words)
{
    struct err err = { 0 };
    struct weights *weights = weights_open(shard, options, &err);
    if (weights)
        fail_msg("expected \"%s\", but it opened", words);
    if (err.code != code || !strstr(err.text, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, err.code, err.text);
}

static void test_tensors_by_role(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    (void)state;
    make_fixture(&f, false);
    struct weights *weights = weights_open(f.shard, NULL, &err);
    if (!weights)
        fail_msg("%s", err.text);
    const struct tensor *q = weights_get(weights, 1, TENSOR_Q, &err);
    assert_true(q->rows == 64 && q->cols == 64 && q->format == QUANT_INT4 && q->group == 32);
    assert_int_equal((uintptr_t)q->data % 64, 0);
    const struct tensor *gate_up = weights_find(weights, 0, TENSOR_GATE_UP);
    assert_true(gate_up->rows == 128 && gate_up->cols == 64); // 2 * 40 padded to 64
    assert_null(weights_find(weights, 0, TENSOR_GATE));
    assert_null(weights_find(weights, 2, TENSOR_Q));
    assert_null(weights_find(weights, 0, TENSOR_Q_BIAS));
    const struct tensor *norm = weights_find(weights, TENSOR_NO_LAYER, TENSOR_FINAL_NORM);
    assert_true(norm->format == QUANT_F32 && norm->rows == 1 && norm->bytes == 256);
    assert_int_equal(weights_find(weights, TENSOR_NO_LAYER, TENSOR_HEAD)->format, QUANT_INT8);
    assert_null(weights_get(weights, 1, TENSOR_UP_BIAS, &err));
    assert_non_null(strstr(err.text, "layer 1 up_bias"));
    assert_int_equal(weights_count(weights), 3 + 2 * 8);
    assert_true(weights_is_shard(f.shard) && !weights_is_shard(f.model));
    weights_will_need(weights);
    weights_close(weights);
    drop_fixture(&f);
}

/* One bit in each file: in the middle of each tensor, and in files without tensors. */
static void test_a_flipped_bit_is_named(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    char what[64];
    (void)state;
    make_fixture(&f, false);
    struct manifest manifest;
    assert_true(manifest_read(&manifest, f.shard, &err));
    for (size_t i = 0; i < manifest.n_files; i++) {
        const struct manifest_file *file = &manifest.files[i];
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(file->name));
        for (size_t t = 0; t < file->n_tensors; t++) {
            const struct manifest_tensor *tensor = &file->tensors[t];
            uint64_t byte = tensor->offset + tensor->bytes / 2;
            tensor_describe(tensor->role, tensor->layer, what, sizeof what);
            shard_files_flip(f.shard, name, byte, 3);
            expect_open_error(f.shard, NULL, ERR_CORRUPT, what);
            shard_files_flip(f.shard, name, byte, 3);
        }
        if (file->n_tensors == 0) {
            shard_files_flip(f.shard, name, file->bytes - 1, 0);
            expect_open_error(f.shard, NULL, ERR_CORRUPT, name);
            shard_files_flip(f.shard, name, file->bytes - 1, 0);
        }
        shard_files_resize(f.shard, name, 1);
        expect_open_error(f.shard, NULL, ERR_FORMAT, "another file");
        shard_files_resize(f.shard, name, -1);
    }
    for (size_t i = manifest.n_files; i-- > 0;) { // from the last: the first one cut is told
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(manifest.files[i].name));
        shard_files_resize(f.shard, name, -1);
        expect_open_error(f.shard, NULL, ERR_FORMAT, name);
    }
    manifest_release(&manifest);
    shard_files_flip(f.shard, MANIFEST_NAME, 100, 2);
    assert_null(weights_open(f.shard, NULL, &err));
    assert_non_null(strstr(err.text, MANIFEST_NAME));
    drop_fixture(&f);
}

static void remove_in(const char *directory, const char *name)
{
    struct err err = { 0 };
    char *path = path_join(directory, name);
    assert_true(file_remove(path, &err));
    free(path);
}

static void test_ranges_need_their_files_only(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    (void)state;
    make_fixture(&f, false);
    remove_in(f.shard, "layer-000.weights");
    expect_open_error(f.shard, NULL, ERR_NOT_FOUND, "layer-000.weights");
    remove_in(f.shard, "embedding.weights");
    struct weights_options last = { .layer_first = 1, .layer_end = 2 };
    struct weights *weights = weights_open(f.shard, &last, &err);
    if (!weights)
        fail_msg("%s", err.text);
    assert_non_null(weights_find(weights, 1, TENSOR_Q));
    assert_null(weights_find(weights, 0, TENSOR_Q));
    assert_null(weights_find(weights, TENSOR_NO_LAYER, TENSOR_EMBEDDING));
    assert_non_null(weights_find(weights, TENSOR_NO_LAYER, TENSOR_HEAD));
    weights_close(weights);
    struct weights_options wrong = { .layer_first = 1, .layer_end = 3 };
    expect_open_error(f.shard, &wrong, ERR_ARGUMENT, "layers 1 to 3");
    drop_fixture(&f);
    make_fixture(&f, true); // tied: the last stage reads the embedding too
    weights = weights_open(f.shard, &last, &err);
    assert_non_null(weights);
    assert_non_null(weights_find(weights, TENSOR_NO_LAYER, TENSOR_EMBEDDING));
    assert_null(weights_find(weights, TENSOR_NO_LAYER, TENSOR_HEAD));
    assert_true(weights_manifest(weights)->is_tied);
    weights_close(weights);
    struct weights_options first = { .layer_end = 1 };
    weights = weights_open(f.shard, &first, &err);
    assert_null(weights_find(weights, TENSOR_NO_LAYER, TENSOR_FINAL_NORM));
    weights_close(weights);
    drop_fixture(&f);
}

/* A record lets the next opening pass over content that it has seen; `check_always` looks anyway.
 */
static void test_records(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    (void)state;
    make_fixture(&f, false);
    char *records = path_join(f.dir, "checked");
    struct weights_options options = { .record_dir = records };
    weights_close(weights_open(f.shard, &options, &err));
    char **names;
    size_t n_names;
    assert_true(dir_list(records, &names, &n_names, &err));
    assert_int_equal(n_names, 1);
    struct buf text;
    char *path = path_join(records, names[0]);
    buf_init(&text, 1 << 16);
    assert_true(file_read(path, &text, &err));
    assert_int_not_equal(str_find(buf_view(&text), STR("layer-001.weights ")), SIZE_MAX);
    /* a changed file has another inode or time: it is hashed again and found */
    shard_files_flip(f.shard, "layer-001.weights", 5000, 0);
    expect_open_error(f.shard, &options, ERR_CORRUPT, "layer 1");
    /* now the record claims that this very file was good: only check_always still looks */
    struct file_stat stat;
    char *file = path_join(f.shard, "layer-001.weights");
    assert_true(file_stat(file, &stat, &err));
    struct manifest manifest;
    assert_true(manifest_read(&manifest, f.shard, &err));
    buf_printf(&text, "layer-001.weights %llu %llu %llu %016llx\n", (unsigned long long)stat.bytes,
               (unsigned long long)stat.modified_ns, (unsigned long long)stat.inode,
               (unsigned long long)manifest_find_file(&manifest, "layer-001.weights")->xxh3);
    assert_true(file_write_atomic(path, buf_view(&text), &err));
    struct weights *weights = weights_open(f.shard, &options, &err);
    assert_non_null(weights);
    weights_close(weights);
    options.check_always = true;
    expect_open_error(f.shard, &options, ERR_CORRUPT, "layer 1");
    manifest_release(&manifest);
    buf_release(&text);
    dir_list_free(names, n_names);
    free(file);
    free(path);
    free(records);
    drop_fixture(&f);
}

static void test_no_shard(void **state)
{
    char *dir = temporary_dir();
    (void)state;
    expect_open_error(dir, NULL, ERR_NOT_FOUND, "no manifest.json");
    temporary_remove(dir);
}

/* What the kernel says of the mappings of a file (kilobytes, of all of them). */
struct mapping {
    uint64_t size, rss, dirty, anonymous, locked;
    uintptr_t first, end; // of the last one
};

static struct mapping read_mapping(const char *name)
{
    struct mapping of = { 0 };
    char line[512], field[64];
    bool is_ours = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long long first, end, kilobytes;
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
            is_ours = strstr(line, name) != NULL;
            if (is_ours)
                of.first = (uintptr_t)first, of.end = (uintptr_t)end;
        } else if (is_ours && sscanf(line, "%63[^:]: %llu kB", field, &kilobytes) == 2) {
            of.size += strcmp(field, "Size") == 0 ? kilobytes : 0;
            of.rss += strcmp(field, "Rss") == 0 ? kilobytes : 0;
            of.dirty += strcmp(field, "Private_Dirty") == 0 ? kilobytes : 0;
            of.anonymous += strcmp(field, "Anonymous") == 0 ? kilobytes : 0;
            of.locked += strcmp(field, "Locked") == 0 ? kilobytes : 0;
        }
    }
    fclose(file);
    return of;
}

/* Of a shard that was checked before. */
static struct weights *open_checked(const struct fixture *f, char **records)
{
    struct err err = { 0 };
    *records = path_join(f->dir, "records");
    const struct weights_options options = { .layer_end = 2, .record_dir = *records };
    weights_close(weights_open(f->shard, &options, &err));
    struct weights *weights = weights_open(f->shard, &options, &err);
    if (!weights)
        fail_msg("%s", err.text);
    return weights;
}

static void test_nothing_is_read_or_copied_at_open(void **state)
{
    struct fixture f;
    char *records;
    (void)state;
    make_fixture(&f, false);
    struct weights *weights = open_checked(&f, &records);
    struct mapping of = read_mapping("/layer-000.weights");
    const struct tensor *q = weights_find(weights, 0, TENSOR_Q);
    assert_true((uintptr_t)q->data >= of.first && (uintptr_t)q->data + q->bytes <= of.end);
    assert_true(of.size > 0);
    assert_int_equal(of.rss, 0);
    volatile uint8_t byte = 0;
    for (size_t i = 0; i < q->bytes; i++)
        byte = (uint8_t)(byte + q->data[i]);
    of = read_mapping("/layer-000.weights");
    assert_true(of.rss > 0); // of the page cache alone
    assert_int_equal(of.dirty, 0);
    assert_int_equal(of.anonymous, 0);
    weights_close(weights);
    free(records);
    drop_fixture(&f);
}

static void test_prefault_maps_every_page(void **state)
{
    struct fixture f;
    char *records;
    (void)state;
    make_fixture(&f, false);
    struct weights *weights = open_checked(&f, &records);
    assert_int_equal(read_mapping(".weights").rss, 0);
    weights_prefault(weights);
    const struct mapping of = read_mapping(".weights");
    assert_true(of.size > 0);
    assert_int_equal(of.rss, of.size);
    weights_close(weights);
    free(records);
    drop_fixture(&f);
}

/* As a user without privileges who may lock nothing; ends with 0 when it is told so. */
static void lock_without_leave(const struct weights *weights)
{
    struct err err = { 0 };
    const struct rlimit none = { 0 };
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || (getuid() == 0 && setuid(65534) != 0))
        _exit(2);
    _exit(weights_lock(weights, &err) || err.code != ERR_SYSTEM ||
          !strstr(err.text, "RLIMIT_MEMLOCK") || !strstr(err.text, "ulimit -l"));
}

static void test_locking(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    char *records;
    int status;
    (void)state;
    if (CASCADIA_SANITIZED) {
        printf("skipped: locking memory, which sanitizers take away\n");
        skip();
    }
    make_fixture(&f, false);
    struct weights *weights = open_checked(&f, &records);
    const pid_t child = fork();
    if (child == 0)
        lock_without_leave(weights);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read_mapping(".weights").locked, 0);
    if (!weights_lock(weights, &err))
        fail_msg("%s", err.text);
    const struct mapping of = read_mapping(".weights");
    assert_int_equal(of.locked, of.size);
    weights_close(weights);
    free(records);
    drop_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_by_role),
        cmocka_unit_test(test_a_flipped_bit_is_named),
        cmocka_unit_test(test_ranges_need_their_files_only),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_no_shard),
        cmocka_unit_test(test_nothing_is_read_or_copied_at_open),
        cmocka_unit_test(test_prefault_maps_every_page),
        cmocka_unit_test(test_locking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
