/* From tensors of a source to tensors of a shard, a panel at a time.
 *
 * What a tensor becomes is decided here and nowhere else: vectors are f32 (which holds any of them
 * exactly); a quantised source is permuted into the format that holds its very values, or stored as
 * f32 when floats were asked for, and quantised again only on demand; a float matrix takes the
 * format that was asked for, but embedding and head stay int8 when that is a 4-bit one.
 * Every panel is decoded again and compared with its source: the squared errors make the manifest's
 * `error`. Pure functions on one panel: any thread. */
#ifndef CASCADIA_SHARD_QUANTISE_H
#define CASCADIA_SHARD_QUANTISE_H

#include "base/err.h"
#include "quant/quant.h"
#include "shard/importance.h"
#include "shard/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quantise_settings {
    enum quant_format format; // for matrices of float sources
    uint32_t group_size;      // 32, 64, 128; not used by float formats
    /* The values of a quantised source are taken as floats: its matrices take the format too, and
     * what that rounds comes on top of what the source lost. */
    bool requantise;
    const struct importance *importance; // of the columns of layers; NULL: all alike
};

/* By name; requantise is false. ERR_ARGUMENT for the -min formats, which only quantised sources
 * fill. */
bool quantise_settings_parse(struct str name, uint32_t group_size, struct quantise_settings *out,
                             struct err *err);

/* The format and group that a tensor gets. */
void quantise_choose(const struct quantise_settings *settings, const struct source_tensor *tensor,
                     enum quant_format *format, uint32_t *group);

/* One tensor to be written: of one source tensor, or of two whose panels alternate. */
struct quantise_job {
    const struct source_tensor *parts[2];
    uint32_t n_parts;
    enum tensor_role role;
    uint32_t layer;
    enum quant_format format;
    uint32_t rows, cols, group; // as in struct tensor
    const float *importance;    // [cols] or NULL
    uint64_t offset;            // in its file
    size_t bytes;
    uint32_t n_items;  // panels; 1 for a vector
    size_t item_bytes; // of one panel
};

/* Fills everything but the offset. `second` NULL: one part. ERR_UNSUPPORTED: too large;
 * ERR_ARGUMENT: the importance is that of another model. */
bool quantise_job_init(struct quantise_job *job, const struct quantise_settings *settings,
                       enum tensor_role role, const struct source_tensor *first,
                       const struct source_tensor *second, struct err *err);

/* The source has it quantised, and the job's format does not hold those very values. */
bool quantise_is_again(const struct quantise_job *job);

/* Working memory of one thread for any item of jobs with at most these sizes. */
struct quantise_scratch {
    float *values;  // [32][cols_cap]
    float *decoded; // [cols_cap]
    uint8_t *panel; // [item_bytes_cap]
    void *pages;
    size_t pages_bytes;
};
bool quantise_scratch_init(struct quantise_scratch *scratch, size_t cols_cap, size_t item_bytes_cap,
                           struct err *err);
void quantise_scratch_release(struct quantise_scratch *scratch);

struct quantise_error {
    double squared_error, squared_source;
};

/* Makes item `item` in scratch->panel (item_bytes). ERR_FORMAT: a value of the source is not
 * finite; ERR_UNSUPPORTED: too large for the format. Both name the tensor. */
bool quantise_item(const struct quantise_job *job, uint32_t item, struct quantise_scratch *scratch,
                   struct quantise_error *error, struct err *err);

/* The source bytes of an item were read for the last time: lets go of their pages. */
void quantise_forget_item(const struct quantise_job *job, uint32_t item);
void quantise_forget(const struct quantise_job *job);
uint64_t quantise_source_bytes(const struct quantise_job *job);

#endif
