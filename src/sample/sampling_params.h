/* How a request wants its tokens drawn: plain data that travels with its sequence to the last
 * stage. Order of work and arithmetic: docs/numerics.md rule 10. */
#ifndef CASCADIA_SAMPLE_SAMPLING_PARAMS_H
#define CASCADIA_SAMPLE_SAMPLING_PARAMS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_BIAS_CAP 300          // entries of logit_bias, OpenAI's limit
#define SAMPLING_TOP_CAP 20            // top_logprobs, OpenAI's limit
#define SAMPLING_TEMPERATURE_LOW 1e-5f // nothing but the best token is left below it
#define SAMPLING_TEMPERATURE_CAP 100.0f
#define SAMPLING_PENALTY_CAP 100.0f // of every penalty and bias, either sign

struct sampling_bias {
    int32_t token;
    float bias;
};

/* What an answer may say (grammar.h). */
enum sampling_language {
    SAMPLING_GRAMMAR_NONE,
    SAMPLING_GRAMMAR_JSON_SCHEMA,
    SAMPLING_GRAMMAR_GBNF,
    SAMPLING_GRAMMAR_REGEX,
};

#define SAMPLING_GRAMMAR_BYTES_CAP (128u << 10)

struct sampling_grammar {
    enum sampling_language language; // NONE: anything
    struct str text;                 // borrowed: lives as long as who holds the parameters says
};

struct sampling_params {
    float temperature;        // below SAMPLING_TEMPERATURE_LOW: greedy
    uint32_t top_k;           // 0: off
    float top_p;              // 1: off
    float min_p;              // 0: off
    float repetition_penalty; // 1: off; counts prompt and answer (as Hugging Face does)
    float presence_penalty;   // 0: off; counts the answer only (as OpenAI does)
    float frequency_penalty;  // 0: off; counts the answer only
    uint64_t seed;
    uint32_t prompt_rows; // ids before this are the prompt
    uint32_t token_cap;   // ids from here on are padding of the logits, never drawn; 0: none are
    uint32_t n_top;       // log-probabilities of the n best wanted; 0: none
    bool want_logprob;    // of the chosen token
    struct sampling_grammar grammar;
    uint32_t n_bias;
    struct sampling_bias bias[SAMPLING_BIAS_CAP];
};

/* Greedy, everything off. */
void sampling_params_init(struct sampling_params *params);

/* ERR_ARGUMENT naming the first parameter that is NaN or out of range. token_cap and the tokens of
 * the bias are held against vocab_size; 0: not known here. */
bool sampling_params_check(const struct sampling_params *params, uint32_t vocab_size,
                           struct err *err);

/* What a sampled row gives back. */
struct sampled_token {
    int32_t token;
    float logprob; // natural log, of the unmodified distribution; 0 if not wanted
    uint32_t n_top;
    int32_t top_tokens[SAMPLING_TOP_CAP];
    float top_logprobs[SAMPLING_TOP_CAP];
};

/* Little-endian wire form (docs/wire.md). decode: ERR_FORMAT on anything that does not add up, NaN
 * or out-of-range values; *used is the bytes read, and a grammar's text is a view of them. */
void sampling_params_encode(const struct sampling_params *params, struct buf *out);
bool sampling_params_decode(struct str bytes, struct sampling_params *out, size_t *used,
                            struct err *err);

#endif
