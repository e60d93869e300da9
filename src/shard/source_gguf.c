/* A GGUF file as a Hugging Face model.
 *
 * The metadata becomes a config.json with the keys that model/config reads, so there is one reader
 * of dimensions and one place that refuses. Tensor names are mapped to roles by the table here.
 * Three things differ from a Hugging Face checkpoint and are undone:
 *   - arch llama (and the mistral files that carry its name) keeps q and k rows in the order for a
 *     rotation of neighbours: paired_heads tells source_row to put them back;
 *   - llama3's rope scaling is a tensor of divisors, rope_freqs: passed on as rope type "divisors";
 *   - the head is tied exactly when there is no output.weight.
 * Settings that mean other mathematics (experts, partial rotation, per-layer head counts, ALiBi,
 * soft caps) are refused by their key. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "model/family.h"
#include "shard/source_internal.h"

#define KEY_BYTES 128
#define ROPE_THETA_DEFAULT 10000.0 // what a GGUF without rope.freq_base means
#define END_IDS_CAP 3u

/* GGUF architectures that are read, and the model_type each becomes. */
struct arch {
    const char *name, *model_type;
    bool has_paired_rows;
};

static const struct arch archs[] = {
    { "llama", "llama", true },
    { "qwen2", "qwen2", false },
    { "qwen3", "qwen3", false },
};

struct gguf_name {
    const char *name; // "%u" stands for the layer
    enum tensor_role role;
};

static const struct gguf_name gguf_names[] = {
    { "token_embd.weight", TENSOR_EMBEDDING },
    { "output_norm.weight", TENSOR_FINAL_NORM },
    { "output.weight", TENSOR_HEAD },
    { "blk.%u.attn_norm.weight", TENSOR_ATTN_NORM },
    { "blk.%u.attn_q.weight", TENSOR_Q },
    { "blk.%u.attn_k.weight", TENSOR_K },
    { "blk.%u.attn_v.weight", TENSOR_V },
    { "blk.%u.attn_q.bias", TENSOR_Q_BIAS },
    { "blk.%u.attn_k.bias", TENSOR_K_BIAS },
    { "blk.%u.attn_v.bias", TENSOR_V_BIAS },
    { "blk.%u.attn_q_norm.weight", TENSOR_Q_NORM },
    { "blk.%u.attn_k_norm.weight", TENSOR_K_NORM },
    { "blk.%u.attn_output.weight", TENSOR_O },
    { "blk.%u.attn_output.bias", TENSOR_O_BIAS },
    { "blk.%u.ffn_norm.weight", TENSOR_MLP_NORM },
    { "blk.%u.ffn_gate.weight", TENSOR_GATE },
    { "blk.%u.ffn_up.weight", TENSOR_UP },
    { "blk.%u.ffn_gate.bias", TENSOR_GATE_BIAS },
    { "blk.%u.ffn_up.bias", TENSOR_UP_BIAS },
    { "blk.%u.ffn_down.weight", TENSOR_DOWN },
    { "blk.%u.ffn_down.bias", TENSOR_DOWN_BIAS },
};
#define N_GGUF_NAMES (sizeof gguf_names / sizeof gguf_names[0])

/* Not weights: the first is read into the configuration, the second follows from theta. */
#define ROPE_FREQS "rope_freqs.weight"
#define ROT_EMBD "attn_rot_embd.weight"

/* Keys whose presence with another value than the harmless one means other mathematics. */
struct refused_key {
    const char *key; // after "<arch>."
    double harmless;
    const char *reason;
};

static const struct refused_key refused_keys[] = {
    { "expert_count", 0, "mixtures of experts are not read from GGUF" },
    { "attention.max_alibi_bias", 0, "ALiBi is not computed" },
    { "attention.clamp_kqv", 0, "clamped q, k, v are not computed" },
    { "attn_logit_softcapping", 0, "soft caps are not computed" },
    { "final_logit_softcapping", 0, "soft caps are not computed" },
    { "logit_scale", 1, "scaled logits are not computed" },
    { "residual_scale", 1, "scaled residuals are not computed" },
    { "embedding_scale", 1, "scaled embeddings are not computed" },
    { "attention.scale", 0, "another attention scale is not computed" },
    { "attention.causal", 1, "attention to later positions is not computed" },
    { "use_parallel_residual", 0, "parallel residuals are not computed" },
};

/* The metadata while a configuration is written from it. */
struct reader {
    const struct gguf *gguf;
    const struct arch *arch;
    struct buf *out;
    struct err *err;
};

static const struct gguf_value *find_key(const struct reader *reader, const char *key)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", reader->arch->name, key);
    return gguf_find(reader->gguf, full);
}

/* A number, or the array of one for each layer that some converters write, when all are equal. */
static bool read_of_layers(const struct gguf_value *value, uint32_t *out)
{
    int64_t *items;
    size_t n_items;
    if (gguf_read_u32(value, out))
        return true;
    if (!gguf_read_integers(value, &items, &n_items))
        return false;
    bool is_one = n_items > 0 && items[0] >= 0 && items[0] <= UINT32_MAX;
    for (size_t i = 1; is_one && i < n_items; i++)
        is_one = items[i] == items[0];
    if (is_one)
        *out = (uint32_t)items[0];
    free(items);
    return is_one;
}

static bool need_u32(const struct reader *reader, const char *key, uint32_t *out)
{
    const struct gguf_value *value = find_key(reader, key);
    if (read_of_layers(value, out) && *out > 0)
        return true;
    if (value && value->type == GGUF_ARRAY)
        return err_set(reader->err, ERR_UNSUPPORTED,
                       "metadata %s.%s is not one positive number for all layers",
                       reader->arch->name, key);
    return err_set(reader->err, ERR_FORMAT, "metadata %s.%s is %s", reader->arch->name, key,
                   value ? "no positive number" : "missing");
}

static bool optional_u32(const struct reader *reader, const char *key, uint32_t otherwise,
                         uint32_t *out)
{
    *out = otherwise;
    return !find_key(reader, key) || need_u32(reader, key, out);
}

static bool optional_double(const struct reader *reader, const char *key, double otherwise,
                            double *out)
{
    const struct gguf_value *value = find_key(reader, key);
    *out = otherwise;
    if (!value || (gguf_read_double(value, out) && isfinite(*out)))
        return true;
    return err_set(reader->err, ERR_FORMAT, "metadata %s.%s is no number", reader->arch->name, key);
}

static bool check_refused(const struct reader *reader)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        const struct refused_key *refused = &refused_keys[i];
        const struct gguf_value *value = find_key(reader, refused->key);
        double number;
        bool flag;
        if (gguf_read_bool(value, &flag))
            number = flag;
        else if (!gguf_read_double(value, &number))
            number = refused->harmless; // not there
        if (number != refused->harmless)
            return err_set(reader->err, ERR_UNSUPPORTED, "%s.%s: %s", reader->arch->name,
                           refused->key, refused->reason);
    }
    uint32_t n_parts;
    if (gguf_read_u32(gguf_find(reader->gguf, "split.count"), &n_parts) && n_parts > 1)
        return err_set(reader->err, ERR_UNSUPPORTED,
                       "one of %u parts of a GGUF; join them first (llama-gguf-split --merge)",
                       n_parts);
    if (gguf_find_tensor(reader->gguf, "rope_factors_long.weight") ||
        gguf_find_tensor(reader->gguf, "rope_factors_short.weight"))
        return err_set(reader->err, ERR_UNSUPPORTED, "longrope is not read from GGUF");
    return true;
}

static void write_u32(struct buf *out, const char *key, uint32_t value)
{
    buf_add_text(out, ",\n ");
    json_write_key(out, key);
    buf_printf(out, "%u", value);
}

static void write_double(struct buf *out, const char *key, double value)
{
    buf_add_text(out, ",\n ");
    json_write_key(out, key);
    json_write_double(out, value);
}

static void write_bool(struct buf *out, const char *key, bool value)
{
    buf_add_text(out, ",\n ");
    json_write_key(out, key);
    buf_add_text(out, value ? "true" : "false");
}

/* Heads and their size. */
static bool write_heads(const struct reader *reader, uint32_t hidden)
{
    uint32_t n_heads, n_kv_heads, head_dim, value_dim, rotated;
    if (!need_u32(reader, "attention.head_count", &n_heads) ||
        !optional_u32(reader, "attention.head_count_kv", n_heads, &n_kv_heads) ||
        !optional_u32(reader, "attention.key_length", hidden / n_heads, &head_dim) ||
        !optional_u32(reader, "attention.value_length", head_dim, &value_dim) ||
        !optional_u32(reader, "rope.dimension_count", head_dim, &rotated))
        return false;
    if (value_dim != head_dim)
        return err_set(reader->err, ERR_UNSUPPORTED, "keys of %u and values of %u dimensions",
                       head_dim, value_dim);
    if (rotated != head_dim)
        return err_set(reader->err, ERR_UNSUPPORTED,
                       "%s.rope.dimension_count %u of a head of %u: partial rotation is not "
                       "computed",
                       reader->arch->name, rotated, head_dim);
    write_u32(reader->out, "num_attention_heads", n_heads);
    write_u32(reader->out, "num_key_value_heads", n_kv_heads);
    write_u32(reader->out, "head_dim", head_dim);
    return true;
}

static bool write_divisors(const struct reader *reader, const struct gguf_tensor *tensor)
{
    struct buf *out = reader->out;
    if (tensor->source != QUANT_SOURCE_F32 || tensor->n_dims != 1)
        return err_set(reader->err, ERR_UNSUPPORTED, "tensor %s is no f32 vector", ROPE_FREQS);
    buf_add_text(out, ",\n \"rope_scaling\": {\"rope_type\": \"divisors\", \"divisors\": [");
    for (uint64_t i = 0; i < tensor->dims[0]; i++) {
        float value;
        memcpy(&value, tensor->data + i * 4, 4);
        if (!isfinite(value) || value <= 0)
            return err_set(reader->err, ERR_FORMAT, "tensor %s holds a value that is no divisor",
                           ROPE_FREQS);
        buf_add_text(out, i ? ", " : "");
        json_write_double(out, (double)value);
    }
    buf_add_text(out, "]}");
    return true;
}

/* llama.cpp multiplies its attention factor 1 + 0.1 ln(factor) by attn_factor; Hugging Face's
 * attention_factor is the product. */
static bool write_yarn(const struct reader *reader, double factor, uint32_t original)
{
    double attention, fast, slow, extrapolation;
    struct buf *out = reader->out;
    if (!optional_double(reader, "rope.scaling.attn_factor", 1, &attention) ||
        !optional_double(reader, "rope.scaling.yarn_attn_factor", attention, &attention) ||
        !optional_double(reader, "rope.scaling.yarn_beta_fast", 32, &fast) ||
        !optional_double(reader, "rope.scaling.yarn_beta_slow", 1, &slow) ||
        !optional_double(reader, "rope.scaling.yarn_ext_factor", 1, &extrapolation))
        return false;
    if (extrapolation != 1)
        return err_set(reader->err, ERR_UNSUPPORTED, "%s.rope.scaling.yarn_ext_factor other than 1",
                       reader->arch->name);
    buf_add_text(out, ",\n \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": ");
    json_write_double(out, factor);
    buf_printf(out, ", \"original_max_position_embeddings\": %u, \"beta_fast\": ", original);
    json_write_double(out, fast);
    buf_add_text(out, ", \"beta_slow\": ");
    json_write_double(out, slow);
    if (attention != 1) {
        buf_add_text(out, ", \"attention_factor\": ");
        json_write_double(out, attention * (1 + 0.1 * log(factor)));
    }
    buf_add_char(out, '}');
    return true;
}

static bool write_rope(const struct reader *reader, uint32_t max_positions)
{
    const struct gguf_tensor *freqs = gguf_find_tensor(reader->gguf, ROPE_FREQS);
    struct str type = STR("none");
    double theta, factor, legacy;
    uint32_t original;
    gguf_read_str(find_key(reader, "rope.scaling.type"), &type);
    if (!optional_double(reader, "rope.freq_base", ROPE_THETA_DEFAULT, &theta) ||
        !optional_double(reader, "rope.scale_linear", 1, &legacy) ||
        !optional_double(reader, "rope.scaling.factor", legacy, &factor) ||
        !optional_u32(reader, "rope.scaling.original_context_length", max_positions, &original))
        return false;
    if (legacy != 1 && str_is(type, "none"))
        type = STR("linear");
    write_double(reader->out, "rope_theta", theta);
    if (freqs && !str_is(type, "none"))
        return err_set(reader->err, ERR_UNSUPPORTED, "%s with rope scaling %.*s", ROPE_FREQS,
                       STR_ARG(type));
    if (freqs)
        return write_divisors(reader, freqs);
    if (str_is(type, "yarn"))
        return write_yarn(reader, factor, original);
    if (str_is(type, "linear")) {
        buf_add_text(reader->out, ",\n \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": ");
        json_write_double(reader->out, factor);
        buf_add_char(reader->out, '}');
        return true;
    }
    return str_is(type, "none") ||
           err_set(reader->err, ERR_UNSUPPORTED, "rope scaling \"%.*s\"", STR_ARG(type));
}

/* All ids that end a text: the model's, end of turn, end of message. */
static void write_ids(const struct reader *reader)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    uint32_t ids[END_IDS_CAP], n_ids = 0, id;
    if (gguf_read_u32(gguf_find(reader->gguf, "tokenizer.ggml.bos_token_id"), &id))
        write_u32(reader->out, "bos_token_id", id);
    for (size_t i = 0; i < END_IDS_CAP; i++) {
        bool is_new = gguf_read_u32(gguf_find(reader->gguf, keys[i]), &id);
        for (uint32_t j = 0; j < n_ids; j++)
            is_new = is_new && ids[j] != id;
        if (is_new)
            ids[n_ids++] = id;
    }
    if (n_ids == 0)
        return;
    buf_add_text(reader->out, ",\n \"eos_token_id\": [");
    for (uint32_t i = 0; i < n_ids; i++)
        buf_printf(reader->out, "%s%u", i ? ", " : "", ids[i]);
    buf_add_char(reader->out, ']');
}

/* A window is honoured as mistral's: the other families of these archs have none. */
static bool write_family(const struct reader *reader, uint32_t max_positions)
{
    uint32_t window;
    const char *model_type = reader->arch->model_type;
    if (!optional_u32(reader, "attention.sliding_window", max_positions, &window))
        return false;
    bool has_window = window < max_positions;
    if (has_window && strcmp(model_type, "llama") != 0)
        return err_set(reader->err, ERR_UNSUPPORTED, "%s.attention.sliding_window",
                       reader->arch->name);
    buf_add_text(reader->out, "{\"model_type\": ");
    json_write_string(reader->out, str_from(has_window ? "mistral" : model_type));
    if (has_window)
        write_u32(reader->out, "sliding_window", window);
    return true;
}

static bool write_config(const struct reader *reader)
{
    const struct gguf_tensor *embedding = gguf_find_tensor(reader->gguf, "token_embd.weight");
    uint32_t n_layers, hidden, intermediate, max_positions;
    double eps;
    if (!embedding || embedding->n_dims != 2 || embedding->dims[1] > INT32_MAX)
        return err_set(reader->err, ERR_FORMAT, "tensor token_embd.weight is %s",
                       embedding ? "no matrix" : "missing");
    if (!check_refused(reader) || !need_u32(reader, "block_count", &n_layers) ||
        !need_u32(reader, "embedding_length", &hidden) ||
        !need_u32(reader, "feed_forward_length", &intermediate) ||
        !need_u32(reader, "context_length", &max_positions) ||
        !optional_double(reader, "attention.layer_norm_rms_epsilon", 0, &eps) ||
        !write_family(reader, max_positions))
        return false;
    if (eps <= 0)
        return err_set(reader->err, ERR_FORMAT,
                       "metadata %s.attention.layer_norm_rms_epsilon is missing or not positive",
                       reader->arch->name);
    write_u32(reader->out, "num_hidden_layers", n_layers);
    write_u32(reader->out, "hidden_size", hidden);
    write_u32(reader->out, "intermediate_size", intermediate);
    write_u32(reader->out, "max_position_embeddings", max_positions);
    write_u32(reader->out, "vocab_size", (uint32_t)embedding->dims[1]);
    write_double(reader->out, "rms_norm_eps", eps);
    write_bool(reader->out, "tie_word_embeddings",
               gguf_find_tensor(reader->gguf, "output.weight") == NULL);
    write_bool(reader->out, "attention_bias", // qwen2 has its own whatever this says
               gguf_find_tensor(reader->gguf, "blk.0.attn_q.bias") != NULL);
    write_bool(reader->out, "mlp_bias",
               gguf_find_tensor(reader->gguf, "blk.0.ffn_gate.bias") != NULL);
    buf_add_text(reader->out, ",\n \"hidden_act\": \"silu\"");
    if (!write_heads(reader, hidden) || !write_rope(reader, max_positions))
        return false;
    write_ids(reader);
    buf_add_text(reader->out, "\n}\n");
    return buf_ok(reader->out) || err_set(reader->err, ERR_FORMAT, "too much metadata");
}

static const struct arch *find_arch(const struct gguf *gguf, struct err *err)
{
    struct str name = STR_NONE;
    if (!gguf_read_str(gguf_find(gguf, "general.architecture"), &name)) {
        err_set(err, ERR_FORMAT, "metadata general.architecture is missing");
        return NULL;
    }
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (str_is(name, archs[i].name))
            return &archs[i];
    err_set(err, ERR_UNSUPPORTED,
            "GGUF architecture \"%.*s\" is not read; there are llama, qwen2, qwen3", STR_ARG(name));
    return NULL;
}

/* With source->gguf open. */
static bool read_metadata(struct source *source, const char *name, struct err *err)
{
    source->is_gguf = true;
    source->files = xcalloc(1, sizeof *source->files);
    source->files[0] = (struct source_file){ xstrdup(name), &source->gguf.map };
    source->n_files = 1;
    struct reader reader = { &source->gguf, find_arch(&source->gguf, err), &source->config_json,
                             err };
    return reader.arch && write_config(&reader);
}

bool source_gguf_open(struct source *source, const char *path, struct err *err)
{
    return gguf_open(&source->gguf, path, err) &&
           (read_metadata(source, path_base(path), err) || err_wrap(err, "%s", path));
}

bool source_gguf_parse(struct source *source, const uint8_t *bytes, size_t size, struct err *err)
{
    return gguf_parse(&source->gguf, bytes, size, err) && read_metadata(source, "bytes", err);
}

/* "blk.7.attn_q.weight" against "blk.%u.attn_q.weight". */
static bool match_name(struct str name, const char *pattern, uint32_t *layer)
{
    const char *gap = strstr(pattern, "%u");
    *layer = TENSOR_NO_LAYER;
    if (!gap)
        return str_is(name, pattern);
    struct str head = { pattern, (size_t)(gap - pattern) }, tail = str_from(gap + 2);
    uint64_t number;
    if (!str_starts(name, head) || !str_ends(name, tail) || name.size <= head.size + tail.size)
        return false;
    struct str digits = str_slice(name, head.size, name.size - tail.size);
    if (!str_to_u64(digits, &number) || number >= TENSOR_NO_LAYER ||
        (digits.size > 1 && digits.data[0] == '0'))
        return false;
    *layer = (uint32_t)number;
    return true;
}

static bool check_left_over(const struct source *source, struct err *err)
{
    for (size_t i = 0; i < source->gguf.n_tensors; i++) {
        struct str name = source->gguf.tensors[i].name;
        struct family_need need;
        uint32_t layer;
        bool is_known = str_is(name, ROPE_FREQS) || match_name(name, "blk.%u." ROT_EMBD, &layer);
        for (size_t n = 0; !is_known && n < N_GGUF_NAMES; n++)
            is_known = match_name(name, gguf_names[n].name, &layer) &&
                       (layer == TENSOR_NO_LAYER || layer < source->config.n_layers) &&
                       family_need_of(&source->config, gguf_names[n].role, layer, &need);
        if (!is_known)
            return err_set(err, ERR_FORMAT,
                           "tensor %.*s is left over: a %s of this configuration has none",
                           STR_ARG(name), source->config.model_type);
    }
    return true;
}

static const struct gguf_tensor *find_role(const struct source *source,
                                           const struct family_need *need, char *name,
                                           size_t name_bytes)
{
    for (size_t n = 0; n < N_GGUF_NAMES; n++) {
        if (gguf_names[n].role != need->role)
            continue;
        const char *gap = strstr(gguf_names[n].name, "%u");
        if (gap)
            snprintf(name, name_bytes, "%.*s%u%s", (int)(gap - gguf_names[n].name),
                     gguf_names[n].name, need->layer, gap + 2);
        else
            snprintf(name, name_bytes, "%s", gguf_names[n].name);
        return gguf_find_tensor(&source->gguf, name);
    }
    snprintf(name, name_bytes, "%s", need->name);
    return NULL;
}

static uint32_t heads_of_paired_rows(const struct source *source, enum tensor_role role)
{
    struct err ignored;
    const struct arch *arch = find_arch(&source->gguf, &ignored);
    if (!arch || !arch->has_paired_rows)
        return 0;
    if (role == TENSOR_Q || role == TENSOR_Q_BIAS)
        return source->config.n_heads;
    if (role == TENSOR_K || role == TENSOR_K_BIAS)
        return source->config.n_kv_heads;
    return 0;
}

bool source_gguf_bind(struct source *source, struct err *err)
{
    for (uint32_t i = 0; i < source->n_tensors; i++) {
        struct family_need need;
        char name[KEY_BYTES];
        family_need_at(&source->config, i, &need);
        const struct gguf_tensor *tensor = find_role(source, &need, name, sizeof name);
        if (!tensor)
            return err_set(err, ERR_FORMAT, "tensor %s is missing", name);
        struct source_found found = {
            .name = tensor->name,
            .type_name = tensor->type_name,
            .kind = tensor->source,
            .n_dims = tensor->n_dims,
            .rows = tensor->dims[1],
            .cols = tensor->dims[0],
            .data = tensor->data,
            .map = &source->gguf.map,
        };
        if (!source_bind_tensor(&found, &need, &source->tensors[i], err))
            return false;
        source->tensors[i].paired_heads = heads_of_paired_rows(source, need.role);
    }
    return check_left_over(source, err);
}

bool source_gguf_template(const struct source *source, struct buf *text, const char **from,
                          struct err *err)
{
    const struct gguf_value *value = gguf_find(&source->gguf, "tokenizer.chat_template");
    struct str template;
    if (!value)
        return true;
    if (!gguf_read_str(value, &template))
        return err_set(err, ERR_FORMAT, "%s: metadata tokenizer.chat_template is no text",
                       source->path);
    buf_add_str(text, template);
    *from = "tokenizer.chat_template of the GGUF";
    return true;
}
