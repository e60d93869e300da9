/* Server-sent events: an answer as a stream of "data:" lines, flushed one by one. Belongs to the
 * thread that polls the HTTP server; sse_finish and sse_fail end the exchange. */
#ifndef CASCADIA_SERVER_SSE_H
#define CASCADIA_SERVER_SSE_H

#include "base/str.h"
#include "net/http_server.h"

/* Sends the head; from here on silence is filled with comments, which clients ignore. */
void sse_begin(struct http_exchange *exchange);
void sse_send(struct http_exchange *exchange, struct str data); // one event; no line breaks in it
/* Ends the stream with OpenAI's end mark. */
void sse_finish(struct http_exchange *exchange);
/* Ends the stream without the mark, after an event that says what went wrong, and closes. */
void sse_fail(struct http_exchange *exchange, struct str data);

#endif
