/* tokenizer.json from anywhere, used once it loads: encoding, streaming back, compiling. The input
 * is the document, then a NUL, then a text for it. */
#include <stdlib.h>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *tokenizer, struct str text)
{
    const struct tokenizer_segment segments[] = {
        { str_slice(text, 0, text.size / 2), true },
        { str_slice(text, text.size / 2, text.size), false },
    };
    const struct tokenizer_encode_options options = { .add_special = true, .bos_once = true };
    struct detokenizer detokenizer;
    struct token_list ids;
    struct buf out;
    struct err err;
    token_list_init(&ids, 4096);
    buf_init(&out, 1 << 20);
    detokenizer_init(&detokenizer, tokenizer, text.size % 2, NULL, 0);
    if (tokenizer_encode(tokenizer, segments, 2, &options, &ids, &err)) {
        for (size_t i = 0; i < ids.n_ids; i++) {
            if (ids.ids[i] >= tokenizer_n_tokens(tokenizer))
                abort();
            detokenizer_push(&detokenizer, ids.ids[i], &out);
        }
    }
    detokenizer_finish(&detokenizer, &out);
    if (out.size > 0 && !utf8_valid(buf_view(&out)))
        abort();
    buf_release(&out);
    token_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct str input = { (const char *)data, size };
    const size_t cut = str_find_char(input, '\0');
    const struct str document = str_slice(input, 0, cut == SIZE_MAX ? size : cut);
    const struct str text =
        cut == SIZE_MAX ? STR("Some text, 123 \xe4\xb8\xad.") : str_slice(input, cut + 1, size);
    struct err err;
    struct tokenizer *tokenizer = tokenizer_load_json(document, STR_NONE, &err);
    if (tokenizer)
        use(tokenizer, text);
    tokenizer_free(tokenizer);
    return 0;
}
