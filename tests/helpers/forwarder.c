/* One thread accepts; each connection has a pump for either direction. The armed fault is the one
 * thing they share, under a mutex. */
#include "helpers/forwarder.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/socket.h"
#include "pipeline/bytes.h"

#define CONNECTIONS_CAP 256
#define PAYLOAD_CAP (64u << 20)
#define PATIENCE_MS 20000

struct pump {
    struct forwarder *forwarder;
    struct socket *from, *to; // the connection's
    bool backward;
    struct thread thread;
};

struct connection {
    struct socket *near, *far; // dialled in, dialled out
    struct pump pumps[2];
};

struct forwarder {
    struct address target;
    struct socket_listener *listener;
    struct socket_waker *waker;
    char address[ADDRESS_TEXT_CAP];
    struct thread thread;
    struct mutex mutex; // for what follows
    bool armed, armed_backward;
    enum forwarder_fault fault;
    enum frame_kind kind;
    uint32_t n_struck;
    struct connection *connections[CONNECTIONS_CAP];
    size_t n_connections;
};

/* A frame as bytes. */
struct parcel {
    uint8_t *bytes;
    size_t size;
};

static bool read_parcel(struct socket *from, struct parcel *parcel)
{
    uint8_t header[FRAME_HEADER_BYTES];
    struct err err;
    if (!socket_wait(from, UINT64_MAX, &err) ||
        !socket_read(from, header, sizeof header, PATIENCE_MS, &err))
        return false;
    uint64_t payload = bytes_get_u64(header + 16);
    must(payload <= PAYLOAD_CAP);
    parcel->size = sizeof header + (size_t)payload;
    parcel->bytes = xmalloc(parcel->size);
    memcpy(parcel->bytes, header, sizeof header);
    if (socket_read(from, parcel->bytes + sizeof header, (size_t)payload, PATIENCE_MS, &err))
        return true;
    free(parcel->bytes);
    return false;
}

static bool write_bytes(struct socket *to, const uint8_t *bytes, size_t size)
{
    struct str piece = { (const char *)bytes, size };
    struct err err;
    return socket_write(to, &piece, 1, PATIENCE_MS, &err);
}

/* Is it this frame's turn? Disarms. */
static bool strikes(struct pump *pump, const struct parcel *parcel, enum forwarder_fault *fault)
{
    struct forwarder *forwarder = pump->forwarder;
    mutex_lock(&forwarder->mutex);
    bool now = forwarder->armed && forwarder->armed_backward == pump->backward &&
               parcel->bytes[5] == (uint8_t)forwarder->kind;
    *fault = forwarder->fault;
    if (now) {
        forwarder->armed = false;
        forwarder->n_struck++;
    }
    mutex_unlock(&forwarder->mutex);
    return now;
}

static void wait_until_cut(struct socket *from)
{
    struct parcel parcel;
    while (read_parcel(from, &parcel))
        free(parcel.bytes);
}

/* False: this direction is over. */
static bool strike(struct pump *pump, const struct parcel *parcel, enum forwarder_fault fault)
{
    struct parcel next;
    bool good;
    switch (fault) {
    case FORWARDER_CUT:
        return false;
    case FORWARDER_TRUNCATE:
        write_bytes(pump->to, parcel->bytes, parcel->size / 2);
        return false;
    case FORWARDER_STALL:
        write_bytes(pump->to, parcel->bytes, parcel->size / 2);
        wait_until_cut(pump->from);
        return false;
    case FORWARDER_CORRUPT_HEADER:
        parcel->bytes[9] ^= 4;
        return write_bytes(pump->to, parcel->bytes, parcel->size);
    case FORWARDER_CORRUPT_PAYLOAD:
        parcel->bytes[parcel->size - 1] ^= 1;
        return write_bytes(pump->to, parcel->bytes, parcel->size);
    case FORWARDER_SWALLOW:
        return true;
    case FORWARDER_REPEAT:
        return write_bytes(pump->to, parcel->bytes, parcel->size) &&
               write_bytes(pump->to, parcel->bytes, parcel->size);
    case FORWARDER_REORDER:
        if (!read_parcel(pump->from, &next))
            return false;
        good = write_bytes(pump->to, next.bytes, next.size) &&
               write_bytes(pump->to, parcel->bytes, parcel->size);
        free(next.bytes);
        return good;
    case FORWARDER_DELAY:
        clock_sleep_ms(FORWARDER_DELAY_MS);
        return write_bytes(pump->to, parcel->bytes, parcel->size);
    default:
        return false;
    }
}

static void pump_frames(void *context)
{
    struct pump *pump = context;
    struct parcel parcel;
    bool good = true;
    while (good && read_parcel(pump->from, &parcel)) {
        enum forwarder_fault fault;
        if (strikes(pump, &parcel, &fault))
            good = strike(pump, &parcel, fault);
        else
            good = write_bytes(pump->to, parcel.bytes, parcel.size);
        free(parcel.bytes);
    }
    socket_cut(pump->from);
    socket_cut(pump->to);
}

static void start_pump(struct forwarder *forwarder, struct connection *connection, bool backward)
{
    struct pump *pump = &connection->pumps[backward];
    struct err err;
    pump->forwarder = forwarder;
    pump->backward = backward;
    pump->from = backward ? connection->far : connection->near;
    pump->to = backward ? connection->near : connection->far;
    must(thread_start(&pump->thread, "pump", pump_frames, pump, &err));
}

/* Takes the socket. */
static void connect_through(struct forwarder *forwarder, struct socket *near)
{
    struct err err;
    struct socket *far = socket_dial(&forwarder->target, 1000, NULL, &err);
    if (!far) { // as if nobody were there: the dialler tries again
        socket_close(near);
        return;
    }
    struct connection *connection = xcalloc(1, sizeof *connection);
    connection->near = near;
    connection->far = far;
    mutex_lock(&forwarder->mutex);
    must(forwarder->n_connections < CONNECTIONS_CAP);
    forwarder->connections[forwarder->n_connections++] = connection;
    mutex_unlock(&forwarder->mutex);
    start_pump(forwarder, connection, false);
    start_pump(forwarder, connection, true);
}

static void accept_all(void *context)
{
    struct forwarder *forwarder = context;
    struct socket *near;
    struct err err;
    while ((near = socket_accept(forwarder->listener, UINT64_MAX, forwarder->waker, &err)))
        connect_through(forwarder, near);
}

struct forwarder *forwarder_open(const char *listen, const char *target)
{
    struct forwarder *forwarder = xcalloc(1, sizeof *forwarder);
    struct address address;
    struct err err;
    mutex_init(&forwarder->mutex);
    must(address_parse(str_from(target), &forwarder->target, &err));
    must(address_parse(str_from(listen), &address, &err));
    forwarder->listener = socket_listen(&address, &err);
    must(forwarder->listener);
    address_format(socket_listener_address(forwarder->listener), forwarder->address);
    forwarder->waker = socket_waker_new(&err);
    must(forwarder->waker);
    must(thread_start(&forwarder->thread, "forward", accept_all, forwarder, &err));
    return forwarder;
}

void forwarder_close(struct forwarder *forwarder)
{
    if (!forwarder)
        return;
    socket_waker_wake(forwarder->waker);
    thread_join(&forwarder->thread);
    for (size_t i = 0; i < forwarder->n_connections; i++) {
        struct connection *connection = forwarder->connections[i];
        socket_cut(connection->near);
        socket_cut(connection->far);
        thread_join(&connection->pumps[0].thread);
        thread_join(&connection->pumps[1].thread);
        socket_close(connection->near);
        socket_close(connection->far);
        free(connection);
    }
    socket_listener_close(forwarder->listener);
    socket_waker_free(forwarder->waker);
    mutex_release(&forwarder->mutex);
    free(forwarder);
}

const char *forwarder_address(const struct forwarder *forwarder)
{
    return forwarder->address;
}

void forwarder_arm(struct forwarder *forwarder, enum forwarder_fault fault, enum frame_kind kind,
                   bool backward)
{
    mutex_lock(&forwarder->mutex);
    forwarder->armed = true;
    forwarder->fault = fault;
    forwarder->kind = kind;
    forwarder->armed_backward = backward;
    mutex_unlock(&forwarder->mutex);
}

uint32_t forwarder_struck(struct forwarder *forwarder)
{
    mutex_lock(&forwarder->mutex);
    uint32_t n = forwarder->n_struck;
    mutex_unlock(&forwarder->mutex);
    return n;
}
