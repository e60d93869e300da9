/* The vocabulary of the mock model: ids 0..255 are the bytes, then the role marks.
 * No merges, so that text and ids are the same thing and tests can be read. */
#ifndef CASCADIA_TEXT_TOKENIZER_MOCK_H
#define CASCADIA_TEXT_TOKENIZER_MOCK_H

struct tokenizer;

enum {
    TOKENIZER_MOCK_USER = 256,      // <|user|>
    TOKENIZER_MOCK_ASSISTANT = 257, // <|assistant|>
    TOKENIZER_MOCK_SYSTEM = 258,    // <|system|>
    TOKENIZER_MOCK_END = 259,       // <|end|>: the end-of-generation id
    TOKENIZER_MOCK_N_TOKENS = 260,
};

/* Cannot fail. Caller frees with tokenizer_free. */
struct tokenizer *tokenizer_load_mock(void);

#endif
