/* Links over stream sockets: TCP between machines, Unix sockets between processes of one. */
#include "pipeline/link_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

struct tcp_listener {
    struct socket_listener *sockets;
    struct socket_waker *waker;
};

static bool tcp_claims(const char *address)
{
    struct address parsed;
    struct err err;
    return address_parse(str_from(address), &parsed, &err);
}

/* Takes the socket. */
static void use_socket(struct link *link, struct socket *socket)
{
    socket_spin(socket, link->spin_us);
    link->state = socket;
    snprintf(link->peer, sizeof link->peer, "%s", socket_peer(socket));
}

static bool tcp_dial(struct link *link, const char *address, uint64_t timeout_ms,
                     struct socket_waker *waker, struct err *err)
{
    struct address parsed;
    if (!address_parse(str_from(address), &parsed, err))
        return false;
    struct socket *socket = socket_dial(&parsed, timeout_ms, waker, err);
    if (!socket)
        return false;
    use_socket(link, socket);
    return true;
}

static bool tcp_read(struct link *link, void *bytes, size_t size, uint64_t wait_ms, struct err *err)
{
    return socket_wait(link->state, wait_ms, err) &&
           socket_read(link->state, bytes, size, link->frame_ms, err);
}

static bool tcp_write(struct link *link, const struct str pieces[2], struct err *err)
{
    return socket_write(link->state, pieces, 2, link->frame_ms, err);
}

static void tcp_cut(struct link *link)
{
    socket_cut(link->state);
}

static void tcp_close(struct link *link)
{
    socket_close(link->state);
}

static void tcp_listener_close(struct link_listener *listener)
{
    struct tcp_listener *tcp = listener->state;
    socket_listener_close(tcp->sockets);
    socket_waker_free(tcp->waker);
    free(tcp);
}

static bool tcp_listen(struct link_listener *listener, const char *address, bool insecure,
                       struct err *err)
{
    struct address parsed;
    if (!address_parse(str_from(address), &parsed, err))
        return false;
    if (!insecure && !address_is_loopback(&parsed))
        return err_set(err, ERR_ARGUMENT,
                       "%s is reachable from other machines, and links are not encrypted yet: "
                       "listen on 127.0.0.1 or a Unix socket, or say --insecure if everybody on "
                       "that network may read and join",
                       address);
    struct tcp_listener *tcp = xcalloc(1, sizeof *tcp);
    listener->state = tcp;
    tcp->waker = socket_waker_new(err);
    tcp->sockets = tcp->waker ? socket_listen(&parsed, err) : NULL;
    if (!tcp->sockets) {
        tcp_listener_close(listener);
        return false;
    }
    address_format(socket_listener_address(tcp->sockets), listener->address);
    return true;
}

static bool tcp_accept(struct link_listener *listener, struct link *link, struct err *err)
{
    struct tcp_listener *tcp = listener->state;
    struct socket *socket = socket_accept(tcp->sockets, UINT64_MAX, tcp->waker, err);
    if (!socket)
        return false;
    use_socket(link, socket);
    return true;
}

static void tcp_wake(struct link_listener *listener)
{
    struct tcp_listener *tcp = listener->state;
    socket_waker_wake(tcp->waker);
}

static const struct link_listener_ops tcp_listener_ops = {
    .listen = tcp_listen,
    .accept = tcp_accept,
    .wake = tcp_wake,
    .close = tcp_listener_close,
};

const struct link_ops link_tcp = {
    .name = "tcp",
    .summary = "stream sockets: host:port, [v6]:port or unix:/path",
    .claims = tcp_claims,
    .dial = tcp_dial,
    .read = tcp_read,
    .write = tcp_write,
    .cut = tcp_cut,
    .close = tcp_close,
    .listener = &tcp_listener_ops,
};
