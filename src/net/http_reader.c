/* Reads a request in two phases.
 *
 * Head: lines are collected and checked one by one, and given to llhttp only when the head is
 * whole. That costs one copy of a few hundred bytes and buys two things: the checks see whole
 * lines, so they are plain code instead of a second state machine, and llhttp sees the head in one
 * piece, so its spans can be kept as views.
 *
 * Body: bytes go through llhttp, which unpacks chunks and stops behind the last one. Chunk sizes,
 * extensions and trailers are overhead that a hostile client could send without end, so they have a
 * ceiling relative to the body that came with them. Trailers are read and dropped. */
#include "net/http_reader.h"

#include <string.h>

/* Blank lines before a request that are forgiven (RFC 9112, 2.2, wants at least one). */
#define EMPTY_LINES_CAP 4u
/* Bytes of chunk framing that are forgiven: a start, and so many for each byte of body. One-byte
 * chunks cost five ("1", CR LF twice). */
#define FRAMING_BYTES_FREE 65536u
#define FRAMING_BYTES_PER_BODY_BYTE 8u

static bool refuse(struct http_reader *reader, int status, const char *reason)
{
    reader->state = HTTP_READER_BAD;
    reader->status = status;
    reader->reason = reason;
    return false;
}

static struct http_reader *reader_of(llhttp_t *parser)
{
    return parser->data;
}

static int on_url(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *const reader = reader_of(parser);

    if (reader->target.data == NULL)
        reader->target.data = at;
    reader->target.size += size;
    return 0;
}

static int on_field_name(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *const reader = reader_of(parser);

    if (reader->head_done)
        return 0; // a trailer
    if (reader->n_fields == HTTP_FIELDS_CAP) {
        refuse(reader, 431, "the request has too many header fields");
        return -1;
    }
    reader->fields[reader->n_fields].name = (struct str){ .data = at, .size = size };
    return 0;
}

static int on_field_value(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *const reader = reader_of(parser);

    if (!reader->head_done)
        reader->fields[reader->n_fields].value = (struct str){ .data = at, .size = size };
    return 0;
}

static int on_field_value_complete(llhttp_t *parser)
{
    struct http_reader *const reader = reader_of(parser);

    if (!reader->head_done) {
        struct http_reader_field *const field = &reader->fields[reader->n_fields++];

        field->value = str_trim(field->value);
    }
    return 0;
}

static bool host_is_valid(struct str host)
{
    for (size_t i = 0; i < host.size; i++) {
        const unsigned char c = (unsigned char)host.data[i];

        if (c <= ' ' || c >= 0x7f || strchr("/\\?#@,\"<>^`{|}", c) != NULL)
            return false;
    }
    return true;
}

/* The fields on which the framing depends. */
static bool check_fields(struct http_reader *reader)
{
    uint32_t n_hosts = 0, n_encodings = 0;

    for (uint32_t i = 0; i < reader->n_fields; i++) {
        const struct http_reader_field *const field = &reader->fields[i];

        if (str_equal_nocase(field->name, STR("host"))) {
            if (n_hosts++ > 0 || !host_is_valid(field->value))
                return refuse(reader, 400, "the Host field is repeated or not a host");
        } else if (str_equal_nocase(field->name, STR("transfer-encoding"))) {
            if (n_encodings++ > 0 || reader->minor == 0 ||
                !str_equal_nocase(field->value, STR("chunked")))
                return refuse(reader, 400, "the only Transfer-Encoding understood is chunked");
        } else if (str_equal_nocase(field->name, STR("expect")) && reader->minor > 0) {
            if (!str_equal_nocase(field->value, STR("100-continue")))
                return refuse(reader, 417, "the only Expect understood is 100-continue");
            reader->expects_continue = true;
        }
    }
    if (n_hosts == 0 && reader->minor > 0)
        return refuse(reader, 400, "the Host field is missing");
    if (n_encodings > 0 && http_reader_find(reader, "content-length").data != NULL)
        return refuse(reader, 400, "Content-Length and Transfer-Encoding exclude each other");
    return true;
}

/* "/path?query" and "http://host/path?query"; "*" stays a path. */
static bool check_target(struct http_reader *reader)
{
    struct str target = reader->target;

    if (str_starts(target, STR("http://")) || str_starts(target, STR("https://"))) {
        const size_t scheme = str_find(target, STR("://")) + 3;
        const struct str rest = str_slice(target, scheme, target.size);
        const size_t slash = str_find_char(rest, '/');

        target = slash == SIZE_MAX ? STR("/") : str_slice(rest, slash, rest.size);
    }
    if (!str_starts(target, STR("/")) && !str_is(target, "*"))
        return refuse(reader, 400, "the request target is not a path");
    const size_t fragment = str_find_char(target, '#');
    if (fragment != SIZE_MAX)
        target.size = fragment;
    const size_t mark = str_find_char(target, '?');
    reader->path = mark == SIZE_MAX ? target : str_slice(target, 0, mark);
    reader->query = mark == SIZE_MAX ? STR("") : str_slice(target, mark + 1, target.size);
    return true;
}

static int on_head_complete(llhttp_t *parser)
{
    struct http_reader *const reader = reader_of(parser);

    reader->head_done = true;
    reader->method = str_from(llhttp_method_name((llhttp_method_t)parser->method));
    reader->minor = parser->http_minor;
    reader->keep_alive = llhttp_should_keep_alive(parser) != 0;
    parser->upgrade = 0; // no protocol is offered; the request is served as it stands
    if (parser->http_major != 1) {
        refuse(reader, 505, "only HTTP/1.1 is spoken here");
        return -1;
    }
    if (!check_target(reader) || !check_fields(reader))
        return -1;
    if (parser->content_length > reader->body_bytes_cap) {
        refuse(reader, 413, "the body is larger than this server takes");
        return -1;
    }
    if (parser->content_length == 0 && (parser->flags & F_CHUNKED) == 0)
        reader->expects_continue = false;
    return 0;
}

/* Before any of it comes: a client that waits for the answer to a size would wait for a timer. */
static int on_chunk_header(llhttp_t *parser)
{
    struct http_reader *const reader = reader_of(parser);

    if (parser->content_length <= reader->body_bytes_cap - reader->body.size)
        return 0;
    refuse(reader, 413, "the body is larger than this server takes");
    return -1;
}

static int on_body(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *const reader = reader_of(parser);

    if (size > reader->body_bytes_cap - reader->body.size) {
        refuse(reader, 413, "the body is larger than this server takes");
        return -1;
    }
    buf_add(&reader->body, at, size);
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    reader_of(parser)->state = HTTP_READER_DONE;
    return HPE_PAUSED; // so that llhttp stops exactly here
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field_name,
    .on_header_value = on_field_value,
    .on_header_value_complete = on_field_value_complete,
    .on_headers_complete = on_head_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void http_reader_init(struct http_reader *reader, uint64_t body_bytes_cap)
{
    *reader = (struct http_reader){ .body_bytes_cap = body_bytes_cap };
    buf_init(&reader->head, HTTP_HEAD_BYTES_CAP);
    buf_init(&reader->body, (size_t)body_bytes_cap);
    llhttp_init(&reader->parser, HTTP_REQUEST, &settings);
    reader->parser.data = reader;
}

void http_reader_release(struct http_reader *reader)
{
    buf_release(&reader->head);
    buf_release(&reader->body);
}

struct str http_reader_find(const struct http_reader *reader, const char *name)
{
    for (uint32_t i = 0; i < reader->n_fields; i++) {
        if (str_equal_nocase(reader->fields[i].name, str_from(name)))
            return reader->fields[i].value;
    }
    return STR_NONE;
}

/* One whole line of the head, with its end. */
static bool check_line(struct http_reader *reader, struct str line)
{
    if (line.size < 2 || line.data[line.size - 2] != '\r')
        return refuse(reader, 400, "a line does not end in CR LF");
    line.size -= 2;
    for (size_t i = 0; i < line.size; i++) {
        const unsigned char c = (unsigned char)line.data[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return refuse(reader, 400, "a control character in the head");
    }
    if (reader->line_first == 0 || line.size == 0)
        return true; // the request line is llhttp's
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return refuse(reader, 400, "a folded header field");
    const size_t colon = str_find_char(line, ':');
    if (colon == SIZE_MAX || colon == 0)
        return refuse(reader, 400, "a header line without a name and a colon");
    if (line.data[colon - 1] == ' ' || line.data[colon - 1] == '\t')
        return refuse(reader, 400, "a blank between a field's name and its colon");
    return true;
}

/* After llhttp stopped: DONE and BAD were set by the callbacks, or llhttp itself objects. */
static void settle(struct http_reader *reader, llhttp_errno_t result)
{
    if (reader->state == HTTP_READER_DONE || reader->state == HTTP_READER_BAD)
        return;
    if (result == HPE_INVALID_VERSION)
        refuse(reader, 505, "only HTTP/1.1 is spoken here");
    else if (result != HPE_OK)
        refuse(reader, 400, "the request is not valid HTTP/1.1");
}

static void parse_head(struct http_reader *reader)
{
    reader->state = HTTP_READER_BODY;
    settle(reader, llhttp_execute(&reader->parser, reader->head.data, reader->head.size));
    if (reader->state == HTTP_READER_BODY && !reader->head_done)
        refuse(reader, 400, "the request is not valid HTTP/1.1");
}

/* One line, or what there is of it. Returns the bytes taken. */
static size_t feed_line(struct http_reader *reader, struct str in)
{
    const size_t newline = str_find_char(in, '\n');
    const size_t taken = newline == SIZE_MAX ? in.size : newline + 1;
    const size_t line_bytes = reader->head.size - reader->line_first + taken;

    if (line_bytes > HTTP_FIELD_BYTES_CAP) {
        if (reader->line_first == 0)
            refuse(reader, 414, "the request line is too long");
        else
            refuse(reader, 431, "a header field is too long");
        return taken;
    }
    if (reader->head.size + taken > HTTP_HEAD_BYTES_CAP) {
        refuse(reader, 431, "the header is too long");
        return taken;
    }
    buf_add(&reader->head, in.data, taken);
    if (newline == SIZE_MAX)
        return taken;
    const struct str line =
        str_slice(buf_view(&reader->head), reader->line_first, reader->head.size);
    if (!check_line(reader, line))
        return taken;
    if (line.size > 2) {
        reader->line_first = reader->head.size;
    } else if (reader->line_first > 0) {
        parse_head(reader);
    } else {
        buf_clear(&reader->head);
        if (++reader->n_empty_lines > EMPTY_LINES_CAP)
            refuse(reader, 400, "blank lines instead of a request");
    }
    return taken;
}

static size_t feed_body(struct http_reader *reader, struct str in)
{
    const size_t body_before = reader->body.size;
    const llhttp_errno_t result = llhttp_execute(&reader->parser, in.data, in.size);
    size_t taken = in.size;

    settle(reader, result);
    if (reader->state == HTTP_READER_DONE)
        taken = (size_t)(llhttp_get_error_pos(&reader->parser) - in.data);
    reader->framing_bytes += taken - (reader->body.size - body_before);
    if (reader->state == HTTP_READER_BODY &&
        reader->framing_bytes >
            FRAMING_BYTES_FREE + FRAMING_BYTES_PER_BODY_BYTE * (uint64_t)reader->body.size)
        refuse(reader, 400, "more chunk framing than body");
    return taken;
}

size_t http_reader_feed(struct http_reader *reader, struct str in)
{
    size_t used = 0;

    while (used < in.size) {
        const struct str rest = str_slice(in, used, in.size);

        switch (reader->state) {
        case HTTP_READER_EMPTY:
        case HTTP_READER_HEAD:
            reader->state = HTTP_READER_HEAD;
            used += feed_line(reader, rest);
            break;
        case HTTP_READER_BODY:
            used += feed_body(reader, rest);
            break;
        case HTTP_READER_DONE:
        case HTTP_READER_BAD:
            return used;
        }
    }
    return used;
}
