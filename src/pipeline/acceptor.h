/* Listens for neighbours: accepts links and hears their HELLOs, on threads of its own, so that one
 * that connects and stays silent keeps nobody out. */
#ifndef CASCADIA_PIPELINE_ACCEPTOR_H
#define CASCADIA_PIPELINE_ACCEPTOR_H

#include "base/err.h"
#include "pipeline/event.h"
#include "pipeline/link.h"

#include <stdbool.h>

struct acceptor;

struct acceptor_options {
    const char *listen; // address
    bool insecure;      // as in link_listen
    struct link_options link;
    struct queue *events; // gets EVENT_CALLED; must outlive the acceptor
};

struct acceptor *acceptor_start(const struct acceptor_options *options, struct err *err);
void acceptor_stop(struct acceptor *acceptor);                 // NULL is fine
const char *acceptor_address(const struct acceptor *acceptor); // with the real port

#endif
