/* Token ids, one at a time, to text that is always whole UTF-8.
 *
 * A token may be a part of a character: up to three bytes are held back until the character is
 * complete or cannot become one (then each maximal bad part is one U+FFFD, as Python's and Rust's
 * lossy decoders have it). The pieces joined are the decoding of all ids at once. (Of vocabularies
 * with byte fallback Hugging Face writes one U+FFFD for each byte of a run that holds a bad part,
 * good characters included; no stream can know that before the run ends, and none should.)
 *
 * The state is small and holds no memory of its own: one owner, copied freely, nothing to
 * release. */
#ifndef CASCADIA_TEXT_DETOKENIZER_H
#define CASCADIA_TEXT_DETOKENIZER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

struct detokenizer {
    const struct tokenizer *tokenizer; // borrowed
    bool skip_special;                 // special tokens give no text
    bool at_start;                     // no token of the text was seen yet
    uint32_t n_strip;                  // blanks at the start that are still to be dropped
    uint8_t pending[4];                // the beginning of a character
    uint32_t n_pending;
};

/* For text that goes on where `context` (the prompt, or its tail) ends: its bytes are not given
 * again, but a character begun there is completed and the rule about a text's first blank looks at
 * it. n_context 0: a text of its own. */
void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special, const uint32_t *context, size_t n_context);

/* Appends to `out` the text that is complete with this token; often nothing. */
void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct buf *out);

/* Appends what is left: U+FFFD for a character that never ended. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out);

#endif
