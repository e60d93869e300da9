/* Dialling with back-off. The first tries come quickly, since stages are often started together;
 * then once a second, which costs nothing and finds a restarted stage soon. A refusal (another
 * model, another version) is tried again too: it is mended at the other side, not here. */
#include "pipeline/dialler.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pipeline/link_guard.h"

#define PAUSE_MS_LOW 25
#define PAUSE_MS_HIGH 1000
#define SAY_EVERY_MS 5000
#define DIAL_MS 5000 // for a network that swallows packets

struct dialler {
    struct dialler_options options;
    char *address, *who;
    struct socket_waker *waker; // ends dialling
    struct link_guard guard;    // ends waiting for the answer
    struct queue *stop;         // closed: ends pausing
    struct thread thread;
    uint64_t next_say_ms; // the thread's
    char said[sizeof(((struct err *)0)->text)];
};

static struct greeting *try_once(struct dialler *dialler, struct err *err)
{
    const struct dialler_options *options = &dialler->options;
    uint64_t wait_ms = options->link.frame_ms ? options->link.frame_ms : LINK_FRAME_MS;
    struct greeting *greeting = NULL;
    struct link *link = link_dial(dialler->address, &options->link, DIAL_MS, dialler->waker, err);
    if (!link)
        return NULL;
    if (link_guard_hold(&dialler->guard, link)) {
        greeting = greeting_say_hello(link, options->epoch, &options->hello, wait_ms, err);
        link_guard_let_go(&dialler->guard);
    }
    if (!greeting)
        link_close(link);
    return greeting;
}

/* At once when the reason is new, then every few seconds. */
static void say(struct dialler *dialler, const struct err *reason)
{
    uint64_t now = clock_ms();
    if (now < dialler->next_say_ms && strcmp(reason->text, dialler->said) == 0)
        return;
    dialler->next_say_ms = now + SAY_EVERY_MS;
    snprintf(dialler->said, sizeof dialler->said, "%s", reason->text);
    log_info("waiting for %s at %s: %s", dialler->who, dialler->address, reason->text);
    struct frame *frame = frame_pool_take(dialler->options.pool);
    frame_start(frame, FRAME_AWAIT, dialler->options.epoch);
    buf_printf(&frame->payload, "%s at %s: %s", dialler->who, dialler->address, reason->text);
    if (!event_push_frame(dialler->options.events, EVENT_FRAME, dialler->options.tag, frame, 0))
        frame_pool_give(dialler->options.pool, frame);
}

static void run(void *context)
{
    struct dialler *dialler = context;
    uint64_t pause_ms = PAUSE_MS_LOW;
    struct event nothing;
    while (!link_guard_ended(&dialler->guard)) {
        struct err err = { 0 };
        struct greeting *greeting = try_once(dialler, &err);
        if (greeting) {
            if (!event_push_greeting(dialler->options.events, EVENT_JOINED, dialler->options.tag,
                                     greeting, &dialler->guard))
                greeting_free(greeting);
            return;
        }
        if (!link_guard_ended(&dialler->guard))
            say(dialler, &err);
        queue_pop_wait(dialler->stop, &nothing, pause_ms);
        pause_ms = pause_ms * 2 < PAUSE_MS_HIGH ? pause_ms * 2 : PAUSE_MS_HIGH;
    }
}

static void dialler_free(struct dialler *dialler)
{
    socket_waker_free(dialler->waker);
    link_guard_release(&dialler->guard);
    queue_free(dialler->stop);
    free(dialler->address);
    free(dialler->who);
    free(dialler);
}

struct dialler *dialler_start(const struct dialler_options *options, struct err *err)
{
    struct dialler *dialler = xcalloc(1, sizeof *dialler);
    dialler->options = *options;
    dialler->address = xstrdup(options->address);
    dialler->who = xstrdup(options->who);
    dialler->stop = queue_new(sizeof(struct event), 1);
    link_guard_init(&dialler->guard);
    dialler->waker = socket_waker_new(err);
    if (dialler->waker && thread_start(&dialler->thread, "dial", run, dialler, err))
        return dialler;
    dialler_free(dialler);
    return NULL;
}

void dialler_stop(struct dialler *dialler)
{
    if (!dialler)
        return;
    link_guard_end(&dialler->guard);
    socket_waker_wake(dialler->waker);
    queue_close(dialler->stop);
    thread_join(&dialler->thread);
    dialler_free(dialler);
}
