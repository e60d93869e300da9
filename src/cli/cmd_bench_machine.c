/* bench machine: what this machine can do at most, whatever the program. */
#include "base/memory.h"
#include "base/option.h"
#include "bench/bench.h"
#include "bench/bench_report.h"
#include "bench/ceilings.h"
#include "bench/noise.h"
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>

#define REPORT_CAP ((size_t)1 << 20)
#define NOISE_MS 100u

struct machine_options {
    double seconds;
    bool json;
};

static struct machine_options chosen;

static const struct option_row rows[] = {
    OPTION_DOUBLE(struct machine_options, seconds, "seconds", "S", 0.1, 600,
                  "at most, in all; there is a least number of rounds"),
    OPTION_BOOL(struct machine_options, json, "json", "one JSON document instead of the table"),
    OPTION_END,
};

static size_t machine_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1);
    chosen = (struct machine_options){ .seconds = 5 };
    tables[0] = (struct option_table){ "options", rows, &chosen };
    return 1;
}

static void print(const struct bench *bench, const struct ceilings *ceilings,
                  const struct bench_noise *noise)
{
    struct buf out;
    buf_init(&out, REPORT_CAP);
    if (chosen.json) {
        buf_add_char(&out, '{');
        report_machine_json(&out, &bench->machine, bench->options.kernel);
        buf_add_char(&out, ',');
        report_ceilings_json(&out, ceilings);
        buf_add_char(&out, ',');
        report_noise_json(&out, noise);
        buf_add_text(&out, "}\n");
    } else {
        report_machine(&out, &bench->machine, bench->options.kernel);
        report_ceilings(&out, ceilings);
        buf_add_char(&out, '\n');
        report_noise(&out, noise);
    }
    fwrite(out.data, 1, out.size, stdout); // main sees whether it went well
    buf_release(&out);
}

static int run(const struct command *command, int argc, char **argv)
{
    size_t n_words;
    struct err err = { 0 };
    struct bench bench = { 0 };
    if (!command_parse(command, argc, argv, NULL, 0, 0, &n_words))
        return 2;
    const struct bench_options options = { .seconds = chosen.seconds };
    struct ceilings *const ceilings = xcalloc(1, sizeof(*ceilings));
    bool done = bench_allowed(&err) && bench_init(&bench, &options, &err);
    if (done) {
        struct bench_noise noise = { .before = noise_probe(bench.machine.threads, NOISE_MS) };
        done = ceilings_measure(&bench, ceilings, &err);
        noise.after = noise_probe(bench.machine.threads, NOISE_MS);
        if (done)
            print(&bench, ceilings, &noise);
    }
    bench_release(&bench);
    free(ceilings);
    return done ? 0 : command_failed(command, &err);
}

const struct command command_bench_machine = {
    .name = "bench machine",
    .usage = "[options]",
    .summary = "measure the ceilings of this machine: reads, dot products, clock",
    .help =
        "Reads go through a block twice as large as the last cache, so that DRAM means DRAM; a "
        "stream is a\n"
        "contiguous part that a thread walks through. Dot products run on registers alone; a "
        "multiply-add\n"
        "counts as two operations. p25, median, p75 and best of all rounds; all rows take turns.\n",
    .run = run,
    .options = machine_tables,
};
