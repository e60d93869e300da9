/* The OpenAI-compatible API of one model: HTTP in front, a scheduler behind.
 *
 * Order of life: server_open (binds the port) -> scheduler_start with wake = server_wake ->
 * server_run -> scheduler_free (it may still wake the server) -> server_close. The thread of
 * server_run owns everything of the server; it never waits for the scheduler, which wakes it.
 * docs/http-api.md is the contract with clients. */
#ifndef CASCADIA_SERVER_SERVER_H
#define CASCADIA_SERVER_SERVER_H

#include "base/err.h"
#include "generate/scheduler.h"

#include <stdbool.h>
#include <stdint.h>

struct chat;
struct server;
struct tokenizer;

struct server_options {
    const char *host;          // NULL: 127.0.0.1
    uint16_t port;             // 0: any free one
    uint64_t body_bytes_cap;   // 0: 16 MiB
    uint64_t output_bytes_cap; // 0: 256 KiB of unsent answer, then a stream is dropped
    uint64_t drain_timeout_ms; // after the first stop
    uint32_t heartbeat_ms;     // 0: 10 s
    bool catch_signals;        // while it runs, SIGINT and SIGTERM stop it
    bool insecure;             // listens or links beyond loopback in the clear: /health says so
};

/* What is served. Borrowed until server_run returns. */
struct server_model {
    const char *id;          // the name clients see
    int64_t created;         // unix seconds
    uint32_t ctx_size;       // longest prompt and answer together
    uint32_t vocab_size;     // ids in prompts and logit_bias are below it
    const char *fingerprint; // docs/numerics.md: what changes the text, hashed
    const struct tokenizer *tokenizer;
    const struct chat *chat; // NULL: the model has no template; chat requests are refused
    const struct sampling_params *defaults; // for what a request leaves out; n_bias 0
};

/* Binds and listens; nobody is answered before server_run. ERR_SYSTEM, ERR_NOT_FOUND. */
struct server *server_open(const struct server_options *options, struct err *err);
void server_close(struct server *server); // NULL is fine

uint16_t server_port(const struct server *server);

/* Any thread: some request has events. `server` is a struct server; for scheduler_options.wake. */
void server_wake(void *server);

/* Any thread, and signal handlers: the first stop drains, a second ends server_run at once. */
void server_stop(struct server *server);

/* Serves until stopped and drained: true. False when a second stop cut that short: nothing has been
 * taken down then, and the process is to end. */
bool server_run(struct server *server, const struct server_model *model,
                struct scheduler *scheduler);

#endif
