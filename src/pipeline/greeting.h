/* A link whose first frame has been exchanged: HELLO received and not answered, or WELCOME
 * received.
 *
 * One owner at a time; the functions send or wait on the link and belong to a thread that may. */
#ifndef CASCADIA_PIPELINE_GREETING_H
#define CASCADIA_PIPELINE_GREETING_H

#include "base/err.h"
#include "pipeline/handshake.h"
#include "pipeline/link.h"

#include <stdbool.h>
#include <stdint.h>

struct greeting {
    struct link *link;
    uint32_t epoch;          // of the HELLO
    struct handshake theirs; // as read; not yet held against one's own by the side that answers
};

void greeting_free(struct greeting *greeting); // closes the link; NULL is fine
/* The link becomes the caller's and the greeting is freed. */
struct link *greeting_take(struct greeting *greeting);

/* The side that dialled: HELLO, then WELCOME or the other's reason against it. The link stays the
 * caller's on failure, and is the greeting's on success. Caller owns. */
struct greeting *greeting_say_hello(struct link *link, uint32_t epoch, const struct handshake *mine,
                                    uint64_t timeout_ms, struct err *err);

/* The side that listens, in two steps, since who waits for HELLOs does not decide on them. As above
 * for the link. A HELLO that cannot be read is answered with the reason. */
struct greeting *greeting_hear_hello(struct link *link, uint64_t timeout_ms, struct err *err);
/* Holds theirs against mine: WELCOME, or FAIL with the sentence that is also in err. */
bool greeting_welcome(struct greeting *greeting, const struct handshake *mine, struct err *err);
/* FAIL with this reason. Frees the greeting. */
void greeting_refuse(struct greeting *greeting, const struct err *reason);

#endif
