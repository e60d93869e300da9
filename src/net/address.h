/* Where to listen or dial: "host:port", "[v6]:port" or "unix:/path". Plain data, any thread. */
#ifndef CASCADIA_NET_ADDRESS_H
#define CASCADIA_NET_ADDRESS_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_HOST_CAP 254 // a DNS name and its NUL
#define ADDRESS_PATH_CAP 108 // what the system takes, with its NUL
#define ADDRESS_TEXT_CAP 264 // either form as text, with its NUL

enum address_kind { ADDRESS_TCP, ADDRESS_UNIX };

struct address {
    enum address_kind kind;
    char host[ADDRESS_HOST_CAP]; // TCP: a name or a number, without brackets
    uint16_t port;               // TCP; 0: any free one, for listening
    char path[ADDRESS_PATH_CAP]; // Unix
};

/* ERR_ARGUMENT says what the forms are. */
bool address_parse(struct str text, struct address *out, struct err *err);
void address_format(const struct address *address, char out[ADDRESS_TEXT_CAP]);

/* Reaches this machine only: a Unix path, 127.0.0.0/8, ::1, "localhost". Other names are not looked
 * up and count as beyond. */
bool address_is_loopback(const struct address *address);
bool address_is_wildcard(const struct address *address); // 0.0.0.0, ::

#endif
