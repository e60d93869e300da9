/* Text to token ids and ids to bytes, exactly as the model was trained: the pipeline of Hugging
 * Face's tokenizers for byte-pair models (added tokens, normalizer, pre-tokenizer, merges,
 * post-processor), from whichever file describes it.
 *
 * A tokenizer is made by one of the loaders (tokenizer_json.h, tokenizer_gguf.h, tokenizer_bin.h,
 * tokenizer_mock.h). All of them give the same thing: a compiled image, the content of a
 * tokenizer.bin, in memory or mapped. It is immutable, so that any thread may use it at any time;
 * only tokenizer_add_end_id must be called before it is shared.
 *
 * Ids are below tokenizer_n_tokens. A model may have more columns than that (padding): those ids
 * have no bytes and no meaning here. */
#ifndef CASCADIA_TEXT_TOKENIZER_H
#define CASCADIA_TEXT_TOKENIZER_H

#include "base/err.h"
#include "base/str.h"
#include "text/token_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest text of one call; more is ERR_ARGUMENT. */
#define TOKENIZER_TEXT_BYTES_CAP ((size_t)64 << 20)

struct tokenizer;

void tokenizer_free(struct tokenizer *tokenizer); // NULL is fine

/* A stretch of text with one origin. Ordinary text is tokenised as one run whatever its segments:
 * the mark decides only whether a control token may be recognised. A control token is recognised
 * where each of its bytes lies in a segment that allows it. Control tokens are the special added
 * tokens and those plain ones that structure a conversation (<think>, <tool_call>, <|...|>); other
 * added tokens (runs of blanks, HTML tags) are words like any other and are recognised
 * everywhere. */
struct tokenizer_segment {
    struct str text; // invalid UTF-8 in it is read as U+FFFD
    bool allow_control;
};

struct tokenizer_encode_options {
    bool add_special; // what the model wants around a text: BOS, EOS (the post-processor)
    bool bos_once;    // with add_special: no second BOS when the text itself begins with it
};

/* Appends the ids of the segments, read as one text. NULL options: all false. A rendered chat
 * template prints its BOS itself: encode it without add_special. ERR_ARGUMENT when the text or the
 * list passes its ceiling; `out` then holds what it held before. */
bool tokenizer_encode(const struct tokenizer *tokenizer, const struct tokenizer_segment *segments,
                      size_t n_segments, const struct tokenizer_encode_options *options,
                      struct token_list *out, struct err *err);

/* What a token stands for, borrowed from the tokenizer: raw bytes, which may be a part of a
 * character. Empty for ids that stand for nothing. The rule about the first blank of a text is the
 * detokenizer's (detokenizer.h): use that to print text. */
struct str tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id);

size_t tokenizer_n_tokens(const struct tokenizer *tokenizer); // highest id + 1

/* The id of the added token with this content ("<|im_end|>"), else of the ordinary token with
 * these bytes. False when there is none. */
bool tokenizer_find(const struct tokenizer *tokenizer, struct str text, uint32_t *id);

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id); // not shown to people
bool tokenizer_is_control(const struct tokenizer *tokenizer, uint32_t id); // see segments

/* The id that begins a text, when the model has one (whether or not encode adds it). */
bool tokenizer_bos(const struct tokenizer *tokenizer, uint32_t *id);

/* The end-of-generation ids: the model's EOS, end-of-turn and end-of-message tokens from all
 * sources, ascending. Borrowed; valid until the next tokenizer_add_end_id. */
const uint32_t *tokenizer_end_ids(const struct tokenizer *tokenizer, size_t *n_ids);
bool tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t id);
/* Adds one that config.json or generation_config.json lists. Not kept in a tokenizer.bin written
 * later: the shard carries those files. An id outside the vocabulary is ERR_ARGUMENT. */
bool tokenizer_add_end_id(struct tokenizer *tokenizer, uint32_t id, struct err *err);

/* XXH3 of the description that the tokenizer was compiled from. */
uint64_t tokenizer_source_hash(const struct tokenizer *tokenizer);

#endif
