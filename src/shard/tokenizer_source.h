/* Finds and loads the tokenizer of whatever a person calls a model: a shard directory
 * (tokenizer.bin), a Hugging Face directory (tokenizer.json, tokenizer_config.json), one
 * tokenizer.json, or a GGUF file, also one that holds a vocabulary alone.
 *
 * The end-of-generation ids of a generation_config.json and config.json beside it are added. Any
 * thread. */
#ifndef CASCADIA_SHARD_TOKENIZER_SOURCE_H
#define CASCADIA_SHARD_TOKENIZER_SOURCE_H

#include "base/err.h"

struct gguf;
struct tokenizer;

/* Caller frees with tokenizer_free. NULL on failure; ERR_NOT_FOUND when there is no tokenizer. */
struct tokenizer *tokenizer_source_load(const char *path, struct err *err);

/* Of a GGUF that is already open. */
struct tokenizer *tokenizer_source_load_gguf(const struct gguf *gguf, struct err *err);

#endif
