/* bench kernels: the bars of the kernels, measured here: how close each comes to what the machine
 * can do at all. */
#include "base/memory.h"
#include "base/option.h"
#include "bench/bar.h"
#include "bench/bench.h"
#include "bench/bench_report.h"
#include "bench/noise.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>

#define REPORT_CAP ((size_t)1 << 20)
#define NOISE_MS 100u

struct kernels_options {
    const char *only, *isa, *model;
    uint32_t rounds, threads;
    double seconds;
    bool json;
};

static struct kernels_options chosen;

static const struct option_row rows[] = {
    OPTION_TEXT(struct kernels_options, only, "only", "IDS",
                "bars to measure, as K1,K6; K3 takes K3a too, K all that begin so"),
    OPTION_TEXT(struct kernels_options, isa, "isa", "NAME",
                "the rung under test (`cascadia engines` lists them); else the best there is"),
    OPTION_TEXT(struct kernels_options, model, "model", "MODEL",
                "for the bars of a whole model, T2 and L1"),
    OPTION_U32(struct kernels_options, threads, "threads", "N", 2, TEAM_THREADS_CAP,
               "of the bars for several threads"),
    OPTION_DOUBLE(struct kernels_options, seconds, "seconds", "S", 0.1, 600,
                  "at most, a bar; each has a least number of rounds"),
    OPTION_U32(struct kernels_options, rounds, "rounds", "N", 0, 4000,
               "of each bar, whatever it takes; 0: as the seconds allow"),
    OPTION_BOOL(struct kernels_options, json, "json", "one JSON document instead of the table"),
    OPTION_END,
};

static size_t kernels_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1);
    chosen = (struct kernels_options){ .threads = 2, .seconds = 3 };
    tables[0] = (struct option_table){ "options", rows, &chosen };
    return 1;
}

static bool open_bench(struct bench *bench, const char *shard, const char *record, struct err *err)
{
    struct bench_options options = {
        .model = shard,
        .record_dir = record,
        .threads = chosen.threads,
        .rounds = chosen.rounds,
        .seconds = chosen.seconds,
    };
    if (chosen.isa && !(options.kernel = kernel_find(chosen.isa)))
        return err_set(err, ERR_NOT_FOUND,
                       "this machine has no rung %s; `cascadia engines` lists them", chosen.isa);
    return bench_init(bench, &options, err);
}

static void emit(struct buf *out)
{
    fwrite(out->data, 1, out->size, stdout); // main sees whether it went well
    fflush(stdout);
    buf_clear(out);
}

/* Measures the bars that were asked for; the table appears row by row. */
static bool measure(struct bench *bench, struct buf *out, struct err *err)
{
    struct bar_result *const result = xcalloc(1, sizeof(*result));
    bool done = true;
    for (uint32_t i = 0, n = 0; done && i < n_bars; i++) {
        if (!bar_is_listed(&bars[i], bench->options.kernel) ||
            (chosen.only && !bar_is_named(&bars[i], chosen.only)))
            continue;
        done = bar_measure(&bars[i], bench, result, err);
        if (!done)
            break;
        if (chosen.json && n++)
            buf_add_char(out, ',');
        if (chosen.json) {
            report_bar_json(out, &bars[i], result);
        } else {
            report_bar(out, &bars[i], result);
            emit(out);
        }
    }
    free(result);
    return done;
}

static bool run_bars(struct bench *bench, struct err *err)
{
    struct bench_noise noise = { .before = noise_probe(bench->machine.threads, NOISE_MS) };
    struct buf out;
    buf_init(&out, REPORT_CAP);
    if (chosen.json) {
        buf_add_char(&out, '{');
        report_machine_json(&out, &bench->machine, bench->options.kernel);
        buf_add_text(&out, ",\"bars\":[");
    } else {
        report_machine(&out, &bench->machine, bench->options.kernel);
        buf_add_char(&out, '\n');
        emit(&out);
    }
    const bool done = measure(bench, &out, err);
    noise.after = noise_probe(bench->machine.threads, NOISE_MS);
    if (chosen.json) {
        buf_add_text(&out, "],");
        report_noise_json(&out, &noise);
        buf_add_text(&out, "}\n");
    } else {
        buf_add_char(&out, '\n');
        report_noise(&out, &noise);
    }
    if (done)
        emit(&out);
    buf_release(&out);
    return done;
}

/* True when the list names a bar at all. */
static bool names_some(const char *list)
{
    for (uint32_t i = 0; i < n_bars; i++) {
        if (bar_is_named(&bars[i], list))
            return true;
    }
    return false;
}

static int run(const struct command *command, int argc, char **argv)
{
    size_t n_words;
    struct err err = { 0 };
    struct bench bench = { 0 };
    if (!command_parse(command, argc, argv, NULL, 0, 0, &n_words))
        return 2;
    if (chosen.only && !names_some(chosen.only)) {
        err_set(&err, ERR_ARGUMENT, "--only %s names no bar", chosen.only);
        return command_misused(command, &err);
    }
    bool done = bench_allowed(&err);
    char *const shard = done && chosen.model ? model_path_shard(chosen.model, NULL, &err) : NULL;
    struct err ignored; // without a record the content is checked at each opening
    char *const record = model_path_record(&ignored);
    done = done && (shard || !chosen.model) && open_bench(&bench, shard, record, &err) &&
           run_bars(&bench, &err);
    bench_release(&bench);
    free(record);
    free(shard);
    return done ? 0 : command_failed(command, &err);
}

const struct command command_bench_kernels = {
    .name = "bench kernels",
    .usage = "[options]",
    .summary = "measure how close the kernels come to the limits of this machine",
    .help =
        "Each bar is a ratio within this run: GEMV against a plain read of equally cold memory "
        "right before\n"
        "it (median of the pairs), GEMM against the dot-product instruction on registers (best of "
        "each).\n"
        "Every product is first compared with the scalar rung's, bit by bit. Nobody else should "
        "use the\n"
        "machine meanwhile; the last line says whether somebody did.\n"
        "\n"
        "  cascadia bench kernels --only K1,K6 --seconds 2    while tuning\n"
        "  cascadia bench kernels --isa avx2                  another rung than the best\n",
    .run = run,
    .options = kernels_tables,
};
