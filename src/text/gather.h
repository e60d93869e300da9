/* Segments of text to one valid text with a mark for each byte. */
#ifndef CASCADIA_TEXT_GATHER_H
#define CASCADIA_TEXT_GATHER_H

#include "base/buf.h"
#include "base/err.h"
#include "text/normalizer.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

/* The memory of a gathered text; zeroed is empty. */
struct gathered {
    struct buf text, marks;
};

void gathered_release(struct gathered *gathered);

/* Joins the segments, with U+FFFD for bad UTF-8 (also for a character cut by a border: the bytes of
 * all segments are one text). *out borrows from `gathered` or, when nothing need be copied, from
 * the only segment. When all segments agree there are no marks and *allow_control says what they
 * say; else marks are 1 where control tokens are allowed. ERR_ARGUMENT past
 * TOKENIZER_TEXT_BYTES_CAP. */
bool gather_segments(const struct tokenizer_segment *segments, size_t n_segments,
                     struct gathered *gathered, struct marked_text *out, bool *allow_control,
                     struct err *err);

#endif
