/* What a kind of link must provide: bytes there and back. link.c makes frames of them. */
#ifndef CASCADIA_PIPELINE_LINK_INTERNAL_H
#define CASCADIA_PIPELINE_LINK_INTERNAL_H

#include "base/str.h"
#include "pipeline/link.h"

struct link {
    const struct link_ops *ops;
    void *state; // the implementation's
    uint64_t frame_ms;
    uint32_t spin_us;
    char peer[ADDRESS_TEXT_CAP]; // filled by dial and accept
    struct frame_limits limits;
    uint32_t n_sent;     // the sending thread's
    uint32_t n_received; // the receiving thread's
};

struct link_listener {
    const struct link_ops *ops;
    void *state;
    char address[ADDRESS_TEXT_CAP]; // filled by listen
};

struct link_listener_ops {
    bool (*listen)(struct link_listener *listener, const char *address, bool insecure,
                   struct err *err);
    /* Fills link->state and link->peer; the rest of the link is there. */
    bool (*accept)(struct link_listener *listener, struct link *link, struct err *err);
    void (*wake)(struct link_listener *listener);
    void (*close)(struct link_listener *listener);
};

struct link_ops {
    const char *name, *summary;
    bool (*claims)(const char *address); // is this an address of this kind?
    /* As in link_listener_ops.accept. */
    bool (*dial)(struct link *link, const char *address, uint64_t timeout_ms,
                 struct socket_waker *waker, struct err *err);
    /* Exactly `size` bytes; waits at most wait_ms for the first of them, then link->frame_ms for
     * each further piece. */
    bool (*read)(struct link *link, void *bytes, size_t size, uint64_t wait_ms, struct err *err);
    /* Both pieces, in order. */
    bool (*write)(struct link *link, const struct str pieces[2], struct err *err);
    void (*cut)(struct link *link);   // any thread
    void (*close)(struct link *link); // frees the state
    const struct link_listener_ops *listener;
};

extern const struct link_ops *const links[]; // NULL at the end
extern const struct link_ops link_tcp;
extern const struct link_ops link_local;

#endif
