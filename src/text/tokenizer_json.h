/* Reads Hugging Face's tokenizer.json (model BPE) into a tokenizer.
 *
 * Every part of the file that decides ids or text is either done exactly or refused by name
 * (ERR_UNSUPPORTED); tokenizer_class of tokenizer_config.json is never consulted. */
#ifndef CASCADIA_TEXT_TOKENIZER_JSON_H
#define CASCADIA_TEXT_TOKENIZER_JSON_H

#include "base/err.h"
#include "base/str.h"

struct tokenizer;

/* A tokenizer.json larger than this is refused. (Gemma 3's has 33 MB.) */
#define TOKENIZER_JSON_BYTES_CAP ((size_t)256 << 20)

/* `tokenizer_config` is the text of tokenizer_config.json, or STR_NONE: it names BOS and EOS.
 * Without it they are taken from the post-processor and from known names. Caller frees with
 * tokenizer_free. NULL on failure. */
struct tokenizer *tokenizer_load_json(struct str tokenizer_json, struct str tokenizer_config,
                                      struct err *err);

#endif
