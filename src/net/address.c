/* Addresses as people type them. A colon-separated port is required for TCP so that nobody binds a
 * default by accident; a bare IPv6 number must be bracketed, else its last group would be taken for
 * a port. Numbers are recognised with inet_pton and nothing is looked up here: whether an address
 * stays on this machine must not depend on a name server. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static bool parse_unix(struct str path, struct address *out, struct err *err)
{
    if (path.size == 0 || path.size >= sizeof out->path || memchr(path.data, '\0', path.size))
        return err_set(err, ERR_ARGUMENT, "a Unix socket's path has 1 to %zu bytes",
                       sizeof out->path - 1);
    struct address address = { .kind = ADDRESS_UNIX };
    memcpy(address.path, path.data, path.size);
    *out = address;
    return true;
}

/* Cuts "host:port" or "[v6]:port" in two. */
static bool cut_host(struct str text, struct str *host, struct str *port)
{
    if (str_starts(text, STR("["))) {
        size_t end = str_find_char(text, ']');
        if (end == SIZE_MAX || end + 1 >= text.size || text.data[end + 1] != ':')
            return false;
        *host = str_slice(text, 1, end);
        *port = str_slice(text, end + 2, text.size);
        return true;
    }
    size_t colon = str_find_char(text, ':');
    if (colon == SIZE_MAX)
        return false;
    *host = str_slice(text, 0, colon);
    *port = str_slice(text, colon + 1, text.size);
    return str_find_char(*port, ':') == SIZE_MAX;
}

bool address_parse(struct str text, struct address *out, struct err *err)
{
    const struct str unix_prefix = STR("unix:");
    struct str host, port;
    uint64_t number;
    if (str_starts(text, unix_prefix))
        return parse_unix(str_slice(text, unix_prefix.size, text.size), out, err);
    if (!cut_host(text, &host, &port) || host.size == 0 || host.size >= sizeof out->host ||
        memchr(host.data, '\0', host.size) || !str_to_u64(port, &number) || number > UINT16_MAX)
        return err_set(err, ERR_ARGUMENT,
                       "\"%.*s\" is no address: write host:port, [v6]:port or unix:/path",
                       (int)(text.size < 300 ? text.size : 300), text.data);
    struct address address = { .kind = ADDRESS_TCP, .port = (uint16_t)number };
    memcpy(address.host, host.data, host.size);
    *out = address;
    return true;
}

void address_format(const struct address *address, char out[ADDRESS_TEXT_CAP])
{
    if (address->kind == ADDRESS_UNIX)
        snprintf(out, ADDRESS_TEXT_CAP, "unix:%s", address->path);
    else if (strchr(address->host, ':'))
        snprintf(out, ADDRESS_TEXT_CAP, "[%s]:%u", address->host, address->port);
    else
        snprintf(out, ADDRESS_TEXT_CAP, "%s:%u", address->host, address->port);
}

bool address_is_loopback(const struct address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (address->kind == ADDRESS_UNIX)
        return true;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address->host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return str_equal_nocase(str_from(address->host), STR("localhost"));
}

bool address_is_wildcard(const struct address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (address->kind == ADDRESS_UNIX)
        return false;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return v4.s_addr == htonl(INADDR_ANY);
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
