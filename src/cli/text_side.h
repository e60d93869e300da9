/* Everything about a model that is words: tokenizer, chat template and the
 * sampling that its makers recommend. Read once, immutable then: any thread. */
#ifndef CASCADIA_CLI_TEXT_SIDE_H
#define CASCADIA_CLI_TEXT_SIDE_H

#include "base/err.h"
#include "sample/sampling_params.h"

#include <stdint.h>

struct chat;
struct tokenizer;

struct text_side {
    struct tokenizer *tokenizer;
    struct chat *chat;               // NULL: the model has no template
    struct sampling_params defaults; // temperature 1 unless generation_config.json says another
};

/* `model` is a shard directory, or NULL for the mock model. `chat_template` is a file, the name of
 * a built-in template, or NULL for the model's own. On failure `side` is zeroed. */
bool text_side_open(struct text_side *side, const char *model, const char *chat_template,
                    struct err *err);
void text_side_close(struct text_side *side); // zeroed values are fine

#endif
