/* The two kinds of source behind source.h. */
#ifndef CASCADIA_SHARD_SOURCE_INTERNAL_H
#define CASCADIA_SHARD_SOURCE_INTERNAL_H

#include "shard/source.h"

#define SOURCE_CONFIG_BYTES_CAP MODEL_CONFIG_BYTES_CAP

/* Opens files, reads config.json and generation_config.json as text. */
bool source_hf_open(struct source *source, const char *directory, struct err *err);
bool source_gguf_open(struct source *source, const char *path, struct err *err);
bool source_gguf_parse(struct source *source, const uint8_t *bytes, size_t size, struct err *err);

/* With the configuration read: fills source->tensors, in the order of family_need_at, and refuses
 * what is left over. */
bool source_hf_bind(struct source *source, struct err *err);
bool source_gguf_bind(struct source *source, struct err *err);

bool source_hf_template(const struct source *source, struct buf *text, const char **from,
                        struct err *err);
bool source_gguf_template(const struct source *source, struct buf *text, const char **from,
                          struct err *err);

/* Checks shape and type of a tensor against what is needed and fills `out`: dims are rows (matrices
 * only), cols. `kind` QUANT_SOURCE_COUNT: type_name is not read. */
struct source_found {
    struct str name;
    const char *type_name;
    enum quant_source kind;
    uint32_t n_dims;
    uint64_t rows, cols; // rows 1 when there is one dimension
    const uint8_t *data;
    const struct file_map *map;
};
struct family_need;
bool source_bind_tensor(const struct source_found *found, const struct family_need *need,
                        struct source_tensor *out, struct err *err);

#endif
