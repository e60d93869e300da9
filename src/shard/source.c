/* What both kinds of source share: which kind it is, the pairing of needs with tensors, and reading
 * rows in the order that the model wants. */
#include "shard/source.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"
#include "model/family.h"
#include "shard/source_internal.h"

#define NAMES_BYTES_CAP 200u // of the types in an error's sentence

static bool open_files(struct source *source, const char *path, struct err *err)
{
    struct file_stat stat;
    if (!file_stat(path, &stat, err))
        return false;
    if (stat.is_directory)
        return source_hf_open(source, path, err);
    if (gguf_is_file(path))
        return source_gguf_open(source, path, err);
    return err_set(err, ERR_UNSUPPORTED,
                   "%s is no GGUF file; of a Hugging Face model give the directory", path);
}

/* With the files open: the configuration, and each of its tensors. */
static bool bind_tensors(struct source *source, struct err *err)
{
    if (!model_config_parse(&source->config, buf_view(&source->config_json), err))
        return false;
    source->n_tensors = family_count_needs(&source->config);
    source->tensors = xcalloc(source->n_tensors + 1, sizeof *source->tensors);
    return source->is_gguf ? source_gguf_bind(source, err) : source_hf_bind(source, err);
}

static void source_init(struct source *source, const char *path)
{
    *source = (struct source){ .path = xstrdup(path) };
    buf_init(&source->config_json, SOURCE_CONFIG_BYTES_CAP);
    buf_init(&source->generation_json, SOURCE_CONFIG_BYTES_CAP);
}

bool source_open(struct source *source, const char *path, struct err *err)
{
    source_init(source, path);
    if (open_files(source, path, err)) {
        if (bind_tensors(source, err))
            return true;
        err_wrap(err, "%s", path);
    }
    source_close(source);
    return false;
}

bool source_open_bytes(struct source *source, const uint8_t *bytes, size_t size, struct err *err)
{
    source_init(source, "bytes");
    if (source_gguf_parse(source, bytes, size, err) && bind_tensors(source, err))
        return true;
    source_close(source);
    return false;
}

void source_close(struct source *source)
{
    for (size_t i = 0; source->files && i < source->n_files; i++)
        free(source->files[i].name);
    for (size_t i = 0; source->shards && i < source->n_files; i++)
        safetensors_close(&source->shards[i]);
    free(source->files);
    free(source->shards);
    free(source->tensors);
    free(source->path);
    gguf_close(&source->gguf);
    model_config_release(&source->config);
    buf_release(&source->config_json);
    buf_release(&source->generation_json);
    *source = (struct source){ 0 };
}

/* What there is instead, since who made the file can make another. */
static bool type_not_read(const struct source_found *found, struct err *err)
{
    struct buf names;
    buf_init(&names, NAMES_BYTES_CAP);
    for (size_t i = 0; i < QUANT_SOURCE_COUNT; i++)
        buf_printf(&names, " %s", quant_sources[i]->name);
    err_set(err, ERR_UNSUPPORTED, "tensor %.*s is of type %s, which is not read; these are:%s",
            STR_ARG(found->name), found->type_name, names.data);
    buf_release(&names);
    return false;
}

bool source_bind_tensor(const struct source_found *found, const struct family_need *need,
                        struct source_tensor *out, struct err *err)
{
    bool is_matrix = tensor_role_info(need->role)->is_matrix;
    if (found->kind == QUANT_SOURCE_COUNT)
        return type_not_read(found, err);
    if (found->n_dims != (is_matrix ? 2u : 1u) || found->rows != need->rows ||
        found->cols != need->cols)
        return err_set(
            err, ERR_FORMAT,
            "tensor %.*s has the shape [%llu, %llu]%s; the configuration says [%u, %u]",
            STR_ARG(found->name), (unsigned long long)found->rows, (unsigned long long)found->cols,
            found->n_dims > 2 ? " in more than two dimensions" : "", need->rows, need->cols);
    const struct quant_source_ops *ops = quant_sources[found->kind];
    if (!is_matrix && ops->block_values > 1)
        return err_set(err, ERR_UNSUPPORTED, "tensor %.*s is a vector of type %s",
                       STR_ARG(found->name), ops->name);
    *out = (struct source_tensor){
        .role = need->role,
        .layer = need->layer,
        .name = found->name,
        .kind = found->kind,
        .rows = need->rows,
        .cols = need->cols,
        .data = found->data,
        .row_bytes = (size_t)need->cols / ops->block_values * ops->block_bytes,
        .map = found->map,
    };
    return true;
}

/* The half-split row r = (head, half, i) of a head of d rows lies at (head, i, half). */
static uint32_t paired_row(uint32_t row, uint32_t n_rows, uint32_t n_heads)
{
    uint32_t d = n_rows / n_heads, head = row / d, half = row % d / (d / 2), i = row % (d / 2);
    return head * d + 2 * i + half;
}

const uint8_t *source_row(const struct source_tensor *tensor, uint32_t row)
{
    if (tensor->paired_heads)
        row = paired_row(row, tensor->rows, tensor->paired_heads);
    return tensor->data + (size_t)row * tensor->row_bytes;
}

void source_read_vector(const struct source_tensor *tensor, float *out)
{
    const struct quant_source_ops *ops = quant_sources[tensor->kind];
    if (!tensor->paired_heads) {
        ops->decode_row(tensor->data, tensor->cols, out);
        return;
    }
    for (uint32_t i = 0; i < tensor->cols; i++) {
        uint32_t from = paired_row(i, tensor->cols, tensor->paired_heads);
        ops->decode_row(tensor->data + (size_t)from * ops->block_bytes, 1, &out[i]);
    }
}

const struct source_tensor *source_find(const struct source *source, uint32_t layer,
                                        enum tensor_role role)
{
    for (uint32_t i = 0; i < source->n_tensors; i++)
        if (source->tensors[i].role == role && source->tensors[i].layer == layer)
            return &source->tensors[i];
    return NULL;
}

bool source_read_template(const struct source *source, struct buf *text, const char **from,
                          struct err *err)
{
    *from = "";
    return source->is_gguf ? source_gguf_template(source, text, from, err)
                           : source_hf_template(source, text, from, err);
}
