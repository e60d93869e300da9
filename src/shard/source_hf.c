/* A Hugging Face directory: config.json, and safetensors in one file or in several with an index.
 *
 * Tensors are found by the names in the family's table. Files without an index are read by the one
 * name that the hub uses; pickled checkpoints are refused by name, since reading them means running
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "model/family.h"
#include "shard/source_internal.h"

#define INDEX_BYTES_CAP ((size_t)256 << 20)
#define FILES_CAP 4096u
#define COMPARE_BYTES ((size_t)4 << 20)
#define MODEL_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

static bool read_text(const char *directory, const char *name, struct buf *out, bool *is_there,
                      struct err *err)
{
    char *path = path_join(directory, name);
    *is_there = file_exists(path);
    bool good = !*is_there || file_read(path, out, err);
    free(path);
    return good;
}

static bool open_file(struct source *source, const char *directory, struct str name,
                      struct err *err)
{
    size_t i = source->n_files;
    source->shards = xreallocarray(source->shards, i + 1, sizeof *source->shards);
    source->files = xreallocarray(source->files, i + 1, sizeof *source->files);
    source->shards[i] = (struct safetensors){ 0 };
    source->files[i] = (struct source_file){ .name = xstrndup(name.data, name.size) };
    source->n_files++;
    char *path = path_join(directory, source->files[i].name);
    bool good = safetensors_open(&source->shards[i], path, err);
    free(path);
    return good;
}

static bool has_file(const struct source *source, struct str name)
{
    for (size_t i = 0; i < source->n_files; i++)
        if (str_is(name, source->files[i].name))
            return true;
    return false;
}

/* Opens every file that the index names, once. Which tensor is where is then seen in the files. */
static bool open_indexed(struct source *source, const char *directory, const struct json *index,
                         struct err *err)
{
    const struct json *map = json_get(index, "weight_map");
    if (json_kind(map) != JSON_KIND_OBJECT || json_size(map) == 0)
        return err_set(err, ERR_FORMAT, "%s has no weight_map", INDEX_NAME);
    for (void *it = json_first(map); it; it = json_next(map, it)) {
        struct str file = json_text(json_member_value(it));
        if (file.size == 0 || str_find_char(file, '/') != SIZE_MAX || file.data[0] == '.' ||
            memchr(file.data, 0, file.size))
            return err_set(err, ERR_FORMAT, "%s: \"%.*s\" is no file name", INDEX_NAME,
                           STR_ARG(file));
        if (has_file(source, file))
            continue;
        if (source->n_files >= FILES_CAP)
            return err_set(err, ERR_FORMAT, "%s names more than %u files", INDEX_NAME, FILES_CAP);
        if (!open_file(source, directory, file, err))
            return false;
    }
    return true;
}

/* Each tensor of the index must be in the file that it names, so that a swapped or old file of a
 * download shows. */
static bool check_index(const struct source *source, const struct json *index, struct err *err)
{
    const struct json *map = json_get(index, "weight_map");
    for (void *it = json_first(map); it; it = json_next(map, it)) {
        struct str file = json_text(json_member_value(it)), name = json_member_key(it);
        for (size_t i = 0; i < source->n_files; i++)
            if (str_is(file, source->files[i].name) && !safetensors_find(&source->shards[i], name))
                return err_set(err, ERR_FORMAT, "%s says that %.*s is in %s; it is not", INDEX_NAME,
                               STR_ARG(name), source->files[i].name);
    }
    return true;
}

static bool no_weights(const char *directory, struct err *err)
{
    char **names;
    size_t n_names;
    if (!dir_list(directory, &names, &n_names, err))
        return false;
    err_set(err, ERR_NOT_FOUND, "%s has no %s and no %s", directory, MODEL_NAME, INDEX_NAME);
    for (size_t i = 0; i < n_names; i++) {
        struct str name = str_from(names[i]);
        if (str_ends(name, STR(".bin")) && str_starts(name, STR("pytorch_model")))
            err_set(err, ERR_UNSUPPORTED,
                    "%s holds a pickled checkpoint (%s); only safetensors and GGUF are read",
                    directory, names[i]);
    }
    dir_list_free(names, n_names);
    return false;
}

static bool open_weights(struct source *source, const char *directory, struct err *err)
{
    struct buf text;
    bool has_index, good;
    buf_init(&text, INDEX_BYTES_CAP);
    good = read_text(directory, INDEX_NAME, &text, &has_index, err);
    if (good && has_index) {
        struct json *index = json_parse(buf_view(&text), err);
        good = index != NULL || err_wrap(err, "%s/%s", directory, INDEX_NAME);
        good =
            good && open_indexed(source, directory, index, err) && check_index(source, index, err);
        json_free(index);
    } else if (good) {
        char *path = path_join(directory, MODEL_NAME);
        good = file_exists(path) ? open_file(source, directory, STR(MODEL_NAME), err)
                                 : no_weights(directory, err);
        free(path);
    }
    buf_release(&text);
    for (size_t i = 0; i < source->n_files; i++)
        source->files[i].map = &source->shards[i].map;
    return good;
}

bool source_hf_open(struct source *source, const char *directory, struct err *err)
{
    bool has_config, has_generation;
    if (!read_text(directory, "config.json", &source->config_json, &has_config, err) ||
        !read_text(directory, "generation_config.json", &source->generation_json, &has_generation,
                   err))
        return false;
    if (!has_config)
        return err_set(err, ERR_NOT_FOUND,
                       "%s has no config.json: it is no model directory (a GGUF file is given by "
                       "its own path)",
                       directory);
    return open_weights(source, directory, err);
}

/* A head beside a tied embedding must be that embedding again. transformers 4 ignores another one,
 * 5 uses it in spite of the configuration: whichever were taken here, half of the files would be
 * computed wrongly. Whole files of equal halves are rare; reading them keeps no page. */
static bool check_tied_head(const struct source *source, const struct file_map *map,
                            const struct safetensors_tensor *head, struct err *err)
{
    struct family_need need;
    must(family_need_of(&source->config, TENSOR_EMBEDDING, TENSOR_NO_LAYER, &need));
    const struct safetensors_tensor *embedding = NULL;
    const struct file_map *other = NULL;
    for (size_t i = 0; embedding == NULL && i < source->n_files; i++) {
        embedding = safetensors_find(&source->shards[i], str_from(need.name));
        other = source->files[i].map;
    }
    bool is_same =
        embedding != NULL && embedding->source == head->source && embedding->bytes == head->bytes;
    for (size_t at = 0; is_same && at < head->bytes; at += COMPARE_BYTES) {
        const size_t n = head->bytes - at < COMPARE_BYTES ? head->bytes - at : COMPARE_BYTES;
        is_same = memcmp(head->data + at, embedding->data + at, n) == 0;
        file_map_forget(map, (size_t)(head->data - map->data) + at, n);
        file_map_forget(other, (size_t)(embedding->data - other->data) + at, n);
    }
    return is_same ||
           err_set(err, ERR_FORMAT,
                   "tensor %.*s differs from %s, and tie_word_embeddings says that they are one",
                   STR_ARG(head->name), need.name);
}

/* Every tensor of every file is needed, or known to be passed over, and is in one file only. */
static bool check_left_over(const struct source *source, struct err *err)
{
    struct family_need need;
    for (size_t i = 0; i < source->n_files; i++) {
        const struct safetensors *st = &source->shards[i];
        for (size_t t = 0; t < st->n_tensors; t++) {
            struct str name = st->tensors[t].name;
            for (size_t other = 0; other < i; other++)
                if (safetensors_find(&source->shards[other], name))
                    return err_set(err, ERR_FORMAT, "tensor %.*s is in %s and in %s", STR_ARG(name),
                                   source->files[other].name, source->files[i].name);
            if (!family_need_named(&source->config, name, &need) &&
                !family_passes_over(&source->config, name))
                return err_set(err, ERR_FORMAT,
                               "tensor %.*s in %s is left over: a %s of this configuration has "
                               "none",
                               STR_ARG(name), source->files[i].name, source->config.model_type);
            if (family_is_tied_head(&source->config, name) &&
                !check_tied_head(source, source->files[i].map, &st->tensors[t], err))
                return false;
        }
    }
    return true;
}

static bool find_tensor(const struct source *source, struct str name, struct source_found *out)
{
    for (size_t i = 0; i < source->n_files; i++) {
        const struct safetensors_tensor *tensor = safetensors_find(&source->shards[i], name);
        if (!tensor)
            continue;
        bool is_vector = tensor->n_dims == 1;
        *out = (struct source_found){
            .name = tensor->name,
            .type_name = tensor->dtype,
            .kind = tensor->source,
            .n_dims = tensor->n_dims,
            .rows = is_vector ? 1 : tensor->dims[0],
            .cols = is_vector ? tensor->dims[0] : tensor->dims[1],
            .data = tensor->data,
            .map = source->files[i].map,
        };
        return true;
    }
    return false;
}

bool source_hf_bind(struct source *source, struct err *err)
{
    for (uint32_t i = 0; i < source->n_tensors; i++) {
        struct family_need need;
        struct source_found found;
        family_need_at(&source->config, i, &need);
        if (!find_tensor(source, str_from(need.name), &found))
            return err_set(err, ERR_FORMAT, "tensor %s is missing", need.name);
        if (!source_bind_tensor(&found, &need, &source->tensors[i], err))
            return false;
    }
    return check_left_over(source, err);
}

/* "chat_template": a string, or a list of {"name", "template"} of which the default counts. */
static bool pick_template(const struct json *value, struct buf *text, struct err *err)
{
    if (json_kind(value) == JSON_KIND_STRING) {
        buf_add_str(text, json_text(value));
        return true;
    }
    for (size_t i = 0; i < json_size(value); i++) {
        const struct json *entry = json_at(value, i);
        if (str_is(json_text(json_get(entry, "name")), "default")) {
            buf_add_str(text, json_text(json_get(entry, "template")));
            return true;
        }
    }
    return err_set(err, ERR_FORMAT, "chat_template is no text and no list with a \"default\"");
}

static bool read_config_template(const char *directory, struct buf *text, const char **from,
                                 struct err *err)
{
    static const char *const name = "tokenizer_config.json";
    struct buf config;
    bool is_there, good;
    buf_init(&config, SOURCE_CONFIG_BYTES_CAP);
    good = read_text(directory, name, &config, &is_there, err);
    if (good && is_there) {
        struct json *root = json_parse(buf_view(&config), err);
        const struct json *value = json_get(root, "chat_template");
        good = root != NULL;
        if (json_kind(value) != JSON_KIND_MISSING && json_kind(value) != JSON_KIND_NULL) {
            good = pick_template(value, text, err);
            *from = name;
        }
        json_free(root);
        if (!good)
            err_wrap(err, "%s/%s", directory, name);
    }
    buf_release(&config);
    return good;
}

bool source_hf_template(const struct source *source, struct buf *text, const char **from,
                        struct err *err)
{
    bool is_there;
    if (!read_text(source->path, "chat_template.jinja", text, &is_there, err))
        return false;
    if (is_there) {
        *from = "chat_template.jinja";
        return true;
    }
    return read_config_template(source->path, text, from, err);
}
