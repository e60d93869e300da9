/* How much each column of a matrix matters: the mean square of what it is multiplied with, over
 * some text. A quantiser that weighs its errors by it spends its few bits where activations are
 * large; some columns see a thousand times the others.
 *
 * Measured by `eval importance` on the model with float weights, kept as JSON, read by `shard`.
 * Plain data; one owner. */
#ifndef CASCADIA_SHARD_IMPORTANCE_H
#define CASCADIA_SHARD_IMPORTANCE_H

#include "base/err.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* Matrices that read the same rows share a vector. */
enum importance_input {
    IMPORTANCE_ATTENTION, // q, k, v
    IMPORTANCE_OUTPUT,    // o
    IMPORTANCE_MLP,       // gate, up
    IMPORTANCE_DOWN,
    IMPORTANCE_INPUT_COUNT,
};

#define IMPORTANCE_LAYERS_CAP 4096u
#define IMPORTANCE_COLS_CAP (1u << 20)
#define IMPORTANCE_BYTES_CAP ((size_t)256 << 20) // of a file

struct importance_vector {
    float *values; // [cols], finite, not negative; NULL: not measured
    uint32_t cols;
};

struct importance {
    uint32_t n_layers;
    struct importance_vector *vectors; // [n_layers][IMPORTANCE_INPUT_COUNT]
    uint64_t hash;                     // of the file's bytes
};

/* The vector that a matrix of this role weighs by; NULL for the roles that have none. */
struct importance_vector *importance_find(const struct importance *importance, uint32_t layer,
                                          enum tensor_role role);

/* ERR_FORMAT: not such a file, a value that means nothing. */
bool importance_read(struct importance *importance, const char *path, struct err *err);
/* ERR_SYSTEM, ERR_NO_MEMORY. `hash` is not looked at. */
bool importance_write(const struct importance *importance, const char *path, struct err *err);

void importance_init(struct importance *importance, uint32_t n_layers); // no vector
void importance_release(struct importance *importance);                 // zeroed values are fine

#endif
