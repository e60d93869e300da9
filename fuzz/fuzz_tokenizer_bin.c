/* A compiled tokenizer from anywhere. The hash is made right first, since a fuzzer would never get
 * past it; what then opens must be usable without harm. */
#include <stdlib.h>
#include <string.h>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer_image_header header;
    struct err err;
    char *image = malloc(size ? size : 1);
    if (!image)
        abort();
    if (size)
        memcpy(image, data, size);
    if (size >= sizeof header) {
        memcpy(&header, image, sizeof header);
        header.size = (uint32_t)size;
        memcpy(image, &header, sizeof header);
        header.hash = tokenizer_image_hash((const uint8_t *)image, size);
        memcpy(image, &header, sizeof header);
    }
    struct tokenizer *tokenizer = tokenizer_open_memory(image, size, &err);
    if (!tokenizer)
        return 0;
    const struct tokenizer_segment segments[] = {
        { STR("hello the <think> a\xcc\x81 12  x\xe4\xb8\xad</s> "), true },
        { STR("<s>\n\tHELLO \xf0\x9f\x8e\x89\xff<|im_end|>"), false },
    };
    const struct tokenizer_encode_options options = { .add_special = true };
    struct detokenizer detokenizer;
    struct token_list ids;
    struct buf out;
    token_list_init(&ids, 4096);
    buf_init(&out, 16 << 20);
    detokenizer_init(&detokenizer, tokenizer, true, NULL, 0);
    if (tokenizer_encode(tokenizer, segments, 2, &options, &ids, &err)) {
        for (size_t i = 0; i < ids.n_ids; i++) {
            if (ids.ids[i] >= tokenizer_n_tokens(tokenizer))
                abort();
            detokenizer_push(&detokenizer, ids.ids[i], &out);
        }
    }
    detokenizer_finish(&detokenizer, &out);
    buf_release(&out);
    token_list_release(&ids);
    tokenizer_free(tokenizer);
    return 0;
}
