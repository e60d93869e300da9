/* Normalizers: what a tokenizer does to text before it looks at it. Steps in order.
 *
 * Text may carry a mark for each byte (may it be a part of a control token?). What a step makes of
 * several bytes is marked only if all of them are. A normalizer is immutable: any thread. A scratch
 * belongs to one encoding. */
#ifndef CASCADIA_TEXT_NORMALIZER_H
#define CASCADIA_TEXT_NORMALIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum normalizer_kind { // the numbers are those of tokenizer.bin
    NORMALIZER_NFC = 1,
    NORMALIZER_NFD = 2,
    NORMALIZER_NFKC = 3,
    NORMALIZER_NFKD = 4,
    NORMALIZER_LOWERCASE = 5,
    NORMALIZER_PREPEND = 6,       // `with` in front of a text that is not empty
    NORMALIZER_REPLACE = 7,       // each `find` by `with`
    NORMALIZER_REPLACE_REGEX = 8, // each match of `find` by `with`
    NORMALIZER_STRIP = 9,         // white space, `left` and `right`
    NORMALIZER_KIND_END,
};

struct normalizer_rule {
    enum normalizer_kind kind;
    bool left, right;
    struct str find, with;
};

struct normalizer;
struct normalizer_scratch;

/* The rules' texts are borrowed for its life. ERR_UNSUPPORTED for a regex that cannot be done. */
struct normalizer *normalizer_new(const struct normalizer_rule *rules, size_t n_rules,
                                  struct err *err);
void normalizer_free(struct normalizer *normalizer); // NULL is fine

struct normalizer_scratch *normalizer_scratch_new(void);
void normalizer_scratch_free(struct normalizer_scratch *scratch); // NULL is fine

/* Text with its marks: one byte each, 0 or 1; marks NULL: nobody asks. */
struct marked_text {
    struct str text;
    const uint8_t *marks;
};

/* `in` must be valid UTF-8. The result is `in` itself or in the scratch, until its next use.
 * ERR_ARGUMENT when it becomes longer than size_cap bytes. */
bool normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                    struct marked_text in, size_t size_cap, struct marked_text *out,
                    struct err *err);

#endif
