/* Codec and comparison. The table of fields is the whole list of what travels as a number: its
 * order is the wire's, its ranges are what no stage can be beyond, and `equal` marks what both
 * sides must have alike. Hashes, texts and the place in the chain are compared by hand below.
 *
 * The versions of the programs must be equal too: two versions may round differently without their
 * protocol saying so, and the promise is that text does not depend on where a layer runs. */
#include "pipeline/handshake.h"

#include "base/str.h"
#include "pipeline/bytes.h"

#include <stdio.h>

struct field {
    const char *name;
    size_t offset; // of a u32 in struct handshake
    uint32_t low, high;
    bool equal;
};

#define FIELD(member, name, low, high, equal)                                                      \
    {                                                                                              \
        name, offsetof(struct handshake, member), low, high, equal                                 \
    }

_Static_assert(sizeof(enum handshake_role) == 4 && sizeof(enum frame_dtype) == 4 &&
                   sizeof(enum engine_rewind) == 4,
               "enumerations are read and written as u32");

static const struct field fields[] = {
    FIELD(role, "role", 1, HANDSHAKE_ROLE_COUNT - 1, false),
    FIELD(rank, "rank", 0, HANDSHAKE_RANKS_CAP - 1, false),
    FIELD(total, "number of stages", 1, HANDSHAKE_RANKS_CAP, true),
    FIELD(wire, "wire type", FRAME_F32, FRAME_DTYPE_COUNT - 1, true),
    FIELD(info.n_layers, "number of layers", 1, 65536, true),
    FIELD(info.layer_first, "first layer", 0, 65535, false),
    FIELD(info.layer_end, "end of layers", 1, 65536, false),
    FIELD(info.carry, "floats a row", 1, FRAME_COLUMNS_CAP, true),
    FIELD(info.vocab_size, "vocabulary", 1, FRAME_VOCABULARY_CAP, true),
    FIELD(info.page_rows, "rows a page", 1, 65536, true),
    FIELD(info.n_pages, "pages", 1, UINT32_MAX, false),
    FIELD(info.max_rows, "rows a batch", 1, UINT32_MAX, false),
    FIELD(info.max_sequences, "sequences", 1, 65536, false),
    FIELD(info.ctx_size, "context", 1, UINT32_MAX, false),
    FIELD(info.rewind, "rewind", REWIND_ROWS, REWIND_CHECKPOINTS, false),
    FIELD(info.n_checkpoints, "checkpoints", 0, UINT32_MAX, false),
    FIELD(info.step_read_ns, "nanoseconds of reading a step", 0, UINT32_MAX, false),
    FIELD(info.position_read_ps, "picoseconds of reading a position", 0, UINT32_MAX, false),
    FIELD(head_is_definite, "a definite head", 0, 1, false),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])
#define FIXED_BYTES (N_FIELDS * sizeof(uint32_t) + 2 * sizeof(uint64_t) + HANDSHAKE_PROGRAM_CAP)

static uint32_t field_value(const struct handshake *handshake, const struct field *field)
{
    return bytes_get_u32((const char *)handshake + field->offset);
}

void handshake_init(struct handshake *handshake, enum handshake_role role, uint32_t rank,
                    uint32_t total, const struct engine_info *info)
{
    *handshake = (struct handshake){
        .role = role, .rank = rank, .total = total, .wire = FRAME_F32, .info = *info
    };
    if (handshake->info.max_rows > FRAME_ROWS_CAP)
        handshake->info.max_rows = FRAME_ROWS_CAP;
    snprintf(handshake->program, sizeof handshake->program, "%s", CASCADIA_VERSION);
}

/* --- codec -------------------------------------------------------------------------------------
 */

void handshake_write(struct frame *frame, const struct handshake *handshake)
{
    struct buf *out = &frame->payload;
    for (size_t i = 0; i < N_FIELDS; i++)
        bytes_add_u32(out, field_value(handshake, &fields[i]));
    bytes_add_u64(out, handshake->info.model_hash);
    bytes_add_u64(out, handshake->info.settings_hash);
    buf_add(out, handshake->program, sizeof handshake->program);
    buf_add_text(out, handshake->head);
}

/* A printable text of `size` bytes, perhaps padded with NULs, into out[size + 1 or more]. */
static bool read_text(const char *bytes, size_t size, char *out, struct err *err)
{
    size_t length = 0;
    while (length < size && bytes[length]) {
        if (bytes[length] < ' ' || bytes[length] == 0x7f)
            return err_set(err, ERR_FORMAT, "a greeting holds a text that is not printable");
        out[length] = bytes[length];
        length++;
    }
    out[length] = '\0';
    return true;
}

static bool check_fields(const struct handshake *handshake, struct err *err)
{
    const struct engine_info *info = &handshake->info;
    for (size_t i = 0; i < N_FIELDS; i++) {
        uint32_t value = field_value(handshake, &fields[i]);
        if (value < fields[i].low || value > fields[i].high)
            return err_set(err, ERR_FORMAT, "a stage with %s %u cannot be (%u to %u)",
                           fields[i].name, value, fields[i].low, fields[i].high);
    }
    if (info->layer_first >= info->layer_end || info->layer_end > info->n_layers)
        return err_set(err, ERR_FORMAT, "a stage of layers %u to %u of %u cannot be",
                       info->layer_first, info->layer_end, info->n_layers);
    if (handshake->rank >= handshake->total)
        return err_set(err, ERR_FORMAT, "rank %u of %u cannot be", handshake->rank,
                       handshake->total);
    return true;
}

bool handshake_read(const struct frame *frame, struct handshake *out, struct err *err)
{
    struct handshake handshake = { 0 };
    const char *bytes = frame->payload.data;
    size_t size = frame->payload.size;
    if (size < FIXED_BYTES || size - FIXED_BYTES >= sizeof handshake.head)
        return err_set(err, ERR_FORMAT, "a greeting of %zu bytes cannot be", size);
    for (size_t i = 0; i < N_FIELDS; i++, bytes += sizeof(uint32_t))
        memcpy((char *)&handshake + fields[i].offset, bytes, sizeof(uint32_t));
    handshake.info.model_hash = bytes_get_u64(bytes);
    handshake.info.settings_hash = bytes_get_u64(bytes + 8);
    bytes += 16;
    if (!read_text(bytes, HANDSHAKE_PROGRAM_CAP - 1, handshake.program, err) ||
        !read_text(bytes + HANDSHAKE_PROGRAM_CAP, size - FIXED_BYTES, handshake.head, err) ||
        !check_fields(&handshake, err))
        return false;
    *out = handshake;
    return true;
}

/* --- agreement ---------------------------------------------------------------------------------
 */

bool handshake_check_info(const struct engine_info *info, struct err *err)
{
    struct handshake own;
    handshake_init(&own, HANDSHAKE_NEIGHBOUR, 0, 1, info);
    if (check_fields(&own, err))
        return true;
    err->code = ERR_UNSUPPORTED;
    return false;
}

static bool check_programs(const struct handshake *a, const struct handshake *b, struct err *err)
{
    if (strcmp(a->program, b->program) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "rank %u runs cascadia %s, rank %u runs %s: all stages need one version",
                       a->rank, a->program, b->rank, b->program);
    if (a->wire != FRAME_F32 || b->wire != FRAME_F32)
        return err_set(err, ERR_UNSUPPORTED,
                       "rank %u sends rows as %s, rank %u as %s: this version carries f32 only",
                       a->rank, frame_dtype_name(a->wire), b->rank, frame_dtype_name(b->wire));
    return true;
}

static bool check_model(const struct handshake *a, const struct handshake *b, struct err *err)
{
    const struct engine_info *at = &a->info, *bt = &b->info;
    if (at->model_hash != bt->model_hash)
        return err_set(err, ERR_ARGUMENT,
                       "rank %u has model %016llx, rank %u has %016llx: all stages need one model",
                       a->rank, (unsigned long long)at->model_hash, b->rank,
                       (unsigned long long)bt->model_hash);
    if (at->settings_hash != bt->settings_hash)
        return err_set(err, ERR_ARGUMENT,
                       "rank %u has settings %016llx, rank %u has %016llx: weight format, KV type "
                       "and context size must agree",
                       a->rank, (unsigned long long)at->settings_hash, b->rank,
                       (unsigned long long)bt->settings_hash);
    for (size_t i = 0; i < N_FIELDS; i++) {
        uint32_t left = field_value(a, &fields[i]), right = field_value(b, &fields[i]);
        if (fields[i].equal && left != right)
            return err_set(err, ERR_ARGUMENT, "rank %u has %s %u, rank %u has %u: they must agree",
                           a->rank, fields[i].name, left, b->rank, right);
    }
    return true;
}

/* Every layer exactly once: neighbours join without gap or overlap, and the ends are the model's.
 */
static bool check_layers(const struct handshake *a, const struct handshake *b, struct err *err)
{
    if (b->rank != a->rank + 1)
        return err_set(err, ERR_ARGUMENT, "rank %u dialled rank %u; it should dial rank %u",
                       a->rank, b->rank, a->rank + 1);
    if (b->info.layer_first != a->info.layer_end)
        return err_set(
            err, ERR_ARGUMENT,
            "rank %u ends at layer %u, rank %u begins at %u: each layer must be run once", a->rank,
            a->info.layer_end, b->rank, b->info.layer_first);
    if ((a->rank == 0) != (a->info.layer_first == 0))
        return err_set(err, ERR_ARGUMENT, "rank %u begins at layer %u: only rank 0 has layer 0",
                       a->rank, a->info.layer_first);
    if ((b->rank == b->total - 1) != (b->info.layer_end == b->info.n_layers))
        return err_set(err, ERR_ARGUMENT,
                       "rank %u of %u ends at layer %u of %u: only the last has the last layer",
                       b->rank, b->total, b->info.layer_end, b->info.n_layers);
    return true;
}

bool handshake_check(const struct handshake *dialled, const struct handshake *answered,
                     struct err *err)
{
    if (!check_programs(dialled, answered, err) || !check_model(dialled, answered, err))
        return false;
    if (dialled->role == HANDSHAKE_NEIGHBOUR)
        return check_layers(dialled, answered, err);
    if (answered->rank != 0 || dialled->rank != dialled->total - 1)
        return err_set(err, ERR_ARGUMENT, "rank %u of %u dialled rank %u as if it were the head",
                       dialled->rank, dialled->total, answered->rank);
    return true;
}

static void narrow(uint32_t *value, uint32_t other)
{
    if (other < *value)
        *value = other;
}

void handshake_narrow(struct engine_info *chain, const struct engine_info *stage)
{
    narrow(&chain->max_rows, stage->max_rows);
    narrow(&chain->max_sequences, stage->max_sequences);
    narrow(&chain->n_pages, stage->n_pages);
    narrow(&chain->ctx_size, stage->ctx_size);
    if (stage->rewind == REWIND_ROWS) // needs no checkpoints
        return;
    if (chain->rewind == REWIND_ROWS)
        chain->n_checkpoints = stage->n_checkpoints;
    chain->rewind = REWIND_CHECKPOINTS;
    narrow(&chain->n_checkpoints, stage->n_checkpoints);
}

/* Unknown is unknown in any sum. */
static void add_read(uint32_t *value, uint32_t other)
{
    const uint64_t sum = (uint64_t)*value + other;
    *value = *value == 0 || other == 0 ? 0 : sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
}

void handshake_add_reads(struct engine_info *chain, const struct engine_info *before)
{
    add_read(&chain->step_read_ns, before->step_read_ns);
    add_read(&chain->position_read_ps, before->position_read_ps);
}

void handshake_find_head(const char *listen, const char *peer, char out[ADDRESS_TEXT_CAP])
{
    struct address head, seen;
    struct err err;
    snprintf(out, ADDRESS_TEXT_CAP, "%s", listen);
    if (!address_parse(str_from(listen), &head, &err) || head.kind != ADDRESS_TCP)
        return; // a Unix path or a local name means this machine, as it stands
    bool known = address_parse(str_from(peer), &seen, &err) && seen.kind == ADDRESS_TCP;
    if (address_is_wildcard(&head))
        snprintf(head.host, sizeof head.host, "%s", known ? seen.host : "127.0.0.1");
    else if (known && !address_is_loopback(&seen))
        memcpy(head.host, seen.host, sizeof head.host);
    address_format(&head, out);
}
