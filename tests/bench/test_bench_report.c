/* What is printed of results that were never measured: the JSON is JSON, the noise is told. */
#include <string.h>

#include "base/json.h"
#include "bench/bench_report.h"
#include "bench/samples.h"
#include "helpers/cm.h"
#include "kernel/kernel.h"

static const struct machine machine = { .cpu = { .brand = "A \"quick\" CPU",
                                                 .features = CPU_AVX2 | CPU_FMA },
                                        .threads = 3,
                                        .l1d_bytes = 32768,
                                        .l2_bytes = 1u << 20 };
static const struct bar bar = { .id = "K1", .what = "GEMV", .must = 0.8, .stretch = 0.9 };
static const struct bar_result measured = {
    .figure = 0.85,
    .rounds = 7,
    .n_cases = 1,
    .cases = { { .what = "int4", .figure = 0.85, .low = 0.8, .high = 0.9, .rate = "3 GB/s" } },
};

static struct json *document(struct buf *out)
{
    struct err err;
    struct json *const json = json_parse(buf_view(out), &err);
    if (!json)
        fail_msg("%s in %s", err.text, out->data);
    return json;
}

static void json_of_bars(void **state)
{
    const struct bar_result absent = { .state = BAR_NOT_HERE, .why = "no rung avxvnni" };
    const struct bench_noise noise = { 0.01, 0.2 };
    struct buf out;
    (void)state;
    buf_init(&out, 1 << 16);
    buf_add_char(&out, '{');
    report_machine_json(&out, &machine, kernels[0]);
    buf_add_text(&out, ",\"bars\":[");
    report_bar_json(&out, &bar, &measured);
    buf_add_char(&out, ',');
    report_bar_json(&out, &bar, &absent);
    buf_add_text(&out, "],");
    report_noise_json(&out, &noise);
    buf_add_char(&out, '}');
    struct json *const json = document(&out);
    const struct json *const features = json_get(json_get(json, "machine"), "features");
    assert_int_equal(json_size(features), 2);
    assert_true(str_is(json_text(json_at(features, 1)), "fma"));
    const struct json *const bars_json = json_get(json, "bars");
    assert_true(str_is(json_text(json_get(json_get(json, "machine"), "cpu")), "A \"quick\" CPU"));
    assert_true(str_is(json_text(json_get(json_at(bars_json, 0), "verdict")), "pass"));
    assert_true(json_number(json_get(json_at(bars_json, 0), "figure"), 0) == 0.85);
    const struct json *const one = json_at(json_get(json_at(bars_json, 0), "cases"), 0);
    assert_true(json_number(json_get(one, "p75"), 0) == 0.9);
    assert_true(str_is(json_text(json_get(json_at(bars_json, 1), "why")), "no rung avxvnni"));
    assert_null(json_get(json_at(bars_json, 1), "figure"));
    assert_true(json_bool(json_get(json_get(json, "noise"), "too_noisy"), false));
    json_free(json);
    buf_release(&out);
}

static void json_of_ceilings(void **state)
{
    const struct ceilings ceilings = {
        .n_rows = 2,
        .rows = { { .what = "clock", .unit = "GHz", .threads = 1, .median = 3 },
                  { .what = "read DRAM", .unit = "GB/s", .threads = 2, .streams = 4, .best = 30 } },
    };
    struct buf out;
    (void)state;
    buf_init(&out, 1 << 16);
    buf_add_char(&out, '{');
    report_ceilings_json(&out, &ceilings);
    buf_add_char(&out, '}');
    struct json *const json = document(&out);
    const struct json *const row = json_at(json_get(json, "ceilings"), 1);
    assert_int_equal(json_int(json_get(row, "streams"), 0), 4);
    assert_true(json_number(json_get(row, "best"), 0) == 30);
    json_free(json);
    buf_release(&out);
}

static const struct model_bench_result model = {
    .cost = { .weights_bytes = 1000, .position_bytes = 10, .row_macs = 7, .read_bytes_per_s = 2e9 },
    .open_s = 0.5,
    .n_rows = 3,
    .rows = { { .kind = MODEL_BENCH_PREFILL,
                .threads = 2,
                .length = 128,
                .batch = 1,
                .rounds = 5,
                .rate = 900,
                .rate_low = 800,
                .rate_high = 950,
                .share = 0.5,
                .has_share = true },
              { .kind = MODEL_BENCH_DECODE, .length = 512, .batch = 4, .rounds = 5, .rate = 20 },
              { .kind = MODEL_BENCH_DECODE, .length = 4096, .batch = 1, .why = "too long" } },
};

static void json_of_models(void **state)
{
    struct buf out;
    (void)state;
    buf_init(&out, 1 << 16);
    buf_add_char(&out, '{');
    report_model_json(&out, &model);
    buf_add_char(&out, '}');
    struct json *const json = document(&out);
    const struct json *const rows = json_get(json_get(json, "model"), "rows");
    assert_int_equal(json_int(json_get(json_get(json, "model"), "weights_bytes"), 0), 1000);
    assert_true(json_number(json_get(json_at(rows, 0), "share"), 0) == 0.5);
    assert_true(str_is(json_text(json_get(json_at(rows, 0), "share_of")), "dot"));
    assert_int_equal(json_int(json_get(json_at(rows, 0), "rows"), 0), 128);
    assert_int_equal(json_int(json_get(json_at(rows, 1), "depth"), 0), 512);
    assert_null(json_get(json_at(rows, 1), "share"));
    assert_null(json_get(json_at(rows, 2), "tokens_per_second"));
    assert_true(str_is(json_text(json_get(json_at(rows, 2), "why_not")), "too long"));
    json_free(json);
    buf_release(&out);
}

static void table_of_models(void **state)
{
    struct buf out;
    (void)state;
    buf_init(&out, 1 << 16);
    report_model(&out, &model);
    assert_non_null(strstr(out.data, "900.0  (800.0 .. 950.0)  0.50"));
    assert_non_null(strstr(out.data, "decode at 512, 4 sequences"));
    assert_non_null(strstr(out.data, "not measured: too long"));
    buf_release(&out);
}

static void tables(void **state)
{
    const struct bench_noise quiet = { 0.01, 0.02 }, loud = { 0.01, 0.11 };
    struct buf out;
    (void)state;
    buf_init(&out, 1 << 16);
    report_bar(&out, &bar, &measured);
    assert_non_null(strstr(out.data, "0.85  must >= 0.80, stretch 0.90  pass"));
    assert_non_null(strstr(out.data, "(0.80 .. 0.90)  3 GB/s"));
    buf_clear(&out);
    report_noise(&out, &quiet);
    assert_null(strstr(out.data, "noisy"));
    report_noise(&out, &loud);
    assert_non_null(strstr(out.data, "too noisy to judge"));
    buf_release(&out);
}

static void quantiles(void **state)
{
    struct samples samples = { 0 };
    (void)state;
    assert_true(samples_median(&samples) == 0);
    for (int i = 5; i >= 1; i--)
        samples_add(&samples, i);
    assert_true(samples_median(&samples) == 3);
    assert_true(samples_quantile(&samples, 0) == 1 && samples_quantile(&samples, 1) == 5);
    assert_true(samples_quantile(&samples, 0.25) == 2);
    assert_true(samples_quantile(&samples, 0.875) == 4.5);
    samples_release(&samples);
}

int main(void)
{
    const struct CMUnitTest tests_here[] = {
        cmocka_unit_test(json_of_bars),   cmocka_unit_test(json_of_ceilings),
        cmocka_unit_test(json_of_models), cmocka_unit_test(table_of_models),
        cmocka_unit_test(tables),         cmocka_unit_test(quantiles),
    };
    return cmocka_run_group_tests(tests_here, NULL, NULL);
}
