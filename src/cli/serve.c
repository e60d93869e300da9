/* Opens from the inside out what a request passes from the outside in, and closes in the reverse
 * order. The port is bound first, because that is what fails most often and at once.
 *
 * The URL is printed when a request would be served: with one stage after its probe, which is a
 * matter of milliseconds; with several, /health says when, since the others may come at any time.
 */
#include "cli/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/text_side.h"
#include "generate/scheduler.h"
#include "net/address.h"
#include "server/server.h"

/* For the probe of a single stage, before the URL is printed anyway. */
#define PROBE_MS_CAP 10000u

const struct option_row serve_rows[] = {
    OPTION_TEXT(struct serve_options, host, "host", "ADDRESS", "where the API listens"),
    OPTION_U32(struct serve_options, port, "port", "N", 0, 65535, "its port; 0: any free one"),
    OPTION_TEXT(struct serve_options, served_name, "served-name", "NAME",
                "what clients see as the model; else the base name of MODEL"),
    OPTION_TEXT(struct serve_options, chat_template, "chat-template", "FILE|NAME",
                "instead of the model's own: a Jinja file, or a built-in one"),
    OPTION_U32(struct serve_options, queue_cap, "queue", "N", 1, 65536,
               "requests that may wait; one more is answered 503"),
    OPTION_U32(struct serve_options, drain_timeout_s, "drain-timeout", "SECONDS", 0, 86400,
               "that running requests have to finish after SIGTERM"),
    OPTION_BYTES(struct serve_options, body_bytes_cap, "max-body",
                 "the largest request body; more is answered 413"),
    OPTION_END,
};

void serve_options_init(struct serve_options *options)
{
    *options = (struct serve_options){ .host = "127.0.0.1",
                                       .port = 8000,
                                       .queue_cap = 128,
                                       .drain_timeout_s = 30,
                                       .body_bytes_cap = 16u << 20 };
}

/* Everything that is open while serving. */
struct serving {
    const struct serve_options *options;
    const struct pipeline_options *pipeline_options;
    struct text_side text;
    struct server *server;
    struct pipeline *pipeline;
    struct scheduler *scheduler;
    struct server_model model;
    char fingerprint[24];
    char name[256]; // of the model, if options->served_name does not say
};

/* Without TLS whoever can reach the port can read the prompts. */
static bool check_host(const struct serve_options *options, bool insecure, struct err *err)
{
    struct address address = { .kind = ADDRESS_TCP };

    if (strlen(options->host) >= sizeof address.host)
        return err_set(err, ERR_ARGUMENT, "--host is too long");
    memcpy(address.host, options->host, strlen(options->host) + 1);
    if (insecure || address_is_loopback(&address))
        return true;
    return err_set(err, ERR_ARGUMENT,
                   "--host %s can be reached from other machines, in the clear and without a key; "
                   "--insecure says that this is meant",
                   options->host);
}

static bool is_mock(const struct pipeline_options *pipeline)
{
    return strcmp(pipeline->engine.engine, "mock") == 0;
}

/* What changes the text, hashed: settings_hash has the numerics version in it (docs/numerics.md).
 */
static void write_fingerprint(struct serving *serving, const struct engine_info *info)
{
    const uint64_t parts[] = { info->model_hash, info->settings_hash };
    char hex[17];

    hash_hex(hash_xxh3(parts, sizeof parts), hex);
    snprintf(serving->fingerprint, sizeof serving->fingerprint, "fp_%s", hex);
}

/* "dir/model/" is called "model"; what has no name is called that too. */
static void name_model(struct serving *serving, const char *path)
{
    char *const copy = xstrdup(path);
    size_t size = strlen(copy);

    while (size > 1 && copy[size - 1] == '/')
        copy[--size] = '\0';
    const char *const base = path_base(copy);
    const bool has_name = base[0] != '\0' && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;
    snprintf(serving->name, sizeof serving->name, "%s", has_name ? base : "model");
    free(copy);
}

static void describe_model(struct serving *serving, const char *name)
{
    const struct engine_info *const info = pipeline_info(serving->pipeline);
    const char *const served = serving->options->served_name;

    write_fingerprint(serving, info);
    name_model(serving, name);
    serving->model = (struct server_model){ .id = served != NULL ? served : serving->name,
                                            .created = clock_unix_seconds(),
                                            .ctx_size = info->ctx_size,
                                            .vocab_size = info->vocab_size,
                                            .fingerprint = serving->fingerprint,
                                            .tokenizer = serving->text.tokenizer,
                                            .chat = serving->text.chat,
                                            .defaults = &serving->text.defaults };
}

static bool open_server(struct serving *serving, struct err *err)
{
    const struct serve_options *const options = serving->options;
    const bool insecure = serving->pipeline_options->insecure;

    if (!check_host(options, insecure, err))
        return false;
    serving->server = server_open(
        &(struct server_options){ .host = options->host,
                                  .port = (uint16_t)options->port,
                                  .body_bytes_cap = options->body_bytes_cap,
                                  .drain_timeout_ms = (uint64_t)options->drain_timeout_s * 1000,
                                  .catch_signals = true,
                                  .insecure = insecure },
        err);
    return serving->server != NULL;
}

static bool start_scheduler(struct serving *serving, struct err *err)
{
    serving->scheduler =
        scheduler_start(&(struct scheduler_options){ .pipeline = serving->pipeline,
                                                     .n_stages = serving->pipeline_options->total,
                                                     .tokenizer = serving->text.tokenizer,
                                                     .queue_cap = serving->options->queue_cap,
                                                     .wake = server_wake,
                                                     .wake_context = serving->server },
                        err);
    return serving->scheduler != NULL;
}

/* Errors are about the shard, which may lie in the cache under a number; `name` is what the user
 * called the model. */
static bool open_text(struct serving *serving, const char *name, struct err *err)
{
    const char *const shard =
        is_mock(serving->pipeline_options) ? NULL : serving->pipeline_options->engine.model;

    if (text_side_open(&serving->text, shard, serving->options->chat_template, err))
        return true;
    return shard != NULL && strcmp(shard, name) != 0 ? err_wrap(err, "%s", name) : false;
}

static bool open_all(struct serving *serving, const char *name, struct err *err)
{
    struct pipeline_options pipeline = *serving->pipeline_options;

    if (!open_server(serving, err) || !open_text(serving, name, err))
        return false;
    pipeline.tokenizer = serving->text.tokenizer; // used where this process is the last stage too
    serving->pipeline = pipeline_open(&pipeline, err);
    if (serving->pipeline == NULL)
        return false;
    describe_model(serving, name);
    return start_scheduler(serving, err);
}

static void close_all(struct serving *serving)
{
    scheduler_free(serving->scheduler);
    pipeline_close(serving->pipeline);
    server_close(serving->server);
    text_side_close(&serving->text);
}

static void announce(const struct serving *serving)
{
    const char *const host = serving->options->host;
    const bool is_v6 = strchr(host, ':') != NULL;
    const uint64_t end_ms = clock_ms() + PROBE_MS_CAP;
    const uint32_t total = serving->pipeline_options->total;
    char url[320];

    while (total <= 1 && !scheduler_ready(serving->scheduler) && clock_ms() < end_ms)
        clock_sleep_ms(2);
    snprintf(url, sizeof url, is_v6 ? "http://[%s]:%u" : "http://%s:%u", host,
             server_port(serving->server));
    printf("%s is served at %s (OpenAI API at %s/v1)\n", serving->model.id, url, url);
    if (total > 1)
        printf("%s/health says when all %" PRIu32 " stages are there.\n", url, total);
    printf("Try:\n"
           "  curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"stream\": true, \"temperature\": 0, \"messages\": [{\"role\": \"user\", "
           "\"content\": \"What is the capital of France?\"}]}'\n",
           url);
    fflush(stdout);
}

bool serve(const struct serve_options *options, const struct pipeline_options *pipeline,
           const char *name, struct err *err)
{
    struct serving serving = { .options = options, .pipeline_options = pipeline };
    const bool good = open_all(&serving, name, err);

    if (good) {
        announce(&serving);
        if (!server_run(serving.server, &serving.model, serving.scheduler)) {
            log_warn("stopped at once");
            _Exit(1); // as asked: threads and requests are where they are
        }
        log_info("all requests have ended");
    }
    close_all(&serving);
    return good;
}
