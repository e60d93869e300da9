#include "quant/quant.h"

#include "base/hash.h"
#include "helpers/cm.h"

#include <math.h>
#include <string.h>

static float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t float_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The definition, in double: sign, 5 bits of exponent with bias 15, 10 of mantissa. */
static double f16_by_definition(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_to_f32_is_the_definition(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) < 0x7c00)
            assert_true((double)f == f16_by_definition((uint16_t)h));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(f) && (signbit(f) != 0) == (h >> 15 != 0));
        else
            assert_true(isnan(f));
        if (!isnan(f))
            assert_int_equal(quant_f32_to_f16(f), h);
    }
    assert_int_equal(float_to_bits(quant_f16_to_f32(0x8000)), 0x80000000u);
}

/* Between each two neighbours: the middle goes to the even one, a bit off it to the nearer one. */
static void test_f32_to_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = quant_f16_to_f32((uint16_t)h), high = quant_f16_to_f32((uint16_t)(h + 1));
        float middle = (low + high) / 2; // exact: one more bit
        uint32_t bits = float_to_bits(middle);
        assert_int_equal(quant_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(quant_f32_to_f16(bits_to_float(bits - 1)), h);
        assert_int_equal(quant_f32_to_f16(bits_to_float(bits + 1)), h + 1);
        assert_int_equal(quant_f32_to_f16(-bits_to_float(bits + 1)), 0x8000 | (h + 1));
    }
    assert_int_equal(quant_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(quant_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(quant_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(quant_f32_to_f16(0x1p-140f), 0);
    assert_true((quant_f32_to_f16(NAN) & 0x7fff) > 0x7c00);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        uint32_t bits = h << 16;
        assert_int_equal(quant_f32_to_bf16(quant_bf16_to_f32((uint16_t)h)), h);
        assert_int_equal(quant_f32_to_bf16(bits_to_float(bits | 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(quant_f32_to_bf16(bits_to_float(bits | 0x7fff)), h);
        assert_int_equal(quant_f32_to_bf16(bits_to_float(bits | 0x8001)), h + 1);
    }
    assert_int_equal(quant_f32_to_bf16(INFINITY), 0x7f80);
    assert_true((quant_f32_to_bf16(bits_to_float(0x7f800001u)) & 0x7fff) > 0x7f80);
}

static void test_sizes_are_the_page_of_the_format(void **state)
{
    size_t bytes = 7;
    (void)state;
    /* reference: 576, 1088 and 2112 bytes a block of int4, 640 with zero points */
    assert_true(quant_panel_bytes(QUANT_INT4, 32, 32, &bytes) && bytes == 576);
    assert_true(quant_panel_bytes(QUANT_INT4, 64, 64, &bytes) && bytes == 1088);
    assert_true(quant_panel_bytes(QUANT_INT4, 128, 128, &bytes) && bytes == 2112);
    assert_true(quant_panel_bytes(QUANT_INT4_ASYM, 32, 32, &bytes) && bytes == 640);
    assert_true(quant_panel_bytes(QUANT_INT8, 33, 32, &bytes) && bytes == 2 * 1088);
    assert_true(quant_panel_bytes(QUANT_F16, 5, 0, &bytes) && bytes == 320);
    assert_true(quant_matrix_bytes(QUANT_F32, 33, 5, 0, &bytes) && bytes == 2 * 640);
    bytes = 7;
    assert_false(quant_panel_bytes(QUANT_INT4, 32, 0, &bytes));
    assert_false(quant_panel_bytes(QUANT_INT4, 32, 48, &bytes));
    assert_false(quant_panel_bytes(QUANT_F32, 32, 32, &bytes));
    assert_int_equal(bytes, 7);
    /* 2^27 panels of 2^39 bytes do not fit */
    assert_false(quant_matrix_bytes(QUANT_F32, UINT32_MAX, UINT32_MAX, 0, &bytes));
}

static void test_names(void **state)
{
    enum quant_format format;
    struct err err;
    (void)state;
    for (int i = 0; i < QUANT_FORMAT_COUNT; i++) {
        assert_true(quant_format_find(str_from(quant_formats[i]->name), &format, &err));
        assert_int_equal(format, i);
        assert_non_null(quant_formats[i]->decode_row);
        /* headers and payloads of the smallest group are whole lines */
        assert_int_equal(quant_formats[i]->header_bytes % 64, 0);
    }
    assert_true(quant_format_find(STR("fp16"), &format, &err) && format == QUANT_F16);
    assert_true(quant_format_find(STR("fp32"), &format, &err) && format == QUANT_F32);
    assert_false(quant_format_find(STR("int"), &format, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "int4-asym"));
    for (int i = 0; i < QUANT_SOURCE_COUNT; i++) {
        const struct quant_source_ops *source = quant_sources[i];
        assert_int_equal(source->block_values == 1, source->repack_panel == NULL);
        assert_int_equal(quant_formats[source->exact_format]->is_float, source->exact_group == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_to_f32_is_the_definition),
        cmocka_unit_test(test_f32_to_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_sizes_are_the_page_of_the_format),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
