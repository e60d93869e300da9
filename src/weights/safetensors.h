/* A safetensors file, mapped and read in place.
 *
 * Opening checks the header whole: names, types, shapes, sizes against the product of the shape,
 * and that the tensors cover the data exactly, without gap or overlap, as the format demands. Every
 * type of the format is known; `source` says how to read it as weights (QUANT_SOURCE_COUNT: this
 * program does not). Names and data are borrowed. Read-only after opening: any thread; one owner.
 */
#ifndef CASCADIA_WEIGHTS_SAFETENSORS_H
#define CASCADIA_WEIGHTS_SAFETENSORS_H

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "quant/quant.h"
#include "weights/name_index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_DIMS_CAP 8u

struct safetensors_tensor {
    struct str name;
    const char *dtype;                   // "BF16"
    enum quant_source source;            // how to read it; QUANT_SOURCE_COUNT: not as weights
    uint32_t n_dims;                     // 0 for a scalar
    uint64_t dims[SAFETENSORS_DIMS_CAP]; // outermost first
    const uint8_t *data;
    size_t bytes;
};

struct safetensors {
    struct file_map map;
    struct json *header; // names lie here
    struct safetensors_tensor *tensors;
    size_t n_tensors;
    struct name_index index;
};

bool safetensors_open(struct safetensors *st, const char *path, struct err *err);
/* The same over bytes that outlive it (tests, fuzzing). */
bool safetensors_parse(struct safetensors *st, const uint8_t *bytes, size_t size, struct err *err);
void safetensors_close(struct safetensors *st); // zeroed values are fine

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, struct str name);

#endif
