/* What the eval commands share: a model of any kind, opened as one or more stages in this process,
 * and texts of ids run through it. One thread. */
#ifndef CASCADIA_CLI_EVAL_H
#define CASCADIA_CLI_EVAL_H

#include "base/err.h"
#include "base/option.h"
#include "cli/engine_choice.h"
#include "cli/model_path.h"
#include "engine/engine.h"
#include "text/token_list.h"

#include <stdbool.h>
#include <stdint.h>

#define EVAL_STAGES_CAP 64u

struct eval_options {
    struct model_path_options source;
    uint32_t stages;
    struct engine_choice engine;           // its context 0: as long as the text
    const struct model_observer *observer; // of what matrices are multiplied with; NULL: none
};

#define EVAL_TABLES 3u // that eval_tables fills

/* The tables of `options`, which gets its defaults. */
void eval_tables(struct option_table tables[EVAL_TABLES], struct eval_options *options);

struct eval {
    struct engine engines[EVAL_STAGES_CAP];
    struct engine_info infos[EVAL_STAGES_CAP];
    struct batch outputs[EVAL_STAGES_CAP];
    struct batch input;
    uint32_t n_stages;
    uint32_t vocab_size, ctx_size;
};

/* `model`: a GGUF file, a Hugging Face directory or a shard directory; the first two become a shard
 * in the user's cache. n_positions: the context when the options name none. */
bool eval_open(struct eval *eval, const char *model, const struct eval_options *options,
               uint32_t n_positions, struct err *err);
void eval_close(struct eval *eval); // zeroed values are fine

/* Takes the logits [n_rows][vocab_size] of positions from `position` on; false and `err` to stop.
 */
typedef bool eval_sink(void *context, uint32_t position, uint32_t n_rows, const float *logits,
                       struct err *err);

/* Runs ids[n_ids] as a text of its own and hands the logits of positions from `first` on to `sink`,
 * some at a time, in order (NULL: to nobody). ERR_ARGUMENT: an id that is not one, or more ids than
 * the context. */
bool eval_run(struct eval *eval, const int32_t *ids, uint32_t n_ids, uint32_t first,
              eval_sink *sink, void *context, struct err *err);

/* The ids of a text file; *bos is the id that begins every window of it, or -1. */
bool eval_read_text(const char *model, const char *path, struct token_list *ids, int32_t *bos,
                    struct err *err);

#endif
