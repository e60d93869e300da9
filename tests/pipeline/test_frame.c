#include "base/hash.h"
#include "helpers/cm.h"
#include "pipeline/bytes.h"
#include "pipeline/frame.h"
#include "pipeline/payload.h"

static const struct frame_limits step_limits = { .kinds = FRAME_FORWARD,
                                                 .rows_cap = 8,
                                                 .carry = 16 };
static const struct frame_limits all_limits = {
    .kinds = UINT32_MAX, .rows_cap = 8, .carry = 16, .vocab_size = 260
};

static struct frame_header step_header(void)
{
    return (struct frame_header){ .kind = FRAME_STEP,
                                  .batch = 0x1122334455667788,
                                  .payload_bytes = 2 * PAYLOAD_ROW_BYTES + 4 + 2 * 16 * 4,
                                  .payload_xxh = 0x99aabbccddeeff00,
                                  .sequence_on_link = 7,
                                  .epoch = 3,
                                  .rows = 2,
                                  .cols = 16,
                                  .dtype = FRAME_F32 };
}

/* Puts the checksum right after a byte was changed. */
static void seal(uint8_t bytes[FRAME_HEADER_BYTES])
{
    bytes_put_u32(bytes + 60, hash_xxh32(bytes, 60));
}

static void test_the_layout_is_that_of_the_document(void **state)
{
    static const uint8_t expected[60] = {
        'C',  'S',  'C', '1', 1, 3, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
        0x11, 0xa4, 0,   0,   0, 0, 0, 0, 0,    0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb,
        0xaa, 0x99, 7,   0,   0, 0, 3, 0, 0,    0,    2,    0,    0,    0,    16,
        0,    0,    0,   1,   0, 0, 0, 0, 0,    0,    0,    0,    0,    0,    0,
    };
    struct frame_header header = step_header(), again;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err;
    (void)state;
    frame_header_encode(&header, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(bytes_get_u32(bytes + 60), hash_xxh32(bytes, 60));
    assert_true(frame_header_decode(bytes, &step_limits, &again, &err));
    assert_int_equal(again.kind, FRAME_STEP);
    assert_true(again.batch == header.batch && again.payload_xxh == header.payload_xxh);
    assert_true(again.payload_bytes == header.payload_bytes && again.sequence_on_link == 7);
    assert_true(again.epoch == 3 && again.rows == 2 && again.cols == 16);
    assert_int_equal(again.dtype, FRAME_F32);
}

static void test_every_flipped_bit_is_noticed(void **state)
{
    struct frame_header header = step_header(), out;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err;
    (void)state;
    for (unsigned bit = 0; bit < FRAME_HEADER_BYTES * 8; bit++) {
        frame_header_encode(&header, bytes);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        assert_false(frame_header_decode(bytes, &step_limits, &out, &err));
        assert_int_equal(err.code, bit < 32 ? ERR_FORMAT : ERR_CORRUPT);
    }
}

/* Decodes what `header` says and expects `code`; `said` must be in the sentence. */
static void check_refused(const struct frame_header *header, const struct frame_limits *limits,
                          enum err_code code, const char *said)
{
    struct frame_header out = { .batch = 42 };
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err = { 0 };
    frame_header_encode(header, bytes);
    assert_false(frame_header_decode(bytes, limits, &out, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, said))
        fail_msg("\"%s\" does not say \"%s\"", err.text, said);
    assert_true(out.batch == 42); // untouched
}

static void test_version_and_reserved_bytes(void **state)
{
    struct frame_header header = step_header(), out;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err;
    (void)state;
    frame_header_encode(&header, bytes);
    bytes[4] = 2;
    seal(bytes);
    assert_false(frame_header_decode(bytes, &step_limits, &out, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "version 2"));
    for (int i = 49; i < 60; i++) {
        frame_header_encode(&header, bytes);
        bytes[i] = 1;
        seal(bytes);
        assert_false(frame_header_decode(bytes, &step_limits, &out, &err));
        assert_int_equal(err.code, ERR_FORMAT);
    }
}

static void test_kinds_that_do_not_belong(void **state)
{
    struct frame_header header = { .kind = FRAME_RESULT, .payload_bytes = 4 };
    (void)state;
    check_refused(&header, &step_limits, ERR_FORMAT, "RESULT");
    header.kind = 0;
    check_refused(&header, &all_limits, ERR_FORMAT, "kind 0");
    header.kind = FRAME_KIND_COUNT;
    check_refused(&header, &all_limits, ERR_FORMAT, "kind 12");
    header = (struct frame_header){ .kind = FRAME_PING, .flags = FRAME_FLAG_EPOCH };
    check_refused(&header, &all_limits, ERR_FORMAT, "flags");
    header = (struct frame_header){ .kind = FRAME_PING, .batch = 1 };
    check_refused(&header, &all_limits, ERR_FORMAT, "batch");
    header = (struct frame_header){ .kind = FRAME_PING, .rows = 1 };
    check_refused(&header, &all_limits, ERR_FORMAT, "tensor");
    header = (struct frame_header){ .kind = FRAME_PING, .payload_bytes = 1 };
    check_refused(&header, &all_limits, ERR_FORMAT, "payload");
    header = (struct frame_header){
        .kind = FRAME_FAIL, .flags = FRAME_FLAG_EPOCH, .batch = 3, .payload_bytes = 8
    };
    check_refused(&header, &all_limits, ERR_FORMAT, "batch");
}

static void test_shapes_of_a_step(void **state)
{
    struct frame_header header = step_header();
    (void)state;
    header.rows = 0;
    check_refused(&header, &step_limits, ERR_FORMAT, "0 rows");
    header.rows = 9;
    check_refused(&header, &step_limits, ERR_FORMAT, "9 rows");
    header = step_header();
    header.cols = 17;
    check_refused(&header, &step_limits, ERR_FORMAT, "17 columns");
    header = step_header();
    header.dtype = FRAME_F16;
    check_refused(&header, &step_limits, ERR_UNSUPPORTED, "f16");
    header.dtype = FRAME_Q8;
    check_refused(&header, &step_limits, ERR_UNSUPPORTED, "q8");
    header.dtype = FRAME_NONE;
    check_refused(&header, &step_limits, ERR_FORMAT, "dtype 0");
    header.dtype = FRAME_DTYPE_COUNT;
    check_refused(&header, &step_limits, ERR_FORMAT, "dtype 4");
}

static void test_sizes_of_a_step(void **state)
{
    struct frame_header header = step_header(), out;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err;
    (void)state;
    uint64_t low = header.payload_bytes, high = low + 2 * PAYLOAD_PARAMS_CAP;
    header.payload_bytes = low - 1;
    check_refused(&header, &step_limits, ERR_FORMAT, "payload");
    header.payload_bytes = high + 1;
    check_refused(&header, &step_limits, ERR_FORMAT, "payload");
    header.payload_bytes = UINT64_MAX;
    check_refused(&header, &step_limits, ERR_FORMAT, "payload");
    header.payload_bytes = high;
    frame_header_encode(&header, bytes);
    assert_true(frame_header_decode(bytes, &step_limits, &out, &err));
}

static void test_the_largest_shapes_neither_overflow_nor_pass_the_ceiling(void **state)
{
    struct frame_limits limits = {
        .kinds = UINT32_MAX, .rows_cap = UINT32_MAX, .carry = UINT32_MAX, .vocab_size = UINT32_MAX
    };
    struct frame_header header = step_header();
    (void)state;
    header.rows = header.cols = UINT32_MAX;
    check_refused(&header, &limits, ERR_FORMAT, "rows");
    limits.carry = header.cols = FRAME_COLUMNS_CAP;
    header.rows = FRAME_ROWS_CAP; // 1 GiB of values
    header.payload_bytes =
        (uint64_t)FRAME_ROWS_CAP * (PAYLOAD_ROW_BYTES + FRAME_COLUMNS_CAP * sizeof(float)) + 4;
    check_refused(&header, &limits, ERR_FORMAT, "payload");
    header = (struct frame_header){ .kind = FRAME_RESULT,
                                    .rows = UINT32_MAX,
                                    .cols = UINT32_MAX,
                                    .dtype = FRAME_F32,
                                    .payload_bytes = 4 };
    check_refused(&header, &limits, ERR_FORMAT, "logits");
}

static void test_shapes_of_a_result(void **state)
{
    struct frame_header header = { .kind = FRAME_RESULT, .payload_bytes = 4 }, out;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct err err;
    (void)state;
    frame_header_encode(&header, bytes);
    assert_true(frame_header_decode(bytes, &all_limits, &out, &err)); // neither tokens nor logits
    header = (struct frame_header){ .kind = FRAME_RESULT,
                                    .rows = 2,
                                    .cols = 260,
                                    .dtype = FRAME_F32,
                                    .payload_bytes = 4 + 2 * 260 * 4 };
    frame_header_encode(&header, bytes);
    assert_true(frame_header_decode(bytes, &all_limits, &out, &err));
    header.payload_bytes--;
    check_refused(&header, &all_limits, ERR_FORMAT, "payload");
    header.payload_bytes++;
    header.cols = 259;
    check_refused(&header, &all_limits, ERR_FORMAT, "259");
    header.cols = 260;
    header.rows = 9;
    check_refused(&header, &all_limits, ERR_FORMAT, "9 rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_layout_is_that_of_the_document),
        cmocka_unit_test(test_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_version_and_reserved_bytes),
        cmocka_unit_test(test_kinds_that_do_not_belong),
        cmocka_unit_test(test_shapes_of_a_step),
        cmocka_unit_test(test_sizes_of_a_step),
        cmocka_unit_test(test_the_largest_shapes_neither_overflow_nor_pass_the_ceiling),
        cmocka_unit_test(test_shapes_of_a_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
