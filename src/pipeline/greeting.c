/* HELLO and its answers. Whoever finds a mismatch tells the other before closing, so that the
 * sentence stands in both logs. */
#include "pipeline/greeting.h"

#include <stdlib.h>

#include "base/memory.h"
#include "pipeline/payload.h"

void greeting_free(struct greeting *greeting)
{
    if (!greeting)
        return;
    link_close(greeting->link);
    free(greeting);
}

struct link *greeting_take(struct greeting *greeting)
{
    struct link *link = greeting->link;
    free(greeting);
    return link;
}

static bool send_handshake(struct link *link, enum frame_kind kind, uint32_t epoch,
                           const struct handshake *mine, struct err *err)
{
    struct frame frame;
    frame_init(&frame);
    frame_start(&frame, kind, epoch);
    handshake_write(&frame, mine);
    bool sent = link_send(link, &frame, err);
    frame_release(&frame);
    return sent;
}

/* Last words; whether they arrive is not known. */
static void send_reason(struct link *link, uint32_t epoch, const struct err *reason)
{
    struct frame frame;
    struct err err;
    frame_init(&frame);
    frame_start(&frame, FRAME_FAIL, epoch);
    frame.header.flags = FRAME_FLAG_EPOCH;
    payload_write_fail(&frame, reason);
    link_send(link, &frame, &err);
    frame_release(&frame);
}

/* Receives a greeting of `kind`; a FAIL becomes err. */
static bool receive_handshake(struct link *link, enum frame_kind kind, uint64_t timeout_ms,
                              uint32_t *epoch, struct handshake *theirs, struct err *err)
{
    struct frame frame;
    frame_init(&frame);
    bool done = false;
    if (!link_receive(link, &frame, timeout_ms, err))
        goto out;
    *epoch = frame.header.epoch;
    if (frame.header.kind == FRAME_FAIL)
        payload_read_fail(&frame, err);
    else if (frame.header.kind != kind)
        err_set(err, ERR_FORMAT, "a %s came where %s was due", frame_kind_name(frame.header.kind),
                frame_kind_name(kind));
    else
        done = handshake_read(&frame, theirs, err);
out:
    frame_release(&frame);
    return done;
}

static struct greeting *greeting_new(struct link *link, uint32_t epoch,
                                     const struct handshake *theirs)
{
    struct greeting *greeting = xcalloc(1, sizeof *greeting);
    *greeting = (struct greeting){ .link = link, .epoch = epoch, .theirs = *theirs };
    return greeting;
}

struct greeting *greeting_say_hello(struct link *link, uint32_t epoch, const struct handshake *mine,
                                    uint64_t timeout_ms, struct err *err)
{
    struct handshake theirs;
    uint32_t answered;
    if (!send_handshake(link, FRAME_HELLO, epoch, mine, err) ||
        !receive_handshake(link, FRAME_WELCOME, timeout_ms, &answered, &theirs, err))
        return NULL;
    if (answered != epoch)
        err_set(err, ERR_FORMAT, "a WELCOME of epoch %u answers a HELLO of epoch %u", answered,
                epoch);
    else if (handshake_check(mine, &theirs, err))
        return greeting_new(link, epoch, &theirs);
    send_reason(link, epoch, err);
    return NULL;
}

struct greeting *greeting_hear_hello(struct link *link, uint64_t timeout_ms, struct err *err)
{
    struct handshake theirs;
    uint32_t epoch = 0;
    if (receive_handshake(link, FRAME_HELLO, timeout_ms, &epoch, &theirs, err)) {
        if (epoch != 0)
            return greeting_new(link, epoch, &theirs);
        err_set(err, ERR_FORMAT, "a HELLO of epoch 0 cannot be");
    }
    if (err->code == ERR_UNSUPPORTED || err->code == ERR_FORMAT)
        send_reason(link, epoch, err);
    return NULL;
}

bool greeting_welcome(struct greeting *greeting, const struct handshake *mine, struct err *err)
{
    struct handshake answer = *mine;
    answer.role = greeting->theirs.role;
    if (handshake_check(&greeting->theirs, &answer, err))
        return send_handshake(greeting->link, FRAME_WELCOME, greeting->epoch, &answer, err);
    send_reason(greeting->link, greeting->epoch, err);
    return false;
}

void greeting_refuse(struct greeting *greeting, const struct err *reason)
{
    send_reason(greeting->link, greeting->epoch, reason);
    greeting_free(greeting);
}
