/* A few threads that each accept a link, wait for its HELLO for as long as a frame may take, and
 * hand it to the owner. Neighbours say HELLO at once; strangers that stay silent would hold every
 * thread. So the one who takes the last free thread sends away whom the others have waited for
 * longest: some thread is always about to accept, however many strangers there are. */
#include "pipeline/acceptor.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pipeline/link_guard.h"

#define GREETERS 4
#define TROUBLE_PAUSE_MS 100 // after an error of accepting itself, say no file descriptors
#define LOG_EVERY_MS 1000

struct greeter {
    struct acceptor *acceptor;
    struct link_guard guard;
    struct thread thread;
    struct log_limit limit; // the thread's
    uint64_t waits;         // the acceptor's number of the link that it waits on; 0: on none
};

struct acceptor {
    struct acceptor_options options; // listen is not kept
    struct link_listener *listener;
    struct mutex mutex; // guards `waits` of the greeters
    uint64_t n_waits;   // so far
    struct greeter greeters[GREETERS];
};

static void begin_wait(struct greeter *greeter)
{
    struct acceptor *acceptor = greeter->acceptor;
    struct greeter *oldest = greeter;
    bool any_free = false;
    mutex_lock(&acceptor->mutex);
    greeter->waits = ++acceptor->n_waits;
    for (int i = 0; i < GREETERS; i++) {
        struct greeter *other = &acceptor->greeters[i];
        any_free = any_free || other->waits == 0;
        if (other->waits < oldest->waits)
            oldest = other;
    }
    if (!any_free)
        link_guard_cut(&oldest->guard);
    mutex_unlock(&acceptor->mutex);
}

static void end_wait(struct greeter *greeter)
{
    mutex_lock(&greeter->acceptor->mutex);
    greeter->waits = 0;
    mutex_unlock(&greeter->acceptor->mutex);
}

/* Takes the link. */
static void hear(struct greeter *greeter, struct link *link)
{
    const struct acceptor_options *options = &greeter->acceptor->options;
    uint64_t wait_ms = options->link.frame_ms ? options->link.frame_ms : LINK_FRAME_MS;
    struct greeting *greeting = NULL;
    struct err err = { 0 };
    if (link_guard_hold(&greeter->guard, link)) {
        begin_wait(greeter);
        greeting = greeting_hear_hello(link, wait_ms, &err);
        link_guard_let_go(&greeter->guard);
        end_wait(greeter);
    }
    if (greeting &&
        event_push_greeting(options->events, EVENT_CALLED, 0, greeting, &greeter->guard))
        return;
    if (!greeting && !link_guard_ended(&greeter->guard) &&
        log_limit_pass(&greeter->limit, LOG_EVERY_MS))
        log_warn("%s dialled in and said no HELLO: %s", link_peer(link), err.text);
    if (greeting)
        greeting_free(greeting);
    else
        link_close(link);
}

static void run(void *context)
{
    struct greeter *greeter = context;
    struct acceptor *acceptor = greeter->acceptor;
    struct err err;
    while (!link_guard_ended(&greeter->guard)) {
        struct link *link = link_accept(acceptor->listener, &acceptor->options.link, &err);
        if (link) {
            hear(greeter, link);
        } else if (err.code != ERR_CANCELLED) {
            if (log_limit_pass(&greeter->limit, LOG_EVERY_MS))
                log_warn("listening at %s: %s", acceptor_address(acceptor), err.text);
            clock_sleep_ms(TROUBLE_PAUSE_MS);
        }
    }
}

struct acceptor *acceptor_start(const struct acceptor_options *options, struct err *err)
{
    struct link_listener *listener = link_listen(options->listen, options->insecure, err);
    if (!listener)
        return NULL;
    struct acceptor *acceptor = xcalloc(1, sizeof *acceptor);
    acceptor->options = *options;
    acceptor->options.listen = NULL;
    acceptor->listener = listener;
    mutex_init(&acceptor->mutex);
    bool started = true;
    for (int i = 0; i < GREETERS; i++) {
        struct greeter *greeter = &acceptor->greeters[i];
        greeter->acceptor = acceptor;
        link_guard_init(&greeter->guard);
        started = started && thread_start(&greeter->thread, "accept", run, greeter, err);
    }
    if (started)
        return acceptor;
    acceptor_stop(acceptor);
    return NULL;
}

void acceptor_stop(struct acceptor *acceptor)
{
    if (!acceptor)
        return;
    for (int i = 0; i < GREETERS; i++)
        link_guard_end(&acceptor->greeters[i].guard);
    link_listener_wake(acceptor->listener);
    for (int i = 0; i < GREETERS; i++) {
        thread_join(&acceptor->greeters[i].thread);
        link_guard_release(&acceptor->greeters[i].guard);
    }
    link_listener_close(acceptor->listener);
    mutex_release(&acceptor->mutex);
    free(acceptor);
}

const char *acceptor_address(const struct acceptor *acceptor)
{
    return link_listener_address(acceptor->listener);
}
