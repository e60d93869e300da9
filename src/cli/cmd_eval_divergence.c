/* eval divergence: how far a model is from a reference, computed as llama-perplexity
 * --kl-divergence does: the reference ran once and its log-probabilities were kept (eval perplexity
 * --save); the same ids are run here, and row by row the two distributions are compared. Rows of a
 * step are shared by a team of their own: a vocabulary of them costs as much as some layers. */
#include "cli/command.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/progress.h"
#include "base/team.h"
#include "cli/divergence.h"
#include "cli/eval.h"
#include "cli/logits_file.h"

struct divergence_options {
    uint32_t windows;
    bool json, quiet;
};

static struct divergence_options options;
static struct eval_options shared;

static const struct option_row rows[] = {
    OPTION_U32(struct divergence_options, windows, "windows", "N", 0, UINT32_MAX,
               "run only the first N windows; 0: all"),
    OPTION_BOOL(struct divergence_options, json, "json", "one line of JSON instead of words"),
    OPTION_BOOL(struct divergence_options, quiet, "quiet", "no progress"),
    OPTION_END,
};

static size_t divergence_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1 + EVAL_TABLES);
    options = (struct divergence_options){ 0 };
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    eval_tables(tables + 1, &shared);
    return 1 + EVAL_TABLES;
}

struct comparing {
    const struct logits_file *reference;
    const struct vec_ops *vec;
    struct team *team;
    float *scratch; // [threads][2][vocab_size]: ln p and p of the reference
    struct divergence_row *rows;
    int32_t *ids;    // of the window
    uint32_t window; // which one
    /* what the team works on */
    uint32_t first; // row of the window that is logits' first
    const float *logits;
    atomic_bool is_lost;
};

static void compare_rows(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct comparing *comparing = context;
    const struct logits_shape *shape = &comparing->reference->shape;
    const size_t n = shape->vocab_size;
    float *const ln_p = comparing->scratch + 2 * n * thread, *const p = ln_p + n;
    for (uint32_t i = first; i < last; i++) {
        const uint32_t row = comparing->first + i;
        struct divergence_input input = {
            .ln_p = ln_p,
            .p = p,
            .logits = comparing->logits + n * i,
            .n = shape->vocab_size,
            .next = (uint32_t)comparing->ids[shape->first + row + 1],
        };
        const size_t at = (size_t)comparing->window * logits_shape_rows(shape) + row;
        if (!logits_file_row(comparing->reference, comparing->vec, comparing->window, row, ln_p, p,
                             &input.top) ||
            !divergence_measure(comparing->vec, &input, &comparing->rows[at]))
            atomic_store_explicit(&comparing->is_lost, true, memory_order_relaxed);
    }
}

static bool compare(void *context, uint32_t position, uint32_t n_rows, const float *logits,
                    struct err *err)
{
    struct comparing *comparing = context;
    const struct logits_shape *shape = &comparing->reference->shape;
    const uint32_t left = shape->window - 1 - position; // rows that something follows
    comparing->first = position - shape->first;
    comparing->logits = logits;
    team_for(comparing->team, n_rows < left ? n_rows : left, 1, compare_rows, comparing);
    return !atomic_load_explicit(&comparing->is_lost, memory_order_relaxed) ||
           err_set(err, ERR_FORMAT, "window %u: values are not finite", comparing->window);
}

static bool run_windows(struct eval *eval, struct comparing *comparing, uint32_t n_windows,
                        struct err *err)
{
    const struct logits_shape *shape = &comparing->reference->shape;
    struct progress progress;
    bool ok = true;
    progress_start(&progress, "divergence", "ids", (uint64_t)n_windows * shape->window,
                   options.quiet);
    for (uint32_t w = 0; ok && w < n_windows; w++) {
        comparing->window = w;
        ok = logits_file_ids(comparing->reference, w, comparing->ids, err) &&
             eval_run(eval, comparing->ids, shape->window, shape->first, compare, comparing, err);
        progress_add(&progress, shape->window);
    }
    progress_finish(&progress);
    return ok;
}

static void print_words(const struct divergence_summary *of, uint32_t n_windows, uint32_t window)
{
    printf("%u windows of %u ids, %zu counted\n", n_windows, window, of->n_rows);
    printf("perplexity  %.4f +- %.4f, of the reference %.4f +- %.4f, ratio %.5f +- %.5f\n",
           of->perplexity.value, of->perplexity.error, of->reference_perplexity.value,
           of->reference_perplexity.error, of->ratio.value, of->ratio.error);
    printf("divergence  %.6f +- %.6f nats, median %.6f, 99 %% %.6f, largest %.6f\n",
           of->divergence.value, of->divergence.error, of->divergence_median, of->divergence_99,
           of->divergence_max);
    printf("same first  %.3f %% +- %.3f\n", 100 * of->same_top.value, 100 * of->same_top.error);
}

static void print_json(const struct divergence_summary *of, uint32_t n_windows, uint32_t window)
{
    printf("{\"windows\":%u,\"window\":%u,\"counted\":%zu,", n_windows, window, of->n_rows);
    printf("\"perplexity\":[%.6f,%.6f],\"reference_perplexity\":[%.6f,%.6f],\"ratio\":[%.7f,%.7f],",
           of->perplexity.value, of->perplexity.error, of->reference_perplexity.value,
           of->reference_perplexity.error, of->ratio.value, of->ratio.error);
    printf("\"divergence\":[%.8f,%.8f],\"divergence_median\":%.8f,\"divergence_99\":%.8f,"
           "\"divergence_max\":%.8f,\"same_top\":[%.6f,%.6f]}\n",
           of->divergence.value, of->divergence.error, of->divergence_median, of->divergence_99,
           of->divergence_max, of->same_top.value, of->same_top.error);
}

static bool print_summary(const struct divergence_summary *summary, uint32_t n_windows,
                          uint32_t window, struct err *err)
{
    if (options.json)
        print_json(summary, n_windows, window);
    else
        print_words(summary, n_windows, window);
    return (fflush(stdout) == 0 && !ferror(stdout)) ||
           err_set_errno(err, "cannot write the figures");
}

static bool compare_all(struct eval *eval, const struct logits_file *reference, struct err *err)
{
    const struct logits_shape *shape = &reference->shape;
    const uint32_t n_windows = options.windows != 0 && options.windows < shape->n_windows
                                   ? options.windows
                                   : shape->n_windows;
    const size_t n_rows = (size_t)n_windows * logits_shape_rows(shape);
    struct divergence_summary summary;
    if (eval->vocab_size != shape->vocab_size)
        return err_set(err, ERR_ARGUMENT, "the model knows %u ids, the reference %u",
                       eval->vocab_size, shape->vocab_size);
    struct comparing comparing = { .reference = reference, .vec = kernel_best()->vec };
    comparing.team = team_new(shared.engine.threads, err);
    if (comparing.team == NULL)
        return false;
    comparing.scratch =
        xcalloc((size_t)team_threads(comparing.team) * 2 * shape->vocab_size, sizeof(float));
    comparing.rows = xcalloc(n_rows, sizeof(*comparing.rows));
    comparing.ids = xcalloc(shape->window, sizeof(*comparing.ids));
    const bool ok = run_windows(eval, &comparing, n_windows, err);
    if (ok)
        divergence_summarise(comparing.rows, n_rows, &summary);
    team_free(comparing.team);
    free(comparing.scratch);
    free(comparing.rows);
    free(comparing.ids);
    return ok && print_summary(&summary, n_windows, shape->window, err);
}

static bool evaluate(const char *model, const char *path, struct err *err)
{
    struct logits_file reference;
    struct eval *eval = xcalloc(1, sizeof(*eval));
    bool ok = logits_file_open(&reference, path, err);
    if (ok) {
        ok = eval_open(eval, model, &shared, reference.shape.window, err) &&
             compare_all(eval, &reference, err);
        logits_file_close(&reference);
    }
    eval_close(eval);
    free(eval);
    return ok;
}

static int divergence_run(const struct command *command, int argc, char **argv)
{
    const char *words[2];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 2, 2, &n_words))
        return 2;
    return evaluate(words[0], words[1], &err) ? 0 : command_failed(command, &err);
}

const struct command command_eval_divergence = {
    .name = "eval divergence",
    .usage = "MODEL REFERENCE [options]",
    .summary = "measure how far a model's answers are from a reference's",
    .help = "REFERENCE is what `eval perplexity --save` kept of another model, or of the same one\n"
            "computed otherwise. Printed are the perplexities of both and their ratio; the\n"
            "Kullback-Leibler divergence of the model from the reference (mean, median, the\n"
            "quantile of 99 %, the largest), as llama-perplexity --kl-divergence has it; and how\n"
            "often both find the same id most likely.\n\n"
            "  cascadia eval perplexity model.gguf text.txt --quantization f32 --save reference\n"
            "  cascadia eval divergence model.gguf reference\n",
    .run = divergence_run,
    .options = divergence_tables,
};
