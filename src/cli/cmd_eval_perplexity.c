/* eval perplexity: how well a model foretells a text, computed as llama-perplexity does, so that
 * the two can be compared: the text is cut into windows, each is run from an empty cache, its first
 * id replaced by BOS where the model begins texts with one, and the second half of its ids counts.
 */
#include "cli/command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/progress.h"
#include "cli/eval.h"
#include "cli/logits_file.h"
#include "text/tokenizer.h"

struct perplexity_options {
    const char *save;
    uint32_t window, windows;
    bool quiet;
};

static struct perplexity_options options;
static struct eval_options shared;

static const struct option_row rows[] = {
    OPTION_U32(struct perplexity_options, window, "window", "N", 4, LOGITS_WINDOW_CAP,
               "ids of a window; the second half of each is counted"),
    OPTION_U32(struct perplexity_options, windows, "windows", "N", 0, UINT32_MAX,
               "run only the first N windows; 0: all"),
    OPTION_TEXT(struct perplexity_options, save, "save", "FILE",
                "keep the log-probabilities of what is counted, two bytes a value, for `eval "
                "divergence`"),
    OPTION_BOOL(struct perplexity_options, quiet, "quiet", "no progress"),
    OPTION_END,
};

static size_t perplexity_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1 + EVAL_TABLES);
    options = (struct perplexity_options){ .window = 512 };
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    eval_tables(tables + 1, &shared);
    return 1 + EVAL_TABLES;
}

struct counting {
    const int32_t *ids; // of the window
    uint32_t n_ids, vocab_size;
    double loss; // sum of -ln p
    double loss_squared;
    uint64_t n_counted;
    const struct vec_ops *vec;
    struct logits_writer *saved; // NULL: nothing is kept
};

static bool count_rows(void *context, uint32_t position, uint32_t n_rows, const float *logits,
                       struct err *err)
{
    struct counting *counting = context;
    for (; n_rows > 0; n_rows--, position++, logits += counting->vocab_size) {
        if (position + 1 == counting->n_ids)
            return true; // nothing follows it in the window
        const double loss = logits_log_sum(counting->vec, logits, counting->vocab_size) -
                            (double)logits[counting->ids[position + 1]];
        counting->loss += loss;
        counting->loss_squared += loss * loss;
        counting->n_counted++;
        if (counting->saved != NULL && !logits_writer_row(counting->saved, logits, err))
            return false;
    }
    return true;
}

static bool run_windows(struct eval *eval, const struct token_list *text, int32_t bos,
                        size_t n_windows, struct counting *counting, struct err *err)
{
    const uint32_t window = options.window;
    int32_t *ids = xcalloc(window, sizeof(*ids));
    struct progress progress;
    bool ok = true;
    counting->ids = ids;
    progress_start(&progress, "perplexity", "ids", n_windows * window, options.quiet);
    for (size_t w = 0; ok && w < n_windows; w++) {
        for (uint32_t i = 0; i < window; i++)
            ids[i] = (int32_t)text->ids[w * window + i];
        ids[0] = bos >= 0 ? bos : ids[0];
        ok = (counting->saved == NULL || logits_writer_ids(counting->saved, ids, err)) &&
             eval_run(eval, ids, window, window / 2, count_rows, counting, err);
        progress_add(&progress, window);
    }
    progress_finish(&progress);
    free(ids);
    return ok;
}

static bool run_text(struct eval *eval, const struct token_list *text, int32_t bos,
                     size_t n_windows, struct counting *counting, struct err *err)
{
    struct logits_writer writer;
    const struct logits_shape shape = {
        .vocab_size = eval->vocab_size,
        .window = options.window,
        .first = options.window / 2,
        .n_windows = (uint32_t)n_windows,
    };
    *counting = (struct counting){
        .n_ids = options.window,
        .vocab_size = eval->vocab_size,
        .vec = kernel_best()->vec,
        .saved = options.save != NULL ? &writer : NULL,
    };
    if (options.save != NULL && !logits_writer_open(&writer, options.save, &shape, err))
        return false;
    const bool ok = run_windows(eval, text, bos, n_windows, counting, err);
    if (options.save == NULL)
        return ok;
    if (ok)
        return logits_writer_close(&writer, err);
    logits_writer_abandon(&writer);
    return false;
}

static bool print_result(const struct counting *counting, size_t n_windows, struct err *err)
{
    const double n = (double)counting->n_counted;
    const double mean = counting->loss / n;
    const double variance = counting->loss_squared / n - mean * mean;
    printf("%zu windows of %u ids, %llu counted, standard error %.4f\nperplexity %.4f\n", n_windows,
           options.window, (unsigned long long)counting->n_counted,
           exp(mean) * sqrt(variance > 0 && n > 1 ? variance / (n - 1) : 0), exp(mean));
    return (fflush(stdout) == 0 && !ferror(stdout)) ||
           err_set_errno(err, "cannot write the figure");
}

static bool evaluate(const char *model, const char *path, struct err *err)
{
    struct token_list text;
    struct counting counting;
    int32_t bos;
    struct eval *eval = xcalloc(1, sizeof(*eval));
    token_list_init(&text, TOKENIZER_TEXT_BYTES_CAP + 64);
    bool ok = eval_read_text(model, path, &text, &bos, err);
    if (ok && text.n_ids < options.window) {
        ok = err_set(err, ERR_ARGUMENT, "%s has %zu ids: less than a window of %u", path,
                     text.n_ids, options.window);
    }
    size_t n_windows = text.n_ids / options.window;
    if (options.windows != 0 && options.windows < n_windows)
        n_windows = options.windows;
    ok = ok && eval_open(eval, model, &shared, options.window, err) &&
         run_text(eval, &text, bos, n_windows, &counting, err) &&
         print_result(&counting, n_windows, err);
    eval_close(eval);
    free(eval);
    token_list_release(&text);
    return ok;
}

static int perplexity_run(const struct command *command, int argc, char **argv)
{
    const char *words[2];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 2, 2, &n_words))
        return 2;
    return evaluate(words[0], words[1], &err) ? 0 : command_failed(command, &err);
}

const struct command command_eval_perplexity = {
    .name = "eval perplexity",
    .usage = "MODEL TEXTFILE [--window 512] [options]",
    .summary = "measure how well a model foretells a text",
    .help =
        "Windows of the text are run each from an empty cache, BOS first where the model has\n"
        "one; the second half of each is counted, as llama-perplexity does. The last line ends\n"
        "with the figure.\n\n"
        "  cascadia eval perplexity model.gguf text.txt\n"
        "  cascadia eval perplexity model.gguf text.txt --quantization f32 --save reference\n",
    .run = perplexity_run,
    .options = perplexity_tables,
};
