/* What the fuzzers of all grammar languages check: what compiles gives texts that end, of tokens
 * that its masks allow; what does not has a sentence. The first byte seeds the text. */
#ifndef CASCADIA_FUZZ_GRAMMAR_FUZZ_H
#define CASCADIA_FUZZ_GRAMMAR_FUZZ_H

#include "base/buf.h"
#include "base/err.h"
#include "sample/grammar_random.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#define GRAMMAR_FUZZ_RANDOM 24u
#define GRAMMAR_FUZZ_TOKENS_CAP 20000u

/* A text that the ceilings do not cut off ends. */
static inline void grammar_fuzz_text(struct grammar *grammar, const struct token_trie *trie,
                                     uint64_t seed)
{
    const struct grammar_random_options options = { seed, GRAMMAR_FUZZ_RANDOM,
                                                    GRAMMAR_FUZZ_TOKENS_CAP };
    struct err err = { 0 };
    struct buf text;
    buf_init(&text, (size_t)1 << 20);
    const bool good = grammar_random(grammar, trie, &options, &text, NULL, &err);
    must(good || err.code == ERR_UNSUPPORTED || text.size >= GRAMMAR_FUZZ_TOKENS_CAP);
    must(!good || utf8_valid(buf_view(&text)));
    buf_release(&text);
}

static inline int grammar_fuzz(enum sampling_language language, const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer; // kept from one input to the next
    static struct token_trie *trie;
    struct err err = { 0 };
    if (size < 1)
        return 0;
    if (trie == NULL) {
        tokenizer = tokenizer_load_mock();
        trie = token_trie_new(tokenizer, TOKENIZER_MOCK_N_TOKENS);
    }
    const struct sampling_grammar source = { language, { (const char *)data + 1, size - 1 } };
    struct grammar *grammar = grammar_new(&source, trie, &err);
    must((grammar != NULL) == (err.code == ERR_NONE));
    must(grammar != NULL || err.text[0] != '\0');
    if (grammar != NULL)
        grammar_fuzz_text(grammar, trie, data[0]);
    grammar_free(grammar);
    return 0;
}

#endif
