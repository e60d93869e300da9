/* Golden models: folders with weights, prompts and the logits that transformers gives for them
 * (../shared/golden/README.md; small copies in tests/golden). */
#ifndef CASCADIA_TESTS_GOLDEN_H
#define CASCADIA_TESTS_GOLDEN_H

#include "engine/engine.h"

#include <stdbool.h>

struct golden_result {
    float worst;      // largest distance of a logit
    uint32_t n_rows;  // rows compared
    uint32_t n_wrong; // greedy ids that differ
};

/* A directory of its own under /tmp, and its removal with all that is in it. */
char *golden_make_directory(void);
void golden_remove_directory(char *directory);

/* Exports `source` (a Hugging Face directory or a GGUF file) as shard `to`. */
bool golden_export(const char *source, const char *format, const char *to, struct err *err);

/* Runs every prompt of `folder` on the shard and compares. `options` gives all but model and
 * context. Prompts stored as "cached" are passed over (docs/numerics.md, rule 5). */
bool golden_compare(const char *folder, const char *shard, const struct engine_options *options,
                    struct golden_result *result, struct err *err);

#endif
