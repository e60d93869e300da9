/* What the files of this folder share: the server's state and a request on its way.
 *
 * Everything belongs to the thread of server_run, but a task while its work runs: then the pool's
 * thread has `body`, `document`, `api_request` and `error`, and nobody else touches them.
 */
#ifndef CASCADIA_SERVER_SERVER_INTERNAL_H
#define CASCADIA_SERVER_SERVER_INTERNAL_H

#include "base/buf.h"
#include "base/json.h"
#include "net/http_server.h"
#include "server/api_request.h"
#include "server/openai_json.h"
#include "server/server.h"
#include "server/task_api.h"

#include <stdbool.h>
#include <stdint.h>

struct server {
    struct http_server *http;
    struct server_options options;
    const struct server_model *model;
    struct scheduler *scheduler;
    struct task *tasks; // all, newest first
    uint64_t id_base;   // of answers, so that two runs do not share ids
    uint32_t n_ids;
    bool draining;
    uint64_t drain_end_ms; // then server_run returns whatever is left
};

struct task {
    struct http_work work; // first: work and task have one address
    struct server *server;
    const struct task_api *api;
    struct task *previous, *next;
    struct http_exchange *exchange; // NULL: the client is gone
    bool is_preparing;              // work is with the pool

    struct buf body;
    struct json *document; // of the body
    struct api_request api_request;
    struct api_error error; // status 0: none

    struct request *request;
    char id[48];
    int64_t created; // unix seconds
    uint64_t submitted_ms;
    bool has_begun;   // the head of a stream is out
    bool has_content; // a piece of a stream is out
    struct buf text;  // of a whole answer
    struct logprob_list logprobs;
};

/* Takes the exchange: it will be answered, now or later. */
void task_start(struct server *server, const struct task_api *api, struct http_exchange *exchange);
void task_prepared(struct task *task); // its work is done
void task_advance(struct task *task);  // handles its events; may free it
void task_client_gone(struct task *task);
void task_tick(struct task *task, uint64_t now_ms); // begins streams that wait for long
void task_free(struct task *task);

/* Answers, or starts a task that will. */
void routes_handle(struct server *server, struct http_exchange *exchange);

void health_handle(struct server *server, struct http_exchange *exchange, struct str rest);
void metrics_handle(struct server *server, struct http_exchange *exchange, struct str rest);
void models_handle(struct server *server, struct http_exchange *exchange, struct str rest);

#endif
