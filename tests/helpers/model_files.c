#include "helpers/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/random_bits.h"
#include "quant/quant.h"

#define BUILDER_CAP ((size_t)64 << 20)

static void add_u32(struct buf *out, uint32_t value)
{
    buf_add(out, &value, sizeof value);
}

static void add_u64(struct buf *out, uint64_t value)
{
    buf_add(out, &value, sizeof value);
}

static void add_string(struct buf *out, const char *text)
{
    add_u64(out, strlen(text));
    buf_add_text(out, text);
}

void gguf_builder_init(struct gguf_builder *builder)
{
    *builder = (struct gguf_builder){ .version = 3, .alignment = 32 };
    buf_init(&builder->values, BUILDER_CAP);
    buf_init(&builder->entries, BUILDER_CAP);
    buf_init(&builder->data, BUILDER_CAP);
}

void gguf_builder_release(struct gguf_builder *builder)
{
    buf_release(&builder->values);
    buf_release(&builder->entries);
    buf_release(&builder->data);
}

void gguf_add_raw(struct gguf_builder *builder, const char *key, uint32_t type, const void *bytes,
                  size_t size)
{
    add_string(&builder->values, key);
    add_u32(&builder->values, type);
    buf_add(&builder->values, bytes, size);
    builder->n_values++;
}

void gguf_add_u32(struct gguf_builder *builder, const char *key, uint32_t value)
{
    gguf_add_raw(builder, key, 4, &value, sizeof value);
}

void gguf_add_f32(struct gguf_builder *builder, const char *key, float value)
{
    gguf_add_raw(builder, key, 6, &value, sizeof value);
}

void gguf_add_str(struct gguf_builder *builder, const char *key, const char *value)
{
    uint64_t size = strlen(value);
    gguf_add_raw(builder, key, 8, &size, sizeof size);
    buf_add_text(&builder->values, value);
}

static void pad(struct buf *out, size_t alignment)
{
    while (out->size % alignment)
        buf_add_char(out, 0);
}

void gguf_add_tensor(struct gguf_builder *builder, const char *name, uint32_t type,
                     const uint64_t *dims, uint32_t n_dims, const void *bytes, size_t size)
{
    pad(&builder->data, builder->alignment);
    add_string(&builder->entries, name);
    add_u32(&builder->entries, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        add_u64(&builder->entries, dims[d]);
    add_u32(&builder->entries, type);
    add_u64(&builder->entries, builder->data.size);
    buf_add(&builder->data, bytes, size);
    builder->n_tensors++;
}

void gguf_builder_finish(struct gguf_builder *builder, struct buf *out)
{
    buf_add(out, "GGUF", 4);
    add_u32(out, builder->version);
    add_u64(out, builder->n_tensors);
    add_u64(out, builder->n_values);
    buf_add_str(out, buf_view(&builder->values));
    buf_add_str(out, buf_view(&builder->entries));
    pad(out, builder->alignment);
    buf_add_str(out, buf_view(&builder->data));
}

void safetensors_builder_init(struct safetensors_builder *builder)
{
    buf_init(&builder->header, BUILDER_CAP);
    buf_init(&builder->data, BUILDER_CAP);
    buf_add_char(&builder->header, '{');
}

void safetensors_builder_release(struct safetensors_builder *builder)
{
    buf_release(&builder->header);
    buf_release(&builder->data);
}

void safetensors_add(struct safetensors_builder *builder, const char *name, const char *dtype,
                     const uint64_t *dims, uint32_t n_dims, const void *bytes, size_t size)
{
    struct buf *header = &builder->header;
    buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->size > 1 ? "," : "", name,
               dtype);
    for (uint32_t d = 0; d < n_dims; d++)
        buf_printf(header, "%s%llu", d ? "," : "", (unsigned long long)dims[d]);
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", builder->data.size,
               builder->data.size + size);
    buf_add(&builder->data, bytes, size);
}

void safetensors_builder_finish(struct safetensors_builder *builder, struct buf *out)
{
    buf_add_char(&builder->header, '}');
    add_u64(out, builder->header.size);
    buf_add_str(out, buf_view(&builder->header));
    buf_add_str(out, buf_view(&builder->data));
}

/* The little llama. */

#define SMALL_CONFIG                                                                               \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"                        \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"                         \
    "\"intermediate_size\":40,\"vocab_size\":70,\"max_position_embeddings\":128,"                  \
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","                        \
    "\"bos_token_id\":1,\"eos_token_id\":2,\"tie_word_embeddings\":%s}"

struct small_tensor {
    const char *hf, *gguf; // "%u" stands for the layer
    uint32_t rows, cols;   // rows 0: a vector
    uint32_t paired_heads; // of the GGUF's row order
};

static const struct small_tensor small_tensors[] = {
    { "model.embed_tokens.weight", "token_embd.weight", 70, 64, 0 },
    { "model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", 0, 64, 0 },
    { "model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight", 64, 64, 2 },
    { "model.layers.%u.self_attn.k_proj.weight", "blk.%u.attn_k.weight", 32, 64, 1 },
    { "model.layers.%u.self_attn.v_proj.weight", "blk.%u.attn_v.weight", 32, 64, 0 },
    { "model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight", 64, 64, 0 },
    { "model.layers.%u.post_attention_layernorm.weight", "blk.%u.ffn_norm.weight", 0, 64, 0 },
    { "model.layers.%u.mlp.gate_proj.weight", "blk.%u.ffn_gate.weight", 40, 64, 0 },
    { "model.layers.%u.mlp.up_proj.weight", "blk.%u.ffn_up.weight", 40, 64, 0 },
    /* 40 columns are no whole blocks: quantised GGUFs of the tests keep this one in f32 */
    { "model.layers.%u.mlp.down_proj.weight", "blk.%u.ffn_down.weight", 64, 40, 0 },
    { "model.norm.weight", "output_norm.weight", 0, 64, 0 },
    { "lm_head.weight", "output.weight", 70, 64, 0 },
};
#define N_SMALL (sizeof small_tensors / sizeof small_tensors[0])

static void layer_name(char out[128], const char *pattern, uint32_t layer)
{
    const char *gap = strstr(pattern, "%u");
    if (gap)
        snprintf(out, 128, "%.*s%u%s", (int)(gap - pattern), pattern, layer, gap + 2);
    else
        snprintf(out, 128, "%s", pattern);
}

static float *make_values(const struct small_model *model, const char *hf_name,
                          const struct small_tensor *tensor)
{
    uint64_t state = model->seed ^ hash_xxh3(hf_name, strlen(hf_name));
    size_t count = (size_t)(tensor->rows ? tensor->rows : 1) * tensor->cols;
    float *values = xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(&state);
    return values;
}

/* Calls `visit` for every tensor that the model has. */
typedef void small_visit(const struct small_model *model, const struct small_tensor *tensor,
                         const char *hf_name, const char *gguf_name, void *context);

static void visit_tensors(const struct small_model *model, small_visit *visit, void *context)
{
    char hf[128], gguf[128];
    for (size_t i = 0; i < N_SMALL; i++) {
        const struct small_tensor *tensor = &small_tensors[i];
        uint32_t n = strstr(tensor->hf, "%u") ? 2 : 1;
        for (uint32_t layer = 0; layer < n; layer++) {
            layer_name(hf, tensor->hf, layer);
            layer_name(gguf, tensor->gguf, layer);
            bool is_skipped =
                model->skip && (strcmp(model->skip, hf) == 0 || strcmp(model->skip, gguf) == 0);
            if (!is_skipped && !(model->is_tied && strcmp(hf, "lm_head.weight") == 0))
                visit(model, tensor, hf, gguf, context);
        }
    }
}

static void add_hf(const struct small_model *model, const struct small_tensor *tensor,
                   const char *hf_name, const char *gguf_name, void *context)
{
    (void)gguf_name;
    float *values = make_values(model, hf_name, tensor);
    uint64_t cols = tensor->cols;
    if (model->misshapen && strcmp(model->misshapen, hf_name) == 0)
        cols /= 2;
    uint64_t dims[2] = { tensor->rows, cols };
    size_t count = (size_t)(tensor->rows ? tensor->rows : 1) * (size_t)cols;
    safetensors_add(context, hf_name, "F32", tensor->rows ? dims : dims + 1, tensor->rows ? 2 : 1,
                    values, count * sizeof *values);
    free(values);
}

static void write_file(const char *path, struct buf *content)
{
    struct err err = { 0 };
    if (!file_write_atomic(path, buf_view(content), &err))
        fail_msg("%s", err.text);
    buf_release(content);
}

void small_model_write_hf(const struct small_model *model, const char *directory)
{
    struct safetensors_builder builder;
    struct buf file, config;
    float zeros[4] = { 0 };
    uint64_t four = 4;
    safetensors_builder_init(&builder);
    visit_tensors(model, add_hf, &builder);
    if (model->extra)
        safetensors_add(&builder, model->extra, "F32", &four, 1, zeros, sizeof zeros);
    buf_init(&file, BUILDER_CAP);
    buf_init(&config, 4096);
    safetensors_builder_finish(&builder, &file);
    safetensors_builder_release(&builder);
    buf_printf(&config, SMALL_CONFIG, model->is_tied ? "true" : "false");
    char *path = path_join(directory, "model.safetensors");
    write_file(path, &file);
    free(path);
    path = path_join(directory, "config.json");
    write_file(path, &config);
    free(path);
}

/* Rough blocks: only their bytes matter to a reader. The scale is max / 8 (or 127). */
static void encode_block(uint32_t type, const float *w, struct buf *out)
{
    float largest = 0, least = w[0];
    for (int k = 0; k < 32; k++) {
        float magnitude = w[k] < 0 ? -w[k] : w[k];
        largest = magnitude > largest ? magnitude : largest;
        least = w[k] < least ? w[k] : least;
    }
    float step = type == 8 ? largest / 127 : type == 3 ? (largest - least) / 15 : largest / 8;
    uint16_t d = quant_f32_to_f16(step), m = quant_f32_to_f16(least);
    uint8_t q[32];
    for (int k = 0; k < 32; k++) {
        float x = type == 3 ? (w[k] - least) / step : w[k] / step;
        int n = (int)(x + (x < 0 ? -0.5f : 0.5f)) + (type == 2 ? 8 : 0);
        int low = type == 8 ? -127 : 0, high = type == 8 ? 127 : 15;
        q[k] = (uint8_t)(n < low ? low : n > high ? high : n);
    }
    buf_add(out, &d, 2);
    if (type == 3)
        buf_add(out, &m, 2);
    for (int k = 0; k < (type == 8 ? 32 : 16); k++)
        buf_add_char(out, (char)(type == 8 ? q[k] : (q[k] | q[k + 16] << 4)));
}

static void encode_values(uint32_t type, const float *values, size_t count, struct buf *out)
{
    for (size_t i = 0; type == 1 && i < count; i++) {
        uint16_t h = quant_f32_to_f16(values[i]);
        buf_add(out, &h, 2);
    }
    for (size_t i = 0; type > 1 && i < count; i += 32)
        encode_block(type, values + i, out);
    if (type == 0)
        buf_add(out, values, count * sizeof *values);
}

static void add_gguf(const struct small_model *model, const struct small_tensor *tensor,
                     const char *hf_name, const char *gguf_name, void *context)
{
    struct gguf_builder *builder = context;
    struct buf bytes;
    uint32_t rows = tensor->rows ? tensor->rows : 1, cols = tensor->cols;
    float *values = make_values(model, hf_name, tensor);
    float *ordered = xcalloc((size_t)rows * cols, sizeof *ordered);
    for (uint32_t row = 0; row < rows; row++) { // as the converter writes it
        uint32_t to = row;
        if (tensor->paired_heads) {
            uint32_t d = rows / tensor->paired_heads;
            to = row / d * d + row % d % (d / 2) * 2 + row % d / (d / 2);
        }
        memcpy(ordered + (size_t)to * cols, values + (size_t)row * cols, cols * sizeof *ordered);
    }
    uint32_t type = tensor->rows == 0 || cols % 32 ? 0 : model->gguf_type;
    if (model->odd && strcmp(model->odd, gguf_name) == 0)
        type = model->odd_type;
    if (model->misshapen && strcmp(model->misshapen, gguf_name) == 0)
        cols /= 2;
    uint64_t dims[2] = { cols, rows };
    buf_init(&bytes, BUILDER_CAP);
    encode_values(type, ordered, (size_t)rows * cols, &bytes);
    gguf_add_tensor(builder, gguf_name, type, dims, tensor->rows ? 2 : 1, bytes.data, bytes.size);
    buf_release(&bytes);
    free(ordered);
    free(values);
}

void small_model_write_gguf(const struct small_model *model, const char *path)
{
    struct gguf_builder builder;
    struct buf file;
    float zeros[4] = { 0 };
    uint64_t four = 4;
    gguf_builder_init(&builder);
    gguf_add_str(&builder, "general.architecture", "llama");
    gguf_add_u32(&builder, "llama.block_count", 2);
    gguf_add_u32(&builder, "llama.embedding_length", 64);
    gguf_add_u32(&builder, "llama.feed_forward_length", 40);
    gguf_add_u32(&builder, "llama.context_length", 128);
    gguf_add_u32(&builder, "llama.attention.head_count", 2);
    gguf_add_u32(&builder, "llama.attention.head_count_kv", 1);
    gguf_add_u32(&builder, "llama.rope.dimension_count", 32);
    gguf_add_f32(&builder, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", 1);
    gguf_add_u32(&builder, "tokenizer.ggml.eos_token_id", 2);
    visit_tensors(model, add_gguf, &builder);
    if (model->extra)
        gguf_add_tensor(&builder, model->extra, 0, &four, 1, zeros, sizeof zeros);
    buf_init(&file, BUILDER_CAP);
    gguf_builder_finish(&builder, &file);
    gguf_builder_release(&builder);
    write_file(path, &file);
}

float *small_model_values(const struct small_model *model, const char *name, uint32_t *rows,
                          uint32_t *cols)
{
    char hf[128];
    for (size_t i = 0; i < N_SMALL; i++) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            layer_name(hf, small_tensors[i].hf, layer);
            if (strcmp(hf, name) != 0)
                continue;
            *rows = small_tensors[i].rows ? small_tensors[i].rows : 1;
            *cols = small_tensors[i].cols;
            return make_values(model, name, &small_tensors[i]);
        }
    }
    fail_msg("no tensor %s in the little llama", name);
    return NULL;
}
