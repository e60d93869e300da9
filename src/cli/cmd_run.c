/* run: one model, one process, one API. What `worker` does over several machines, with a pipeline
 * of one stage. */
#include <stdlib.h>

#include "cli/command.h"
#include "cli/engine_choice.h"
#include "cli/model_path.h"
#include "cli/serve.h"

static struct run_options {
    struct serve_options serve;
    struct engine_choice engine;
    struct model_path_options source;
    bool insecure;
} chosen;

static const struct option_row insecure_rows[] = {
    OPTION_BOOL(struct run_options, insecure, "insecure",
                "allows a --host beyond this machine, in the clear"),
    OPTION_END,
};

static size_t run_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 5);
    chosen = (struct run_options){ 0 };
    serve_options_init(&chosen.serve);
    tables[0] = (struct option_table){ "the API", serve_rows, &chosen.serve };
    tables[1] = (struct option_table){ .rows = insecure_rows, .target = &chosen };
    tables[2] = (struct option_table){ "the model", model_path_rows, &chosen.source };
    tables[3] = (struct option_table){ "the engine", engine_choice_serve_rows, &chosen.engine };
    tables[4] = (struct option_table){ "computing", engine_choice_compute_rows, &chosen.engine };
    return 5;
}

static int run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err = { 0 };

    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    struct pipeline_options pipeline = { .total = 1, .insecure = chosen.insecure };
    const struct engine_ops *engine;
    if (chosen.engine.engine == NULL)
        chosen.engine.engine = model_path_engine(words[0]);
    engine_choice_take(&chosen.engine, &pipeline.engine);
    if (!engine_find(&pipeline.engine, &engine, &err))
        return command_failed(command, &err);
    const bool is_file = engine != &engine_mock;
    chosen.source.threads = chosen.engine.threads;
    char *const shard = is_file ? model_path_shard(words[0], &chosen.source, &err) : NULL;
    if (is_file && shard == NULL)
        return command_failed(command, &err);
    char *const record = is_file ? model_path_record(&err) : NULL; // NULL: checked at each open
    pipeline.engine.model = is_file ? shard : words[0];
    pipeline.engine.record_dir = record;
    const bool good = serve(&chosen.serve, &pipeline, words[0], &err);
    free(record);
    free(shard);
    return good ? 0 : command_failed(command, &err);
}

const struct command command_run = {
    .name = "run",
    .usage = "MODEL [options]",
    .summary = "serve a model on this machine, in one process",
    .help =
        "MODEL is a GGUF file, a Hugging Face directory or a shard directory (cascadia shard).\n"
        "The first two are quantised on first use into ~/.cache/cascadia/shards. mock-model says\n"
        "the last message back and needs no file.\n"
        "\n"
        "  cascadia run SmolLM2-135M-Instruct.Q4_1.gguf\n"
        "  cascadia run ./Qwen3-0.6B --port 8080 --ctx-size 4096\n"
        "  cascadia run mock-model\n"
        "\n"
        "SIGINT or SIGTERM stops it: running requests may finish within --drain-timeout; a second\n"
        "one ends it at once.\n",
    .run = run,
    .options = run_tables,
};
