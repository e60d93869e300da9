/* What a model is: the dimensions and switches that its config.json says, in one form.
 *
 * The only reader of config.json. It takes both generations of transformers (rope_theta and
 * rope_scaling at the top; or one rope_parameters object, also keyed by layer type) and the
 * config.json that shard/source writes for GGUF files. A model that this program would compute
 * wrongly is refused here, by name and with the reason, before any weight is read: model_type is
 * matched whole, never in part, and settings that no block understands are errors. Ids that begin
 * and end texts are the tokenizer's affair (shard/tokenizer_source): one that lies outside the
 * vocabulary of a cut-down model changes no logit.
 *
 * Plain data after reading; the arena owns its arrays. Read-only: any thread. */
#ifndef CASCADIA_MODEL_CONFIG_H
#define CASCADIA_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct family;

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,   // frequencies / factor
    ROPE_DYNAMIC,  // theta stretched by context size over max_positions
    ROPE_LLAMA3,   // low frequencies / factor, high ones kept, a ramp between
    ROPE_YARN,     // the same by dimension, and cos, sin scaled
    ROPE_LONGROPE, // a divisor a frequency, one list for short and one for long contexts
    ROPE_DIVISORS, // a divisor a frequency, always (what a GGUF file carries)
    ROPE_TYPE_COUNT,
};

/* Parameters of one kind of rotation; a type reads its own, the others hold their defaults. */
struct rope_config {
    enum rope_type type;
    double theta;
    double factor;               // linear, dynamic, llama3, yarn; longrope: 0 when not given
    uint32_t original_positions; // original_max_position_embeddings, wherever it was said
    double low_freq_factor, high_freq_factor;     // llama3, else 0
    double beta_fast, beta_slow;                  // yarn
    bool truncate;                                // yarn: its range is rounded to whole dimensions
    double mscale, mscale_all_dim;                // yarn: 0 when not given
    double attention_factor;                      // yarn, longrope: 0 when not given
    const double *short_divisors, *long_divisors; // longrope: [head_dim / 2] each
    const double *divisors;                       // divisors: [head_dim / 2]
};

/* Kinds of attention layer; each may have its own rotation. */
enum layer_kind { LAYER_FULL, LAYER_SLIDING, LAYER_KIND_COUNT };

#define MODEL_CONFIG_POSITIONS_CAP (1u << 28) // of a context too
#define MODEL_CONFIG_LAYERS_CAP 4096u
#define MODEL_CONFIG_BYTES_CAP ((size_t)16 << 20)

struct model_config {
    struct arena arena;
    const struct family *family;
    const char *model_type; // as written: "llama"

    uint32_t n_layers;
    uint32_t hidden;       // hidden_size
    uint32_t intermediate; // intermediate_size
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t vocab_size;
    uint32_t max_positions; // max_position_embeddings
    float norm_eps;

    bool has_qkv_bias, has_o_bias, has_mlp_bias;
    bool has_qk_norm; // per-head RMSNorm on q and k before the rotation
    bool is_tied;     // the embedding is the output matrix too

    const uint8_t *layer_kinds; // [n_layers] enum layer_kind
    uint32_t window; // of sliding layers: key k is visible to query q when q - window < k
    struct rope_config rope[LAYER_KIND_COUNT];
};

/* Reads the text of config.json. ERR_FORMAT: not JSON, or a setting is missing or nonsense;
 * ERR_UNSUPPORTED: understood and not computed by this program. On failure `config` is zeroed. */
bool model_config_parse(struct model_config *config, struct str text, struct err *err);

/* The same from a directory. */
bool model_config_read(struct model_config *config, const char *directory, struct err *err);

void model_config_release(struct model_config *config); // zeroed values are fine

/* How many positions a row of `layer` can see: its window, or UINT32_MAX. */
static inline uint32_t model_config_window(const struct model_config *config, uint32_t layer)
{
    return config->layer_kinds[layer] == LAYER_SLIDING ? config->window : UINT32_MAX;
}

/* True when the rotation of a position depends on the context size that the model is opened with
 * (dynamic, longrope): the context size is then one of the settings that change arithmetic. */
bool model_config_rope_depends_on_context(const struct model_config *config);

#endif
