/* Regular expressions as tokenizer.json writes them (Oniguruma's dialect, Ruby's flavour), run by
 * PCRE2 with its JIT.
 *
 * The pattern is translated where the two differ; a construct whose meaning would differ and that
 * is not translated is ERR_UNSUPPORTED, never run as something else. Known difference: Debian's
 * PCRE2 knows Unicode 14, the scanners (pretoken_scan.h) know 16.
 *
 * A regex is immutable: any thread. A match state belongs to one encoding. */
#ifndef CASCADIA_TEXT_REGEX_H
#define CASCADIA_TEXT_REGEX_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define REGEX_PATTERN_BYTES_CAP ((size_t)16 << 10)

struct regex;
struct regex_state;

struct regex *regex_new(struct str pattern, struct err *err); // NULL on failure
void regex_free(struct regex *regex);                         // NULL is fine

/* The pattern in PCRE2's dialect (also for tests). */
bool regex_translate(struct str pattern, struct buf *out, struct err *err);

struct regex_state *regex_state_new(void);
void regex_state_free(struct regex_state *state); // NULL is fine

enum regex_result {
    REGEX_FOUND,
    REGEX_NONE,
    REGEX_FAILED, // err says why: a limit was passed
};

/* Finds the first match that begins at or after `from` in valid UTF-8; it is [*first, *last). */
enum regex_result regex_find(const struct regex *regex, struct regex_state *state, struct str text,
                             size_t from, size_t *first, size_t *last, struct err *err);

#endif
