/* The manifest is the one file of a shard that is parsed, so it is where a shard is checked:
 * whatever passes here can be used without another look. Each size is recomputed from shape and
 * format and compared, offsets ascend without overlap, a tensor is in the file that its role says,
 * and nothing is there twice.
 *
 * The last member is the XXH3 of all bytes before it. It has a fixed length, so the reader finds it
 * from the end and nothing needs to be put in a canonical form. */
#include "weights/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"

#define TAIL_BEGIN ",\n\"manifest_xxh3\":\""
#define TAIL_END "\"}\n"
#define TAIL_BYTES (sizeof TAIL_BEGIN - 1 + 16 + sizeof TAIL_END - 1)
#define FILES_CAP (MANIFEST_LAYERS_CAP + 64u)
#define STAGES_CAP 1024u
#define TENSOR_ALIGNMENT 64u

void manifest_file_name(enum tensor_role role, uint32_t layer, char out[MANIFEST_FILE_NAME_BYTES])
{
    if (tensor_role_info(role)->is_per_layer)
        snprintf(out, MANIFEST_FILE_NAME_BYTES, "layer-%03u.weights", layer);
    else
        snprintf(out, MANIFEST_FILE_NAME_BYTES, "%s",
                 role == TENSOR_EMBEDDING ? "embedding.weights" : "head.weights");
}

const struct manifest_file *manifest_find_file(const struct manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->n_files; i++)
        if (str_is(manifest->files[i].name, name))
            return &manifest->files[i];
    return NULL;
}

/* Reading. */

static bool read_text(const struct json *object, const char *key, struct manifest *manifest,
                      struct str *out, struct err *err)
{
    struct str text;
    if (!json_read_string(json_get(object, key), &text))
        return err_set(err, ERR_FORMAT, "\"%s\" is missing or no string", key);
    *out = arena_str(&manifest->arena, text);
    return true;
}

static bool read_hash(const struct json *object, const char *key, uint64_t *out, struct err *err)
{
    struct str text;
    if (!json_read_string(json_get(object, key), &text) || !hash_from_hex(text, out))
        return err_set(err, ERR_FORMAT, "\"%s\" is missing or no hash", key);
    return true;
}

static bool read_count(const struct json *object, const char *key, uint32_t cap, uint32_t *out,
                       struct err *err)
{
    uint32_t value;
    if (!json_read_u32(json_get(object, key), &value) || value > cap)
        return err_set(err, ERR_FORMAT, "\"%s\" is missing or not in 0..%u", key, cap);
    *out = value;
    return true;
}

static bool read_bytes(const struct json *object, const char *key, uint64_t *out, struct err *err)
{
    if (!json_read_u64(json_get(object, key), out))
        return err_set(err, ERR_FORMAT, "\"%s\" is missing or no size", key);
    return true;
}

/* An object that is kept as text. */
static bool read_object(const struct json *object, const char *key, struct manifest *manifest,
                        struct str *out, struct err *err)
{
    const struct json *value = json_get(object, key);
    struct buf text;
    if (json_kind(value) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "\"%s\" is missing or no object", key);
    buf_init(&text, MANIFEST_BYTES_CAP);
    json_write_value(&text, value);
    *out = arena_str(&manifest->arena, buf_view(&text));
    buf_release(&text);
    return true;
}

static bool read_stages(const struct json *settings, struct manifest *manifest, struct err *err)
{
    const struct json *stages = json_get(settings, "stages");
    size_t n_stages = json_size(stages);
    if (json_kind(stages) != JSON_KIND_ARRAY || n_stages == 0 || n_stages > STAGES_CAP)
        return err_set(err, ERR_FORMAT, "\"stages\" is missing or no list");
    manifest->stages = arena_array(&manifest->arena, n_stages, sizeof *manifest->stages);
    if (!manifest->stages)
        return err_set(err, ERR_NO_MEMORY, "too large");
    uint32_t next = 0;
    for (size_t i = 0; i < n_stages; i++) {
        const struct json *stage = json_at(stages, i);
        struct manifest_stage *out = &manifest->stages[i];
        if (json_size(stage) != 2 || !json_read_u32(json_at(stage, 0), &out->layer_first) ||
            !json_read_u32(json_at(stage, 1), &out->layer_end) || out->layer_first != next ||
            out->layer_end <= next)
            return err_set(err, ERR_FORMAT, "stage %zu of \"stages\" does not go on from the last",
                           i);
        next = out->layer_end;
    }
    if (next != manifest->n_layers)
        return err_set(err, ERR_FORMAT, "\"stages\" ends at layer %u of %u", next,
                       manifest->n_layers);
    manifest->n_stages = n_stages;
    return true;
}

static bool read_format(const struct json *entry, enum quant_format *out, struct err *err)
{
    struct str name = json_text(json_get(entry, "format"));
    enum quant_format format;
    if (!quant_format_find(name, &format, err) || !str_is(name, quant_formats[format]->name))
        return err_set(err, ERR_UNSUPPORTED, "the weight format \"%.*s\" is not known",
                       STR_ARG(name));
    *out = format;
    return true;
}

static bool read_role(const struct json *entry, const struct manifest *manifest,
                      struct manifest_tensor *out, struct err *err)
{
    struct str name = json_text(json_get(entry, "role"));
    if (!tensor_role_find(name, &out->role))
        return err_set(err, ERR_UNSUPPORTED, "the role \"%.*s\" is not known", STR_ARG(name));
    bool is_per_layer = tensor_role_info(out->role)->is_per_layer;
    bool has_layer = json_read_u32(json_get(entry, "layer"), &out->layer);
    if (!has_layer)
        out->layer = TENSOR_NO_LAYER;
    if (has_layer != is_per_layer || (has_layer && out->layer >= manifest->n_layers))
        return err_set(err, ERR_FORMAT, "%.*s has a wrong \"layer\"", STR_ARG(name));
    return true;
}

/* Everything about one tensor but its neighbours. */
static bool read_tensor(const struct json *entry, struct manifest *manifest,
                        const struct manifest_file *file, struct manifest_tensor *out,
                        struct err *err)
{
    char file_name[MANIFEST_FILE_NAME_BYTES];
    size_t bytes;
    if (!read_role(entry, manifest, out, err) || !read_format(entry, &out->format, err) ||
        !read_count(entry, "rows", UINT32_MAX, &out->rows, err) ||
        !read_count(entry, "cols", UINT32_MAX, &out->cols, err) ||
        !read_count(entry, "group", UINT32_MAX, &out->group, err) ||
        !read_bytes(entry, "offset", &out->offset, err) ||
        !read_bytes(entry, "bytes", &out->bytes, err) ||
        !read_hash(entry, "xxh3", &out->xxh3, err) ||
        !read_text(entry, "name", manifest, &out->source_name, err))
        return false;
    out->relative_error = json_number(json_get(entry, "error"), 0);
    if (!tensor_bytes(out->role, out->format, out->rows, out->cols, out->group, &bytes) ||
        bytes != out->bytes)
        return err_set(err, ERR_FORMAT, "\"bytes\" does not agree with shape and format");
    if (out->offset % TENSOR_ALIGNMENT || out->offset > file->bytes ||
        out->bytes > file->bytes - out->offset)
        return err_set(err, ERR_FORMAT, "\"offset\" is not aligned or outside the file");
    manifest_file_name(out->role, out->layer, file_name);
    if (!str_is(file->name, file_name))
        return err_set(err, ERR_FORMAT, "it belongs into %s", file_name);
    return true;
}

/* `seen`: a flag for each layer (and none) and role. */
static bool read_tensors(const struct json *list, struct manifest *manifest,
                         struct manifest_file *file, bool *seen, struct err *err)
{
    size_t n_tensors = json_size(list);
    char what[64];
    if (json_kind(list) != JSON_KIND_ARRAY || n_tensors > TENSOR_ROLE_COUNT)
        return err_set(err, ERR_FORMAT, "\"tensors\" is missing or no list of tensors");
    file->tensors = arena_array(&manifest->arena, n_tensors + 1, sizeof *file->tensors);
    if (!file->tensors)
        return err_set(err, ERR_NO_MEMORY, "too large");
    uint64_t end = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        struct manifest_tensor *tensor = &file->tensors[i];
        if (!read_tensor(json_at(list, i), manifest, file, tensor, err))
            return err_wrap(err, "tensor %zu", i);
        tensor_describe(tensor->role, tensor->layer, what, sizeof what);
        size_t slot = tensor->layer == TENSOR_NO_LAYER ? manifest->n_layers : tensor->layer;
        bool *mark = &seen[slot * TENSOR_ROLE_COUNT + tensor->role];
        if (*mark)
            return err_set(err, ERR_FORMAT, "%s is there twice", what);
        if (tensor->offset < end)
            return err_set(err, ERR_FORMAT, "%s overlaps the tensor before it", what);
        *mark = true;
        end = tensor->offset + tensor->bytes;
        file->n_tensors++;
    }
    return true;
}

static bool file_name_is_plain(struct str name)
{
    return name.size > 0 && name.size < 128 && name.data[0] != '.' &&
           str_find_char(name, '/') == SIZE_MAX && !memchr(name.data, 0, name.size) &&
           !str_is(name, MANIFEST_NAME);
}

static bool read_file(const struct json *entry, struct manifest *manifest, bool *seen,
                      struct err *err)
{
    struct manifest_file *file = &manifest->files[manifest->n_files];
    if (!read_text(entry, "name", manifest, &file->name, err))
        return false;
    if (!file_name_is_plain(file->name))
        return err_set(err, ERR_FORMAT, "\"%.*s\" is no plain file name", STR_ARG(file->name));
    for (size_t i = 0; i < manifest->n_files; i++)
        if (str_equal(manifest->files[i].name, file->name))
            return err_set(err, ERR_FORMAT, "%.*s is there twice", STR_ARG(file->name));
    if (!read_bytes(entry, "bytes", &file->bytes, err) ||
        !read_hash(entry, "xxh3", &file->xxh3, err) ||
        !read_tensors(json_get(entry, "tensors"), manifest, file, seen, err))
        return err_wrap(err, "%.*s", STR_ARG(file->name));
    manifest->n_files++;
    return true;
}

static bool read_files(const struct json *root, struct manifest *manifest, struct err *err)
{
    const struct json *files = json_get(root, "files");
    size_t n_files = json_size(files);
    if (json_kind(files) != JSON_KIND_ARRAY || n_files > FILES_CAP)
        return err_set(err, ERR_FORMAT, "\"files\" is missing or no list of files");
    manifest->files = arena_array(&manifest->arena, n_files + 1, sizeof *manifest->files);
    if (!manifest->files)
        return err_set(err, ERR_NO_MEMORY, "too large");
    bool *seen = xcalloc(((size_t)manifest->n_layers + 1) * TENSOR_ROLE_COUNT, sizeof *seen);
    bool good = true;
    for (size_t i = 0; good && i < n_files; i++)
        good = read_file(json_at(files, i), manifest, seen, err);
    free(seen);
    return good;
}

static bool check_tail(struct manifest *manifest, struct str text, struct err *err)
{
    struct str tail, hex;
    if (text.size < TAIL_BYTES)
        return err_set(err, ERR_FORMAT, "it does not end with its hash");
    tail = str_slice(text, text.size - TAIL_BYTES, text.size);
    hex = str_slice(tail, sizeof TAIL_BEGIN - 1, sizeof TAIL_BEGIN - 1 + 16);
    if (!str_starts(tail, STR(TAIL_BEGIN)) || !str_ends(tail, STR(TAIL_END)) ||
        !hash_from_hex(hex, &manifest->xxh3))
        return err_set(err, ERR_FORMAT, "it does not end with its hash");
    if (hash_xxh3(text.data, text.size - TAIL_BYTES) != manifest->xxh3)
        return err_set(err, ERR_CORRUPT, "it was changed after it was written (checksum differs)");
    return true;
}

static bool check_version(const struct json *root, struct err *err)
{
    struct str format = json_text(json_get(root, "format"));
    int64_t version = json_int(json_get(root, "version"), -1);
    if (!str_is(format, MANIFEST_FORMAT))
        return err_set(err, ERR_FORMAT, "not the manifest of a shard");
    if (version != MANIFEST_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "shard version %lld; this program reads version %u",
                       (long long)version, MANIFEST_VERSION);
    return true;
}

static bool read_all(const struct json *root, struct manifest *manifest, struct err *err)
{
    const struct json *settings = json_get(root, "settings");
    if (!read_text(root, "family", manifest, &manifest->family, err) ||
        !read_object(root, "source", manifest, &manifest->source, err) ||
        !read_object(root, "model", manifest, &manifest->model, err) ||
        !read_text(settings, "quantization", manifest, &manifest->quantization, err) ||
        !read_text(settings, "tool", manifest, &manifest->tool_version, err) ||
        !read_text(root, "template_from", manifest, &manifest->template_from, err) ||
        !read_count(settings, "group_size", UINT32_MAX, &manifest->group_size, err) ||
        !read_hash(root, "settings_hash", &manifest->settings_hash, err) ||
        !read_count(root, "layers", MANIFEST_LAYERS_CAP, &manifest->n_layers, err))
        return false;
    if (!json_read_bool(json_get(root, "tied"), &manifest->is_tied))
        return err_set(err, ERR_FORMAT, "\"tied\" is missing or no boolean");
    const struct json *requantised = json_get(settings, "requantized"); // missing: false
    if (requantised && !json_read_bool(requantised, &manifest->is_requantised))
        return err_set(err, ERR_FORMAT, "\"requantized\" is no boolean");
    return read_stages(settings, manifest, err) && read_files(root, manifest, err);
}

bool manifest_parse(struct manifest *manifest, struct str text, struct err *err)
{
    *manifest = (struct manifest){ 0 };
    struct json *root = json_parse(text, err);
    if (!root)
        return false;
    arena_init(&manifest->arena, MANIFEST_BYTES_CAP);
    bool good = check_version(root, err) && check_tail(manifest, text, err) &&
                read_all(root, manifest, err);
    json_free(root);
    if (!good)
        manifest_release(manifest);
    return good;
}

bool manifest_read(struct manifest *manifest, const char *directory, struct err *err)
{
    char *path = path_join(directory, MANIFEST_NAME);
    struct buf text;
    bool good = false;
    *manifest = (struct manifest){ 0 };
    buf_init(&text, MANIFEST_BYTES_CAP);
    if (file_read(path, &text, err)) {
        good = manifest_parse(manifest, buf_view(&text), err);
        if (!good)
            err_wrap(err, "%s", path);
    } else if (err->code == ERR_NOT_FOUND) {
        err_set(err, ERR_NOT_FOUND, "%s has no %s: it is no shard, or its writing was interrupted",
                directory, MANIFEST_NAME);
    }
    buf_release(&text);
    free(path);
    return good;
}

void manifest_release(struct manifest *manifest)
{
    arena_release(&manifest->arena);
    *manifest = (struct manifest){ 0 };
}

/* Writing. */

static void write_text(struct buf *out, const char *key, struct str value)
{
    json_write_key(out, key);
    json_write_string(out, value);
}

static void write_hash(struct buf *out, const char *key, uint64_t hash)
{
    char hex[17];
    hash_hex(hash, hex);
    write_text(out, key, str_from(hex));
}

static void write_tensor(struct buf *out, const struct manifest_tensor *tensor)
{
    buf_add_text(out, "\n    {");
    write_text(out, "role", str_from(tensor_role_info(tensor->role)->name));
    if (tensor->layer != TENSOR_NO_LAYER)
        buf_printf(out, ",\"layer\":%u", tensor->layer);
    buf_add_char(out, ',');
    write_text(out, "name", tensor->source_name);
    buf_add_char(out, ',');
    write_text(out, "format", str_from(quant_formats[tensor->format]->name));
    buf_printf(out, ",\"rows\":%u,\"cols\":%u,\"group\":%u,\"offset\":%llu,\"bytes\":%llu,",
               tensor->rows, tensor->cols, tensor->group, (unsigned long long)tensor->offset,
               (unsigned long long)tensor->bytes);
    write_hash(out, "xxh3", tensor->xxh3);
    buf_add_text(out, ",\"error\":");
    json_write_double(out, tensor->relative_error);
    buf_add_char(out, '}');
}

static void write_file(struct buf *out, const struct manifest_file *file)
{
    buf_add_text(out, "\n  {");
    write_text(out, "name", file->name);
    buf_printf(out, ",\"bytes\":%llu,", (unsigned long long)file->bytes);
    write_hash(out, "xxh3", file->xxh3);
    buf_add_text(out, ",\"tensors\":[");
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (i)
            buf_add_char(out, ',');
        write_tensor(out, &file->tensors[i]);
    }
    buf_add_text(out, "]}");
}

static void write_settings(struct buf *out, const struct manifest *manifest)
{
    buf_add_text(out, ",\n\"settings\":{");
    write_text(out, "quantization", manifest->quantization);
    buf_printf(out, ",\"group_size\":%u,%s\"stages\":[", manifest->group_size,
               manifest->is_requantised ? "\"requantized\":true," : "");
    for (size_t i = 0; i < manifest->n_stages; i++)
        buf_printf(out, "%s[%u,%u]", i ? "," : "", manifest->stages[i].layer_first,
                   manifest->stages[i].layer_end);
    buf_add_text(out, "],");
    write_text(out, "tool", manifest->tool_version);
    buf_add_text(out, "},\n");
    write_hash(out, "settings_hash", manifest->settings_hash);
}

void manifest_write(const struct manifest *manifest, struct buf *out)
{
    char hex[17];
    buf_printf(out, "{\"format\":\"%s\",\"version\":%u,\n", MANIFEST_FORMAT, MANIFEST_VERSION);
    write_text(out, "family", manifest->family);
    buf_add_text(out, ",\n\"source\":");
    buf_add_str(out, manifest->source);
    write_settings(out, manifest);
    buf_printf(out, ",\n\"layers\":%u,\"tied\":%s,\n", manifest->n_layers,
               manifest->is_tied ? "true" : "false");
    write_text(out, "template_from", manifest->template_from);
    buf_add_text(out, ",\n\"model\":");
    buf_add_str(out, manifest->model);
    buf_add_text(out, ",\n\"files\":[");
    for (size_t i = 0; i < manifest->n_files; i++) {
        if (i)
            buf_add_char(out, ',');
        write_file(out, &manifest->files[i]);
    }
    buf_add_char(out, ']');
    hash_hex(hash_xxh3(out->data, out->size), hex);
    buf_printf(out, "%s%s%s", TAIL_BEGIN, hex, TAIL_END);
}
