/* One HTTP/1.x request out of a stream of bytes: the strict part, without any I/O.
 *
 * llhttp parses; around it stand the checks that llhttp 8.1 leaves out or that two parsers could
 * judge differently: line ends are CR LF only, no folded fields, no blank before a colon, exactly
 * one Host, one way of framing, and ceilings for everything. The bytes are copied, so that views
 * into the request live as long as the reader. One owner. */
#ifndef CASCADIA_NET_HTTP_READER_H
#define CASCADIA_NET_HTTP_READER_H

#include "base/buf.h"
#include "base/str.h"

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_FIELD_BYTES_CAP 8192u // one header line, and the request line
#define HTTP_HEAD_BYTES_CAP 65536u // the whole head
#define HTTP_FIELDS_CAP 128u       // header lines

enum http_reader_state {
    HTTP_READER_EMPTY, // nothing of a request yet
    HTTP_READER_HEAD,  // in the request line or the header
    HTTP_READER_BODY,
    HTTP_READER_DONE, // the request is whole
    HTTP_READER_BAD,  // status and reason say why; the stream is lost
};

struct http_reader_field {
    struct str name, value;
};

struct http_reader {
    enum http_reader_state state;
    int status;         // BAD: what to answer
    const char *reason; // BAD: a sentence
    uint64_t body_bytes_cap;

    struct str method, target; // target as sent
    struct str path, query;    // of the target; query without '?'
    uint32_t minor;            // HTTP/1.minor
    bool keep_alive;           // what the client wants
    bool expects_continue;     // and has a body to send
    uint32_t n_fields;
    struct http_reader_field fields[HTTP_FIELDS_CAP];
    struct buf body;

    /* Inside. */
    llhttp_t parser;
    struct buf head;
    size_t line_first;      // offset in head of the line that is being read
    uint32_t n_empty_lines; // before the request line
    uint64_t framing_bytes; // read in the body phase that were not body
    bool head_done;
};

void http_reader_init(struct http_reader *reader, uint64_t body_bytes_cap);
void http_reader_release(struct http_reader *reader); // zeroed values are fine

/* Takes bytes of `in` until the request is whole, bad, or `in` is used up; returns how many were
 * taken. Bytes after a whole request stay with the caller. */
size_t http_reader_feed(struct http_reader *reader, struct str in);

/* First field of that name (any case), or STR_NONE. */
struct str http_reader_find(const struct http_reader *reader, const char *name);

#endif
