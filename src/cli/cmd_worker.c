/* worker: one stage of a chain. Rank 0 is the head and serves the API; the others wait for the rank
 * before them and dial the one after.
 *
 * Layers are those that the shard was cut for (its default stages, when their number is --total),
 * else an equal split, else what --layer-start and --layer-end say. Whether they fit together is
 * found out when the ranks greet each other. */
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_choice.h"
#include "cli/model_path.h"
#include "cli/serve.h"
#include "net/address.h"
#include "pipeline/handshake.h"
#include "pipeline/worker.h"
#include "shard/split.h"
#include "shard/tokenizer_source.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"
#include "weights/weights.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPIN_US 50

struct worker_options {
    uint32_t rank, total;
    const char *model, *listen, *next, *head, *api;
    struct engine_choice engine;
    uint32_t layer_start, layer_end;
    uint32_t owed_reply_s, ping_s, frame_s, spin_us;
    bool insecure;
};

static struct worker_options chosen;
static struct serve_options serving;

static const struct option_row rows[] = {
    OPTION_U32(struct worker_options, rank, "rank", "R", 0, HANDSHAKE_RANKS_CAP - 1,
               "this stage; 0 is the head"),
    OPTION_U32(struct worker_options, total, "total", "N", 1, HANDSHAKE_RANKS_CAP,
               "stages of the chain"),
    OPTION_TEXT(struct worker_options, model, "model", "MODEL",
                "shard directory, GGUF file, Hugging Face directory, or mock-model"),
    OPTION_TEXT(struct worker_options, listen, "listen", "ADDRESS",
                "where the rank before (for the head: the last rank) dials in; host:port, "
                "[v6]:port or unix:/path"),
    OPTION_TEXT(struct worker_options, next, "next", "ADDRESS", "where the next rank listens"),
    OPTION_TEXT(struct worker_options, head, "head", "ADDRESS",
                "where the last rank dials the head, if not where rank 1 sees it; on any rank"),
    OPTION_TEXT(struct worker_options, api, "api", "HOST:PORT", "rank 0: where clients are served"),
    OPTION_U32(struct worker_options, layer_start, "layer-start", "N", 0, 65535,
               "first layer; with --layer-end"),
    OPTION_U32(struct worker_options, layer_end, "layer-end", "N", 0, 65536,
               "one past the last layer; 0: the shard's stage for this rank, or an equal part"),
    OPTION_BOOL(struct worker_options, insecure, "insecure",
                "allows links and clients from other machines, unencrypted"),
    OPTION_END,
};

static const struct option_row timer_rows[] = {
    OPTION_U32(struct worker_options, owed_reply_s, "owed-reply-timeout", "S", 0, 86400,
               "rank 0: how long a row may take through one stage; larger batches in proportion"),
    OPTION_U32(struct worker_options, ping_s, "ping-interval", "S", 1, 3600,
               "three unanswered: the neighbour is lost"),
    OPTION_U32(struct worker_options, frame_s, "frame-timeout", "S", 1, 3600,
               "in which a frame that has begun must progress"),
    OPTION_U32(struct worker_options, spin_us, "link-spin", "US", 0, 100000,
               "how long a link's reader polls before it sleeps"),
    OPTION_END,
};

static size_t worker_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 5);
    chosen = (struct worker_options){
        .owed_reply_s = 120, .ping_s = 10, .frame_s = 10, .spin_us = SPIN_US
    };
    serve_options_init(&serving);
    tables[0] = (struct option_table){ "options", rows, &chosen };
    tables[1] = (struct option_table){ "the engine", engine_choice_serve_rows, &chosen.engine };
    tables[2] = (struct option_table){ "computing", engine_choice_compute_rows, &chosen.engine };
    tables[3] = (struct option_table){ "links", timer_rows, &chosen };
    tables[4] = (struct option_table){ "serving (rank 0)", serve_rows, &serving };
    return 5;
}

/* --- layers ------------------------------------------------------------------------------------
 */

/* How many layers the model has, and the shard's own stage for this rank if it was cut in `total`:
 * then *stage is not empty. */
static bool read_shard(const char *shard, uint32_t *n_layers, struct manifest_stage *stage,
                       struct err *err)
{
    struct manifest manifest;
    if (!manifest_read(&manifest, shard, err))
        return false;
    *n_layers = manifest.n_layers;
    if (manifest.n_stages == chosen.total)
        *stage = manifest.stages[chosen.rank];
    manifest_release(&manifest);
    return true;
}

/* An engine without a shard directory tells itself. */
static bool ask_engine(const struct engine_options *options, uint32_t *n_layers, struct err *err)
{
    struct engine engine;
    struct engine_info info;
    if (!engine_open(&engine, options, &info, err))
        return false;
    *n_layers = info.n_layers;
    engine_close(&engine);
    return true;
}

static bool choose_layers(struct engine_options *options, struct err *err)
{
    struct manifest_stage stage = { 0, 0 };
    uint32_t n_layers;
    if (chosen.layer_end) {
        options->layer_first = chosen.layer_start;
        options->layer_end = chosen.layer_end;
        return true;
    }
    if (chosen.layer_start)
        return err_set(err, ERR_ARGUMENT, "--layer-start needs --layer-end");
    if (!(weights_is_shard(options->model) ? read_shard(options->model, &n_layers, &stage, err)
                                           : ask_engine(options, &n_layers, err)))
        return false;
    if (stage.layer_end == 0) {
        struct split split; // the one that `shard --num-stages` makes
        if (!split_even(n_layers, chosen.total, &split, err))
            return false;
        stage = split.stages[chosen.rank];
    }
    options->layer_first = stage.layer_first;
    options->layer_end = stage.layer_end;
    return true;
}

/* --- running -----------------------------------------------------------------------------------
 */

/* Set by signals, which is why it is not in an object. A second signal ends the process. */
static atomic_int stop;

static void on_signal(int number)
{
    (void)number;
    if (atomic_exchange(&stop, 1))
        _exit(1);
}

/* The last rank needs the vocabulary for grammars. A shard that was made by hand may have none. */
static bool load_tokenizer(const struct pipeline_options *options, struct tokenizer **out,
                           struct err *err)
{
    const bool is_mock = strcmp(options->engine.engine, "mock") == 0;
    *out = NULL;
    if (options->rank + 1 < options->total)
        return true;
    *out = is_mock ? tokenizer_load_mock() : tokenizer_source_load(options->engine.model, err);
    if (!*out && err->code != ERR_NOT_FOUND)
        return false;
    if (!*out)
        log_warn("%s: requests with a grammar or a response_format will fail", err->text);
    return true;
}

static bool run_worker(struct pipeline_options *options, struct err *err)
{
    const struct sigaction action = { .sa_handler = on_signal };
    struct tokenizer *tokenizer;
    if (!load_tokenizer(options, &tokenizer, err))
        return false;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    options->tokenizer = tokenizer;
    const bool good = worker_run(options, &stop, err);
    tokenizer_free(tokenizer);
    return good;
}

/* Splits --api into serve's host and port. */
static bool choose_api(struct serve_options *options, char host[ADDRESS_HOST_CAP], struct err *err)
{
    struct address address;
    if (!chosen.api)
        return true;
    if (!address_parse(str_from(chosen.api), &address, err))
        return false;
    if (address.kind != ADDRESS_TCP)
        return err_set(err, ERR_ARGUMENT, "--api takes host:port, not %s", chosen.api);
    memcpy(host, address.host, ADDRESS_HOST_CAP);
    options->host = host;
    options->port = address.port;
    return true;
}

static bool run_head(const struct pipeline_options *options, const char *name, struct err *err)
{
    char host[ADDRESS_HOST_CAP];
    return choose_api(&serving, host, err) && serve(&serving, options, name, err);
}

static struct pipeline_options pipeline_options_of(void)
{
    struct pipeline_options options = {
        .rank = chosen.rank,
        .total = chosen.total,
        .listen = chosen.listen,
        .next = chosen.next,
        .head = chosen.head,
        .insecure = chosen.insecure,
        .owed_reply_ms = chosen.owed_reply_s * 1000ull,
        .ping_ms = chosen.ping_s * 1000ull,
        .frame_ms = chosen.frame_s * 1000ull,
        .spin_us = chosen.spin_us,
    };
    engine_choice_take(&chosen.engine, &options.engine);
    return options;
}

/* The engine's model and layers are there. */
static bool run_rank(struct pipeline_options *options, struct err *err)
{
    if (!choose_layers(&options->engine, err))
        return false;
    if (chosen.insecure)
        log_warn("--insecure: links and clients from other machines are neither encrypted nor "
                 "asked who they are");
    return chosen.rank == 0 ? run_head(options, chosen.model, err) : run_worker(options, err);
}

/* MODEL as the engine takes it: a shard directory, but for the mock, which needs no file. */
static bool prepare_and_run(struct pipeline_options *options, struct err *err)
{
    const struct engine_ops *engine;
    if (!engine_find(&options->engine, &engine, err))
        return false;
    if (engine == &engine_mock) {
        options->engine.model = chosen.model;
        return run_rank(options, err);
    }
    char *shard = model_path_shard(chosen.model, NULL, err);
    if (!shard)
        return false;
    char *record = model_path_record(err); // NULL: checked at each open
    options->engine.model = shard;
    options->engine.record_dir = record;
    bool done = run_rank(options, err);
    free(record);
    free(shard);
    return done;
}

static bool check_chosen(struct err *err)
{
    if (chosen.total == 0 || !chosen.model)
        return err_set(err, ERR_ARGUMENT, "--total and --model are needed, and --rank but for 0");
    if (chosen.rank >= chosen.total)
        return err_set(err, ERR_ARGUMENT, "rank %u of %u: ranks count from 0", chosen.rank,
                       chosen.total);
    return true;
}

static int worker(const struct command *command, int argc, char **argv)
{
    struct err err = { 0 };
    size_t n_words;
    if (!command_parse(command, argc, argv, NULL, 0, 0, &n_words))
        return 2;
    if (!check_chosen(&err))
        return command_misused(command, &err);
    if (!chosen.engine.engine)
        chosen.engine.engine = model_path_engine(chosen.model);
    struct pipeline_options options = pipeline_options_of();
    return prepare_and_run(&options, &err) ? 0 : command_failed(command, &err);
}

const struct command command_worker = {
    .name = "worker",
    .usage = "--rank R --total N --model MODEL [options]",
    .summary = "run one stage of a model that is cut over several processes or machines",
    .help =
        "Two stages on this machine, in two terminals (either may be started first):\n"
        "\n"
        "  cascadia worker --rank 0 --total 2 --model SHARD --listen 127.0.0.1:9100 \\\n"
        "      --next 127.0.0.1:9101 --api 127.0.0.1:8000\n"
        "  cascadia worker --rank 1 --total 2 --model SHARD --listen 127.0.0.1:9101\n"
        "\n"
        "Each rank dials the next and keeps trying; the last dials the head at the address that\n"
        "rank 1 sees it at. A rank that is restarted is taken in again without restarting the\n"
        "others.\n",
    .run = worker,
    .options = worker_tables,
};
