/* The vocabulary of a GGUF from anywhere: lines are tokens, "type score text"; an empty line; then
 * merges. The first byte chooses model and splitting. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "text/tokenizer_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_CAP 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pres[] = { "gpt-2", "qwen2", "tekken", "deepseek-coder", "" };
    struct str tokens[LINES_CAP], merges[LINES_CAP];
    float scores[LINES_CAP];
    int32_t types[LINES_CAP];
    struct tokenizer_gguf gguf;
    struct err err;
    if (size < 3)
        return 0;
    tokenizer_gguf_init(&gguf);
    gguf.model = data[0] & 1 ? STR("llama") : STR("gpt2");
    gguf.pre = str_from(pres[(data[0] >> 1) % 5]);
    gguf.bos_id = data[1];
    gguf.unknown_id = data[2] & 1 ? 0 : TOKENIZER_GGUF_NO_ID;
    struct str rest = { (const char *)data + 3, size - 3 }, line;
    while (gguf.n_tokens < LINES_CAP && str_split(&rest, '\n', &line) && line.size > 2) {
        types[gguf.n_tokens] = line.data[0] - '0';
        scores[gguf.n_tokens] = (float)line.data[1];
        tokens[gguf.n_tokens++] = str_slice(line, 2, line.size);
    }
    while (gguf.n_merges < LINES_CAP && str_split(&rest, '\n', &line))
        merges[gguf.n_merges++] = line;
    gguf.tokens = tokens;
    gguf.scores = scores;
    gguf.token_types = types;
    gguf.merges = merges;
    struct tokenizer *tokenizer = tokenizer_load_gguf(&gguf, &err);
    if (!tokenizer)
        return 0;
    const struct tokenizer_segment segment = { { (const char *)data, size }, data[1] & 1 };
    struct token_list ids;
    token_list_init(&ids, 1 << 16);
    (void)tokenizer_encode(tokenizer, &segment, 1, NULL, &ids, &err);
    for (size_t i = 0; i < ids.n_ids; i++) {
        if (ids.ids[i] >= gguf.n_tokens)
            abort();
    }
    token_list_release(&ids);
    tokenizer_free(tokenizer);
    return 0;
}
