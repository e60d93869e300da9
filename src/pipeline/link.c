/* Frames over bytes, the same for every kind of link.
 *
 * Sequence numbers and checksums are not there against the network (TCP has its own) but against
 * everything around it: a relay, a proxy, a tunnel or a peer that drops, repeats or mixes. The rule
 * is always the same: one doubt, and the link is over. */
#include "pipeline/link_internal.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"

const struct link_ops *const links[] = { &link_local, &link_tcp, NULL };

static const struct frame_limits greeting_limits = {
    .kinds = FRAME_BIT(FRAME_HELLO) | FRAME_BIT(FRAME_WELCOME) | FRAME_BIT(FRAME_FAIL),
};

static const struct link_ops *find_ops(const char *address, struct err *err)
{
    for (size_t i = 0; links[i]; i++) {
        if (links[i]->claims(address))
            return links[i];
    }
    err_set(err, ERR_ARGUMENT,
            "\"%.300s\" is no address of a stage: write host:port, [v6]:port or unix:/path",
            address);
    return NULL;
}

static struct link *link_new(const struct link_ops *ops, const struct link_options *options)
{
    struct link *link = xcalloc(1, sizeof *link);
    link->ops = ops;
    link->frame_ms = options->frame_ms ? options->frame_ms : LINK_FRAME_MS;
    link->spin_us = options->spin_us;
    link->limits = greeting_limits;
    return link;
}

struct link *link_dial(const char *address, const struct link_options *options, uint64_t timeout_ms,
                       struct socket_waker *waker, struct err *err)
{
    const struct link_ops *ops = find_ops(address, err);
    if (!ops)
        return NULL;
    struct link *link = link_new(ops, options);
    if (ops->dial(link, address, timeout_ms, waker, err))
        return link;
    free(link);
    return NULL;
}

void link_cut(struct link *link)
{
    link->ops->cut(link);
}

void link_close(struct link *link)
{
    if (!link)
        return;
    link->ops->close(link);
    free(link);
}

void link_limit(struct link *link, const struct frame_limits *limits)
{
    link->limits = *limits;
}

const char *link_peer(const struct link *link)
{
    return link->peer;
}

bool link_send(struct link *link, struct frame *frame, struct err *err)
{
    uint8_t header[FRAME_HEADER_BYTES];
    must(buf_ok(&frame->payload));
    frame->header.payload_bytes = frame->payload.size;
    frame->header.payload_xxh = hash_xxh3(frame->payload.data, frame->payload.size);
    frame->header.sequence_on_link = link->n_sent++;
    frame_header_encode(&frame->header, header);
    const struct str pieces[2] = { { (const char *)header, sizeof header },
                                   buf_view(&frame->payload) };
    return link->ops->write(link, pieces, err);
}

/* Room was capped by the header's checks; the bytes are read into place. */
static bool receive_payload(struct link *link, struct frame *frame, struct err *err)
{
    size_t size = (size_t)frame->header.payload_bytes;
    buf_clear(&frame->payload);
    char *to = buf_reserve(&frame->payload, size);
    must(to);
    if (size && !link->ops->read(link, to, size, link->frame_ms, err))
        return false;
    frame->payload.size = size;
    to[size] = '\0';
    if (hash_xxh3(to, size) != frame->header.payload_xxh)
        return err_set(err, ERR_CORRUPT, "the payload of a %s frame does not match its checksum",
                       frame_kind_name(frame->header.kind));
    return true;
}

bool link_receive(struct link *link, struct frame *frame, uint64_t timeout_ms, struct err *err)
{
    uint8_t header[FRAME_HEADER_BYTES];
    if (!link->ops->read(link, header, sizeof header, timeout_ms, err))
        return false;
    if (!frame_header_decode(header, &link->limits, &frame->header, err))
        return false;
    if (frame->header.sequence_on_link != link->n_received)
        return err_set(err, ERR_FORMAT, "frame %u of the link came where %u was due",
                       frame->header.sequence_on_link, link->n_received);
    link->n_received++;
    return receive_payload(link, frame, err);
}

struct link_listener *link_listen(const char *address, bool insecure, struct err *err)
{
    const struct link_ops *ops = find_ops(address, err);
    if (!ops)
        return NULL;
    struct link_listener *listener = xcalloc(1, sizeof *listener);
    listener->ops = ops;
    if (ops->listener->listen(listener, address, insecure, err))
        return listener;
    free(listener);
    return NULL;
}

void link_listener_close(struct link_listener *listener)
{
    if (!listener)
        return;
    listener->ops->listener->close(listener);
    free(listener);
}

const char *link_listener_address(const struct link_listener *listener)
{
    return listener->address;
}

struct link *link_accept(struct link_listener *listener, const struct link_options *options,
                         struct err *err)
{
    struct link *link = link_new(listener->ops, options);
    if (listener->ops->listener->accept(listener, link, err))
        return link;
    free(link);
    return NULL;
}

void link_listener_wake(struct link_listener *listener)
{
    listener->ops->listener->wake(listener);
}
