/* What a loader says about a tokenizer, before it is compiled.
 *
 * A loader fills the arrays (from the arena, where all strings live, too) and hands the spec to
 * tokenizer_compile. One owner. */
#ifndef CASCADIA_TEXT_TOKENIZER_SPEC_H
#define CASCADIA_TEXT_TOKENIZER_SPEC_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretoken.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ceilings of every tokenizer, from whatever file. */
#define TOKENIZER_TOKENS_CAP ((uint32_t)1 << 21)
#define TOKENIZER_TOKEN_BYTES_CAP ((size_t)64 << 10)
#define TOKENIZER_MERGES_CAP ((size_t)8 << 20)
#define TOKENIZER_ADDED_CAP ((size_t)64 << 10)
#define TOKENIZER_RULES_CAP ((size_t)PRETOKEN_RULES_CAP) // of normalizers, and of pre-tokenizers
#define TOKENIZER_AROUND_CAP ((size_t)16)                // ids before a text, and behind it
#define TOKENIZER_END_IDS_CAP ((size_t)64)
#define TOKENIZER_BYTES_CAP ((size_t)512 << 20) // of a compiled image

enum tokenizer_start { // what decoding does to the beginning of a text
    TOKENIZER_START_KEEP = 0,
    TOKENIZER_START_STRIP = 1, // drops up to n_strip leading blanks
    TOKENIZER_START_MARKS = 2, // drops every blank mark of the first token
    TOKENIZER_START_END,
};

struct tokenizer_spec_token {
    struct str key;  // how the model finds it; data NULL: no token has this id
    struct str text; // what it decodes to
    bool in_model;   // text becomes this token by merges (not an added token only)
    bool special, control;
};

struct tokenizer_spec_added {
    struct str content;
    uint32_t id;
    bool single_word, left_strip, right_strip;
    bool normalized; // found in normalised text, by its normalised content
};

struct tokenizer_spec {
    struct arena arena;
    uint64_t source_hash;
    struct tokenizer_spec_token *tokens; // [n_tokens], by id
    size_t n_tokens;
    struct bpe_merge *merges;
    size_t n_merges;
    struct tokenizer_spec_added *added;
    size_t n_added;
    struct normalizer_rule normalizers[TOKENIZER_RULES_CAP];
    size_t n_normalizers;
    struct pretoken_rule pretokens[TOKENIZER_RULES_CAP];
    size_t n_pretokens;
    uint32_t before[TOKENIZER_AROUND_CAP], behind[TOKENIZER_AROUND_CAP];
    size_t n_before, n_behind;
    uint32_t end_ids[TOKENIZER_END_IDS_CAP];
    size_t n_end_ids;
    uint32_t bos_id, unknown_id; // VOCAB_NO_ID when there is none
    bool byte_level;             // symbols are bytes; else characters
    bool byte_fallback;          // a character that is no token becomes its <0xXX> tokens
    bool fuse_unknown;           // neighbouring unknown characters are one
    bool ignore_merges;          // a piece that is a token is that token, whatever the merges say
    enum tokenizer_start start;
    uint32_t n_strip;
};

void tokenizer_spec_init(struct tokenizer_spec *spec);
void tokenizer_spec_release(struct tokenizer_spec *spec);

/* Adds an id once. ERR_FORMAT past the ceiling or outside the vocabulary. */
bool tokenizer_spec_add_end_id(struct tokenizer_spec *spec, uint32_t id, struct err *err);

/* The id of the token with this key, added tokens first; VOCAB_NO_ID when there is none. Linear. */
uint32_t tokenizer_spec_find(const struct tokenizer_spec *spec, struct str content);

/* Adds the ends of generation that are known by name. Call when the tokens are complete. */
bool tokenizer_spec_add_known_ends(struct tokenizer_spec *spec, struct err *err);

/* True for added tokens that structure a conversation although their file does not call them
 * special: <think>, <tool_call>, <|...|>. A user's text must not become one. */
bool tokenizer_spec_is_structural(struct str content);

/* The letters that byte-level vocabularies write bytes with: the bytes of `text`, or false when it
 * holds another character. `bytes` has room for text.size. */
bool tokenizer_spec_read_letters(struct str text, char *bytes, size_t *n_bytes);

/* "<0xAB>": the byte; false for other text. */
bool tokenizer_spec_read_byte(struct str text, uint8_t *byte);

#endif
