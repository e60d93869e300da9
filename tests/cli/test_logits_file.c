/* Distributions that go through a file: what comes back, and what is no such file. */
#include "cli/logits_file.h"

#include "base/buf.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/random_bits.h"
#include "helpers/temporary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 301, WINDOW = 6, WINDOWS = 2 };
static const struct logits_shape shape = { VOCAB, WINDOW, 3, WINDOWS };

static void make_row(uint32_t window, uint32_t row, float *logits)
{
    uint64_t seed = 100 + window * 10 + row;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 4 * random_normal(&seed) - 7;
}

static void write_file(const char *path)
{
    struct logits_writer writer;
    struct err err = { 0 };
    float logits[VOCAB];
    assert_true(logits_writer_open(&writer, path, &shape, &err));
    for (uint32_t w = 0; w < WINDOWS; w++) {
        const int32_t ids[WINDOW] = { 0, 1, (int32_t)w, 3, VOCAB - 1, 5 };
        assert_true(logits_writer_ids(&writer, ids, &err));
        for (uint32_t row = 0; row < logits_shape_rows(&shape); row++) {
            make_row(w, row, logits);
            assert_true(logits_writer_row(&writer, logits, &err));
        }
    }
    assert_true(logits_writer_close(&writer, &err));
}

static void test_what_is_written_comes_back(void **state)
{
    struct err err = { 0 };
    struct logits_file file;
    (void)state;
    char *dir = temporary_dir(), *path = path_join(dir, "reference");
    write_file(path);
    assert_true(logits_file_open(&file, path, &err));
    assert_memory_equal(&file.shape, &shape, sizeof(shape));
    for (uint32_t w = 0; w < WINDOWS; w++) {
        int32_t ids[WINDOW];
        assert_true(logits_file_ids(&file, w, ids, &err));
        assert_int_equal(ids[2], w);
        assert_int_equal(ids[4], VOCAB - 1);
        for (uint32_t row = 0; row < logits_shape_rows(&shape); row++) {
            float logits[VOCAB], ln_p[VOCAB], p[VOCAB];
            uint32_t top, wanted = 0;
            double sum = 0, sum_p = 0, low = 0, high = -1e9;
            make_row(w, row, logits);
            assert_true(logits_file_row(&file, kernel_best()->vec, w, row, ln_p, p, &top));
            for (uint32_t i = 0; i < VOCAB; i++) {
                wanted = logits[i] > logits[wanted] ? i : wanted;
                sum += exp((double)logits[i]);
                sum_p += (double)p[i];
                low = fmin(low, (double)logits[i]);
                high = fmax(high, (double)logits[i]);
            }
            assert_int_equal(top, wanted);
            assert_true(fabs(sum_p - 1) < 1e-5);
            const double step = (high - low) / 65535;
            for (uint32_t i = 0; i < VOCAB; i++) {
                assert_true(fabs((double)ln_p[i] - ((double)logits[i] - log(sum))) < 1.1 * step);
                assert_true(fabs(log((double)p[i]) - (double)ln_p[i]) < 1e-5);
            }
        }
    }
    logits_file_close(&file);
    free(path);
    temporary_remove(dir);
}

static void test_a_flat_row_and_rows_that_are_refused(void **state)
{
    struct logits_writer writer;
    struct logits_file file;
    struct err err = { 0 };
    const struct logits_shape one = { VOCAB, 2, 0, 1 };
    const int32_t ids[2] = { 1, 2 };
    float logits[VOCAB] = { 0 }, ln_p[VOCAB], p[VOCAB];
    uint32_t top;
    (void)state;
    char *dir = temporary_dir(), *path = path_join(dir, "reference");
    assert_true(logits_writer_open(&writer, path, &one, &err));
    assert_true(logits_writer_ids(&writer, ids, &err));
    for (int bad = 0; bad < 3; bad++) {
        logits[8] = bad == 0 ? NAN : bad == 1 ? INFINITY : -INFINITY;
        assert_false(logits_writer_row(&writer, logits, &err));
        assert_int_equal(err.code, ERR_FORMAT);
    }
    logits[8] = 0;
    assert_true(logits_writer_row(&writer, logits, &err));
    assert_true(logits_writer_close(&writer, &err));
    assert_true(logits_file_open(&file, path, &err));
    assert_true(logits_file_row(&file, kernel_best()->vec, 0, 0, ln_p, p, &top));
    assert_int_equal(top, 0);
    for (int i = 0; i < VOCAB; i++)
        assert_true(fabsf(p[i] * VOCAB - 1) < 1e-5f);
    logits_file_close(&file);
    free(path);
    temporary_remove(dir);
}

/* Every length but the right one, and every header that means nothing. */
static void test_what_is_no_such_file(void **state)
{
    struct buf good;
    struct logits_file file;
    struct err err = { 0 };
    (void)state;
    char *dir = temporary_dir(), *path = path_join(dir, "reference");
    write_file(path);
    buf_init(&good, 1 << 20);
    assert_true(file_read(path, &good, &err));
    assert_true(logits_file_view(&file, buf_view(&good), &err));
    for (size_t size = 0; size < good.size; size += size < 40 ? 1 : 97)
        assert_false(logits_file_view(&file, (struct str){ good.data, size }, &err));
    for (size_t at = 0; at < 24; at++) {
        good.data[at] ^= 1; // magic, or a shape that the size does not fit
        assert_false(logits_file_view(&file, buf_view(&good), &err));
        assert_int_equal(err.code, ERR_FORMAT);
        good.data[at] ^= 1;
    }
    int32_t ids[WINDOW];
    good.data[24 + 3] = 1; // the first id is beyond the vocabulary
    assert_true(logits_file_view(&file, buf_view(&good), &err));
    assert_false(logits_file_ids(&file, 0, ids, &err));
    assert_true(logits_file_ids(&file, 1, ids, &err));
    float ln_p[VOCAB], p[VOCAB];
    uint32_t top;
    memset(good.data + 24 + WINDOW * 4, 0xff, 8); // a row whose range is no number
    assert_false(logits_file_row(&file, kernel_best()->vec, 0, 0, ln_p, p, &top));
    assert_true(logits_file_row(&file, kernel_best()->vec, 0, 1, ln_p, p, &top));
    buf_release(&good);
    assert_false(logits_file_open(&file, dir, &err));
    free(path);
    temporary_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_comes_back),
        cmocka_unit_test(test_a_flat_row_and_rows_that_are_refused),
        cmocka_unit_test(test_what_is_no_such_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
