/* `cascadia shard`: a model becomes a shard directory. `cascadia shard verify`: is it still one? */
#include "cli/command.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/team.h"
#include "shard/export.h"
#include "weights/weights.h"

struct shard_arguments {
    const char *model, *output, *quantization, *importance, *layer_split, *stage;
    uint32_t group_size, num_stages, threads;
    bool requantise, force, quiet;
};

static struct shard_arguments arguments;

static const struct option_row shard_rows[] = {
    OPTION_TEXT(struct shard_arguments, model, "model", "MODEL",
                "a GGUF file or a Hugging Face directory"),
    OPTION_TEXT(struct shard_arguments, output, "output", "DIR", "the shard directory to write"),
    OPTION_TEXT(struct shard_arguments, quantization, "quantization", "FORMAT",
                "int4, int4-asym, int8, f16, bf16 or f32 for the matrices of float models; what is "
                "quantised already stays as it is, unless --requantize says otherwise"),
    OPTION_U32(struct shard_arguments, group_size, "group-size", "32|64|128", 32, 128,
               "values that share a scale"),
    OPTION_BOOL(struct shard_arguments, requantise, "requantize",
                "quantises what a GGUF file has quantised again, at a further loss"),
    OPTION_TEXT(struct shard_arguments, importance, "importance", "FILE",
                "what `eval importance` measured: int4 weighs its errors by it"),
    OPTION_U32(struct shard_arguments, num_stages, "num-stages", "N", 0, SPLIT_STAGES_CAP,
               "cut the layers into N even stages (0: one, or as many as --layer-split says)"),
    OPTION_TEXT(struct shard_arguments, layer_split, "layer-split", "A,B,...",
                "the layers at which stages begin, instead of even ones"),
    OPTION_TEXT(struct shard_arguments, stage, "stage", "K",
                "write only the files that stage K (from 0) needs"),
    OPTION_U32(struct shard_arguments, threads, "threads", "N", 0, TEAM_THREADS_CAP,
               "threads (0: one a processor)"),
    OPTION_BOOL(struct shard_arguments, force, "force", "replace an existing shard"),
    OPTION_BOOL(struct shard_arguments, quiet, "quiet", "no progress"),
    OPTION_END,
};

static size_t shard_options(struct option_table *tables, size_t cap)
{
    must(cap >= 1);
    arguments = (struct shard_arguments){ .quantization = "int4", .group_size = 32 };
    tables[0] = (struct option_table){ .rows = shard_rows, .target = &arguments };
    return 1;
}

/* Set by the first SIGINT or SIGTERM; a second one ends the process at once. */
static atomic_bool is_interrupted;

static void interrupt(int number)
{
    atomic_store(&is_interrupted, true);
    signal(number, SIG_DFL);
}

static bool choose_split(uint32_t n_layers, struct split *split, struct err *err)
{
    uint32_t n_stages = arguments.num_stages;
    if (!arguments.layer_split)
        return split_even(n_layers, n_stages ? n_stages : 1, split, err);
    if (!split_parse(str_from(arguments.layer_split), n_layers, split, err))
        return false;
    if (n_stages && n_stages != split->n_stages)
        return err_set(err, ERR_ARGUMENT, "--layer-split gives %u stages, --num-stages says %u",
                       split->n_stages, n_stages);
    return true;
}

static bool choose_stage(const struct split *split, const char *text, uint32_t *stage,
                         struct err *err)
{
    uint64_t number;
    *stage = EXPORT_ALL_STAGES;
    if (!text)
        return true;
    if (!str_to_u64(str_from(text), &number) || number >= split->n_stages)
        return err_set(err, ERR_ARGUMENT, "--stage %s: stages are 0 to %u", text,
                       split->n_stages - 1);
    *stage = (uint32_t)number;
    return true;
}

static void print_report(const struct source *source, const struct export_options *options,
                         const struct export_report *report)
{
    const double mib = 1024.0 * 1024.0;
    printf("%s: %u layers in %u stage%s, %.1f MiB from %.1f MiB\n", arguments.output,
           source->config.n_layers, options->split.n_stages,
           options->split.n_stages == 1 ? "" : "s", (double)report->bytes / mib,
           (double)report->source_bytes / mib);
    if (report->relative_error_max > 0)
        printf("relative error of the matrices %.4f, at most %.4f (%s)\n", report->relative_error,
               report->relative_error_max, report->worst);
    else
        printf("every value equals the source\n");
}

static bool write_shard(const struct importance *importance, struct err *err)
{
    struct source source;
    struct export_report report;
    struct export_options options = {
        .threads = arguments.threads,
        .force = arguments.force,
        .quiet = arguments.quiet,
        .tool_version = CASCADIA_VERSION,
        .cancel = &is_interrupted,
    };
    if (!quantise_settings_parse(str_from(arguments.quantization), arguments.group_size,
                                 &options.quantise, err) ||
        !source_open(&source, arguments.model, err))
        return false;
    options.quantise.requantise = arguments.requantise;
    options.quantise.importance = importance;
    bool good = choose_split(source.config.n_layers, &options.split, err) &&
                choose_stage(&options.split, arguments.stage, &options.stage, err) &&
                export_shard(&source, arguments.output, &options, &report, err);
    if (good)
        print_report(&source, &options, &report);
    source_close(&source);
    return good;
}

static int shard_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 0, 1, &n_words))
        return 2;
    if (n_words && !arguments.model)
        arguments.model = words[0];
    if (!arguments.model || !arguments.output) {
        err_set(&err, ERR_ARGUMENT, "--model and --output are needed");
        return command_misused(command, &err);
    }
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    struct importance importance = { 0 };
    const bool good = arguments.importance
                          ? importance_read(&importance, arguments.importance, &err) &&
                                write_shard(&importance, &err)
                          : write_shard(NULL, &err);
    importance_release(&importance);
    return good ? 0 : command_failed(command, &err);
}

const struct command command_shard = {
    .name = "shard",
    .usage = "--model MODEL -o DIR [options]",
    .summary = "turn a model into a shard directory, cut into stages",
    .help =
        "A shard holds the model's weights in the layout that the kernels read in place, one file\n"
        "a layer: any range of layers can be served from it. `run` makes one by itself on first\n"
        "use; for several machines write it once and copy it, or only the files of each stage:\n\n"
        "  cascadia shard --model model.gguf -o model-shard --num-stages 2\n"
        "  cascadia shard --model model-dir -o stage1 --layer-split 10,20 --stage 1\n",
    .run = shard_run,
    .options = shard_options,
};

struct verify_arguments {
    const char *stage;
};

static struct verify_arguments verify_arguments;

static const struct option_row verify_rows[] = {
    OPTION_TEXT(struct verify_arguments, stage, "stage", "K",
                "only the files that stage K (from 0) needs"),
    OPTION_END,
};

static size_t verify_options(struct option_table *tables, size_t cap)
{
    must(cap >= 1);
    verify_arguments = (struct verify_arguments){ 0 };
    tables[0] = (struct option_table){ .rows = verify_rows, .target = &verify_arguments };
    return 1;
}

/* The layers of a stage; all files when none was named. */
static bool verify_range(const char *directory, struct weights_options *options, struct err *err)
{
    struct manifest manifest;
    struct split split = { 0 };
    uint32_t stage;
    options->any_layers = verify_arguments.stage == NULL;
    if (options->any_layers)
        return true;
    if (!manifest_read(&manifest, directory, err))
        return false;
    split.n_stages = (uint32_t)manifest.n_stages;
    bool good = choose_stage(&split, verify_arguments.stage, &stage, err);
    if (good) {
        options->layer_first = manifest.stages[stage].layer_first;
        options->layer_end = manifest.stages[stage].layer_end;
    }
    manifest_release(&manifest);
    return good;
}

/* Files beside the listed ones do no harm; they are worth a line. */
static void print_strangers(const struct weights *weights)
{
    char **names;
    size_t n_names;
    struct err ignored;
    if (!dir_list(weights_directory(weights), &names, &n_names, &ignored))
        return;
    for (size_t i = 0; i < n_names; i++)
        if (!str_is(STR(MANIFEST_NAME), names[i]) &&
            !manifest_find_file(weights_manifest(weights), names[i]))
            printf("%s is not part of the shard\n", names[i]);
    dir_list_free(names, n_names);
}

static void print_verified(const struct weights *weights)
{
    const struct manifest *manifest = weights_manifest(weights);
    double worst = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_count(weights); i++)
        bytes += weights_at(weights, i)->bytes;
    for (size_t f = 0; f < manifest->n_files; f++)
        for (size_t t = 0; t < manifest->files[f].n_tensors; t++)
            if (manifest->files[f].tensors[t].relative_error > worst)
                worst = manifest->files[f].tensors[t].relative_error;
    printf("%s: %zu tensors with %.1f MiB agree with their checksums\n", weights_directory(weights),
           weights_count(weights), (double)bytes / (1024.0 * 1024.0));
    printf("%.*s, %.*s, %u layers, largest relative error %.4f\n", STR_ARG(manifest->family),
           STR_ARG(manifest->quantization), manifest->n_layers, worst);
}

static int verify_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    struct weights_options options = { .check_always = true };
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    if (!verify_range(words[0], &options, &err))
        return command_failed(command, &err);
    struct weights *weights = weights_open(words[0], &options, &err);
    if (!weights)
        return command_failed(command, &err);
    print_verified(weights);
    print_strangers(weights);
    weights_close(weights);
    return 0;
}

const struct command command_shard_verify = {
    .name = "shard verify",
    .usage = "DIR [--stage K]",
    .summary = "read a whole shard and compare every checksum",
    .help =
        "Names the first file or tensor that is missing, cut short or damaged, and ends with 1.\n",
    .run = verify_run,
    .options = verify_options,
};
