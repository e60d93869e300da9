/* Links within one process, for stages on threads of their own: tests, and models that are cut
 * although one machine runs them. Bytes go through the same codec and checks as on a wire.
 *
 * Listeners are found by name in a table of this process. It is the one piece of shared state here
 * and stands in for what the system's port table is to sockets; a mutex guards it and is held for a
 * few instructions.
 *
 * A pipe is two bounded queues of messages, one a direction, owned by its two ends together. */
#include "pipeline/link_internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/queue.h"
#include "base/thread.h"

#define PREFIX "local:"
#define LISTENERS_CAP 64
#define PENDING_CAP 16   // connections that nobody has accepted yet
#define MESSAGES_CAP 256 // in one direction

struct message {
    char *bytes;
    size_t size;
};

struct pipe {
    struct queue *ways[2]; // struct message
    atomic_int n_ends;
};

struct local_end {
    struct pipe *pipe;
    int side;               // reads ways[side], writes ways[!side]
    struct message reading; // what is left of the message being read
    size_t read_bytes;
    atomic_bool cut; // what still lies in the pipe is not for this end any more
};

struct local_listener {
    char *name;
    struct queue *pending; // struct pipe *
};

static struct {
    pthread_mutex_t mutex;
    struct local_listener *rows[LISTENERS_CAP];
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool local_claims(const char *address)
{
    return str_starts(str_from(address), STR(PREFIX));
}

/* --- pipes -------------------------------------------------------------------------------------
 */

static void pipe_leave(struct pipe *pipe)
{
    struct message message;
    queue_close(pipe->ways[0]);
    queue_close(pipe->ways[1]);
    if (atomic_fetch_sub(&pipe->n_ends, 1) > 1)
        return;
    for (int i = 0; i < 2; i++) {
        while (queue_pop(pipe->ways[i], &message))
            free(message.bytes);
        queue_free(pipe->ways[i]);
    }
    free(pipe);
}

static struct pipe *pipe_new(void)
{
    struct pipe *pipe = xcalloc(1, sizeof *pipe);
    for (int i = 0; i < 2; i++)
        pipe->ways[i] = queue_new(sizeof(struct message), MESSAGES_CAP);
    atomic_init(&pipe->n_ends, 2);
    return pipe;
}

/* One of the pipe's ends becomes the link's. */
static void use_pipe(struct link *link, struct pipe *pipe, int side, const char *name)
{
    struct local_end *end = xcalloc(1, sizeof *end);
    end->pipe = pipe;
    end->side = side;
    link->state = end;
    snprintf(link->peer, sizeof link->peer, PREFIX "%s", name);
}

static bool local_dial(struct link *link, const char *address, uint64_t timeout_ms,
                       struct socket_waker *waker, struct err *err)
{
    const char *name = address + strlen(PREFIX);
    struct pipe *pipe = pipe_new();
    bool pushed = false;
    (void)timeout_ms; // never waits
    (void)waker;
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < LISTENERS_CAP && !pushed; i++) {
        if (table.rows[i] && strcmp(table.rows[i]->name, name) == 0)
            pushed = queue_push(table.rows[i]->pending, &pipe);
    }
    pthread_mutex_unlock(&table.mutex);
    if (!pushed) {
        pipe_leave(pipe);
        pipe_leave(pipe);
        return err_set(err, ERR_PEER_LOST, "nobody listens at %s", address);
    }
    use_pipe(link, pipe, 0, name);
    return true;
}

static bool local_read(struct link *link, void *bytes, size_t size, uint64_t wait_ms,
                       struct err *err)
{
    struct local_end *end = link->state;
    char *to = bytes;
    while (size > 0) {
        if (atomic_load(&end->cut))
            return err_set(err, ERR_PEER_LOST, "the link to %s was cut", link->peer);
        if (end->read_bytes == end->reading.size) {
            free(end->reading.bytes);
            end->reading = (struct message){ 0 };
            end->read_bytes = 0;
            if (!queue_pop_wait(end->pipe->ways[end->side], &end->reading, wait_ms)) {
                bool closed = queue_closed(end->pipe->ways[end->side]);
                return err_set(err, closed ? ERR_PEER_LOST : ERR_TIMEOUT, "%s %s", link->peer,
                               closed ? "closed the connection" : "is silent");
            }
            wait_ms = link->frame_ms;
        }
        size_t left = end->reading.size - end->read_bytes, n = size < left ? size : left;
        memcpy(to, end->reading.bytes + end->read_bytes, n);
        end->read_bytes += n;
        to += n;
        size -= n;
    }
    return true;
}

static bool local_write(struct link *link, const struct str pieces[2], struct err *err)
{
    struct local_end *end = link->state;
    struct queue *way = end->pipe->ways[!end->side];
    struct message message = { .size = pieces[0].size + pieces[1].size };
    message.bytes = xmalloc(message.size + 1);
    memcpy(message.bytes, pieces[0].data, pieces[0].size);
    if (pieces[1].size)
        memcpy(message.bytes + pieces[0].size, pieces[1].data, pieces[1].size);
    if (queue_push_wait(way, &message, link->frame_ms))
        return true;
    free(message.bytes);
    bool closed = queue_closed(way);
    return err_set(err, closed ? ERR_PEER_LOST : ERR_TIMEOUT, "%s %s", link->peer,
                   closed ? "closed the connection" : "takes nothing");
}

static void local_cut(struct link *link)
{
    struct local_end *end = link->state;
    atomic_store(&end->cut, true);
    queue_close(end->pipe->ways[0]);
    queue_close(end->pipe->ways[1]);
}

static void local_close(struct link *link)
{
    struct local_end *end = link->state;
    pipe_leave(end->pipe);
    free(end->reading.bytes);
    free(end);
}

/* --- listeners ---------------------------------------------------------------------------------
 */

/* A free row of the table, or -1; -2 when the name is taken. Under the lock. */
static int find_row(const char *name)
{
    int row = -1;
    for (int i = 0; i < LISTENERS_CAP; i++) {
        if (!table.rows[i])
            row = row < 0 ? i : row;
        else if (strcmp(table.rows[i]->name, name) == 0)
            return -2;
    }
    return row;
}

static void listener_free(struct local_listener *local)
{
    struct pipe *pipe;
    while (queue_pop(local->pending, &pipe)) // the dialled ends see that nobody is there
        pipe_leave(pipe);
    queue_free(local->pending);
    free(local->name);
    free(local);
}

static bool local_listen(struct link_listener *listener, const char *address, bool insecure,
                         struct err *err)
{
    struct local_listener *local = xcalloc(1, sizeof *local);
    (void)insecure; // never leaves the process
    local->name = xstrdup(address + strlen(PREFIX));
    local->pending = queue_new(sizeof(struct pipe *), PENDING_CAP);
    pthread_mutex_lock(&table.mutex);
    int row = find_row(local->name);
    if (row >= 0)
        table.rows[row] = local;
    pthread_mutex_unlock(&table.mutex);
    if (row < 0) {
        listener_free(local);
        return err_set(err, ERR_BUSY, "%.200s: %s", address,
                       row == -1 ? "too many listeners" : "another stage listens there");
    }
    listener->state = local;
    snprintf(listener->address, sizeof listener->address, "%s", address);
    return true;
}

static bool local_accept(struct link_listener *listener, struct link *link, struct err *err)
{
    struct local_listener *local = listener->state;
    struct pipe *pipe;
    if (!queue_pop_wait(local->pending, &pipe, UINT64_MAX))
        return err_set(err, ERR_CANCELLED, "waiting was ended");
    use_pipe(link, pipe, 1, local->name);
    return true;
}

static void local_wake(struct link_listener *listener)
{
    struct local_listener *local = listener->state;
    queue_close(local->pending);
}

static void local_listener_close(struct link_listener *listener)
{
    struct local_listener *local = listener->state;
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < LISTENERS_CAP; i++) {
        if (table.rows[i] == local)
            table.rows[i] = NULL;
    }
    pthread_mutex_unlock(&table.mutex);
    listener_free(local);
}

static const struct link_listener_ops local_listener_ops = {
    .listen = local_listen,
    .accept = local_accept,
    .wake = local_wake,
    .close = local_listener_close,
};

const struct link_ops link_local = {
    .name = "local",
    .summary = "queues within one process: local:name",
    .claims = local_claims,
    .dial = local_dial,
    .read = local_read,
    .write = local_write,
    .cut = local_cut,
    .close = local_close,
    .listener = &local_listener_ops,
};
