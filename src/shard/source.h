/* A model as its makers published it: a GGUF file or a Hugging Face directory, seen as one thing.
 *
 * Opening reads the configuration, maps the files and pairs every tensor that the family needs with
 * its bytes. A tensor that is missing, left over, of a wrong shape or of a type that this program
 * does not read is an error that names it: nothing is guessed and nothing is passed over in
 * silence. Read-only after opening: any thread; one owner closes. */
#ifndef CASCADIA_SHARD_SOURCE_H
#define CASCADIA_SHARD_SOURCE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "model/config.h"
#include "quant/quant.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source_tensor {
    enum tensor_role role;
    uint32_t layer;  // TENSOR_NO_LAYER when it belongs to none
    struct str name; // in the source
    enum quant_source kind;
    uint32_t rows, cols; // rows 1 for vectors
    const uint8_t *data; // row-major
    size_t row_bytes;
    const struct file_map *map; // that data lies in
    /* GGUF of arch llama keeps the rows of q and k for a rotation of neighbours: within each head,
     * rows 0 and d/2 of the half-split convention lie side by side. Then the number of heads, and
     * source_row and source_read_vector put them back; else 0. */
    uint32_t paired_heads;
};

/* A file that weights come from. */
struct source_file {
    char *name; // without its directory
    const struct file_map *map;
};

struct source {
    char *path;                 // as given
    struct buf config_json;     // as found, or made from GGUF metadata
    struct buf generation_json; // empty when there is none
    struct model_config config;
    struct source_tensor *tensors; // in the order of family_need_at
    uint32_t n_tensors;
    struct source_file *files;
    size_t n_files;
    bool is_gguf;
    struct gguf gguf;           // of a GGUF file
    struct safetensors *shards; // of a directory: n_files of them
};

bool source_open(struct source *source, const char *path, struct err *err);
/* The bytes of a GGUF file, which outlive the source (tests, fuzzing). */
bool source_open_bytes(struct source *source, const uint8_t *bytes, size_t size, struct err *err);
void source_close(struct source *source); // zeroed values are fine

/* Row `row` of a matrix, in the order that the model wants. */
const uint8_t *source_row(const struct source_tensor *tensor, uint32_t row);
/* A vector as f32: out[cols]. */
void source_read_vector(const struct source_tensor *tensor, float *out);

/* The tensor of a role, or NULL. */
const struct source_tensor *source_find(const struct source *source, uint32_t layer,
                                        enum tensor_role role);

/* The chat template and the file (or key) it was found in; *text is empty when there is none. Of
 * several, chat_template.jinja wins over tokenizer_config.json; of a list of named templates the
 * one called "default". */
bool source_read_template(const struct source *source, struct buf *text, const char **from,
                          struct err *err);

#endif
