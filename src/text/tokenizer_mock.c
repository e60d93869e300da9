/* A spec of 256 bytes and four added tokens. */
#include "text/tokenizer_mock.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/memory.h"
#include "text/tokenizer_image.h"

static void add_mark(struct tokenizer_spec *spec, uint32_t id, struct str content)
{
    spec->tokens[id] = (struct tokenizer_spec_token){
        .key = content, .text = content, .special = true, .control = true
    };
    spec->added[spec->n_added++] = (struct tokenizer_spec_added){ .content = content, .id = id };
}

struct tokenizer *tokenizer_load_mock(void)
{
    struct tokenizer_spec spec;
    tokenizer_spec_init(&spec);
    spec.n_tokens = TOKENIZER_MOCK_N_TOKENS;
    spec.tokens = xcalloc(spec.n_tokens, sizeof spec.tokens[0]);
    spec.added = xcalloc(4, sizeof spec.added[0]);
    spec.byte_level = true;
    for (unsigned b = 0; b < 256; b++) {
        const char byte = (char)b;
        const struct str text = arena_str(&spec.arena, (struct str){ &byte, 1 });
        spec.tokens[b] =
            (struct tokenizer_spec_token){ .key = text, .text = text, .in_model = true };
    }
    add_mark(&spec, TOKENIZER_MOCK_USER, STR("<|user|>"));
    add_mark(&spec, TOKENIZER_MOCK_ASSISTANT, STR("<|assistant|>"));
    add_mark(&spec, TOKENIZER_MOCK_SYSTEM, STR("<|system|>"));
    add_mark(&spec, TOKENIZER_MOCK_END, STR("<|end|>"));
    spec.end_ids[spec.n_end_ids++] = TOKENIZER_MOCK_END;
    spec.source_hash = hash_xxh3("mock", 4);
    struct err err;
    struct tokenizer *tokenizer = tokenizer_open_spec(&spec, &err);
    must(tokenizer);
    tokenizer_spec_release(&spec);
    return tokenizer;
}
