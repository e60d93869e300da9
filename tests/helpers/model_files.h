/* Small models in the containers that the program reads, made byte by byte for tests. */
#ifndef CASCADIA_TESTS_HELPERS_MODEL_FILES_H
#define CASCADIA_TESTS_HELPERS_MODEL_FILES_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A GGUF under construction: first metadata, then tensors, then finish. */
struct gguf_builder {
    struct buf values, entries, data;
    uint64_t n_values, n_tensors;
    uint32_t version;   // 3 unless changed
    uint32_t alignment; // 32 unless changed (and written with gguf_add_u32)
};
void gguf_builder_init(struct gguf_builder *builder);
void gguf_builder_release(struct gguf_builder *builder);
void gguf_add_u32(struct gguf_builder *builder, const char *key, uint32_t value);
void gguf_add_f32(struct gguf_builder *builder, const char *key, float value);
void gguf_add_str(struct gguf_builder *builder, const char *key, const char *value);
/* Any value: `type` and the bytes behind it. */
void gguf_add_raw(struct gguf_builder *builder, const char *key, uint32_t type, const void *bytes,
                  size_t size);
void gguf_add_tensor(struct gguf_builder *builder, const char *name, uint32_t type,
                     const uint64_t *dims, uint32_t n_dims, const void *bytes, size_t size);
void gguf_builder_finish(struct gguf_builder *builder, struct buf *out);

/* A safetensors file under construction. */
struct safetensors_builder {
    struct buf header, data;
};
void safetensors_builder_init(struct safetensors_builder *builder);
void safetensors_builder_release(struct safetensors_builder *builder);
void safetensors_add(struct safetensors_builder *builder, const char *name, const char *dtype,
                     const uint64_t *dims, uint32_t n_dims, const void *bytes, size_t size);
void safetensors_builder_finish(struct safetensors_builder *builder, struct buf *out);

/* A whole little llama: 2 layers, hidden 64, 2 heads of 32, 1 kv head, intermediate 40 (not a
 * multiple of a panel), vocabulary 70. */
struct small_model {
    uint64_t seed;
    const char *skip;      // a tensor that is left out, or NULL
    const char *extra;     // one that does not belong, or NULL
    const char *misshapen; // one whose columns are halved, or NULL
    uint32_t gguf_type;    // of matrices in a GGUF: 0 f32, 1 f16, 2 q4_0, 3 q4_1, 8 q8_0
    const char *odd;       // a tensor of the GGUF that has odd_type instead, or NULL
    uint32_t odd_type;
    bool is_tied;
};
/* config.json and model.safetensors (f32) in a directory. */
void small_model_write_hf(const struct small_model *model, const char *directory);
void small_model_write_gguf(const struct small_model *model, const char *path);
/* The values of a tensor by its Hugging Face name, as small_model_write_hf stores them: caller
 * frees. Dimensions are found in rows and cols. */
float *small_model_values(const struct small_model *model, const char *name, uint32_t *rows,
                          uint32_t *cols);

#endif
