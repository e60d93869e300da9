/* Sockets are non-blocking underneath; every wait is a poll with a deadline, so that no peer, by
 * silence or by slowness, holds a thread longer than its caller said.
 *
 * Reading waits with a bounded spin before it sleeps: a token's way through a chain is a few tens
 * of microseconds of work between naps, and a wake-up costs as much as a hop. Threads blocked in a
 * wait are ended in one of two ways: socket_cut (shutdown, which poll reports at once) for sockets
 * that have an owner, an eventfd for dialling and accepting, where there is no connection yet. */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

#define BUFFER_BYTES (1 << 20) // each direction; a decode row never waits for the window
#define BACKLOG 16
#define STALE_PROBE_MS 1000 // how long a Unix path may take to say that somebody is there

struct socket {
    int fd;
    uint32_t spin_us;
    char peer_text[ADDRESS_TEXT_CAP];
};

struct socket_listener {
    int fd;
    struct address address;
};

struct socket_waker {
    int fd;
};

/* A resolved address in the system's form. */
struct endpoint {
    struct sockaddr_storage storage;
    socklen_t size;
    int family;
};

/* --- errors ------------------------------------------------------------------------------------
 */

static enum err_code code_of(int number)
{
    switch (number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENOENT: // a Unix path that is not there yet
        return ERR_PEER_LOST;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case EADDRINUSE:
        return ERR_BUSY;
    case EADDRNOTAVAIL:
    case EINVAL:
        return ERR_ARGUMENT;
    default:
        return ERR_SYSTEM;
    }
}

static bool fail(struct err *err, int number, const char *what, const char *where)
{
    return err_set(err, code_of(number), "%s %s: %s", what, where, strerror(number));
}

/* --- waiting -----------------------------------------------------------------------------------
 */

struct socket_waker *socket_waker_new(struct err *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        err_set_errno(err, "no eventfd");
        return NULL;
    }
    struct socket_waker *waker = xcalloc(1, sizeof *waker);
    waker->fd = fd;
    return waker;
}

void socket_waker_free(struct socket_waker *waker)
{
    if (!waker)
        return;
    close(waker->fd);
    free(waker);
}

void socket_waker_wake(struct socket_waker *waker)
{
    eventfd_write(waker->fd, 1); // can only fail when it is already woken to the brim
}

void socket_waker_reset(struct socket_waker *waker)
{
    eventfd_t count;
    eventfd_read(waker->fd, &count); // fails when it was not woken: fine
}

static uint64_t deadline_after(uint64_t timeout_ms)
{
    uint64_t now = clock_ms();
    return timeout_ms > UINT64_MAX - now ? UINT64_MAX : now + timeout_ms;
}

/* For poll: what is left, at most a minute (it is then asked again). */
static int left_ms(uint64_t deadline)
{
    uint64_t now = clock_ms();
    if (now >= deadline)
        return 0;
    return deadline - now < 60000 ? (int)(deadline - now) : 60000;
}

/* Waits for `events` on fd. Errors and hang-ups count as events: the call that follows tells. */
static bool wait_for(int fd, short events, uint64_t timeout_ms, struct socket_waker *waker,
                     struct err *err)
{
    uint64_t deadline = deadline_after(timeout_ms);
    struct pollfd fds[2] = { { .fd = fd, .events = events },
                             { .fd = waker ? waker->fd : -1, .events = POLLIN } };
    for (;;) {
        int wait = left_ms(deadline);
        int ready = poll(fds, 2, wait);
        if (ready < 0 && errno != EINTR)
            return err_set_errno(err, "poll");
        if (ready > 0 && fds[1].revents)
            return err_set(err, ERR_CANCELLED, "waiting was ended");
        if (ready > 0)
            return true;
        if (wait == 0 && ready == 0)
            return err_set(err, ERR_TIMEOUT, "nothing for %llu ms", (unsigned long long)timeout_ms);
    }
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Polls without sleeping for spin_us. */
static bool spin_for(const struct socket *socket)
{
    uint64_t end = clock_ns() + (uint64_t)socket->spin_us * 1000;
    struct pollfd fd = { .fd = socket->fd, .events = POLLIN };
    do {
        if (poll(&fd, 1, 0) > 0)
            return true;
        relax();
    } while (clock_ns() < end);
    return false;
}

bool socket_wait(struct socket *socket, uint64_t timeout_ms, struct err *err)
{
    if (socket->spin_us && spin_for(socket))
        return true;
    return wait_for(socket->fd, POLLIN, timeout_ms, NULL, err);
}

/* --- sockets -----------------------------------------------------------------------------------
 */

static void tune(int fd, int family)
{
    int one = 1, bytes = BUFFER_BYTES;
    /* Each of these is for speed only: a system that refuses one still works. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void address_from_system(const struct sockaddr_storage *storage, struct address *out)
{
    *out = (struct address){ .kind = ADDRESS_TCP };
    if (storage->ss_family == AF_UNIX) {
        out->kind = ADDRESS_UNIX;
        return;
    }
    socklen_t size = storage->ss_family == AF_INET ? (socklen_t)sizeof(struct sockaddr_in)
                                                   : (socklen_t)sizeof(struct sockaddr_in6);
    char port[8] = "0";
    uint64_t number = 0;
    if (getnameinfo((const struct sockaddr *)storage, size, out->host, sizeof out->host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out->host, sizeof out->host, "?");
    static const char mapped[] = "::ffff:"; // IPv4 on a dual-stack listener
    if (strncmp(out->host, mapped, sizeof mapped - 1) == 0 && strchr(out->host, '.'))
        memmove(out->host, out->host + sizeof mapped - 1,
                strlen(out->host + sizeof mapped - 1) + 1);
    str_to_u64(str_from(port), &number);
    out->port = (uint16_t)number;
}

/* Takes fd. */
static struct socket *socket_from(int fd, const struct address *peer)
{
    struct socket *socket = xcalloc(1, sizeof *socket);
    socket->fd = fd;
    address_format(peer, socket->peer_text);
    return socket;
}

void socket_close(struct socket *socket)
{
    if (!socket)
        return;
    close(socket->fd);
    free(socket);
}

void socket_cut(struct socket *socket)
{
    shutdown(socket->fd, SHUT_RDWR);
}

const char *socket_peer(const struct socket *socket)
{
    return socket->peer_text;
}

void socket_spin(struct socket *socket, uint32_t spin_us)
{
    socket->spin_us = spin_us;
}

bool socket_read(struct socket *socket, void *bytes, size_t size, uint64_t progress_ms,
                 struct err *err)
{
    char *to = bytes;
    while (size > 0) {
        ssize_t got = recv(socket->fd, to, size, 0);
        if (got == 0)
            return err_set(err, ERR_PEER_LOST, "%s closed the connection", socket->peer_text);
        if (got > 0) {
            to += got;
            size -= (size_t)got;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket->fd, POLLIN, progress_ms, NULL, err))
                return err_wrap(err, "reading from %s", socket->peer_text);
        } else if (errno != EINTR) {
            return fail(err, errno, "reading from", socket->peer_text);
        }
    }
    return true;
}

/* Drops the first `sent` bytes of the vector. */
static void advance(struct iovec **parts, size_t *n_parts, size_t sent)
{
    while (*n_parts > 0 && sent >= (*parts)->iov_len) {
        sent -= (*parts)->iov_len;
        (*parts)++;
        (*n_parts)--;
    }
    if (*n_parts > 0) {
        (*parts)->iov_base = (char *)(*parts)->iov_base + sent;
        (*parts)->iov_len -= sent;
    }
}

bool socket_write(struct socket *socket, const struct str *pieces, size_t n_pieces,
                  uint64_t progress_ms, struct err *err)
{
    struct iovec storage[SOCKET_PIECES_CAP], *parts = storage;
    size_t n_parts = n_pieces;
    must(n_pieces <= SOCKET_PIECES_CAP);
    for (size_t i = 0; i < n_pieces; i++) // the system's type has no const; it only reads
        storage[i] = (struct iovec){ .iov_base = (void *)(uintptr_t)pieces[i].data,
                                     .iov_len = pieces[i].size };
    advance(&parts, &n_parts, 0);
    while (n_parts > 0) {
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = n_parts };
        ssize_t sent = sendmsg(socket->fd, &message, MSG_NOSIGNAL);
        if (sent >= 0) {
            advance(&parts, &n_parts, (size_t)sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket->fd, POLLOUT, progress_ms, NULL, err))
                return err_wrap(err, "writing to %s", socket->peer_text);
        } else if (errno != EINTR) {
            return fail(err, errno, "writing to", socket->peer_text);
        }
    }
    return true;
}

/* --- addresses ---------------------------------------------------------------------------------
 */

static void endpoint_unix(const struct address *address, struct endpoint *out)
{
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    _Static_assert(sizeof path.sun_path >= ADDRESS_PATH_CAP, "a path fits the system's");
    memcpy(path.sun_path, address->path, sizeof address->path);
    *out = (struct endpoint){ .size = sizeof path, .family = AF_UNIX };
    memcpy(&out->storage, &path, sizeof path);
}

/* The system's list for host and port; freeaddrinfo. NULL on failure. */
static struct addrinfo *look_up(const struct address *address, int flags, struct err *err)
{
    char port[8];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
    struct addrinfo *list = NULL;
    snprintf(port, sizeof port, "%u", address->port);
    int status = getaddrinfo(address->host, port, &hints, &list);
    if (status == 0)
        return list;
    err_set(err, status == EAI_AGAIN ? ERR_PEER_LOST : ERR_NOT_FOUND, "host %s: %s", address->host,
            gai_strerror(status));
    return NULL;
}

static void endpoint_from(const struct addrinfo *info, struct endpoint *out)
{
    must(info->ai_addrlen <= sizeof out->storage);
    *out = (struct endpoint){ .size = info->ai_addrlen, .family = info->ai_family };
    memcpy(&out->storage, info->ai_addr, info->ai_addrlen);
}

/* --- dial --------------------------------------------------------------------------------------
 */

/* Whether the connection that was begun on fd is made; waits for it. */
static bool finish_connect(int fd, const char *where, uint64_t timeout_ms,
                           struct socket_waker *waker, struct err *err)
{
    int number = 0;
    socklen_t size = sizeof number;
    if (!wait_for(fd, POLLOUT, timeout_ms, waker, err))
        return err_wrap(err, "connecting to %s", where);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) < 0)
        number = errno;
    return number == 0 || fail(err, number, "connecting to", where);
}

/* A connected descriptor, or -1. */
static int connect_to(const struct endpoint *endpoint, const char *where, uint64_t timeout_ms,
                      struct socket_waker *waker, struct err *err)
{
    int fd = socket(endpoint->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        err_set_errno(err, "no socket");
        return -1;
    }
    tune(fd, endpoint->family);
    bool connected = connect(fd, (const struct sockaddr *)&endpoint->storage, endpoint->size) == 0;
    if (!connected && (errno == EINPROGRESS || errno == EINTR))
        connected = finish_connect(fd, where, timeout_ms, waker, err);
    else if (!connected && errno == EAGAIN) // a Unix listener whose backlog is full
        err_set(err, ERR_PEER_LOST, "connecting to %s: it accepts nobody now", where);
    else if (!connected)
        fail(err, errno, "connecting to", where);
    if (connected)
        return fd;
    close(fd);
    return -1;
}

static int dial_names(const struct address *address, const char *where, uint64_t timeout_ms,
                      struct socket_waker *waker, struct err *err)
{
    uint64_t deadline = deadline_after(timeout_ms);
    int fd = -1;
    struct addrinfo *list = look_up(address, 0, err);
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        struct endpoint endpoint;
        endpoint_from(at, &endpoint);
        fd = connect_to(&endpoint, where, (uint64_t)left_ms(deadline), waker, err);
        if (fd < 0 && err->code == ERR_CANCELLED)
            break;
    }
    if (list)
        freeaddrinfo(list);
    return fd;
}

struct socket *socket_dial(const struct address *address, uint64_t timeout_ms,
                           struct socket_waker *waker, struct err *err)
{
    char where[ADDRESS_TEXT_CAP];
    int fd;
    address_format(address, where);
    if (address->kind == ADDRESS_UNIX) {
        struct endpoint endpoint;
        endpoint_unix(address, &endpoint);
        fd = connect_to(&endpoint, where, timeout_ms, waker, err);
    } else {
        fd = dial_names(address, where, timeout_ms, waker, err);
    }
    return fd < 0 ? NULL : socket_from(fd, address);
}

/* --- listen ------------------------------------------------------------------------------------
 */

/* Removes a Unix path that a process left behind. ERR_BUSY when somebody answers there. */
static bool clear_path(const struct address *address, struct err *err)
{
    struct stat about;
    struct err none;
    if (lstat(address->path, &about) < 0)
        return true;
    if (!S_ISSOCK(about.st_mode))
        return err_set(err, ERR_BUSY, "unix:%s is a file, not a socket", address->path);
    struct socket *other = socket_dial(address, STALE_PROBE_MS, NULL, &none);
    if (other || none.code != ERR_PEER_LOST) {
        socket_close(other);
        return err_set(err, ERR_BUSY, "another process listens at unix:%s", address->path);
    }
    if (unlink(address->path) < 0 && errno != ENOENT)
        return err_set_errno(err, "unix:%s", address->path);
    return true;
}

/* A listening descriptor, or -1. */
static int listen_at(const struct endpoint *endpoint, const struct address *address,
                     struct err *err)
{
    char where[ADDRESS_TEXT_CAP];
    int one = 1, zero = 0;
    address_format(address, where);
    int fd = socket(endpoint->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        err_set_errno(err, "no socket");
        return -1;
    }
    if (endpoint->family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (endpoint->family == AF_INET6) // "::" takes IPv4 too
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    tune(fd, endpoint->family); // accepted sockets inherit the buffers, and the window scale
    if (bind(fd, (const struct sockaddr *)&endpoint->storage, endpoint->size) == 0 &&
        (address->kind == ADDRESS_TCP || chmod(address->path, S_IRUSR | S_IWUSR) == 0) &&
        listen(fd, BACKLOG) == 0)
        return fd;
    if (errno == ENOENT) // the folder of a Unix path; dialling takes it for "not there yet"
        err_set_errno(err, "listening at %s", where);
    else
        fail(err, errno, "listening at", where);
    close(fd);
    return -1;
}

static void note_bound_port(struct socket_listener *listener)
{
    struct sockaddr_storage bound = { 0 };
    socklen_t size = sizeof bound;
    struct address address;
    if (getsockname(listener->fd, (struct sockaddr *)&bound, &size) < 0)
        return;
    address_from_system(&bound, &address);
    listener->address.port = address.port;
}

struct socket_listener *socket_listen(const struct address *address, struct err *err)
{
    struct endpoint endpoint;
    if (address->kind == ADDRESS_UNIX) {
        if (!clear_path(address, err))
            return NULL;
        endpoint_unix(address, &endpoint);
    } else {
        struct addrinfo *list = look_up(address, AI_PASSIVE, err);
        if (!list)
            return NULL;
        endpoint_from(list, &endpoint);
        freeaddrinfo(list);
    }
    int fd = listen_at(&endpoint, address, err);
    if (fd < 0)
        return NULL;
    struct socket_listener *listener = xcalloc(1, sizeof *listener);
    listener->fd = fd;
    listener->address = *address;
    if (address->kind == ADDRESS_TCP)
        note_bound_port(listener);
    return listener;
}

void socket_listener_close(struct socket_listener *listener)
{
    if (!listener)
        return;
    close(listener->fd);
    if (listener->address.kind == ADDRESS_UNIX)
        unlink(listener->address.path);
    free(listener);
}

const struct address *socket_listener_address(const struct socket_listener *listener)
{
    return &listener->address;
}

/* Errors of the connection that was to be accepted, not of the listener: try the next one. */
static bool is_passing(int number)
{
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR || number == ECONNABORTED ||
           number == EPROTO || number == ENETDOWN || number == EHOSTUNREACH ||
           number == ENETUNREACH;
}

struct socket *socket_accept(struct socket_listener *listener, uint64_t timeout_ms,
                             struct socket_waker *waker, struct err *err)
{
    uint64_t deadline = deadline_after(timeout_ms);
    struct sockaddr_storage from;
    struct address peer;
    for (;;) {
        uint64_t wait = timeout_ms == UINT64_MAX ? UINT64_MAX : (uint64_t)left_ms(deadline);
        if (!wait_for(listener->fd, POLLIN, wait, waker, err))
            return NULL;
        from = (struct sockaddr_storage){ 0 };
        socklen_t size = sizeof from;
        int fd =
            accept4(listener->fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            tune(fd, from.ss_family);
            address_from_system(&from, &peer);
            if (peer.kind == ADDRESS_UNIX)
                peer = listener->address;
            return socket_from(fd, &peer);
        }
        if (!is_passing(errno)) {
            err_set_errno(err, "accepting");
            return NULL;
        }
    }
}
