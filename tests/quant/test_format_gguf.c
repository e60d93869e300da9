/* GGUF blocks against gguf-py's values (golden/gguf-blocks), bit for bit: decoded from the file's
 * rows, and decoded from the panels that they are permuted into. The same on made-up blocks against
 * the formulas of the format, with hashes pinned, where the golden files are not there. */
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/random_bits.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    enum quant_source source;
    const char *golden;
    const char *pin; // of values decoded from made-up blocks
} kinds[] = {
    { QUANT_SOURCE_Q4_0, "Q4_0", "105042006feb9fc1" },
    { QUANT_SOURCE_Q4_1, "Q4_1", "b732634a5d826150" },
    { QUANT_SOURCE_Q5_0, "Q5_0", "f444603275bdaaa4" },
    { QUANT_SOURCE_Q5_1, "Q5_1", "74cf9f54f889e1da" },
    { QUANT_SOURCE_Q8_0, "Q8_0", "0c713c0e56461878" },
    { QUANT_SOURCE_BF16, "BF16", "4c266726d072760d" },
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* Rows decoded one by one, and through a panel, must give `expected` when it is not NULL; returns
 * the values (caller frees). */
static float *check_rows(const struct quant_source_ops *source, const uint8_t *bytes,
                         uint32_t n_rows, uint32_t cols, const float *expected)
{
    size_t row_bytes = cols / source->block_values * source->block_bytes, panel_bytes;
    float *values = xcalloc((size_t)n_rows * cols, sizeof *values);
    float *back = xcalloc((size_t)n_rows * cols, sizeof *back);
    const uint8_t *rows[QUANT_PANEL_ROWS];
    for (uint32_t r = 0; r < n_rows; r++) {
        rows[r] = bytes + r * row_bytes;
        source->decode_row(rows[r], cols, values + (size_t)r * cols);
    }
    if (expected)
        assert_memory_equal(values, expected, (size_t)n_rows * cols * sizeof(float));
    assert_true(quant_panel_bytes(source->exact_format, cols, source->exact_group, &panel_bytes));
    uint8_t *panel = xaligned(panel_bytes);
    memset(panel, 0xa5, panel_bytes);
    if (source->repack_panel)
        source->repack_panel(rows, n_rows, cols, panel);
    else
        assert_true(quant_formats[source->exact_format]->encode_panel(values, cols, n_rows, cols, 0,
                                                                      NULL, panel));
    quant_decode_panel(source->exact_format, panel, n_rows, cols, source->exact_group, back, cols);
    assert_memory_equal(back, values, (size_t)n_rows * cols * sizeof(float));
    free(panel);
    free(back);
    return values;
}

static void read_golden(const char *name, const char *ending, struct buf *out)
{
    char path[512];
    struct err err;
    snprintf(path, sizeof path, "%s/golden/gguf-blocks/%s.%s", SHARED_DIR, name, ending);
    buf_init(out, 1 << 20);
    assert_true(file_read(path, out, &err));
}

static void test_golden_blocks(void **state)
{
    (void)state;
    if (!file_exists(SHARED_DIR "/golden/gguf-blocks")) {
        print_message("skipped: %s/golden/gguf-blocks is not there\n", SHARED_DIR);
        return;
    }
    for (size_t i = 0; i < N_KINDS; i++) {
        const struct quant_source_ops *source = quant_sources[kinds[i].source];
        struct buf bytes, values;
        read_golden(kinds[i].golden, "bin", &bytes);
        read_golden(kinds[i].golden, "f32", &values);
        uint32_t count = (uint32_t)(values.size / sizeof(float));
        assert_int_equal(bytes.size, count / source->block_values * source->block_bytes);
        /* 64 blocks as one row, as 32 rows of two blocks and as 21 rows of three */
        for (uint32_t blocks = 64; blocks >= 2; blocks = blocks == 64 ? 3 : blocks - 1) {
            uint32_t cols = blocks * source->block_values, n_rows = 64 / blocks;
            free(check_rows(source, (const uint8_t *)bytes.data, n_rows, cols,
                            (const float *)(const void *)values.data));
        }
        buf_release(&bytes);
        buf_release(&values);
    }
}

static void test_made_up_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        const struct quant_source_ops *source = quant_sources[kinds[i].source];
        const uint32_t n_blocks = 96, n_rows = 32;
        size_t bytes = (size_t)n_blocks * source->block_bytes;
        uint8_t *blocks = xcalloc(bytes + 4, 1);
        uint64_t seed = 5;
        char hex[17];
        for (size_t b = 0; b < bytes; b++)
            blocks[b] = (uint8_t)random_bits(&seed);
        for (uint32_t b = 0; b < n_blocks; b++) { // finite floats: their exponent's top bit is 0
            blocks[b * source->block_bytes + 1] &= 0xbf;
            blocks[b * source->block_bytes + 3] &= 0xbf;
        }
        uint32_t cols = n_blocks / n_rows * source->block_values;
        float *values = check_rows(source, blocks, n_rows, cols, NULL);
        hash_hex(hash_xxh3(values, (size_t)n_rows * cols * sizeof(float)), hex);
        assert_string_equal(hex, kinds[i].pin);
        free(values);
        free(blocks);
    }
}

static void test_8_bit_floats(void **state)
{
    (void)state;
    /* Corners of both formats, by their definitions. */
    static const uint8_t e4m3[] = { 0x00, 0x80, 0x01, 0x07, 0x08, 0x38, 0x7e, 0xfe, 0xb8 };
    static const float e4m3_values[] = { 0,    -0.0f, 0x1p-9f, 7 * 0x1p-9f, 0x1p-6f,
                                         1.0f, 448,   -448,    -1.0f };
    static const uint8_t e5m2[] = { 0x00, 0x01, 0x03, 0x04, 0x3c, 0x7b, 0xfb };
    static const float e5m2_values[] = { 0, 0x1p-16f, 3 * 0x1p-16f, 0x1p-14f, 1.0f, 57344, -57344 };
    float out[9];
    quant_sources[QUANT_SOURCE_F8_E4M3]->decode_row(e4m3, 9, out);
    assert_memory_equal(out, e4m3_values, sizeof e4m3_values);
    quant_sources[QUANT_SOURCE_F8_E5M2]->decode_row(e5m2, 7, out);
    assert_memory_equal(out, e5m2_values, sizeof e5m2_values);
    uint8_t nan = 0x7f;
    quant_sources[QUANT_SOURCE_F8_E4M3]->decode_row(&nan, 1, out);
    assert_true(out[0] != out[0]);
    double wide[2] = { 0.1, -3e-50 };
    quant_sources[QUANT_SOURCE_F64]->decode_row((const uint8_t *)wide, 2, out);
    assert_true(out[0] == 0.1f && out[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_blocks),
        cmocka_unit_test(test_made_up_blocks),
        cmocka_unit_test(test_8_bit_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
