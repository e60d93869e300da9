/* Makes a tokenizer of the vocabulary that a GGUF file carries.
 *
 * This floor knows nothing of files of weights: whoever reads the GGUF fills the struct from its
 * metadata. Models "gpt2" (merges) and "llama" (scores) are done; a `pre` name that is not known is
 * refused, never guessed. */
#ifndef CASCADIA_TEXT_TOKENIZER_GGUF_H
#define CASCADIA_TEXT_TOKENIZER_GGUF_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_GGUF_NO_ID UINT32_MAX

enum tokenizer_gguf_flag {
    TOKENIZER_GGUF_UNSAID, // the key is absent: the model's default
    TOKENIZER_GGUF_NO,
    TOKENIZER_GGUF_YES,
};

/* The tokenizer.ggml.* keys, by name. Everything is borrowed for the call. */
struct tokenizer_gguf {
    struct str model; // "gpt2", "llama"
    struct str pre;   // "llama-bpe", "qwen2", "smollm", ...; empty when absent
    const struct str *tokens;
    size_t n_tokens;
    const float *scores;        // n_tokens of them, or NULL
    const int32_t *token_types; // n_tokens of them (1 normal 2 unknown 3 control 4 user 5 unused
                                // 6 byte), or NULL: all normal
    const struct str *merges;   // "left right"
    size_t n_merges;
    uint32_t bos_id, eos_id, eot_id, eom_id, unknown_id; // TOKENIZER_GGUF_NO_ID when absent
    enum tokenizer_gguf_flag add_bos, add_eos, add_space_prefix;
};

/* An empty struct: no arrays, no ids, flags unsaid. */
void tokenizer_gguf_init(struct tokenizer_gguf *gguf);

/* Caller frees with tokenizer_free. NULL on failure. */
struct tokenizer *tokenizer_load_gguf(const struct tokenizer_gguf *gguf, struct err *err);

#endif
