#include "base/file.h"
#include "helpers/cm.h"
#include "helpers/temporary.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_write_read_map(void **state)
{
    struct err err = { 0 };
    struct file_map map;
    struct buf buf;
    char *dir = temporary_dir();
    char *path = path_join(dir, "a");
    (void)state;
    assert_true(file_write_atomic(path, STR("hello"), &err));
    assert_true(file_write_atomic(path, STR("hello again"), &err));
    assert_true(file_map_open(&map, path, &err));
    assert_int_equal(map.size, 11);
    assert_memory_equal(map.data, "hello again", 11);
    file_map_will_need(&map, 0, map.size);
    file_map_forget(&map, 0, map.size);
    assert_memory_equal(map.data, "hello again", 11);
    file_map_close(&map);
    buf_init(&buf, 10);
    assert_false(file_read(path, &buf, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    buf_release(&buf);
    char **names;
    size_t n_names;
    assert_true(dir_list(dir, &names, &n_names, &err));
    assert_int_equal(n_names, 1); // no temporary left
    dir_list_free(names, n_names);
    free(path);
    temporary_remove(dir);
}

static void test_missing_and_directories_say_so(void **state)
{
    struct err err = { 0 };
    struct file_map map;
    char *dir = temporary_dir();
    char *missing = path_join(dir, "x/y/z");
    (void)state;
    assert_false(file_map_open(&map, missing, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, missing));
    assert_false(file_map_open(&map, dir, &err));
    assert_int_equal(err.code, ERR_SYSTEM);
    assert_true(dir_make(missing, &err));
    assert_true(dir_make(missing, &err));
    assert_true(file_exists(missing));
    free(missing);
    temporary_remove(dir);
}

static void test_writer_abandoned_leaves_nothing(void **state)
{
    struct err err = { 0 };
    struct file_writer writer;
    char *dir = temporary_dir();
    char *path = path_join(dir, "w");
    (void)state;
    assert_true(file_writer_open(&writer, path, &err));
    assert_true(file_writer_append(&writer, "abc", 3, &err));
    assert_true(file_writer_write_at(&writer, 10, "z", 1, &err));
    file_writer_abandon(&writer);
    assert_false(file_exists(path));
    file_writer_abandon(&writer);
    free(path);
    temporary_remove(dir);
}

static void test_lock_excludes_another_process(void **state)
{
    struct err err = { 0 };
    struct file_lock lock = { 0 };
    char *dir = temporary_dir();
    char *path = path_join(dir, "lock");
    int status = 0;
    (void)state;
    assert_true(file_lock_take(&lock, path, 0, &err));
    pid_t child = fork();
    if (child == 0) {
        struct file_lock mine = { 0 };
        struct err why = { 0 };
        _exit(file_lock_take(&mine, path, 0, &why) ? 1 : why.code == ERR_BUSY ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    file_lock_release(&lock);
    assert_true(file_lock_take(&lock, path, 0, &err));
    file_lock_release(&lock);
    free(path);
    temporary_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_read_map),
        cmocka_unit_test(test_missing_and_directories_say_so),
        cmocka_unit_test(test_writer_abandoned_leaves_nothing),
        cmocka_unit_test(test_lock_excludes_another_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
