/* GET /metrics: every table of metrics there is, in Prometheus' text format. */
#include "base/metric.h"
#include "server/server_internal.h"

#define METRICS_BYTES_CAP 65536u

void metrics_handle(struct server *server, struct http_exchange *exchange, struct str rest)
{
    struct scheduler_stats stats;
    struct buf out;

    (void)rest;
    scheduler_stats(server->scheduler, &stats);
    buf_init(&out, METRICS_BYTES_CAP);
    metric_write(scheduler_metrics, &stats, &out);
    http_respond(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&out), NULL,
                 0);
    buf_release(&out);
}
