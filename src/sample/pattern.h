/* Regular expressions as grammars: what JavaScript, Python and PCRE agree on.
 *
 * Understood: literals, `.`, [classes], groups (also (?:...) and named), |, * + ? {m} {m,} {m,n}
 * and their lazy forms, ^ at the beginning and $ at the end of an alternative, \d \w \s and their
 * opposites, \n \r \t \f \v \0 \xHH \uHHHH \u{H...} \cX, \p{L} and other general categories of one
 * letter, and escaped punctuation. Look-around, back references, \b, flags and possessive
 * repetitions are ERR_UNSUPPORTED by name.
 *
 * Where dialects differ about a class (is U+0661 a \d?), it is generated only what all of them
 * match. Pure: any thread. */
#ifndef CASCADIA_SAMPLE_PATTERN_H
#define CASCADIA_SAMPLE_PATTERN_H

#include "base/err.h"
#include "sample/grammar_rules.h"

#include <stdbool.h>
#include <stdint.h>

#define PATTERN_NESTING_CAP 100u
#define PATTERN_REPEAT_CAP 10000u
#define PATTERN_CLASS_RANGES_CAP 8192u // of a class

/* Sets the root to texts that the pattern matches as a whole. */
bool pattern_read(struct str text, struct grammar_rules *rules, struct err *err);

struct pattern_options {
    bool searches; // the pattern may match anywhere within the text, as JSON Schema has it
    /* How a character of a set is written in the text; NULL: as it is. */
    uint32_t (*write_class)(struct grammar_rules *rules, const struct code_range *ranges,
                            size_t n_ranges);
};

/* An expression, and how many characters it matches. */
struct pattern_piece {
    uint32_t node;
    uint32_t min_chars, max_chars; // GRAMMAR_NO_MAX: any number
};

bool pattern_read_piece(struct str text, const struct pattern_options *options,
                        struct grammar_rules *rules, struct pattern_piece *out, struct err *err);

#endif
