/* int4 and int8 panels: where values lie, what padding holds, and how good the fit is. */
#include "base/hash.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/random_bits.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct encoded {
    uint8_t *panel;
    size_t bytes;
    float *back; // [n_rows][cols]
};

static struct encoded encode(enum quant_format format, const float *w, uint32_t n_rows,
                             uint32_t cols, uint32_t group)
{
    struct encoded made = { 0 };
    assert_true(quant_panel_bytes(format, cols, group, &made.bytes));
    made.panel = xaligned(made.bytes);
    memset(made.panel, 0xa5, made.bytes);
    assert_true(
        quant_formats[format]->encode_panel(w, cols, n_rows, cols, group, NULL, made.panel));
    made.back = xcalloc((size_t)n_rows * cols, sizeof *made.back);
    quant_decode_panel(format, made.panel, n_rows, cols, group, made.back, cols);
    return made;
}

static void encoded_free(struct encoded *made)
{
    free(made->panel);
    free(made->back);
}

static double squared_error(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

static float *normal_values(size_t count, uint64_t seed)
{
    float *w = xcalloc(count, sizeof *w);
    for (size_t i = 0; i < count; i++)
        w[i] = random_normal(&seed);
    return w;
}

/* The page of the format, word for word, read by another program: this one. */
static void test_layout_is_the_documented_one(void **state)
{
    const uint32_t cols = 96, group = 32;
    (void)state;
    float *w = normal_values(32u * cols, 1);
    struct encoded int4 = encode(QUANT_INT4, w, 32, cols, group);
    struct encoded int8 = encode(QUANT_INT8, w, 32, cols, group);
    for (uint32_t row = 0; row < 32; row++) {
        for (uint32_t k = 0; k < cols; k++) {
            uint32_t half = row / 16, r = row % 16, in = k % group, t = in % 4;
            const uint8_t *block = int4.panel + k / group * (64u + 512u);
            uint32_t byte = block[64 + half * 256 + in / 8 * 64 + 4 * r + t];
            uint32_t nibble = in % 8 < 4 ? byte & 15 : byte >> 4;
            float scale = quant_f16_to_f32((uint16_t)(block[2 * row] | block[2 * row + 1] << 8));
            assert_true(int4.back[row * cols + k] == scale * ((float)nibble - 8));
            block = int8.panel + k / group * (64u + 1024u);
            byte = block[64 + half * 512 + in / 4 * 64 + 4 * r + t];
            scale = quant_f16_to_f32((uint16_t)(block[2 * row] | block[2 * row + 1] << 8));
            assert_true(int8.back[row * cols + k] == scale * ((float)byte - 128));
        }
    }
    encoded_free(&int4);
    encoded_free(&int8);
    free(w);
}

static void test_short_groups_and_rows_are_padded(void **state)
{
    static const enum quant_format formats[] = { QUANT_INT4, QUANT_INT4_ASYM, QUANT_INT8 };
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        for (uint32_t group = 32; group <= 128; group *= 2) {
            const uint32_t cols = group + 7, n_rows = 5;
            float *w = normal_values((size_t)n_rows * cols, 2);
            struct encoded made = encode(formats[f], w, n_rows, cols, group);
            size_t block = made.bytes / 2;
            for (uint32_t row = n_rows; row < 32; row++)
                for (size_t b = 0; b < 2; b++)
                    assert_int_equal(
                        made.panel[b * block + 2 * row] | made.panel[b * block + 2 * row + 1], 0);
            /* padding decodes to zero: as if the values were there and zero */
            float *wide = xcalloc((size_t)n_rows * 2 * group, sizeof *wide);
            quant_decode_panel(formats[f], made.panel, n_rows, 2 * group, group, wide, 2 * group);
            for (uint32_t row = 0; row < n_rows; row++) {
                assert_memory_equal(wide + row * 2 * group, made.back + row * cols,
                                    cols * sizeof(float));
                for (uint32_t k = cols; k < 2 * group; k++)
                    assert_true(fabsf(wide[row * 2 * group + k]) <= 1e-6f ||
                                formats[f] == QUANT_INT4_ASYM);
            }
            free(wide);
            encoded_free(&made);
            free(w);
        }
    }
}

/* Plain rounding with the scale max / 7, as a yardstick. */
static double plain_error(const float *w, size_t count)
{
    double sum = 0;
    for (size_t first = 0; first < count; first += 32) {
        float largest = 0;
        for (size_t k = 0; k < 32; k++)
            largest = fmaxf(largest, fabsf(w[first + k]));
        float scale = quant_f16_to_f32(quant_f32_to_f16(largest / 7));
        for (size_t k = 0; k < 32; k++) {
            float q = fminf(fmaxf(rintf(w[first + k] / scale), -8), 7);
            double miss = (double)w[first + k] - (double)(q * scale);
            sum += miss * miss;
        }
    }
    return sum;
}

static void test_fit_beats_the_largest_value(void **state)
{
    const uint32_t cols = 2048;
    const size_t count = 32u * cols;
    (void)state;
    float *w = normal_values(count, 3);
    struct encoded fitted = encode(QUANT_INT4, w, 32, cols, 32);
    struct encoded asym = encode(QUANT_INT4_ASYM, w, 32, cols, 32);
    double plain = plain_error(w, count), symmetric = squared_error(w, fitted.back, count);
    print_message("squared error per value: max/7 %.5f, fitted %.5f, with zero points %.5f\n",
                  plain / (double)count, symmetric / (double)count,
                  squared_error(w, asym.back, count) / (double)count);
    assert_true(symmetric < 0.72 * plain);
    assert_true(squared_error(w, asym.back, count) < symmetric);
    encoded_free(&fitted);
    encoded_free(&asym);
    free(w);
}

/* Group by group the result is never worse than the unstretched candidate: extreme value on -8. */
static void test_search_never_loses(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 400; seed++) {
        float *w = normal_values(32, seed), extreme = 0;
        for (uint32_t k = 0; k < 32; k++) {
            w[k] *= seed % 3 == 0 ? w[k] : 1; // skewed ones too
            extreme = fabsf(w[k]) > fabsf(extreme) ? w[k] : extreme;
        }
        struct encoded made = encode(QUANT_INT4, w, 1, 32, 32);
        float scale = quant_f16_to_f32(quant_f32_to_f16(extreme / -8)), plain[32];
        for (uint32_t k = 0; k < 32; k++)
            plain[k] = scale * fminf(fmaxf(rintf(w[k] / scale), -8), 7);
        assert_true(squared_error(w, made.back, 32) <= squared_error(w, plain, 32) * (1 + 1e-5));
        encoded_free(&made);
        free(w);
    }
}

/* The squared error of a panel's first row, each column times its importance. */
static double weighed_error(enum quant_format format, const float *w, const float *importance,
                            const float *weigh_by, uint32_t cols, uint32_t group)
{
    size_t bytes;
    double sum = 0;
    assert_true(quant_panel_bytes(format, cols, group, &bytes));
    uint8_t *panel = xaligned(bytes);
    float *back = xcalloc(cols, sizeof *back);
    assert_true(quant_formats[format]->encode_panel(w, cols, 1, cols, group, importance, panel));
    quant_decode_panel(format, panel, 1, cols, group, back, cols);
    for (uint32_t k = 0; k < cols; k++) {
        double miss = (double)w[k] - (double)back[k];
        sum += (double)weigh_by[k] * miss * miss;
    }
    free(panel);
    free(back);
    return sum;
}

/* Where some columns count a hundred times as much, the fit spends its error on the others. */
static void test_importance(void **state)
{
    static const enum quant_format formats[] = { QUANT_INT4, QUANT_INT4_ASYM };
    enum { COLS = 1024 };
    float importance[COLS], ones[COLS], zeros[COLS] = { 0 };
    (void)state;
    float *w = normal_values(COLS, 5);
    for (uint32_t k = 0; k < COLS; k++) {
        importance[k] = k % 8 == 3 ? 100.0f : 1.0f;
        ones[k] = 1.0f;
    }
    for (size_t f = 0; f < 2; f++) {
        for (uint32_t group = 32; group <= 128; group *= 2) {
            double blind = weighed_error(formats[f], w, NULL, importance, COLS, group);
            double weighed = weighed_error(formats[f], w, importance, importance, COLS, group);
            print_message("%s, groups of %u: %.3f with, %.3f without importance\n",
                          quant_formats[formats[f]]->name, group, weighed, blind);
            assert_true(weighed < 0.8 * blind);
            /* all alike is none; none at all is no reason to fail */
            assert_true(weighed_error(formats[f], w, ones, ones, COLS, group) ==
                        weighed_error(formats[f], w, NULL, ones, COLS, group));
            assert_true(weighed_error(formats[f], w, zeros, ones, COLS, group) <
                        1.8 * weighed_error(formats[f], w, NULL, ones, COLS, group));
        }
    }
    free(w);
}

/* What int4 can hold it gives back. */
static void test_values_on_the_grid_are_exact(void **state)
{
    float w[32], shifted[32];
    (void)state;
    for (int k = 0; k < 32; k++) {
        w[k] = 0.375f * (float)(k % 16 - 8);
        shifted[k] = 0.25f * (float)(k % 16 - 3);
    }
    struct encoded made = encode(QUANT_INT4, w, 1, 32, 32);
    assert_memory_equal(made.back, w, sizeof w);
    encoded_free(&made);
    made = encode(QUANT_INT4_ASYM, shifted, 1, 32, 32);
    assert_memory_equal(made.back, shifted, sizeof shifted);
    assert_int_equal(made.panel[64], 3); // the zero point
    encoded_free(&made);
}

static void test_extremes(void **state)
{
    static const enum quant_format formats[] = { QUANT_INT4, QUANT_INT4_ASYM, QUANT_INT8 };
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        uint8_t panel[2048];
        float w[32] = { 0 };
        struct encoded made = encode(formats[f], w, 1, 32, 32);
        for (int k = 0; k < 32; k++)
            assert_true(made.back[k] == 0);
        encoded_free(&made);
        for (int k = 0; k < 32; k++) // all of one sign, far from zero
            w[k] = -100.0f - (float)k;
        made = encode(formats[f], w, 1, 32, 32);
        for (int k = 0; k < 32; k++)
            assert_true(fabsf(made.back[k] - w[k]) < 14);
        encoded_free(&made);
        w[5] = 1e-30f, w[6] = 3e-8f; // subnormal scales and below
        for (int k = 0; k < 32; k++)
            w[k] = k == 6 ? 3e-8f : 1e-30f;
        made = encode(formats[f], w, 1, 32, 32);
        for (int k = 0; k < 32; k++)
            assert_true(fabsf(made.back[k]) < 1e-6f);
        encoded_free(&made);
        w[0] = 3e38f; // no f16 scale reaches it
        assert_false(quant_formats[formats[f]]->encode_panel(w, 32, 1, 32, 32, NULL, panel));
    }
    float large[1] = { 70000.0f };
    uint8_t panel[64];
    assert_false(quant_formats[QUANT_F16]->encode_panel(large, 1, 1, 1, 0, NULL, panel));
    assert_true(quant_formats[QUANT_BF16]->encode_panel(large, 1, 1, 1, 0, NULL, panel));
}

/* The same bytes on every machine and compiler. A change of the fit changes these. */
static void test_pinned(void **state)
{
    static const struct {
        enum quant_format format;
        uint32_t group;
        const char *hash;
    } cases[] = {
        { QUANT_INT4, 32, "d38787afe4b6f9d5" },      { QUANT_INT4, 128, "1a6453c0d22f1ccc" },
        { QUANT_INT4_ASYM, 64, "e9e7cbab5d138cc7" }, { QUANT_INT8, 32, "1162630489e438c0" },
        { QUANT_F16, 0, "a607cbd44744e3e7" },        { QUANT_BF16, 0, "bb72e53faaf462e3" },
    };
    (void)state;
    float *w = normal_values(30u * 300, 77);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hex[17];
        struct encoded made = encode(cases[i].format, w, 30, 300, cases[i].group);
        hash_hex(hash_xxh3(made.panel, made.bytes), hex);
        assert_string_equal(hex, cases[i].hash);
        encoded_free(&made);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_the_documented_one),
        cmocka_unit_test(test_short_groups_and_rows_are_padded),
        cmocka_unit_test(test_fit_beats_the_largest_value),
        cmocka_unit_test(test_search_never_loses),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_values_on_the_grid_are_exact),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
