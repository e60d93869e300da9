/* Which path is answered by what. A path that is not here is 404, a method that its path does not
 * take 405 with Allow, both in JSON. HEAD goes where GET does. */
#include "base/err.h"
#include "server/server_internal.h"

#define TARGET_SHOWN_CAP 128

struct route {
    const char *method;
    const char *path;
    bool has_rest; // "/v1/models/": what follows is the handler's; it is never empty
    void (*handle)(struct server *server, struct http_exchange *exchange, struct str rest);
    const struct task_api *api; // generates; instead of handle
};

static const struct route routes[] = {
    { .method = "GET", .path = "/health", .handle = health_handle },
    { .method = "GET", .path = "/metrics", .handle = metrics_handle },
    { .method = "GET", .path = "/v1/models", .handle = models_handle },
    { .method = "GET", .path = "/v1/models/", .has_rest = true, .handle = models_handle },
    { .method = "POST", .path = "/v1/chat/completions", .api = &chat_api },
    { .method = "POST", .path = "/v1/completions", .api = &completion_api },
};

static bool path_matches(const struct route *route, struct str path, struct str *rest)
{
    const struct str prefix = str_from(route->path);

    if (!route->has_rest)
        return str_equal(path, prefix);
    if (path.size <= prefix.size || !str_starts(path, prefix))
        return false;
    *rest = str_slice(path, prefix.size, path.size);
    return true;
}

static bool method_matches(const struct route *route, struct str method)
{
    return str_is(method, route->method) ||
           (str_is(method, "HEAD") && str_is(STR("GET"), route->method));
}

static void respond_wrong_method(const struct route *route, struct http_exchange *exchange)
{
    const struct http_field allow = { "Allow", route->api != NULL ? "POST" : "GET, HEAD" };
    struct api_error error;
    struct buf body;

    api_error_set(&error, ERR_ARGUMENT, "", "%s takes %s", route->path, allow.value);
    error.status = 405;
    error.code = "method_not_allowed";
    buf_init(&body, 4096);
    api_error_write(&error, &body);
    http_respond(exchange, error.status, "application/json", buf_view(&body), &allow, 1);
    buf_release(&body);
}

static void respond_unknown(struct http_exchange *exchange)
{
    const struct str path = http_path(exchange);
    struct api_error error;

    api_error_set(&error, ERR_NOT_FOUND, "", "there is nothing at %.*s",
                  (int)(path.size > TARGET_SHOWN_CAP ? TARGET_SHOWN_CAP : path.size), path.data);
    error.code = "unknown_url";
    api_error_respond(&error, exchange);
}

void routes_handle(struct server *server, struct http_exchange *exchange)
{
    const struct route *near = NULL;

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *const route = &routes[i];
        struct str rest = STR("");

        if (!path_matches(route, http_path(exchange), &rest))
            continue;
        near = route;
        if (!method_matches(route, http_method(exchange)))
            continue;
        if (route->api != NULL)
            task_start(server, route->api, exchange);
        else
            route->handle(server, exchange, rest);
        return;
    }
    if (near != NULL)
        respond_wrong_method(near, exchange);
    else
        respond_unknown(exchange);
}
