/* Bytes that may be broken UTF-8 to UTF-8: each maximal bad part becomes one U+FFFD, as the Unicode
 * standard recommends and Python's and Rust's decoders do. Any thread. */
#ifndef CASCADIA_TEXT_UTF8_REPAIR_H
#define CASCADIA_TEXT_UTF8_REPAIR_H

#include "base/buf.h"
#include "base/str.h"

#include <stddef.h>

#define UTF8_REPLACEMENT STR("\xef\xbf\xbd")

/* How many bytes of `bytes` (not empty, not beginning with a whole character) are one bad part. */
size_t utf8_bad_part(struct str bytes);

/* The longest valid prefix. */
size_t utf8_valid_prefix(struct str bytes);

void utf8_repair(struct str bytes, struct buf *out); // appends

#endif
