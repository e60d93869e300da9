/* GET /v1/models and /v1/models/{id}: one model, under the name that answers carry. */
#include "base/err.h"
#include "server/server_internal.h"

#define MODEL_BYTES_CAP 65536u

static void write_model(const struct server_model *model, struct buf *out)
{
    buf_add_text(out, "{\"id\":");
    json_write_string(out, str_from(model->id));
    buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"cascadia\"",
               (long long)model->created);
    buf_printf(out, ",\"max_model_len\":%u}", model->ctx_size);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "%2F" and the like; anything that is no escape stays. */
static void decode_path(struct str path, struct buf *out)
{
    for (size_t i = 0; i < path.size; i++) {
        const int high =
            path.data[i] == '%' && i + 2 < path.size ? hex_digit(path.data[i + 1]) : -1;
        const int low = high >= 0 ? hex_digit(path.data[i + 2]) : -1;

        buf_add_char(out, low >= 0 ? (char)(high * 16 + low) : path.data[i]);
        i += low >= 0 ? 2 : 0;
    }
}

static void respond_one(struct server *server, struct http_exchange *exchange, struct str rest)
{
    struct api_error error;
    struct buf id, out;

    buf_init(&id, MODEL_BYTES_CAP);
    buf_init(&out, MODEL_BYTES_CAP);
    decode_path(rest, &id);
    if (str_is(buf_view(&id), server->model->id)) {
        write_model(server->model, &out);
        json_respond(exchange, 200, &out);
    } else {
        api_error_set(&error, ERR_NOT_FOUND, "model", "there is no model \"%.*s\"; this is %s",
                      (int)(id.size > 128 ? 128 : id.size), id.data ? id.data : "",
                      server->model->id);
        error.code = "model_not_found";
        api_error_respond(&error, exchange);
    }
    buf_release(&id);
    buf_release(&out);
}

void models_handle(struct server *server, struct http_exchange *exchange, struct str rest)
{
    struct buf out;

    if (rest.size > 0) {
        respond_one(server, exchange, rest);
        return;
    }
    buf_init(&out, MODEL_BYTES_CAP);
    buf_add_text(&out, "{\"object\":\"list\",\"data\":[");
    write_model(server->model, &out);
    buf_add_text(&out, "]}");
    json_respond(exchange, 200, &out);
    buf_release(&out);
}
