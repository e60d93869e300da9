/* bench: how fast the native engine runs a model here, without server, sampler and network.
 *
 * One round is a prefill from empty and then a run of single-row steps behind it, each with logits:
 * what llama-bench calls pp and tg. Ids are fixed pseudo-random ones; speed does not depend on
 * them. A round is a JSON line on stdout, so that a comparison can interleave rounds of two
 * programs. */
#include "base/clock.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/engine_choice.h"
#include "cli/model_path.h"
#include "engine/engine.h"
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>

struct bench_options {
    uint32_t prefill, decode, rounds, depth;
    const char *quantization;
    struct engine_choice engine;
};

static struct bench_options defaults(void)
{
    return (struct bench_options){ .prefill = 512, .decode = 128, .rounds = 3 };
}

static struct bench_options chosen;

static const struct option_row rows[] = {
    OPTION_U32(struct bench_options, prefill, "prefill", "N", 1, 65536, "rows of the prompt"),
    OPTION_U32(struct bench_options, decode, "decode", "N", 0, 65536,
               "steps of one row, each with logits"),
    OPTION_U32(struct bench_options, depth, "depth", "N", 0, 1048576,
               "rows in the context before decode starts; 0: from empty"),
    OPTION_U32(struct bench_options, rounds, "rounds", "N", 1, 1000,
               "how often; one JSON line each"),
    OPTION_TEXT(struct bench_options, quantization, "quantization", "FORMAT",
                "of a float source, as `shard` takes it"),
    OPTION_END,
};

static size_t bench_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 2);
    chosen = defaults();
    tables[0] = (struct option_table){ "options", rows, &chosen };
    tables[1] = (struct option_table){ "computing", engine_choice_compute_rows, &chosen.engine };
    return 2;
}

struct bench {
    struct engine engine;
    struct engine_info info;
    struct batch in, out;
    uint32_t state; // of the ids
};

static int32_t next_id(struct bench *bench)
{
    bench->state = bench->state * 1664525u + 1013904223u;
    return (int32_t)((bench->state >> 8) % bench->info.vocab_size);
}

/* Feeds n rows from `position` on, in batches as large as may be; logits of the last row of each
 * batch when asked for. */
static bool feed(struct bench *bench, uint32_t position, uint32_t n, bool logits, struct err *err)
{
    while (n) {
        uint32_t now = n < bench->info.max_rows ? n : bench->info.max_rows;
        bench->in.n_rows = now;
        for (uint32_t i = 0; i < now; i++)
            bench->in.rows[i] = (struct row){ .position = position + i, .token = next_id(bench) };
        if (logits && now == n)
            bench->in.rows[now - 1].flags = ROW_LOGITS;
        if (!bench->engine.ops->step(&bench->engine, &bench->in, &bench->out, err))
            return false;
        position += now;
        n -= now;
    }
    return true;
}

static bool run_round(struct bench *bench, uint32_t round, struct err *err)
{
    uint64_t start = clock_ns();
    if (!feed(bench, 0, chosen.prefill, true, err))
        return false;
    double prefill_s = (double)(clock_ns() - start) / 1e9;
    bench->engine.ops->drop(&bench->engine, 0);
    if (chosen.depth && !feed(bench, 0, chosen.depth, false, err))
        return false;
    start = clock_ns();
    for (uint32_t i = 0; i < chosen.decode; i++) {
        if (!feed(bench, chosen.depth + i, 1, true, err))
            return false;
    }
    double decode_s = (double)(clock_ns() - start) / 1e9;
    bench->engine.ops->drop(&bench->engine, 0);
    printf("{\"round\":%u,\"isa\":\"%s\",\"threads\":%u,\"prefill\":%u,\"depth\":%u,\"decode\":%u,"
           "\"prefill_tokens_per_second\":%.2f,\"decode_tokens_per_second\":%.2f}\n",
           round, chosen.engine.isa ? chosen.engine.isa : kernel_best()->name,
           chosen.engine.threads, chosen.prefill, chosen.depth, chosen.decode,
           chosen.prefill / prefill_s, decode_s > 0 ? chosen.decode / decode_s : 0);
    fflush(stdout);
    return true;
}

static bool open_bench(struct bench *bench, const char *shard, struct err *err)
{
    uint32_t longest = chosen.depth + chosen.decode;
    longest = longest > chosen.prefill ? longest : chosen.prefill;
    struct engine_options options = { .model = shard };
    engine_choice_take(&chosen.engine, &options);
    options.engine = "native";
    options.max_sequences = 1;
    if (options.ctx_size == 0)
        options.ctx_size = longest;
    if (!engine_open(&bench->engine, &options, &bench->info, err))
        return false;
    size_t values =
        bench->info.carry > bench->info.vocab_size ? bench->info.carry : bench->info.vocab_size;
    return batch_init(&bench->in, bench->info.max_rows, 1, err) &&
           batch_init(&bench->out, bench->info.max_rows, values, err);
}

static int run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err = { 0 };
    struct bench bench = { 0 };
    char *shard;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    struct model_path_options source = { .quantization = chosen.quantization };
    shard = model_path_shard(words[0], &source, &err);
    bool done = shard && open_bench(&bench, shard, &err);
    for (uint32_t round = 1; done && round <= chosen.rounds; round++)
        done = run_round(&bench, round, &err);
    batch_release(&bench.in);
    batch_release(&bench.out);
    engine_close(&bench.engine);
    free(shard);
    return done ? 0 : command_failed(command, &err);
}

const struct command command_bench = {
    .name = "bench",
    .usage = "MODEL [options]",
    .summary = "measure how fast the native engine runs a model here",
    .help =
        "MODEL is a GGUF file, a Hugging Face directory or a shard directory. The first line may "
        "be slow:\n"
        "it reads the weights from disk. `make bench` compares with llama.cpp, round by round.\n",
    .run = run,
    .options = bench_tables,
};
