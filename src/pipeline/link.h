/* A link: frames to a neighbour and back, over whatever joins the two.
 *
 * Kinds of links are rows of links[]; an address chooses by its form: "host:port", "[v6]:port" and
 * "unix:/path" are sockets, "local:name" is within this process. Frames of all kinds of links pass
 * the same checks: header, size, checksum of the payload, sequence_on_link; the epoch is looked at
 * by the link's owner. After any failure a link is only good for closing: nothing that comes later
 * on it is believed.
 *
 * One thread may send, another receive at the same time; link_cut: any thread. Dialling, limits and
 * closing belong to one owner. Errors: ERR_PEER_LOST and ERR_TIMEOUT (dial again), ERR_CANCELLED,
 * those of frame_header_decode, ERR_BUSY (address in use), ERR_ARGUMENT (no such address). */
#ifndef CASCADIA_PIPELINE_LINK_H
#define CASCADIA_PIPELINE_LINK_H

#include "base/err.h"
#include "net/socket.h"
#include "pipeline/frame.h"

#include <stdbool.h>
#include <stdint.h>

#define LINK_FRAME_MS 10000 // what frame_ms 0 means

struct link;
struct link_listener;

struct link_options {
    uint64_t frame_ms; // 0: 10 s in which a frame that has begun must progress
    uint32_t spin_us;  // a reader polls so long before it sleeps
};

/* `waker` (may be NULL) ends a dial that waits. */
struct link *link_dial(const char *address, const struct link_options *options, uint64_t timeout_ms,
                       struct socket_waker *waker, struct err *err);
void link_cut(struct link *link);   // everything on it, waiting or to come, fails
void link_close(struct link *link); // NULL is fine

/* What link_receive lets pass from now on. A new link takes greetings only. */
void link_limit(struct link *link, const struct frame_limits *limits);
const char *link_peer(const struct link *link); // address as text; lives as long as the link

/* Sends header and payload; fills size, checksum and sequence_on_link of the header. */
bool link_send(struct link *link, struct frame *frame, struct err *err);
/* Next frame, into the caller's. Waits timeout_ms for it to begin (UINT64_MAX: for ever;
 * ERR_TIMEOUT before its first byte leaves the link good), then frame_ms for each piece of it. */
bool link_receive(struct link *link, struct frame *frame, uint64_t timeout_ms, struct err *err);

/* `insecure`: a bind beyond this machine is allowed, which without TLS anybody can read and join;
 * else ERR_ARGUMENT says what to do. */
struct link_listener *link_listen(const char *address, bool insecure, struct err *err);
void link_listener_close(struct link_listener *listener); // NULL is fine
/* With the real port. */
const char *link_listener_address(const struct link_listener *listener);
/* Next connection. Several threads may wait. */
struct link *link_accept(struct link_listener *listener, const struct link_options *options,
                         struct err *err);
/* Ends link_accept in all threads, for good: ERR_CANCELLED. Any thread. */
void link_listener_wake(struct link_listener *listener);

#endif
