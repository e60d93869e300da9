/* The head tells proxies to neither keep nor gather what passes. A failed stream ends as a valid
 * HTTP message, since HTTP did not fail; the error event and the missing [DONE] tell the client. */
#include "server/sse.h"

#include "base/buf.h"

#define EVENT_BYTES_CAP (128u << 20)

void sse_begin(struct http_exchange *exchange)
{
    static const struct http_field fields[] = {
        { "Cache-Control", "no-cache" },
        { "X-Accel-Buffering", "no" },
    };

    http_stream_begin(exchange, 200, "text/event-stream; charset=utf-8", STR(": waiting\n\n"),
                      fields, sizeof fields / sizeof fields[0]);
}

void sse_send(struct http_exchange *exchange, struct str data)
{
    struct buf event;

    buf_init(&event, EVENT_BYTES_CAP);
    buf_add_str(&event, STR("data: "));
    buf_add_str(&event, data);
    buf_add_str(&event, STR("\n\n"));
    http_stream_write(exchange, buf_view(&event));
    buf_release(&event);
}

void sse_finish(struct http_exchange *exchange)
{
    sse_send(exchange, STR("[DONE]"));
    http_stream_end(exchange);
}

void sse_fail(struct http_exchange *exchange, struct str data)
{
    sse_send(exchange, data);
    http_close_after(exchange);
    http_stream_end(exchange);
}
