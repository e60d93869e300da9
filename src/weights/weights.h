/* An opened shard directory: its manifest read, its files mapped, its tensors found by role.
 *
 * Opening checks everything that the manifest says against what is there: presence and size of each
 * file that the wanted layers need, offsets, alignment and size of each tensor, and the content
 * hash of each file. Hashing is done once per (path, size, modification time, inode) where a record
 * can be kept (weights_options.record_dir), else at every open. Weights are never copied: pointers
 * lead into the page cache. Read-only after opening: any thread; one owner closes. */
#ifndef CASCADIA_WEIGHTS_WEIGHTS_H
#define CASCADIA_WEIGHTS_WEIGHTS_H

#include "base/err.h"
#include "weights/manifest.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stdint.h>

struct weights;

struct weights_options {
    /* The layers this stage runs: [layer_first, layer_end). Both 0: the whole model. The embedding
     * is opened with layer 0, and with the last layer when the head is tied; the head file with the
     * last layer. Tensors of files that are not needed are not found. */
    uint32_t layer_first, layer_end;
    const char *record_dir; // where to remember which content was checked; NULL: nowhere
    bool check_always;      // hash everything whatever the record says (`shard verify`)
    bool any_layers;        // whatever files the manifest lists, instead of a range of layers
};

/* NULL on failure: ERR_NOT_FOUND (no manifest: not a shard or not finished; a file of the range is
 * missing, with the command that makes it), ERR_FORMAT, ERR_UNSUPPORTED (a newer version),
 * ERR_CORRUPT (a hash differs: names the tensor). `options` NULL: all defaults. */
struct weights *weights_open(const char *directory, const struct weights_options *options,
                             struct err *err);
void weights_close(struct weights *weights); // NULL is fine

/* True when the directory holds a manifest.json, that is, a finished shard. */
bool weights_is_shard(const char *directory);

/* The tensor, or NULL when the shard has none of that role (or its file was not opened).
 * Layer TENSOR_NO_LAYER for roles of the whole model. */
const struct tensor *weights_find(const struct weights *weights, uint32_t layer,
                                  enum tensor_role role);
/* The same, and its absence is ERR_FORMAT with the tensor's name. */
const struct tensor *weights_get(const struct weights *weights, uint32_t layer,
                                 enum tensor_role role, struct err *err);

/* How many tensors were opened, and the index-th, in the manifest's order. */
size_t weights_count(const struct weights *weights);
const struct tensor *weights_at(const struct weights *weights, size_t index);

const struct manifest *weights_manifest(const struct weights *weights); // lives as long as weights
const char *weights_directory(const struct weights *weights);

/* Asks the system to read the opened files ahead, front to back. */
void weights_will_need(const struct weights *weights);
/* Reads the opened files and maps their pages, with progress on stderr where that is a terminal. */
void weights_prefault(const struct weights *weights);
/* Keeps the opened files in memory until they are closed; see file_map_lock. */
bool weights_lock(const struct weights *weights, struct err *err);

#endif
