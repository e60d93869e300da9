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
    struct str source_name; // in the checkpoint: "blk.3.ffn_gate.weight + blk.3.ffn_up.weight"
    enum tensor_role role;
    uint32_t layer; // TENSOR_NO_LAYER when it belongs to none
    enum quant_format format;
    uint32_t rows, cols, group;
    uint64_t offset, bytes; // in its file
    uint64_t xxh3;          // of its bytes
    double relative_error;  // |w - source| / |source|, both Euclidean norms; 0: the same values
};

struct manifest_file {
    struct str name; // a plain name, no slash
    uint64_t bytes;
    uint64_t xxh3;                   // of the whole file
    struct manifest_tensor *tensors; // by offset; none for config.json, tokenizer.bin, ...
    size_t n_tensors;
};

/* Layers [layer_first, layer_end) of a default stage. */
struct manifest_stage {
    uint32_t layer_first, layer_end;
};

struct manifest {
    struct arena arena;      // everything below, after manifest_parse; a writer may point elsewhere
    struct str family;       // "llama"
    struct str source;       // an object, as text: where the weights came from, hashes of its files
    struct str model;        // an object, as text, for people: config.json is what is read
    struct str quantization; // as asked: "int4", ...
    struct str tool_version;
    struct str template_from; // which file the chat template was found in; empty: there is none
    uint32_t group_size;      // as asked
    bool is_requantised;      // matrices that the source had quantised were quantised again
    uint64_t settings_hash;   // of source files and settings: equal hashes, equal weights
    uint32_t n_layers;        // of the whole model, whatever files are here
    bool is_tied;             // no head: the embedding is the output matrix
    struct manifest_stage *stages; // default ranges for `run` and `worker`; cover every layer once
    size_t n_stages;
    struct manifest_file *files;
    size_t n_files;
    uint64_t xxh3; // of the text itself, its last member
};

/* Reads text. Refuses what is missing, of the wrong type, of an unknown format or version, doubled
 * or out of bounds, naming it. On failure `manifest` holds nothing. */
bool manifest_parse(struct manifest *manifest, struct str text, struct err *err);
bool manifest_read(struct manifest *manifest, const char *directory, struct err *err);
void manifest_release(struct manifest *manifest); // zeroed values are fine

/* Appends the text of the manifest, its hash last (manifest->xxh3 is not looked at). `out` is empty
 * before. */
void manifest_write(const struct manifest *manifest, struct buf *out);

/* "layer-007.weights", "embedding.weights" or "head.weights": the file of such a tensor. */
#define MANIFEST_FILE_NAME_BYTES 32
void manifest_file_name(enum tensor_role role, uint32_t layer, char out[MANIFEST_FILE_NAME_BYTES]);
const struct manifest_file *manifest_find_file(const struct manifest *manifest, const char *name);

#endif
