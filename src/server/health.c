/* GET /health: 200 only if a request would be served now, which the scheduler knows because a
 * probe went through the whole chain in this epoch. Otherwise 503 with the reasons. */
#include "server/server_internal.h"

#define HEALTH_BYTES_CAP 65536u

static const char *reason_not_ready(const struct server *server)
{
    if (server->draining)
        return "shutting down";
    if (!scheduler_ready(server->scheduler))
        return "the chain of stages is not complete, or no probe has gone through it yet";
    return NULL;
}

void health_handle(struct server *server, struct http_exchange *exchange, struct str rest)
{
    const char *const reason = reason_not_ready(server);
    struct scheduler_stats stats;
    struct buf out;

    (void)rest;
    scheduler_stats(server->scheduler, &stats);
    buf_init(&out, HEALTH_BYTES_CAP);
    buf_printf(&out, "{\"status\":\"%s\",\"reasons\":[", reason == NULL ? "ok" : "unavailable");
    if (reason != NULL)
        json_write_string(&out, str_from(reason));
    buf_add_text(&out, "],\"model\":");
    json_write_string(&out, str_from(server->model->id));
    buf_printf(&out,
               ",\"insecure\":%s,\"requests\":{\"running\":%u,\"waiting\":%u},"
               "\"kv_pages\":{\"used\":%u,\"total\":%u},\"chain\":",
               server->options.insecure ? "true" : "false", stats.running, stats.waiting,
               stats.pages_used, stats.pages_total);
    scheduler_describe(server->scheduler, &out);
    buf_add_char(&out, '}');
    json_respond(exchange, reason == NULL ? 200 : 503, &out);
    buf_release(&out);
}
