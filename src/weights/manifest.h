/* manifest.json of a shard, read and written (docs/shard-format.md). Plain data after reading; one
 * owner. The last member of the file is a hash of everything before it, so an edited or damaged
 * manifest is an error like any other flipped bit. */
#ifndef CASCADIA_WEIGHTS_MANIFEST_H
#define CASCADIA_WEIGHTS_MANIFEST_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_FORMAT "cascadia-shard"
#define MANIFEST_VERSION 1u
#define MANIFEST_BYTES_CAP ((size_t)256 << 20)
#define MANIFEST_LAYERS_CAP 4096u

struct manifest_tensor {
    enum tensor_role role;
    uint32_t layer; // TENSOR_NO_LAYER when it belongs to none
    enum quant_format format;
    uint32_t rows, cols, group;
    uint64_t offset, bytes; // in its file
    uint64_t xxh3;          // of its bytes
    double
        relative_error; // against the source: |w - source| / |source|, both Euclidean; 0 is exact
};

struct manifest_file {
    const char *name; // a plain name, no slash
    uint64_t bytes;
    uint64_t xxh3;                   // of the whole file
    struct manifest_tensor *tensors; // none for config.json, tokenizer.bin, ...
    size_t n_tensors;
};

/* Layers [first, end) of a default stage. */
struct manifest_stage {
    uint32_t layer_first, layer_end;
};

struct manifest {
    struct arena arena;       // everything below
    const char *family;       // "llama"
    const char *source;       // path or id of what it was made from
    struct str source_json;   // the "source" object as text
    const char *quantization; // as asked: "int4", ...
    uint32_t group_size;
    const char *tool_version;
    uint64_t settings_hash;
    uint32_t n_layers;     // of the whole model, whatever files are here
    bool is_tied;          // no head: the embedding is the output matrix
    struct str model_json; // the "model" object as text: for people; config.json is what is read
    struct manifest_stage *stages; // default ranges for `run` and `worker`; cover every layer once
    size_t n_stages;
    struct manifest_file *files;
    size_t n_files;
};

/* Reads text. Refuses what is missing, of the wrong type, of an unknown format or version, doubled
 * or out of bounds, naming it. On failure `manifest` holds nothing. */
bool manifest_parse(struct manifest *manifest, struct str text, struct err *err);
bool manifest_read(struct manifest *manifest, const char *directory, struct err *err);
void manifest_release(struct manifest *manifest); // zeroed values are fine

/* Appends the text of the manifest, its hash last. */
void manifest_write(const struct manifest *manifest, struct buf *out);

/* "layer-007.weights", "embedding.weights" or "head.weights": the file of such a tensor. */
void manifest_file_name(enum tensor_role role, uint32_t layer, char *out, size_t out_bytes);
const struct manifest_file *manifest_find_file(const struct manifest *manifest, const char *name);

#endif
