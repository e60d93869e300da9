/* The compiled grammars of a stage: one for each text, kept for who asks next.
 *
 * The tree of tokens is made when the first grammar comes. One thread. */
#ifndef CASCADIA_SAMPLE_GRAMMAR_CACHE_H
#define CASCADIA_SAMPLE_GRAMMAR_CACHE_H

#include "base/err.h"
#include "sample/grammar.h"

#include <stdint.h>

#define GRAMMAR_CACHE_IDLE_CAP 16u // grammars that nobody uses

struct grammar_cache;
struct tokenizer;

/* The tokenizer is borrowed until grammar_cache_free; NULL: there is none, and no grammar can be
 * had. */
struct grammar_cache *grammar_cache_new(const struct tokenizer *tokenizer, uint32_t vocab_size);
void grammar_cache_free(struct grammar_cache *cache); // what was taken is gone too; NULL is fine

/* The compiled grammar; stays until it is given back. NULL: ERR_UNSUPPORTED without a tokenizer, or
 * why it does not compile. */
struct grammar *grammar_cache_take(struct grammar_cache *cache,
                                   const struct sampling_grammar *source, struct err *err);
void grammar_cache_give(struct grammar_cache *cache, struct grammar *grammar); // NULL is fine

#endif
