/* A vocabulary whose tokens run across the joints of JSON, and texts held against grammars with it.
 * Byte-level: ids 0..255 are the bytes. */
#ifndef CASCADIA_TESTS_HELPERS_GRAMMARS_H
#define CASCADIA_TESTS_HELPERS_GRAMMARS_H

#include "sample/grammar.h"
#include "sample/token_trie.h"

#include <stdbool.h>

struct grammars {
    struct tokenizer *tokenizer;
    struct token_trie *trie;
};

void grammars_open(struct grammars *grammars);
void grammars_close(struct grammars *grammars);

/* The test fails when it does not compile. Caller frees with grammar_free. */
struct grammar *grammars_compile(const struct grammars *grammars, enum sampling_language language,
                                 const char *text);

/* Whether the grammar matches the text: byte by byte, and then the end. */
bool grammars_match(const struct grammars *grammars, enum sampling_language language,
                    const char *source, const char *text);

/* For each "+text" the grammar matches it, for each "-text" not; NULL at the end. */
void assert_grammar(const struct grammars *grammars, enum sampling_language language,
                    const char *source, const char *const *texts);

/* It does not compile: ERR_ARGUMENT or ERR_UNSUPPORTED, and the sentence has the words. */
void assert_no_grammar(enum sampling_language language, const char *source, enum err_code code,
                       const char *words);

#endif
