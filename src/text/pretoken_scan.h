/* Hand-written scanners for the regular expressions that byte-level models split text with.
 *
 * They give the pieces that the expression gives, by Unicode 16, several times faster and with a
 * bound: linear in the text. All of them cover the text: pieces follow one another without gaps.
 * Immutable: any thread. */
#ifndef CASCADIA_TEXT_PRETOKEN_SCAN_H
#define CASCADIA_TEXT_PRETOKEN_SCAN_H

#include "base/str.h"

#include <stddef.h>

struct pretoken_scan;

/* The scanner of exactly this expression, or NULL. */
const struct pretoken_scan *pretoken_scan_find(struct str pattern);

/* By name ("gpt2", "llama3", "qwen2", ...), or NULL; and the expression that it stands for. */
const struct pretoken_scan *pretoken_scan_named(const char *name);
struct str pretoken_scan_pattern(const struct pretoken_scan *scan);

/* All of them, for tests; NULL past the last. */
const struct pretoken_scan *pretoken_scan_at(size_t index);
const char *pretoken_scan_name(const struct pretoken_scan *scan);

/* Where the piece that begins at `at` (< text.size) ends. `text` is valid UTF-8. */
size_t pretoken_scan_next(const struct pretoken_scan *scan, struct str text, size_t at);

#endif
