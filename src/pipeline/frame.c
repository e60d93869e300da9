/* The header's codec and the table of what each kind may look like.
 *
 * Sizes come from one table of small functions: for a STEP of r rows and c columns, say, the
 * payload has at least the row table and the values, and at most that and the parameters of r
 * sequences. A frame outside its range is refused while all that is known of it are 64 bytes on the
 * stack. The rows and columns are capped first, so no product here can overflow 64 bits. */
#include "pipeline/frame.h"

#include "base/hash.h"
#include "pipeline/bytes.h"
#include "pipeline/payload.h"

#define MAGIC 0x31435343u // "CSC1"
#define RESERVED_AT 49
#define RESERVED_BYTES 11
#define HEADER_XXH_AT 60

/* Allowed payload sizes, both ends included. */
struct range {
    uint64_t low, high;
};

struct kind_row {
    const char *name;
    bool of_batch;     // header.batch means something
    bool has_tensor;   // rows, cols and dtype mean something
    uint16_t flags;    // that it may have
    struct range size; // without the tensor
};

static const struct kind_row kinds[FRAME_KIND_COUNT] = {
    [FRAME_HELLO] = { "HELLO", .size = { 1, FRAME_GREETING_CAP } },
    [FRAME_WELCOME] = { "WELCOME", .size = { 1, FRAME_GREETING_CAP } },
    [FRAME_STEP] = { "STEP", .of_batch = true, .has_tensor = true },
    [FRAME_RESULT] = { "RESULT", .of_batch = true, .has_tensor = true },
    [FRAME_KEEP] = { "KEEP", .size = { PAYLOAD_KEEP_BYTES, PAYLOAD_KEEP_BYTES } },
    [FRAME_DROP] = { "DROP", .size = { PAYLOAD_DROP_BYTES, PAYLOAD_DROP_BYTES } },
    [FRAME_PING] = { .name = "PING" },
    [FRAME_PONG] = { .name = "PONG" },
    [FRAME_FAIL] = { "FAIL", .of_batch = true, .flags = FRAME_FLAG_EPOCH,
                     .size = { 2, PAYLOAD_CODE_CAP + FRAME_SENTENCE_CAP } },
    [FRAME_BYE] = { .name = "BYE" },
    [FRAME_AWAIT] = { "AWAIT", .size = { 0, FRAME_SENTENCE_CAP } },
};

const char *frame_kind_name(enum frame_kind kind)
{
    return kind > 0 && kind < FRAME_KIND_COUNT ? kinds[kind].name : "?";
}

const char *frame_dtype_name(enum frame_dtype dtype)
{
    static const char *const names[FRAME_DTYPE_COUNT] = { "none", "f32", "f16", "q8" };
    return dtype < FRAME_DTYPE_COUNT ? names[dtype] : "?";
}

void frame_init(struct frame *frame)
{
    *frame = (struct frame){ 0 };
    buf_init(&frame->payload, FRAME_PAYLOAD_CAP);
}

void frame_release(struct frame *frame)
{
    buf_release(&frame->payload);
}

void frame_start(struct frame *frame, enum frame_kind kind, uint32_t epoch)
{
    frame->header = (struct frame_header){ .kind = kind, .epoch = epoch };
    buf_clear(&frame->payload);
}

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES])
{
    memset(out, 0, FRAME_HEADER_BYTES);
    bytes_put_u32(out, MAGIC);
    out[4] = FRAME_VERSION;
    out[5] = (uint8_t)header->kind;
    bytes_put_u16(out + 6, header->flags);
    bytes_put_u64(out + 8, header->batch);
    bytes_put_u64(out + 16, header->payload_bytes);
    bytes_put_u64(out + 24, header->payload_xxh);
    bytes_put_u32(out + 32, header->sequence_on_link);
    bytes_put_u32(out + 36, header->epoch);
    bytes_put_u32(out + 40, header->rows);
    bytes_put_u32(out + 44, header->cols);
    out[48] = (uint8_t)header->dtype;
    bytes_put_u32(out + HEADER_XXH_AT, hash_xxh32(out, HEADER_XXH_AT));
}

/* Is it one of ours, whole, and of our version? */
static bool check_envelope(const uint8_t *bytes, struct err *err)
{
    if (bytes_get_u32(bytes) != MAGIC)
        return err_set(err, ERR_FORMAT, "no frame begins here (%02x %02x %02x %02x)", bytes[0],
                       bytes[1], bytes[2], bytes[3]);
    if (bytes_get_u32(bytes + HEADER_XXH_AT) != hash_xxh32(bytes, HEADER_XXH_AT))
        return err_set(err, ERR_CORRUPT, "a frame's header does not match its checksum");
    if (bytes[4] != FRAME_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the other side speaks version %u of the protocol, this program version %u",
                       bytes[4], FRAME_VERSION);
    for (size_t i = 0; i < RESERVED_BYTES; i++) {
        if (bytes[RESERVED_AT + i])
            return err_set(err, ERR_FORMAT, "a frame uses reserved byte %zu", RESERVED_AT + i);
    }
    return true;
}

static void read_fields(const uint8_t *bytes, struct frame_header *out)
{
    *out = (struct frame_header){
        .kind = bytes[5],
        .flags = bytes_get_u16(bytes + 6),
        .batch = bytes_get_u64(bytes + 8),
        .payload_bytes = bytes_get_u64(bytes + 16),
        .payload_xxh = bytes_get_u64(bytes + 24),
        .sequence_on_link = bytes_get_u32(bytes + 32),
        .epoch = bytes_get_u32(bytes + 36),
        .rows = bytes_get_u32(bytes + 40),
        .cols = bytes_get_u32(bytes + 44),
        .dtype = bytes[48],
    };
}

static bool check_kind(const struct frame_header *header, const struct frame_limits *limits,
                       struct err *err)
{
    const char *name = frame_kind_name(header->kind);
    if (header->kind == 0 || header->kind >= FRAME_KIND_COUNT)
        return err_set(err, ERR_FORMAT, "there is no frame of kind %u", (unsigned)header->kind);
    if (!(limits->kinds & FRAME_BIT(header->kind)))
        return err_set(err, ERR_FORMAT, "a %s frame does not belong here", name);
    const struct kind_row *row = &kinds[header->kind];
    if (header->flags & ~row->flags)
        return err_set(err, ERR_FORMAT, "a %s frame has unknown flags %#x", name, header->flags);
    bool has_batch = row->of_batch && !(header->flags & FRAME_FLAG_EPOCH);
    if (header->batch && !has_batch)
        return err_set(err, ERR_FORMAT, "a %s frame of no batch names one", name);
    if (!row->has_tensor && (header->rows || header->cols || header->dtype))
        return err_set(err, ERR_FORMAT, "a %s frame has no tensor, and describes one", name);
    return true;
}

static bool check_dtype(const struct frame_header *header, struct err *err)
{
    if (header->dtype == FRAME_F32)
        return true;
    if (header->dtype == FRAME_F16 || header->dtype == FRAME_Q8)
        return err_set(err, ERR_UNSUPPORTED, "rows come as %s; this version carries f32",
                       frame_dtype_name(header->dtype));
    return err_set(err, ERR_FORMAT, "rows come as dtype %u, which there is not",
                   (unsigned)header->dtype);
}

static bool check_step(const struct frame_header *header, const struct frame_limits *limits,
                       struct range *size, struct err *err)
{
    if (!check_dtype(header, err))
        return false;
    if (header->rows == 0 || header->rows > limits->rows_cap || header->rows > FRAME_ROWS_CAP)
        return err_set(err, ERR_FORMAT, "a STEP of %u rows; 1 to %u were agreed", header->rows,
                       limits->rows_cap);
    if (header->cols != limits->carry || header->cols > FRAME_COLUMNS_CAP)
        return err_set(err, ERR_FORMAT, "a STEP of %u columns; %u were agreed", header->cols,
                       limits->carry);
    uint64_t rows = header->rows, values = rows * header->cols * sizeof(float);
    size->low = rows * PAYLOAD_ROW_BYTES + sizeof(uint32_t) + values;
    size->high = size->low + rows * PAYLOAD_PARAMS_CAP;
    return true;
}

static bool check_result(const struct frame_header *header, const struct frame_limits *limits,
                         struct range *size, struct err *err)
{
    bool has_logits = header->rows || header->cols || header->dtype;
    if (has_logits && !check_dtype(header, err))
        return false;
    if (has_logits && (header->rows == 0 || header->rows > limits->rows_cap ||
                       header->cols != limits->vocab_size || header->cols > FRAME_VOCABULARY_CAP))
        return err_set(err, ERR_FORMAT, "a RESULT of %u rows of %u logits; at most %u of %u agreed",
                       header->rows, header->cols, limits->rows_cap, limits->vocab_size);
    size->low = sizeof(uint32_t) + (uint64_t)header->rows * header->cols * sizeof(float);
    size->high = size->low + (uint64_t)limits->rows_cap * PAYLOAD_TOKEN_CAP;
    return true;
}

static bool check_size(const struct frame_header *header, const struct frame_limits *limits,
                       struct err *err)
{
    struct range size = kinds[header->kind].size;
    if (header->kind == FRAME_STEP && !check_step(header, limits, &size, err))
        return false;
    if (header->kind == FRAME_RESULT && !check_result(header, limits, &size, err))
        return false;
    if (header->payload_bytes < size.low || header->payload_bytes > size.high ||
        header->payload_bytes > FRAME_PAYLOAD_CAP)
        return err_set(err, ERR_FORMAT, "a %s frame of %u x %u has %llu bytes of payload",
                       frame_kind_name(header->kind), header->rows, header->cols,
                       (unsigned long long)header->payload_bytes);
    return true;
}

bool frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES], const struct frame_limits *limits,
                         struct frame_header *out, struct err *err)
{
    struct frame_header header;
    if (!check_envelope(bytes, err))
        return false;
    read_fields(bytes, &header);
    if (!check_kind(&header, limits, err) || !check_size(&header, limits, err))
        return false;
    *out = header;
    return true;
}
