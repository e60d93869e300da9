/* Tokens to text, and when to stop: the detokenised answer of one request.
 *
 * Text is given out as soon as it is certain: whole characters, and nothing that may still turn out
 * to be the beginning of a stop text. A stop text ends the answer before itself. One owner. */
#ifndef CASCADIA_GENERATE_COMPLETION_H
#define CASCADIA_GENERATE_COMPLETION_H

#include "base/buf.h"
#include "base/err.h"
#include "generate/stops.h"
#include "text/detokenizer.h"

#include <stdbool.h>
#include <stdint.h>

enum completion_state {
    COMPLETION_GOES_ON,
    COMPLETION_STOP,   // an end-of-sequence id or a stop text
    COMPLETION_LENGTH, // max_tokens
};

struct completion_options {
    const struct tokenizer *tokenizer; // borrowed until release
    const int32_t *prompt;             // the text goes on where this ends
    uint32_t n_prompt;
    const struct str *stops;
    uint32_t n_stops;
    uint32_t max_tokens; // at least 1
    bool ignore_eos;
    bool keep_special;
};

struct completion {
    const struct tokenizer *tokenizer;
    struct detokenizer detokenizer;
    struct stops stops;
    struct buf held;   // text that is not yet certain
    uint32_t n_tokens; // pushed
    uint32_t max_tokens;
    bool ignore_eos;
    uint32_t text_bytes;     // of all tokens, held included: where the next token's text begins
    uint32_t given_bytes;    // of it, appended to `out`
    bool ended_without_text; // the last token was an end-of-sequence id
};

/* ERR_ARGUMENT when a stop text is no good. */
bool completion_init(struct completion *completion, const struct completion_options *options,
                     struct err *err);
void completion_release(struct completion *completion); // zeroed values are fine

/* Takes the next token and appends what has become certain to `out`. Not after the end. */
enum completion_state completion_push(struct completion *completion, int32_t token,
                                      struct buf *out);

#endif
