/* A ceiling is only one if nothing was left out: what a read returns depends on every byte, for
 * each width and number of streams, alone and on a team. Dots run as long as they are told to. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "kernel/ceiling.h"

enum { BYTES = 3 * (int)CEILING_READ_UNIT };

static void reads_see_every_byte(void **state)
{
    static const uint32_t streams[] = { 1, 2, CEILING_STREAMS_CAP };
    uint8_t *const data = xaligned(BYTES);
    uint32_t n_tried = 0;
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 37);
    for (uint32_t r = 0; ceiling_reads[r]; r++) {
        if (!ceiling_read_usable(ceiling_reads[r]))
            continue;
        for (size_t s = 0; s < sizeof(streams) / sizeof(*streams); s++) {
            const uint64_t whole = ceiling_reads[r]->run(data, BYTES, streams[s]);
            for (size_t i = 0; i < BYTES; i++) {
                data[i] ^= 0x40;
                if (ceiling_reads[r]->run(data, BYTES, streams[s]) == whole)
                    fail_msg("%s, %u streams: byte %zu is not read", ceiling_reads[r]->name,
                             streams[s], i);
                data[i] ^= 0x40;
            }
            n_tried++;
        }
    }
    assert_true(n_tried >= 3);
    free(data);
}

/* Which bytes the threads of a team were given. */
static _Atomic uint32_t touched[BYTES / CEILING_READ_UNIT];
static const uint8_t *base;

static uint64_t note(const uint8_t *data, size_t bytes, uint32_t streams)
{
    assert_int_equal(streams, 2);
    for (size_t at = 0; at < bytes; at += CEILING_READ_UNIT)
        touched[(size_t)(data + at - base) / CEILING_READ_UNIT]++;
    return 0;
}

static void a_team_reads_all_once(void **state)
{
    const struct ceiling_read noting = { .name = "noting", .run = note };
    uint8_t *const data = xaligned(BYTES);
    struct err err;
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) { // more threads than units, too
        struct team *const team = team_new(n, &err);
        assert_non_null(team);
        for (size_t i = 0; i < BYTES / CEILING_READ_UNIT; i++)
            touched[i] = 0;
        base = data;
        ceiling_read_all(team, &noting, data, BYTES, 2);
        for (size_t i = 0; i < BYTES / CEILING_READ_UNIT; i++)
            assert_int_equal(touched[i], 1);
        team_free(team);
    }
    free(data);
}

static void dots_take_their_steps(void **state)
{
    uint32_t n_tried = 0;
    (void)state;
    for (uint32_t i = 0; ceiling_dots[i]; i++) {
        const struct ceiling_dot *const dot = ceiling_dots[i];
        assert_true((ceiling_dot_find(dot->name) == dot) == ceiling_dot_usable(dot));
        if (!ceiling_dot_usable(dot))
            continue;
        dot->run(1);
        const uint64_t start = clock_ns();
        dot->run(1000000);
        const double rate = 1e6 * dot->ops_per_step / (double)(clock_ns() - start);
        /* Between a thousandth of any processor's and eight 512-bit dots a cycle at 8 GHz. */
        assert_true(rate > 0.02 && rate < 8 * 128 * 8.0);
        n_tried++;
    }
    if (n_tried == 0)
        print_message("this processor has none of the dot products\n");
    assert_null(ceiling_dot_find("vpdpbusd of none"));
}

static void the_clock_is_one(void **state)
{
    (void)state;
    const double hz = ceiling_clock_hz();
    assert_true(hz > 1e8 && hz < 1e10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_see_every_byte),
        cmocka_unit_test(a_team_reads_all_once),
        cmocka_unit_test(dots_take_their_steps),
        cmocka_unit_test(the_clock_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
