/* Stages are engines over ranges of layers, and what one gives the next takes: the carry of the
 * pipeline without its links. Logits are wanted in chunks of few rows, because a row of them is as
 * long as the vocabulary. */
#include "cli/eval.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/model_path.h"
#include "shard/split.h"
#include "shard/tokenizer_source.h"
#include "text/tokenizer.h"
#include "weights/manifest.h"

#define EVAL_ROWS 128u

static const struct option_row rows[] = {
    OPTION_U32(struct eval_options, stages, "stages", "N", 1, EVAL_STAGES_CAP,
               "cut the layers into N even stages; the result is the same"),
    OPTION_END,
};

void eval_tables(struct option_table tables[EVAL_TABLES], struct eval_options *options)
{
    *options = (struct eval_options){ .stages = 1 };
    tables[0] = (struct option_table){ "the model", model_path_rows, &options->source };
    tables[1] = (struct option_table){ "computing", engine_choice_compute_rows, &options->engine };
    tables[2] = (struct option_table){ .rows = rows, .target = options };
}

static char *find_shard(const char *model, const struct eval_options *options, struct err *err)
{
    struct model_path_options path = options->source;
    path.threads = options->engine.threads;
    return model_path_shard(model, &path, err);
}

static bool read_split(const char *shard, uint32_t n_stages, struct split *split, struct err *err)
{
    struct manifest manifest;
    if (!manifest_read(&manifest, shard, err))
        return false;
    const bool ok = split_even(manifest.n_layers, n_stages, split, err);
    manifest_release(&manifest);
    return ok;
}

static bool open_stage(struct eval *eval, const struct engine_options *options, struct err *err)
{
    const uint32_t stage = eval->n_stages;
    struct engine_info *info = &eval->infos[stage];
    if (!engine_open(&eval->engines[stage], options, info, err))
        return false;
    eval->n_stages++;
    const size_t width = engine_is_last(info) ? info->vocab_size : info->carry;
    return batch_init(&eval->outputs[stage], info->max_rows, info->max_rows * width, err);
}

static bool open_stages(struct eval *eval, const char *shard, const char *record_dir,
                        const struct eval_options *options, uint32_t n_positions, struct err *err)
{
    struct split *split = xcalloc(1, sizeof(*split));
    struct engine_options engine = {
        .model = shard,
        .record_dir = record_dir,
        .max_rows = EVAL_ROWS,
    };
    engine_choice_take(&options->engine, &engine);
    engine.engine = "native";
    engine.observer = options->observer;
    engine.max_sequences = 1;
    if (engine.ctx_size == 0)
        engine.ctx_size = n_positions;
    bool ok = read_split(shard, options->stages, split, err);
    for (uint32_t stage = 0; ok && stage < split->n_stages; stage++) {
        engine.layer_first = split->stages[stage].layer_first;
        engine.layer_end = split->stages[stage].layer_end;
        ok = open_stage(eval, &engine, err);
    }
    free(split);
    return ok && batch_init(&eval->input, EVAL_ROWS, 0, err);
}

bool eval_open(struct eval *eval, const char *model, const struct eval_options *options,
               uint32_t n_positions, struct err *err)
{
    *eval = (struct eval){ 0 };
    char *shard = find_shard(model, options, err);
    char *record_dir = shard != NULL ? model_path_record(err) : NULL;
    const bool ok =
        record_dir != NULL && open_stages(eval, shard, record_dir, options, n_positions, err);
    free(shard);
    free(record_dir);
    if (!ok) {
        eval_close(eval);
        return false;
    }
    eval->vocab_size = eval->infos[0].vocab_size;
    eval->ctx_size = eval->infos[0].ctx_size;
    return true;
}

void eval_close(struct eval *eval)
{
    for (uint32_t stage = 0; stage < EVAL_STAGES_CAP; stage++) {
        engine_close(&eval->engines[stage]);
        batch_release(&eval->outputs[stage]);
    }
    batch_release(&eval->input);
    *eval = (struct eval){ 0 };
}

static bool check_ids(const struct eval *eval, const int32_t *ids, uint32_t n_ids, struct err *err)
{
    if (n_ids > eval->ctx_size) {
        return err_set(err, ERR_ARGUMENT, "%u ids do not fit a context of %u", n_ids,
                       eval->ctx_size);
    }
    for (uint32_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= eval->vocab_size) {
            return err_set(err, ERR_ARGUMENT, "item %u is no id of this vocabulary (0 to %u): %d",
                           i, eval->vocab_size - 1, ids[i]);
        }
    }
    return true;
}

static const struct batch *run_stages(struct eval *eval, struct err *err)
{
    const struct batch *at = &eval->input;
    for (uint32_t stage = 0; stage < eval->n_stages; stage++) {
        struct engine *engine = &eval->engines[stage];
        if (!engine->ops->step(engine, at, &eval->outputs[stage], err))
            return NULL;
        at = &eval->outputs[stage];
    }
    return at;
}

bool eval_run(struct eval *eval, const int32_t *ids, uint32_t n_ids, uint32_t first,
              eval_sink *sink, void *context, struct err *err)
{
    if (!check_ids(eval, ids, n_ids, err))
        return false;
    for (uint32_t from = 0; from < n_ids; from += eval->input.n_rows) {
        const uint32_t left = n_ids - from;
        eval->input.id++;
        eval->input.n_rows = left < EVAL_ROWS ? left : EVAL_ROWS;
        for (uint32_t row = 0; row < eval->input.n_rows; row++) {
            eval->input.rows[row] = (struct row){
                .position = from + row,
                .token = ids[from + row],
                .flags = from + row >= first ? ROW_LOGITS : 0,
            };
        }
        const struct batch *out = run_stages(eval, err);
        if (out == NULL)
            return false;
        const uint32_t position = from + eval->input.n_rows - out->n_logits;
        if (sink != NULL && out->n_logits > 0 &&
            !sink(context, position, out->n_logits, out->values, err))
            return false;
    }
    return true;
}

bool eval_read_text(const char *model, const char *path, struct token_list *ids, int32_t *bos,
                    struct err *err)
{
    struct tokenizer *tokenizer = tokenizer_source_load(model, err);
    struct buf text;
    uint32_t first;
    if (tokenizer == NULL)
        return false;
    buf_init(&text, TOKENIZER_TEXT_BYTES_CAP);
    bool ok = file_read(path, &text, err);
    if (ok) {
        const struct tokenizer_segment segment = { .text = buf_view(&text) };
        const struct tokenizer_encode_options how = { .add_special = true };
        ok = tokenizer_encode(tokenizer, &segment, 1, &how, ids, err);
    }
    const bool has_bos =
        ok && ids->n_ids > 0 && tokenizer_bos(tokenizer, &first) && ids->ids[0] == first;
    *bos = has_bos ? (int32_t)first : -1;
    buf_release(&text);
    tokenizer_free(tokenizer);
    return ok;
}
