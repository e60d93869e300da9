/* A GGUF file (versions 2 and 3, little-endian), mapped and read in place.
 *
 * Opening walks all metadata and all tensor entries once and checks every length, offset, type and
 * name; after it nothing here can read outside the map. Doubled keys or tensors, bad alignment and
 * tensors that overlap each other or the end of the file are ERR_FORMAT with the name; a big-endian
 * file or another version is ERR_UNSUPPORTED. Tensor types that the program does not compute with
 * (K-quants, ...) are known by size only: their tensors are listed and `source` says
 * QUANT_SOURCE_COUNT. Strings and data are borrowed from the map. Read-only after opening: any
 * thread; one owner. */
#ifndef CASCADIA_WEIGHTS_GGUF_H
#define CASCADIA_WEIGHTS_GGUF_H

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "quant/quant.h"
#include "weights/name_index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_type { // of a metadata value; the numbers are the file's
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_TYPE_COUNT,
};

/* One metadata value. */
struct gguf_value {
    struct str key;
    enum gguf_type type;      // GGUF_ARRAY for arrays
    enum gguf_type item_type; // of an array (may be GGUF_ARRAY)
    uint64_t n_items;         // of an array; 1 otherwise
    const uint8_t *data;      // the value, or the first item; unaligned
    size_t bytes;             // up to the end of the last item
};

#define GGUF_DIMS_CAP 4u
struct gguf_tensor {
    struct str name;
    uint32_t type;            // the file's number
    const char *type_name;    // "q4_1"
    enum quant_source source; // how to read it; QUANT_SOURCE_COUNT: not read by this program
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_CAP]; // innermost (columns) first; 1 past n_dims
    const uint8_t *data;
    size_t bytes;
};

struct gguf {
    struct file_map map; // the bytes
    bool owns_map;       // false after gguf_parse
    uint32_t version;
    struct gguf_value *values; // in the file's order
    size_t n_values;
    struct gguf_tensor *tensors; // in the file's order
    size_t n_tensors;
    struct name_index value_index, tensor_index;
};

bool gguf_open(struct gguf *gguf, const char *path, struct err *err);
/* The same over bytes that outlive the gguf (tests, fuzzing). */
bool gguf_parse(struct gguf *gguf, const uint8_t *bytes, size_t size, struct err *err);
void gguf_close(struct gguf *gguf); // zeroed values are fine

/* True when the file begins as a GGUF does. */
bool gguf_is_file(const char *path);

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);          // or NULL
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name); // or NULL

/* Value readers take NULL (a key that is not there), so a look-up and a read chain:
 *     if (!gguf_read_u32(gguf_find(g, "llama.block_count"), &n)) ...
 * False when missing, of another kind or out of range; *out is then untouched. Integers of any
 * width are read by value; doubles take any float or integer. */
bool gguf_read_u32(const struct gguf_value *value, uint32_t *out);
bool gguf_read_u64(const struct gguf_value *value, uint64_t *out);
bool gguf_read_double(const struct gguf_value *value, double *out);
bool gguf_read_bool(const struct gguf_value *value, bool *out);
bool gguf_read_str(const struct gguf_value *value, struct str *out);

/* Whole arrays, into memory that the caller frees with free(); the strings stay borrowed. An empty
 * array gives a pointer to free and 0. False when missing or of another kind. Integers and floats
 * of any width are taken for `floats`; integers and bools for `integers`. */
bool gguf_read_strings(const struct gguf_value *value, struct str **out, size_t *n_out);
bool gguf_read_floats(const struct gguf_value *value, float **out, size_t *n_out);
bool gguf_read_integers(const struct gguf_value *value, int64_t **out, size_t *n_out);

#endif
