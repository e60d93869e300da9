/* What an answer may say: a compiled grammar, where an answer is in it, and which tokens can come
 * next.
 *
 * The text of a grammar travels with a request's parameters; where the answer is follows from its
 * ids alone, so a request can move to another stage or be computed again. End-of-generation tokens
 * are allowed where the text may end, and only there. A text never gets stuck: every state that
 * can be reached goes on to an end, token by token.
 *
 * A grammar remembers the masks it has computed, for whoever asks next: it belongs to one thread at
 * a time (the last stage's). grammar_check is pure. */
#ifndef CASCADIA_SAMPLE_GRAMMAR_H
#define CASCADIA_SAMPLE_GRAMMAR_H

#include "base/err.h"
#include "base/str.h"
#include "sample/sampling_params.h"
#include "sample/token_trie.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_DEPTH_CAP 1000u             // frames: how deep a text may nest
#define GRAMMAR_CONFIGS_CAP 256u            // readings of one text that are followed at a time
#define GRAMMAR_STEPS_CAP (1u << 24)        // of one mask
#define GRAMMAR_CACHE_BYTES_CAP (96u << 20) // of masks

struct grammar;

/* Whether it compiles: ERR_ARGUMENT or ERR_UNSUPPORTED, with a sentence for whoever wrote it. */
bool grammar_check(const struct sampling_grammar *source, struct err *err);

/* `trie` is borrowed until grammar_free. NULL on failure. */
struct grammar *grammar_new(const struct sampling_grammar *source, const struct token_trie *trie,
                            struct err *err);
void grammar_free(struct grammar *grammar); // NULL is fine

/* One way to read the text so far. */
struct grammar_config {
    uint32_t state, count, stack;
};

/* Where an answer is. Plain data of one owner; zeroed is "nowhere yet", and it holds no memory. */
struct grammar_place {
    uint32_t n_ids;      // of the answer that have been read
    uint32_t generation; // of the grammar's memory that the configs speak of; 0: none
    bool has_ended;      // the last id was an end-of-generation token
    uint32_t n_configs;
    struct grammar_config configs[GRAMMAR_CONFIGS_CAP];
};

/* Makes `place` that of the answer ids[0..n_ids): goes on from where it is, or begins anew. The ids
 * it has read before must be the same. ERR_BATCH_LOST: an id that the grammar does not allow;
 * ERR_UNSUPPORTED: a ceiling. After a failure the place is nowhere. */
bool grammar_follow(struct grammar *grammar, struct grammar_place *place, const int32_t *ids,
                    uint32_t n_ids, struct err *err);

/* The tokens that may come next: bit id of words[id / 64]; [vocab_size] bits, valid until the next
 * call. NULL and ERR_UNSUPPORTED: a ceiling. */
const uint64_t *grammar_mask(struct grammar *grammar, const struct grammar_place *place,
                             struct err *err);

/* The text may end here. */
bool grammar_may_end(const struct grammar *grammar, const struct grammar_place *place);

/* About how many bytes are missing at least until it may end. For tests: a way out of texts that
 * random choices would go on for ever. */
uint32_t grammar_left_bytes(const struct grammar *grammar, const struct grammar_place *place);

#endif
