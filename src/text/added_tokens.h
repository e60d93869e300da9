/* The tokens that are found in text before anything else is done with it.
 *
 * One matcher holds one set of them. At each place the longest token that is there and allowed
 * wins. The arrays belong to a tokenizer image. Read-only: any thread. */
#ifndef CASCADIA_TEXT_ADDED_TOKENS_H
#define CASCADIA_TEXT_ADDED_TOKENS_H

#include "base/str.h"
#include "text/normalizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum added_token_flag {               // the numbers are those of tokenizer.bin
    ADDED_TOKEN_SINGLE_WORD = 1 << 0, // not where it touches a word character
    ADDED_TOKEN_LEFT_STRIP = 1 << 1,  // takes the white space before it
    ADDED_TOKEN_RIGHT_STRIP = 1 << 2, // takes the white space behind it
    ADDED_TOKEN_CONTROL = 1 << 3,     // only where each of its bytes is marked
};

struct added_token {
    uint32_t first, size; // its content in `bytes`
    uint32_t id;
    uint32_t flags;
};

struct added_tokens {
    const struct added_token *tokens; // [n_tokens], sorted by content, no two equal, none empty
    uint32_t n_tokens;
    const char *bytes;
    uint32_t starts[257]; // tokens that begin with byte b: [starts[b], starts[b + 1])
};

/* Fills `starts` from the sorted array. */
void added_tokens_index(struct added_tokens *added);

/* A match: bytes [first, last), white space taken included. */
struct added_match {
    size_t first, last;
    uint32_t id;
};

/* The first match at or after *from; false when there is none. *from becomes the place where the
 * next search goes on. marks NULL: `allow_control` says it for all of the text. */
bool added_tokens_find(const struct added_tokens *added, struct marked_text text,
                       bool allow_control, size_t *from, struct added_match *match);

#endif
