/* The waist: an engine turns rows into rows. Everything above speaks of requests and sequences,
 * everything below of numbers.
 *
 * An engine runs a contiguous range of layers [layer_first, layer_end) of one model on one device.
 * The stage with layer 0 also embeds ids; the stage with the last layer also has the final norm and
 * the head. One thread at a time calls an engine (its stage thread). */
#ifndef CASCADIA_ENGINE_ENGINE_H
#define CASCADIA_ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/batch.h"

#include <stdbool.h>
#include <stdint.h>

enum engine_rewind {
    REWIND_ROWS,        // a sequence can go back to any row
    REWIND_CHECKPOINTS, // only to rows that were flagged ROW_CHECKPOINT
};

enum engine_kv_type { ENGINE_KV_DEFAULT, ENGINE_KV_F16, ENGINE_KV_F32, ENGINE_KV_Q8 };

/* How activations are rounded before they meet quantised weights. */
enum engine_activation {
    ENGINE_ACTIVATION_DEFAULT, // ENGINE_ACTIVATION_WEIGHT
    ENGINE_ACTIVATION_WEIGHT,  // to int8 in the groups of the weights
    ENGINE_ACTIVATION_32,      // to int8 in groups of so many
    ENGINE_ACTIVATION_64,
    ENGINE_ACTIVATION_128,
    ENGINE_ACTIVATION_ROW,  // to int8, one scale a row
    ENGINE_ACTIVATION_NONE, // not at all
};

struct profile;
struct model_observer;

struct engine_options {
    const char *model;               // shard directory; "mock-model" for the mock
    const char *engine;              // "native", "mock"
    const char *device;              // "cpu"
    uint32_t layer_first, layer_end; // layer_end 0: to the last
    uint32_t ctx_size;               // longest sequence in rows; 0: the model's own, at most 8192
    uint64_t kv_memory_bytes;        // pool of KV pages that all sequences share; 0: a default
    uint32_t max_rows;               // of one batch; 0: 512
    uint32_t max_sequences;          // slots; 0: 16
    uint32_t threads;                // 0: one a processor
    enum engine_kv_type kv_type;     // default: f32 with float weights, else f16
    enum engine_activation activation;
    const struct model_observer *observer; // of the native engine (model/model.h); NULL: none
    const char
        *record_dir; // where to remember which content was checked; NULL: checks at each open
    const char *isa; // NULL: the best there is; one of KERNEL_NAMES
    bool prefault;   // the model's files are read and mapped at open, not when they are met
    bool mlock;      // and stay in memory
    struct profile *profile; // borrowed; model/profile.h; NULL: none
};

/* What a step of this stage costs at least: bytes that it has to read and multiply-adds. All 0 for
 * engines that do not say. */
struct engine_cost {
    uint64_t weights_bytes;  // read by each step, whatever its rows
    uint64_t position_bytes; // keys and values, a position of a sequence
    uint64_t row_macs;       // multiply-adds with weights, a row
    uint64_t logits_macs;    // and as many more where logits are wanted
    double read_bytes_per_s; // what this machine reads at most, measured at open
};

/* Filled by open; agreed between stages in the handshake. */
struct engine_info {
    uint32_t n_layers; // of the whole model
    uint32_t layer_first, layer_end;
    uint32_t max_rows, max_sequences;
    uint32_t n_pages, page_rows; // KV pool of this stage; page_rows is 64
    uint32_t vocab_size;
    uint32_t ctx_size;
    uint32_t carry; // floats a row that one stage hands to the next
    enum engine_rewind rewind;
    uint32_t n_checkpoints;
    /* How long reading takes at the limit of the machines, the sum of all stages so far: the least
     * time of a step with one row a sequence is step_read_ns and, for each position of each
     * sequence, position_read_ps. 0: some stage does not know. */
    uint32_t step_read_ns, position_read_ps;
    struct engine_cost cost; // of this stage alone
    uint64_t model_hash;     // what the weights are: equal on all stages
    uint64_t settings_hash; // what changes arithmetic: format, KV type, activations, ctx_size where
                            // rope depends on it
};

struct engine {
    const struct engine_ops *ops;
    void *state; // the implementation's
};

/* What a registered implementation must fill; all required. */
struct engine_ops {
    const char *name, *summary;
    const char *const *devices; // that options->device may name, the default first; NULL at the end
    bool (*open)(struct engine *engine, const struct engine_options *options,
                 struct engine_info *info, struct err *err);
    /* Advances every row of `in` through this stage's layers into `out` (the caller's, sized at
     * open): carry rows, or logits for the rows that want them on the last stage. A row at position
     * p first cuts its sequence to p rows, so going back needs no call; a position beyond the
     * sequence's length is ERR_BATCH_LOST. After a failure each sequence of the batch has its old
     * length, but one that was stepped back may be cut to its first row in the batch: what is left
     * is what was there. ERR_BUSY: no KV page is free. ERR_BATCH_LOST also when numbers stop being
     * finite. `in->values` is not read on the first stage; `out` takes the rows and id of `in`. */
    bool (*step)(struct engine *engine, const struct batch *in, struct batch *out, struct err *err);
    /* The first `rows` of `from` become the beginning of `to` (shared pages, copied when written).
     */
    void (*keep)(struct engine *engine, uint32_t from, uint32_t to, uint32_t rows);
    void (*drop)(struct engine *engine, uint32_t sequence); // its pages are free again
    void (*close)(struct engine *engine);
};

extern const struct engine_ops *const engines[]; // NULL at the end
extern const struct engine_ops engine_native;
extern const struct engine_ops engine_mock;

#define ENGINE_MAX_ROWS_DEFAULT 512u
#define ENGINE_MAX_ROWS_CAP 8192u
#define ENGINE_MAX_SEQUENCES_DEFAULT 16u
#define ENGINE_MAX_SEQUENCES_CAP 1024u
#define ENGINE_CTX_SIZE_DEFAULT_CAP 8192u // when ctx_size is 0

/* "f16", "q8" or "f32", the choices of an option; NULL: ENGINE_KV_DEFAULT. */
enum engine_kv_type engine_kv_type_named(const char *name);

/* The choices of an option; NULL: ENGINE_ACTIVATION_DEFAULT. */
#define ENGINE_ACTIVATION_NAMES "weight|32|64|128|row|none"
enum engine_activation engine_activation_named(const char *name);

/* The one that options->engine and options->device name (NULL: the first). ERR_NOT_FOUND lists what
 * there is: a command asks before it prepares a model. */
bool engine_find(const struct engine_options *options, const struct engine_ops **ops,
                 struct err *err);

/* Finds options->engine and options->device by name (NULL: the first there is) and opens it, with
 * max_rows and max_sequences filled in. ERR_NOT_FOUND lists what there is. On failure the engine is
 * zeroed. */
bool engine_open(struct engine *engine, const struct engine_options *options,
                 struct engine_info *info, struct err *err);

/* Fills step_read_ns and position_read_ps from the cost of this stage. */
void engine_info_limits(struct engine_info *info);

void engine_close(struct engine *engine); // zeroed values are fine

/* True for the stage that owns layer 0 / the last layer. */
static inline bool engine_is_first(const struct engine_info *info)
{
    return info->layer_first == 0;
}
static inline bool engine_is_last(const struct engine_info *info)
{
    return info->layer_end == info->n_layers;
}

#endif
