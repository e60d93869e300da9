/* The parts of a tokenizer.json that are lists of rules: normalizer, pre_tokenizer, post_processor,
 * decoder. Each is read into the spec, or refused with the name of what is not done.
 * Strings are borrowed from the document. */
#ifndef CASCADIA_TEXT_TOKENIZER_JSON_RULES_H
#define CASCADIA_TEXT_TOKENIZER_JSON_RULES_H

#include "base/err.h"
#include "base/json.h"
#include "text/tokenizer_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool tokenizer_json_normalizer(struct tokenizer_spec *spec, const struct json *normalizer,
                               struct err *err);

/* Also sets spec->byte_level. */
bool tokenizer_json_pretokenizer(struct tokenizer_spec *spec, const struct json *pretokenizer,
                                 struct err *err);

/* The ids around a text. The tokens must be in the spec. */
bool tokenizer_json_processor(struct tokenizer_spec *spec, const struct json *processor,
                              struct err *err);

/* What the decoder does to one token's text, in order. */
enum decoder_kind {
    DECODER_BYTE_LEVEL,
    DECODER_BYTE_FALLBACK,
    DECODER_REPLACE,
    DECODER_STRIP,
};

struct decoder_step {
    enum decoder_kind kind;
    struct str find, with; // DECODER_REPLACE; DECODER_STRIP: find is the character
    size_t left, right;    // DECODER_STRIP: at most so many
};

struct decoder {
    struct decoder_step steps[TOKENIZER_RULES_CAP];
    size_t n_steps;
    bool fused; // what follows sees the whole text
};

/* Also sets spec->start and n_strip. */
bool tokenizer_json_decoder(struct tokenizer_spec *spec, const struct json *json,
                            struct decoder *decoder, struct err *err);

/* The bytes that a token decodes to, in the arena; data NULL past its ceiling. */
struct str decoder_apply(const struct decoder *decoder, struct arena *arena, struct str token);

#endif
