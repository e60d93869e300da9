/* eval importance: which columns of a model's matrices matter, for the quantiser. The model runs
 * over a text with float weights, and of everything that a matrix is multiplied with the mean
 * square is kept, column by column. What llama.cpp calls an importance matrix. */
#include "cli/command.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/progress.h"
#include "cli/eval.h"
#include "model/model.h"
#include "shard/importance.h"
#include "text/tokenizer.h"
#include "weights/manifest.h"

/* Columns that the text never used may be used by another: none counts less than this share of the
 * mean. */
#define FLOOR 0.01

struct importance_options {
    const char *output;
    uint32_t window, windows;
    bool quiet;
};

static struct importance_options options;
static struct eval_options shared;

static const struct option_row rows[] = {
    OPTION_TEXT(struct importance_options, output, "output", "FILE.json", "where it goes"),
    OPTION_U32(struct importance_options, window, "window", "N", 4, 1 << 20,
               "ids that are run from an empty cache"),
    OPTION_U32(struct importance_options, windows, "windows", "N", 0, UINT32_MAX,
               "run only the first N windows; 0: all"),
    OPTION_BOOL(struct importance_options, quiet, "quiet", "no progress"),
    OPTION_END,
};

static size_t importance_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1 + EVAL_TABLES);
    options = (struct importance_options){ .window = 512, .windows = 64 };
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    eval_tables(tables + 1, &shared);
    shared.source.quantization = "f32";
    return 1 + EVAL_TABLES;
}

struct measuring {
    struct importance importance; // vectors as they are first seen
    double **sums;                // [vectors][cols] of squares
    uint64_t *n_rows;             // [vectors]
};

static void see(void *context, uint32_t layer, enum tensor_role role, const float *x,
                uint32_t n_rows, uint32_t cols)
{
    struct measuring *measuring = context;
    struct importance_vector *vector = importance_find(&measuring->importance, layer, role);
    if (vector == NULL)
        return; // the head
    const size_t at = (size_t)(vector - measuring->importance.vectors);
    if (vector->values == NULL) {
        vector->cols = cols;
        vector->values = xcalloc(cols, sizeof(*vector->values));
        measuring->sums[at] = xcalloc(cols, sizeof(double));
    }
    must(vector->cols == cols);
    measuring->n_rows[at] += n_rows;
    for (; n_rows > 0; n_rows--, x += cols) {
        for (uint32_t i = 0; i < cols; i++)
            measuring->sums[at][i] += (double)x[i] * (double)x[i];
    }
}

static void take_means(struct measuring *measuring)
{
    const size_t n_vectors = (size_t)measuring->importance.n_layers * IMPORTANCE_INPUT_COUNT;
    for (size_t at = 0; at < n_vectors; at++) {
        struct importance_vector *vector = &measuring->importance.vectors[at];
        double sum = 0;
        must(vector->values != NULL);
        for (uint32_t i = 0; i < vector->cols; i++)
            sum += measuring->sums[at][i];
        const double floor = FLOOR * sum / vector->cols;
        for (uint32_t i = 0; i < vector->cols; i++) {
            const double of = measuring->sums[at][i];
            vector->values[i] = (float)((of > floor ? of : floor) / (double)measuring->n_rows[at]);
        }
    }
}

static bool run_windows(struct eval *eval, const struct token_list *text, int32_t bos,
                        struct err *err)
{
    const uint32_t window = options.window;
    size_t n_windows = text->n_ids / window;
    if (n_windows == 0)
        return err_set(err, ERR_ARGUMENT, "%zu ids are less than a window of %u", text->n_ids,
                       window);
    if (options.windows != 0 && options.windows < n_windows)
        n_windows = options.windows;
    int32_t *ids = xcalloc(window, sizeof(*ids));
    struct progress progress;
    bool ok = true;
    progress_start(&progress, "importance", "ids", n_windows * window, options.quiet);
    for (size_t w = 0; ok && w < n_windows; w++) {
        for (uint32_t i = 0; i < window; i++)
            ids[i] = (int32_t)text->ids[w * window + i];
        ids[0] = bos >= 0 ? bos : ids[0];
        ok = eval_run(eval, ids, window, 0, NULL, NULL, err);
        progress_add(&progress, window);
    }
    progress_finish(&progress);
    free(ids);
    return ok;
}

static bool measure(const char *model, const struct token_list *text, int32_t bos, struct err *err)
{
    struct eval *eval = xcalloc(1, sizeof(*eval));
    struct measuring measuring = { 0 };
    const struct model_observer observer = { .context = &measuring, .see = see };
    shared.observer = &observer;
    bool ok = eval_open(eval, model, &shared, options.window, err);
    if (ok) {
        importance_init(&measuring.importance, eval->infos[0].n_layers);
        const size_t n_vectors = (size_t)eval->infos[0].n_layers * IMPORTANCE_INPUT_COUNT;
        measuring.sums = xcalloc(n_vectors, sizeof(*measuring.sums));
        measuring.n_rows = xcalloc(n_vectors, sizeof(*measuring.n_rows));
        ok = run_windows(eval, text, bos, err);
        if (ok)
            take_means(&measuring);
        ok = ok && importance_write(&measuring.importance, options.output, err);
        for (size_t i = 0; i < n_vectors; i++)
            free(measuring.sums[i]);
    }
    eval_close(eval);
    free(eval);
    free(measuring.sums);
    free(measuring.n_rows);
    importance_release(&measuring.importance);
    return ok;
}

static int importance_run(const struct command *command, int argc, char **argv)
{
    const char *words[2];
    size_t n_words;
    struct token_list text;
    struct err err;
    int32_t bos;
    if (!command_parse(command, argc, argv, words, 2, 2, &n_words))
        return 2;
    if (options.output == NULL) {
        err_set(&err, ERR_ARGUMENT, "--output is needed");
        return command_misused(command, &err);
    }
    token_list_init(&text, TOKENIZER_TEXT_BYTES_CAP + 64);
    const bool ok = eval_read_text(words[0], words[1], &text, &bos, &err) &&
                    measure(words[0], &text, bos, &err);
    token_list_release(&text);
    return ok ? 0 : command_failed(command, &err);
}

const struct command command_eval_importance = {
    .name = "eval importance",
    .usage = "MODEL TEXTFILE -o FILE.json [options]",
    .summary = "measure which columns of the matrices matter, for shard --importance",
    .help =
        "Runs the model with float weights over windows of a text and keeps the mean square of\n"
        "what each matrix is multiplied with. A quantiser that weighs its errors by that loses\n"
        "much less (docs/accuracy.md). Some tens of windows of any text like that which the\n"
        "model will see are enough.\n\n"
        "  cascadia eval importance model text.txt -o importance.json\n"
        "  cascadia shard --model model -o model-shard --importance importance.json\n",
    .run = importance_run,
    .options = importance_tables,
};
