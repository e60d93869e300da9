/* bench model: how fast the native engine runs a model here, without server, sampler and network,
 * and which share of the machine's limit that is.
 *
 * With --decode it measures in rounds instead, a JSON line each, so that a comparison can take
 * turns with another program, round by round. `bench MODEL` is the same command. */
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/bench_report.h"
#include "bench/model_bench.h"
#include "bench/model_feed.h"
#include "bench/noise.h"
#include "cli/command.h"
#include "cli/engine_choice.h"
#include "cli/model_path.h"
#include "engine/engine.h"
#include "kernel/kernel.h"
#include "model/profile.h"

#include <stdio.h>
#include <stdlib.h>

#define REPORT_CAP ((size_t)1 << 20)
#define NOISE_MS 100u
#define LENGTH_CAP 1048576u
#define BATCH_CAP 512u
#define DECODE_CAP 65536u
#define ROUNDS_DEFAULT 3u

struct model_options {
    const char *prefill, *depth, *batch, *decode;
    uint32_t rounds;
    double seconds;
    bool json, profile;
    struct engine_choice engine;
    struct model_path_options source;
};

static struct model_options chosen;

static const struct option_row rows[] = {
    OPTION_TEXT(struct model_options, prefill, "prefill", "LIST",
                "rows of a prompt, with commas; else 128,512,2048"),
    OPTION_TEXT(struct model_options, depth, "depth", "LIST",
                "rows in the context before decode starts; else 0,512,4096,16384"),
    OPTION_TEXT(struct model_options, batch, "batch", "LIST",
                "sequences that decode together; else 1,4,16"),
    OPTION_DOUBLE(struct model_options, seconds, "seconds", "S", 0.1, 3600,
                  "at most, for each number of threads; filling contexts not counted"),
    OPTION_U32(struct model_options, rounds, "rounds", "N", 0, 1000,
               "of each row, whatever it takes; 0: as the seconds allow"),
    OPTION_TEXT(
        struct model_options, decode, "decode", "N",
        "instead of the table: rounds of one prefill, then N steps (or 0) of one row behind "
        "one depth, a JSON line each"),
    OPTION_BOOL(struct model_options, profile, "profile",
                "with --decode: ends with where the time of the steps went, loop by loop"),
    OPTION_BOOL(struct model_options, json, "json", "one JSON document instead of the table"),
    OPTION_END,
};

static size_t model_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 3);
    chosen = (struct model_options){ .seconds = 10 };
    tables[0] = (struct option_table){ "options", rows, &chosen };
    tables[1] = (struct option_table){ "computing", engine_choice_compute_rows, &chosen.engine };
    tables[2] =
        (struct option_table){ "of a source that is no shard", model_path_rows, &chosen.source };
    return 3;
}

/* ---- the command line ---- */

static bool parse_list(const char *name, const char *text, uint32_t low, uint32_t cap,
                       struct model_bench_list *out, struct err *err)
{
    struct model_bench_list list = { 0 };
    struct str rest = str_from(text), word;
    while (str_split(&rest, ',', &word)) {
        uint64_t value;
        if (!str_to_u64(word, &value) || value < low || value > cap)
            return err_set(err, ERR_ARGUMENT, "--%s %s: numbers from %u to %u with commas", name,
                           text, low, cap);
        if (list.n_values == MODEL_BENCH_LIST_CAP)
            return err_set(err, ERR_ARGUMENT, "--%s %s: at most %u numbers", name, text,
                           MODEL_BENCH_LIST_CAP);
        list.values[list.n_values++] = (uint32_t)value;
    }
    *out = list;
    return true;
}

static bool parse_lists(struct model_bench_options *options, uint32_t *decode, struct err *err)
{
    const bool in_rounds = chosen.decode != NULL;
    const char *const prefill = in_rounds ? "512" : "128,512,2048";
    const char *const depth = in_rounds ? "0" : "0,512,4096,16384";
    const char *const batch = in_rounds ? "1" : "1,4,16";
    if (!parse_list("prefill", chosen.prefill ? chosen.prefill : prefill, 1, LENGTH_CAP,
                    &options->prefill, err) ||
        !parse_list("depth", chosen.depth ? chosen.depth : depth, 0, LENGTH_CAP, &options->depth,
                    err) ||
        !parse_list("batch", chosen.batch ? chosen.batch : batch, 1, BATCH_CAP, &options->batch,
                    err))
        return false;
    struct model_bench_list steps = { .n_values = 1 };
    if (in_rounds && !parse_list("decode", chosen.decode, 0, DECODE_CAP, &steps, err))
        return false;
    *decode = steps.values[0];
    if (in_rounds &&
        (steps.n_values != 1 || options->prefill.n_values != 1 || options->depth.n_values != 1 ||
         options->batch.n_values != 1 || options->batch.values[0] != 1))
        return err_set(err, ERR_ARGUMENT,
                       "with --decode there is one number, one --prefill, one --depth and one "
                       "sequence");
    return true;
}

/* ---- rounds ---- */

static void print_profile(const struct profile *profile)
{
    struct buf out;
    buf_init(&out, REPORT_CAP);
    profile_report(profile, &out);
    fwrite(out.data, 1, out.size, stdout); // main sees whether it went well
    buf_release(&out);
}

static bool run_rounds(const struct model_bench_options *options, uint32_t decode, struct err *err)
{
    const uint32_t prefill = options->prefill.values[0], depth = options->depth.values[0];
    const uint32_t n_rounds = chosen.rounds ? chosen.rounds : ROUNDS_DEFAULT;
    struct engine_options engine = options->engine;
    struct model_feed feed;
    struct model_round round;
    const uint32_t longest = depth + decode > prefill ? depth + decode : prefill;
    engine.max_sequences = 1;
    if (engine.ctx_size == 0)
        engine.ctx_size = longest;
    struct profile profile = { .n_rows = 1 };
    if (chosen.profile)
        engine.profile = &profile;
    bool done = model_feed_open(&feed, &engine, err);
    for (uint32_t i = 1; done && i <= n_rounds; i++) {
        done = model_feed_round(&feed, prefill, depth, decode, &round, err);
        if (!done)
            break;
        printf("{\"round\":%u,\"isa\":\"%s\",\"threads\":%u,\"prefill\":%u,\"depth\":%u,"
               "\"decode\":%u,\"prefill_tokens_per_second\":%.2f,"
               "\"decode_tokens_per_second\":%.2f}\n",
               i, chosen.engine.isa ? chosen.engine.isa : kernel_best()->name,
               chosen.engine.threads, prefill, depth, decode, round.prefill_per_s,
               round.decode_per_s);
        fflush(stdout);
    }
    model_feed_close(&feed);
    if (done && chosen.profile)
        print_profile(&profile);
    return done;
}

/* ---- the table ---- */

static void print(const struct bench *bench, const struct model_bench_result *result,
                  const struct bench_noise *noise)
{
    struct buf out;
    buf_init(&out, REPORT_CAP);
    if (chosen.json) {
        buf_add_char(&out, '{');
        report_machine_json(&out, &bench->machine, bench->options.kernel);
        buf_add_char(&out, ',');
        report_model_json(&out, result);
        buf_add_char(&out, ',');
        report_noise_json(&out, noise);
        buf_add_text(&out, "}\n");
    } else {
        report_machine(&out, &bench->machine, bench->options.kernel);
        report_model(&out, result);
        buf_add_char(&out, '\n');
        report_noise(&out, noise);
    }
    fwrite(out.data, 1, out.size, stdout); // main sees whether it went well
    buf_release(&out);
}

static bool run_table(const struct model_bench_options *options, struct err *err)
{
    struct bench bench;
    const struct bench_options on = {
        .kernel = chosen.engine.isa ? kernel_find(chosen.engine.isa) : NULL,
        .rounds = chosen.rounds,
        .seconds = chosen.seconds,
    };
    if (chosen.engine.isa && !on.kernel)
        return err_set(err, ERR_NOT_FOUND, "this machine has no rung %s", chosen.engine.isa);
    if (!bench_init(&bench, &on, err))
        return false;
    struct model_bench_result *const result = xcalloc(1, sizeof(*result));
    struct bench_noise noise = { .before = noise_probe(bench.machine.threads, NOISE_MS) };
    const bool done = model_bench_measure(&bench, options, result, err);
    noise.after = noise_probe(bench.machine.threads, NOISE_MS);
    if (done)
        print(&bench, result, &noise);
    bench_release(&bench);
    free(result);
    return done;
}

static int run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err = { 0 };
    struct model_bench_options options = { 0 };
    uint32_t decode;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    if (!parse_lists(&options, &decode, &err))
        return command_misused(command, &err);
    char *const shard =
        bench_allowed(&err) ? model_path_shard(words[0], &chosen.source, &err) : NULL;
    struct err ignored; // without a record the content is checked at each opening
    char *const record = model_path_record(&ignored);
    engine_choice_take(&chosen.engine, &options.engine);
    options.engine.model = shard;
    options.engine.record_dir = record;
    const bool done =
        shard && (chosen.decode ? run_rounds(&options, decode, &err) : run_table(&options, &err));
    free(record);
    free(shard);
    return done ? 0 : command_failed(command, &err);
}

#define HELP                                                                                       \
    "MODEL is a GGUF file, a Hugging Face directory or a shard directory. Rates are tokens a "     \
    "second,\n"                                                                                    \
    "medians and quartiles over rounds in which all rows take turns. The share of a prefill is "   \
    "that of\n"                                                                                    \
    "the dot-product instruction on registers, the share of a decode that of a plain read of as "  \
    "many\n"                                                                                       \
    "bytes (weights, keys and values) right before it, the second one in a row, since steps read " \
    "the "                                                                                         \
    "same\n"                                                                                       \
    "weights again and again. Nobody else should use the machine meanwhile.\n"                     \
    "\n"                                                                                           \
    "  cascadia bench model m.gguf                                  the whole table\n"             \
    "  cascadia bench model m.gguf --threads 2 --depth 512 --batch 1 --prefill 512 --seconds 3\n"  \
    "  cascadia bench model m.gguf --decode 128 --rounds 5          JSON lines, for comparisons\n" \
    "  cascadia bench model m.gguf --decode 128 --profile           where a step's time goes\n"

const struct command command_bench_model = {
    .name = "bench model",
    .usage = "MODEL [options]",
    .summary = "measure how fast the native engine runs a model here, and how near its limit",
    .help = HELP,
    .run = run,
    .options = model_tables,
};

/* A short word for the most usual one. */
const struct command command_bench = {
    .name = "bench",
    .usage = "MODEL [options]",
    .summary = "the same as bench model",
    .help = HELP,
    .run = run,
    .options = model_tables,
};
