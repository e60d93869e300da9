/* JSON: the only user of jansson.
 *
 * Reading: strict UTF-8, duplicate keys refused, depth and size limited; objects keep the order of
 * their keys. Getters tolerate NULL and the wrong type, so look-ups chain and are checked once.
 * Writing: text appended to a buf by small functions (the caller puts the commas).
 * (Names keep clear of jansson's own: it is linked statically.)
 * A json value is read-only after parsing and may then be read by any thread. */
#ifndef CASCADIA_BASE_JSON_H
#define CASCADIA_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json; // a value; borrowed from its document unless a function says otherwise

enum json_kind {
    JSON_KIND_MISSING, // NULL pointer
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INTEGER, // fits int64
    JSON_KIND_REAL,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
};

/* Parses one document. ERR_FORMAT with line and column. Caller owns; json_free. */
struct json *json_parse(struct str text, struct err *err);
struct json *json_parse_file(const char *path, size_t size_cap, struct err *err);
void json_free(struct json *document); // NULL is fine

enum json_kind json_kind(const struct json *value);
const char *json_kind_name(enum json_kind kind); // "object", ...

const struct json *json_get(const struct json *object, const char *key); // NULL if not there
const struct json *json_at(const struct json *array, size_t index);      // NULL if not there
size_t json_size(const struct json *value); // of an array or object; else 0

/* Members in order: for (void *it = json_first(o); it; it = json_next(o, it)) */
void *json_first(const struct json *object);
void *json_next(const struct json *object, void *member);
struct str json_member_key(void *member);
const struct json *json_member_value(void *member);

/* With a fallback for missing, null or another type. */
bool json_bool(const struct json *value, bool otherwise);
int64_t json_int(const struct json *value, int64_t otherwise); // a real with no fraction too
double json_number(const struct json *value, double otherwise);
struct str json_text(const struct json *value); // STR_NONE when not a string; may hold NULs

/* Checked: false when the type is wrong or the value out of range; *out untouched. */
bool json_read_u32(const struct json *value, uint32_t *out);
bool json_read_u64(const struct json *value, uint64_t *out);
bool json_read_double(const struct json *value, double *out);
bool json_read_string(const struct json *value, struct str *out);
bool json_read_bool(const struct json *value, bool *out);

/* Writers. Strings are escaped, non-ASCII left as it is, invalid UTF-8 becomes U+FFFD. */
void json_write_string(struct buf *out, struct str text);         // with its quotes
void json_write_key(struct buf *out, const char *key);            // "key":
void json_write_double(struct buf *out, double value);            // shortest that reads back equal
void json_write_value(struct buf *out, const struct json *value); // compact

#endif
