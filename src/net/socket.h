/* Stream sockets, TCP and Unix: dial, listen, read and write whole pieces, all with time limits.
 *
 * A socket may be read by one thread and written by another at the same time; socket_cut may be
 * called by any third. Opening and closing belong to one owner.
 *
 * Errors say what to do: ERR_PEER_LOST: the other side is not there, or no longer (refused, reset,
 * unreachable, end of stream): dial again. ERR_TIMEOUT: the time is over. ERR_CANCELLED: the waker
 * was woken. ERR_NOT_FOUND: no such host. ERR_BUSY: the address is in use. ERR_SYSTEM: the rest. */
#ifndef CASCADIA_NET_SOCKET_H
#define CASCADIA_NET_SOCKET_H

#include "base/err.h"
#include "base/str.h"
#include "net/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOCKET_PIECES_CAP 4 // of one socket_write

struct socket;
struct socket_listener;

/* Ends waiting in other threads: once woken, every wait that was given it returns ERR_CANCELLED,
 * until it is reset. wake: any thread. */
struct socket_waker;
struct socket_waker *socket_waker_new(struct err *err);
void socket_waker_free(struct socket_waker *waker); // NULL is fine
void socket_waker_wake(struct socket_waker *waker);
void socket_waker_reset(struct socket_waker *waker);

/* Connects within timeout_ms. A name's addresses are tried in turn; looking a name up is the
 * system's affair and not within the time. `waker` may be NULL. */
struct socket *socket_dial(const struct address *address, uint64_t timeout_ms,
                           struct socket_waker *waker, struct err *err);
void socket_close(struct socket *socket); // NULL is fine
/* Ends both directions: every read and write, blocked or to come, fails. Any thread. */
void socket_cut(struct socket *socket);

/* "127.0.0.1:51234", "[::1]:51234" or "unix:/path"; lives as long as the socket. */
const char *socket_peer(const struct socket *socket);
/* How long socket_wait polls before it sleeps; 0 (the default): not at all. */
void socket_spin(struct socket *socket, uint32_t spin_us);

/* Waits until there is something to read, the end of the stream included. UINT64_MAX: for ever. */
bool socket_wait(struct socket *socket, uint64_t timeout_ms, struct err *err);
/* Exactly `size` bytes. ERR_TIMEOUT when none comes for progress_ms; what was read is then lost, so
 * the socket is only good for closing. */
bool socket_read(struct socket *socket, void *bytes, size_t size, uint64_t progress_ms,
                 struct err *err);
/* All pieces in order, with one system call if the system takes them. ERR_TIMEOUT as above. */
bool socket_write(struct socket *socket, const struct str *pieces, size_t n_pieces,
                  uint64_t progress_ms, struct err *err);

/* Binds and listens. A Unix path that nobody listens at any more is replaced; its file is for this
 * user only. */
struct socket_listener *socket_listen(const struct address *address, struct err *err);
void socket_listener_close(struct socket_listener *listener); // removes a Unix path; NULL is fine
/* As bound: with the real port. */
const struct address *socket_listener_address(const struct socket_listener *listener);
/* Next connection. Several threads may accept on one listener. `waker` may be NULL. */
struct socket *socket_accept(struct socket_listener *listener, uint64_t timeout_ms,
                             struct socket_waker *waker, struct err *err);

#endif
