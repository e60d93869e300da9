/* Small hand-made tokenizer.json texts, so that tests need no model.
 *
 * byte level: ids 0..255 are the bytes, then one id for each merge, then the added tokens.
 * characters: 0 <unk>, 1 <s>, 2 </s>, 3..258 <0x00>..<0xFF>, then the blank mark and the letters
 * a-z, one id for each merge, then the added tokens. */
#ifndef CASCADIA_TESTS_HELPERS_SMALL_TOKENIZER_H
#define CASCADIA_TESTS_HELPERS_SMALL_TOKENIZER_H

#include "base/buf.h"

#include <stdbool.h>

/* A pair of tokens' texts: bytes in byte-level vocabularies, else the text with U+2581 in it. */
struct small_merge {
    const char *left, *right;
};

struct small_tokenizer {
    bool byte_level;
    const struct small_merge *merges; // ends with left NULL
    const char *added;                // JSON objects without ids, each behind a '\n'; or NULL
    const char *normalizer, *pretokenizer, *processor, *decoder; // JSON; NULL: the usual one
    const char *model; // more members of the model, ", \"x\": 1"; or NULL
};

/* The merges of both kinds of test vocabularies: "hello", " world", " the", "lo". */
extern const struct small_merge small_byte_merges[], small_character_merges[];

/* Writes the text; buf must be initialised. */
void small_tokenizer_write(const struct small_tokenizer *small, struct buf *out);

/* The tokenizer itself; fails the test when it cannot be loaded. */
struct tokenizer *small_tokenizer_load(const struct small_tokenizer *small);

/* Ids as text, "1 2 3", of a text that may or may not hold control tokens. */
char *small_tokenizer_ids(const struct tokenizer *tokenizer, const char *text, bool allow_control);

/* Asserts it. */
void assert_small_ids(const struct tokenizer *tokenizer, const char *text, bool allow_control,
                      const char *ids);

#endif
