/* JSON, because a file is small beside its model and a person may want to look: an object with the
 * format's name and an array of layers, each an object with an array of numbers an input. */
#include "shard/importance.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"

#define FORMAT "cascadia-importance"

static const char *const input_names[IMPORTANCE_INPUT_COUNT] = {
    [IMPORTANCE_ATTENTION] = "attention",
    [IMPORTANCE_OUTPUT] = "output",
    [IMPORTANCE_MLP] = "mlp",
    [IMPORTANCE_DOWN] = "down",
};

static int input_of(enum tensor_role role)
{
    switch (role) {
    case TENSOR_Q:
    case TENSOR_K:
    case TENSOR_V:
        return IMPORTANCE_ATTENTION;
    case TENSOR_O:
        return IMPORTANCE_OUTPUT;
    case TENSOR_GATE:
    case TENSOR_UP:
    case TENSOR_GATE_UP:
        return IMPORTANCE_MLP;
    case TENSOR_DOWN:
        return IMPORTANCE_DOWN;
    default:
        return -1;
    }
}

struct importance_vector *importance_find(const struct importance *importance, uint32_t layer,
                                          enum tensor_role role)
{
    const int input = input_of(role);
    if (input < 0 || layer >= importance->n_layers)
        return NULL;
    return &importance->vectors[(size_t)layer * IMPORTANCE_INPUT_COUNT + (size_t)input];
}

void importance_init(struct importance *importance, uint32_t n_layers)
{
    *importance = (struct importance){
        .n_layers = n_layers,
        .vectors = xcalloc((size_t)n_layers * IMPORTANCE_INPUT_COUNT, sizeof(*importance->vectors)),
    };
}

void importance_release(struct importance *importance)
{
    for (size_t i = 0; i < (size_t)importance->n_layers * IMPORTANCE_INPUT_COUNT; i++)
        free(importance->vectors[i].values);
    free(importance->vectors);
    *importance = (struct importance){ 0 };
}

static bool read_vector(const struct json *array, struct importance_vector *vector, struct err *err)
{
    const size_t cols = json_size(array);
    if (json_kind(array) != JSON_KIND_ARRAY || cols == 0 || cols > IMPORTANCE_COLS_CAP)
        return err_set(err, ERR_FORMAT, "no array of 1 to %u numbers", IMPORTANCE_COLS_CAP);
    vector->cols = (uint32_t)cols;
    vector->values = xcalloc(cols, sizeof(*vector->values));
    for (size_t i = 0; i < cols; i++) {
        double value;
        if (!json_read_double(json_at(array, i), &value) || !(value >= 0 && value <= 1e30))
            return err_set(err, ERR_FORMAT, "number %zu is not one from 0 to 1e30", i);
        vector->values[i] = (float)value;
    }
    return true;
}

static bool read_layers(struct importance *importance, const struct json *root, struct err *err)
{
    const struct json *layers = json_get(root, "layers");
    const size_t n_layers = json_size(layers);
    if (!str_is(json_text(json_get(root, "format")), FORMAT) ||
        json_kind(layers) != JSON_KIND_ARRAY || n_layers == 0 || n_layers > IMPORTANCE_LAYERS_CAP)
        return err_set(err, ERR_FORMAT, "not a file of eval importance");
    importance_init(importance, (uint32_t)n_layers);
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        for (uint32_t input = 0; input < IMPORTANCE_INPUT_COUNT; input++) {
            if (!read_vector(json_get(json_at(layers, layer), input_names[input]),
                             &importance->vectors[layer * IMPORTANCE_INPUT_COUNT + input], err))
                return err_wrap(err, "layer %u, %s", layer, input_names[input]);
        }
    }
    return true;
}

bool importance_read(struct importance *importance, const char *path, struct err *err)
{
    struct buf text;
    *importance = (struct importance){ 0 };
    buf_init(&text, IMPORTANCE_BYTES_CAP);
    struct json *root = file_read(path, &text, err) ? json_parse(buf_view(&text), err) : NULL;
    bool ok = root != NULL && read_layers(importance, root, err);
    if (ok)
        importance->hash = hash_xxh3(text.data, text.size);
    else
        importance_release(importance);
    json_free(root);
    buf_release(&text);
    return ok || err_wrap(err, "%s", path);
}

bool importance_write(const struct importance *importance, const char *path, struct err *err)
{
    struct buf text;
    buf_init(&text, IMPORTANCE_BYTES_CAP);
    buf_add_text(&text, "{\"format\":\"" FORMAT "\",\"layers\":[");
    for (uint32_t layer = 0; layer < importance->n_layers; layer++) {
        for (uint32_t input = 0; input < IMPORTANCE_INPUT_COUNT; input++) {
            const struct importance_vector *vector =
                &importance->vectors[layer * IMPORTANCE_INPUT_COUNT + input];
            buf_printf(&text, "%s\n\"%s\":[",
                       input > 0   ? ","
                       : layer > 0 ? ",{"
                                   : "{",
                       input_names[input]);
            for (uint32_t i = 0; i < vector->cols; i++)
                buf_printf(&text, "%s%.6g", i > 0 ? "," : "", (double)vector->values[i]);
            buf_add_text(&text, "]");
        }
        buf_add_text(&text, "}");
    }
    buf_add_text(&text, "]}\n");
    const bool ok = buf_ok(&text) ? file_write_atomic(path, buf_view(&text), err)
                                  : err_set(err, ERR_NO_MEMORY, "%s would be too large", path);
    buf_release(&text);
    return ok;
}
