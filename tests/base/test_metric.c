#include "base/metric.h"
#include "helpers/cm.h"

#include <math.h>

struct figures {
    uint64_t n_left, n_right;
    uint32_t now;
    double rate;
    struct metric_distribution waits, never;
};

static const struct metric_row figure_metrics[] = {
    METRIC_COUNTER_U64(struct figures, n_left, "turns_total", "way=\"left\"", "Turns by way."),
    METRIC_COUNTER_U64(struct figures, n_right, "turns_total", "way=\"right\"", "Turns by way."),
    METRIC_GAUGE_U32(struct figures, now, "cars", "Cars."),
    METRIC_GAUGE_DOUBLE(struct figures, rate, "speed", "Speed."),
    METRIC_HISTOGRAM(struct figures, waits, "wait_seconds", "Waits."),
    METRIC_HISTOGRAM(struct figures, never, "never_seconds", "Not there."),
    METRIC_END,
};

static const struct metric_bounds bounds = { .n_bounds = 2, .bounds = { 0.5, 2 } };

static void test_text(void **state)
{
    struct figures figures = { .n_left = 18446744073709551615u, .n_right = 2, .now = 7 };
    struct metric_histogram waits = { .bounds = &bounds };
    struct buf out;
    (void)state;
    figures.rate = 0.25;
    metric_histogram_add(&waits, 0.5); // bounds are inclusive
    metric_histogram_add(&waits, 0.75);
    metric_histogram_add(&waits, 0.25);
    metric_histogram_add(&waits, 100);
    metric_histogram_read(&waits, &figures.waits);
    buf_init(&out, 1 << 16);
    metric_write(figure_metrics, &figures, &out);
    assert_string_equal(out.data, "# HELP cascadia_turns_total Turns by way.\n"
                                  "# TYPE cascadia_turns_total counter\n"
                                  "cascadia_turns_total{way=\"left\"} 18446744073709551615\n"
                                  "cascadia_turns_total{way=\"right\"} 2\n"
                                  "# HELP cascadia_cars Cars.\n"
                                  "# TYPE cascadia_cars gauge\n"
                                  "cascadia_cars 7\n"
                                  "# HELP cascadia_speed Speed.\n"
                                  "# TYPE cascadia_speed gauge\n"
                                  "cascadia_speed 0.25\n"
                                  "# HELP cascadia_wait_seconds Waits.\n"
                                  "# TYPE cascadia_wait_seconds histogram\n"
                                  "cascadia_wait_seconds_bucket{le=\"0.5\"} 2\n"
                                  "cascadia_wait_seconds_bucket{le=\"2\"} 3\n"
                                  "cascadia_wait_seconds_bucket{le=\"+Inf\"} 4\n"
                                  "cascadia_wait_seconds_sum 101.5\n"
                                  "cascadia_wait_seconds_count 4\n"
                                  "# HELP cascadia_never_seconds Not there.\n"
                                  "# TYPE cascadia_never_seconds histogram\n");
    figures.rate = (double)NAN;
    buf_clear(&out);
    metric_write(figure_metrics, &figures, &out);
    assert_non_null(strstr(out.data, "\ncascadia_speed NaN\n"));
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_text) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
