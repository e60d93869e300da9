/* GGUF: a header, metadata as typed key-value pairs, a directory of tensors, then the data.
 *
 * Everything goes through one cursor that knows the bytes left, so a length from the file is never
 * trusted: it is compared with what is left before it is added to anything. Counts are compared
 * with the fewest bytes that so many entries take before memory is asked for, so a small file
 * cannot ask for much. What opening has checked (strings inside arrays too) the readers below rely
 * on. */
#include "weights/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define GGUF_VALUES_CAP 65536u
#define GGUF_TENSORS_CAP 262144u
#define GGUF_NAME_BYTES_CAP 65535u
#define GGUF_ARRAY_DEPTH_CAP 4u
#define GGUF_ALIGNMENT_DEFAULT 32u
#define GGUF_ALIGNMENT_CAP (1u << 20)
#define VALUE_BYTES_LOW 13u  // length, type and a byte
#define TENSOR_BYTES_LOW 32u // length, dimensions, one dimension, type, offset

/* What is known of a tensor type; a row without a name is a number that was never given out. */
struct tensor_type {
    const char *name;
    uint32_t block_values, block_bytes;
    enum quant_source source;
};

#define UNREAD QUANT_SOURCE_COUNT
static const struct tensor_type tensor_types[] = {
    [0] = { "f32", 1, 4, QUANT_SOURCE_F32 },
    [1] = { "f16", 1, 2, QUANT_SOURCE_F16 },
    [2] = { "q4_0", 32, 18, QUANT_SOURCE_Q4_0 },
    [3] = { "q4_1", 32, 20, QUANT_SOURCE_Q4_1 },
    [6] = { "q5_0", 32, 22, QUANT_SOURCE_Q5_0 },
    [7] = { "q5_1", 32, 24, QUANT_SOURCE_Q5_1 },
    [8] = { "q8_0", 32, 34, QUANT_SOURCE_Q8_0 },
    [9] = { "q8_1", 32, 36, UNREAD },
    [10] = { "q2_k", 256, 84, UNREAD },
    [11] = { "q3_k", 256, 110, UNREAD },
    [12] = { "q4_k", 256, 144, UNREAD },
    [13] = { "q5_k", 256, 176, UNREAD },
    [14] = { "q6_k", 256, 210, UNREAD },
    [15] = { "q8_k", 256, 292, UNREAD },
    [16] = { "iq2_xxs", 256, 66, UNREAD },
    [17] = { "iq2_xs", 256, 74, UNREAD },
    [18] = { "iq3_xxs", 256, 98, UNREAD },
    [19] = { "iq1_s", 256, 50, UNREAD },
    [20] = { "iq4_nl", 32, 18, UNREAD },
    [21] = { "iq3_s", 256, 110, UNREAD },
    [22] = { "iq2_s", 256, 82, UNREAD },
    [23] = { "iq4_xs", 256, 136, UNREAD },
    [24] = { "i8", 1, 1, UNREAD },
    [25] = { "i16", 1, 2, UNREAD },
    [26] = { "i32", 1, 4, UNREAD },
    [27] = { "i64", 1, 8, UNREAD },
    [28] = { "f64", 1, 8, UNREAD },
    [29] = { "iq1_m", 256, 56, UNREAD },
    [30] = { "bf16", 1, 2, QUANT_SOURCE_BF16 },
    [34] = { "tq1_0", 256, 54, UNREAD },
    [35] = { "tq2_0", 256, 66, UNREAD },
    [39] = { "mxfp4", 32, 17, UNREAD },
    [40] = { "nvfp4", 64, 36, UNREAD },
};

/* Bytes of a fixed-size metadata type; 0 for strings and arrays. */
static const uint8_t value_sizes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

struct cursor {
    const uint8_t *at, *end;
};

static size_t cursor_left(const struct cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

static uint64_t load_little(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static bool take_integer(struct cursor *cursor, size_t size, uint64_t *out)
{
    if (cursor_left(cursor) < size)
        return false;
    *out = load_little(cursor->at, size);
    cursor->at += size;
    return true;
}

static bool take_string(struct cursor *cursor, struct str *out)
{
    uint64_t size;
    if (!take_integer(cursor, 8, &size) || size > cursor_left(cursor))
        return false;
    *out = (struct str){ (const char *)cursor->at, (size_t)size };
    cursor->at += size;
    return true;
}

/* Moves past `count` values of one type; an array may hold arrays. */
static bool skip_values(struct cursor *cursor, uint64_t type, uint64_t count, unsigned depth)
{
    if (type == GGUF_STRING) {
        struct str text;
        for (uint64_t i = 0; i < count; i++)
            if (!take_string(cursor, &text))
                return false;
        return true;
    }
    if (type == GGUF_ARRAY) {
        for (uint64_t i = 0; i < count; i++) {
            uint64_t item_type, n_items;
            if (depth >= GGUF_ARRAY_DEPTH_CAP || !take_integer(cursor, 4, &item_type) ||
                !take_integer(cursor, 8, &n_items) ||
                !skip_values(cursor, item_type, n_items, depth + 1))
                return false;
        }
        return true;
    }
    if (type >= GGUF_TYPE_COUNT || count > cursor_left(cursor) / value_sizes[type])
        return false;
    if (type == GGUF_BOOL)
        for (uint64_t i = 0; i < count; i++)
            if (cursor->at[i] > 1)
                return false;
    cursor->at += count * value_sizes[type];
    return true;
}

static bool name_is_usable(struct str name)
{
    return name.size > 0 && name.size <= GGUF_NAME_BYTES_CAP && utf8_valid(name) &&
           !memchr(name.data, 0, name.size);
}

/* For errors: a name may be long. */
#define NAME_SHOWN_BYTES 120
static struct str shown(struct str name)
{
    return name.size <= NAME_SHOWN_BYTES ? name : str_slice(name, 0, NAME_SHOWN_BYTES);
}

static bool parse_value(struct cursor *cursor, struct gguf_value *value, struct err *err)
{
    uint64_t type, item_type = 0, n_items = 1;
    if (!take_string(cursor, &value->key) || !name_is_usable(value->key))
        return err_set(err, ERR_FORMAT, "a metadata key is cut short or is no name");
    if (!take_integer(cursor, 4, &type) || type >= GGUF_TYPE_COUNT)
        return err_set(err, ERR_FORMAT, "metadata %.*s: cut short or of an unknown type",
                       STR_ARG(shown(value->key)));
    uint64_t data_type = type;
    if (type == GGUF_ARRAY) {
        if (!take_integer(cursor, 4, &item_type) || item_type >= GGUF_TYPE_COUNT ||
            !take_integer(cursor, 8, &n_items))
            return err_set(err, ERR_FORMAT, "metadata %.*s: an array cut short or of unknown type",
                           STR_ARG(shown(value->key)));
        data_type = item_type;
    }
    value->type = (enum gguf_type)type;
    value->item_type = (enum gguf_type)item_type;
    value->n_items = n_items;
    value->data = cursor->at;
    if (!skip_values(cursor, data_type, n_items, 1))
        return err_set(err, ERR_FORMAT, "metadata %.*s: its value is cut short or damaged",
                       STR_ARG(shown(value->key)));
    value->bytes = (size_t)(cursor->at - value->data);
    return true;
}

static bool parse_values(struct gguf *gguf, struct cursor *cursor, uint64_t count, struct err *err)
{
    if (count > GGUF_VALUES_CAP || count > cursor_left(cursor) / VALUE_BYTES_LOW)
        return err_set(err, ERR_FORMAT, "%llu metadata values cannot be in this file",
                       (unsigned long long)count);
    gguf->values = xcalloc((size_t)count + 1, sizeof *gguf->values);
    name_index_init(&gguf->value_index, (size_t)count);
    for (uint32_t i = 0; i < count; i++) {
        if (!parse_value(cursor, &gguf->values[i], err))
            return false;
        gguf->n_values++;
        if (!name_index_add(&gguf->value_index, gguf->values[i].key, i))
            return err_set(err, ERR_FORMAT, "metadata %.*s is there twice",
                           STR_ARG(shown(gguf->values[i].key)));
    }
    return true;
}

/* Shape and type to bytes; the product of the dimensions cannot overflow. */
static bool measure_tensor(struct gguf_tensor *tensor, struct err *err)
{
    const struct tensor_type *type = NULL;
    if (tensor->type < sizeof tensor_types / sizeof tensor_types[0] &&
        tensor_types[tensor->type].name)
        type = &tensor_types[tensor->type];
    if (!type)
        return err_set(err, ERR_UNSUPPORTED, "tensor %.*s has the unknown type %u",
                       STR_ARG(shown(tensor->name)), tensor->type);
    tensor->type_name = type->name;
    tensor->source = type->source;
    size_t bytes = type->block_bytes;
    bool fits = tensor->dims[0] > 0 && tensor->dims[0] % type->block_values == 0 &&
                size_mul(bytes, (size_t)(tensor->dims[0] / type->block_values), &bytes);
    for (uint32_t d = 1; fits && d < tensor->n_dims; d++)
        fits = tensor->dims[d] > 0 && size_mul(bytes, (size_t)tensor->dims[d], &bytes);
    if (!fits)
        return err_set(err, ERR_FORMAT, "tensor %.*s has an impossible shape for %s",
                       STR_ARG(shown(tensor->name)), type->name);
    tensor->bytes = bytes;
    return true;
}

static bool parse_tensor(struct cursor *cursor, struct gguf_tensor *tensor, uint64_t *offset,
                         struct err *err)
{
    uint64_t n_dims, type;
    if (!take_string(cursor, &tensor->name) || !name_is_usable(tensor->name))
        return err_set(err, ERR_FORMAT, "a tensor's name is cut short or is no name");
    if (!take_integer(cursor, 4, &n_dims) || n_dims == 0 || n_dims > GGUF_DIMS_CAP)
        return err_set(err, ERR_FORMAT, "tensor %.*s: cut short, or not of 1 to %u dimensions",
                       STR_ARG(shown(tensor->name)), GGUF_DIMS_CAP);
    tensor->n_dims = (uint32_t)n_dims;
    bool whole = true;
    for (uint32_t d = 0; d < GGUF_DIMS_CAP; d++) {
        tensor->dims[d] = 1;
        if (d < n_dims)
            whole = whole && take_integer(cursor, 8, &tensor->dims[d]);
    }
    if (!whole || !take_integer(cursor, 4, &type) || !take_integer(cursor, 8, offset))
        return err_set(err, ERR_FORMAT, "tensor %.*s: its entry is cut short",
                       STR_ARG(shown(tensor->name)));
    tensor->type = (uint32_t)type;
    return measure_tensor(tensor, err);
}

static int compare_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

static bool check_overlap(const struct gguf *gguf, struct err *err)
{
    if (gguf->n_tensors < 2)
        return true;
    const struct gguf_tensor **sorted = xcalloc(gguf->n_tensors, sizeof *sorted);
    for (size_t i = 0; i < gguf->n_tensors; i++)
        sorted[i] = &gguf->tensors[i];
    qsort(sorted, gguf->n_tensors, sizeof *sorted, compare_place);
    bool apart = true;
    for (size_t i = 1; apart && i < gguf->n_tensors; i++) {
        apart = sorted[i - 1]->bytes <= (size_t)(sorted[i]->data - sorted[i - 1]->data);
        if (!apart)
            err_set(err, ERR_FORMAT, "tensors %.*s and %.*s overlap",
                    STR_ARG(shown(sorted[i - 1]->name)), STR_ARG(shown(sorted[i]->name)));
    }
    free(sorted);
    return apart;
}

static bool read_alignment(const struct gguf *gguf, uint32_t *out, struct err *err)
{
    const struct gguf_value *value = gguf_find(gguf, "general.alignment");
    *out = GGUF_ALIGNMENT_DEFAULT;
    if (value && (!gguf_read_u32(value, out) || *out == 0 || (*out & (*out - 1)) ||
                  *out > GGUF_ALIGNMENT_CAP))
        return err_set(err, ERR_FORMAT, "general.alignment is not a power of two");
    return true;
}

/* Entries first (offsets kept), then, once the start of the data is known, their places. */
static bool parse_tensors(struct gguf *gguf, struct cursor *cursor, uint64_t count,
                          const uint8_t *file, struct err *err)
{
    uint32_t alignment;
    if (count > GGUF_TENSORS_CAP || count > cursor_left(cursor) / TENSOR_BYTES_LOW)
        return err_set(err, ERR_FORMAT, "%llu tensors cannot be in this file",
                       (unsigned long long)count);
    if (!read_alignment(gguf, &alignment, err))
        return false;
    gguf->tensors = xcalloc((size_t)count + 1, sizeof *gguf->tensors);
    name_index_init(&gguf->tensor_index, (size_t)count);
    uint64_t *offsets = xcalloc((size_t)count + 1, sizeof *offsets);
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        good = parse_tensor(cursor, tensor, &offsets[i], err);
        gguf->n_tensors += good;
        if (good && !name_index_add(&gguf->tensor_index, tensor->name, i))
            good = err_set(err, ERR_FORMAT, "tensor %.*s is there twice",
                           STR_ARG(shown(tensor->name)));
    }
    size_t size = (size_t)(cursor->end - file);
    size_t start = size_round_up((size_t)(cursor->at - file), alignment);
    for (uint32_t i = 0; good && i < count; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        if (offsets[i] % alignment)
            good = err_set(err, ERR_FORMAT, "tensor %.*s is not aligned to %u bytes",
                           STR_ARG(shown(tensor->name)), alignment);
        else if (start > size || offsets[i] > size - start ||
                 tensor->bytes > size - start - (size_t)offsets[i])
            good = err_set(err, ERR_FORMAT,
                           "tensor %.*s reaches past the end of the file (is it cut short?)",
                           STR_ARG(shown(tensor->name)));
        else
            tensor->data = file + start + offsets[i];
    }
    free(offsets);
    return good && check_overlap(gguf, err);
}

static bool parse_all(struct gguf *gguf, const uint8_t *bytes, size_t size, struct err *err)
{
    struct cursor cursor = { bytes, bytes + size };
    uint64_t magic, version, n_tensors, n_values;
    if (!take_integer(&cursor, 4, &magic) || magic != 0x46554747u)
        return err_set(err, ERR_FORMAT, "not a GGUF file");
    if (!take_integer(&cursor, 4, &version))
        return err_set(err, ERR_FORMAT, "the file is cut short in its header");
    if ((version & 0xffffu) == 0 && version != 0)
        return err_set(err, ERR_UNSUPPORTED, "a big-endian GGUF file");
    if (version != 2 && version != 3)
        return err_set(err, ERR_UNSUPPORTED, "GGUF version %llu; versions 2 and 3 are read",
                       (unsigned long long)version);
    gguf->version = (uint32_t)version;
    if (!take_integer(&cursor, 8, &n_tensors) || !take_integer(&cursor, 8, &n_values))
        return err_set(err, ERR_FORMAT, "the file is cut short in its header");
    return parse_values(gguf, &cursor, n_values, err) &&
           parse_tensors(gguf, &cursor, n_tensors, bytes, err);
}

bool gguf_parse(struct gguf *gguf, const uint8_t *bytes, size_t size, struct err *err)
{
    *gguf = (struct gguf){ .map = { bytes, size } };
    if (parse_all(gguf, bytes, size, err))
        return true;
    gguf_close(gguf);
    return false;
}

bool gguf_open(struct gguf *gguf, const char *path, struct err *err)
{
    struct file_map map;
    *gguf = (struct gguf){ 0 };
    if (!file_map_open(&map, path, err))
        return false;
    if (!gguf_parse(gguf, map.data, map.size, err)) {
        file_map_close(&map);
        return err_wrap(err, "%s", path);
    }
    gguf->owns_map = true;
    return true;
}

void gguf_close(struct gguf *gguf)
{
    free(gguf->values);
    free(gguf->tensors);
    name_index_release(&gguf->value_index);
    name_index_release(&gguf->tensor_index);
    if (gguf->owns_map)
        file_map_close(&gguf->map);
    *gguf = (struct gguf){ 0 };
}

bool gguf_is_file(const char *path)
{
    struct file_map map;
    struct err ignored;
    struct file_stat stat;
    if (!file_stat(path, &stat, &ignored) || stat.is_directory ||
        !file_map_open(&map, path, &ignored))
        return false;
    bool is_gguf = map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    file_map_close(&map);
    return is_gguf;
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    uint32_t item;
    return name_index_find(&gguf->value_index, str_from(key), &item) ? &gguf->values[item] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    uint32_t item;
    return name_index_find(&gguf->tensor_index, str_from(name), &item) ? &gguf->tensors[item]
                                                                       : NULL;
}

/* An integer of any width as sign and magnitude. */
struct integer {
    bool negative;
    uint64_t magnitude;
};

static bool load_integer(enum gguf_type type, const uint8_t *data, struct integer *out)
{
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    bool is_unsigned = type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
    if (!is_signed && !is_unsigned)
        return false;
    size_t size = value_sizes[type];
    uint64_t bits = load_little(data, size), sign = (uint64_t)1 << (8 * size - 1);
    out->negative = is_signed && (bits & sign);
    if (out->negative && size < 8)
        bits |= ~(uint64_t)0 << (8 * size);
    out->magnitude = out->negative ? ~bits + 1 : bits;
    return true;
}

static bool load_double(enum gguf_type type, const uint8_t *data, double *out)
{
    struct integer integer;
    if (type == GGUF_F32) {
        float f;
        memcpy(&f, data, 4);
        *out = (double)f;
        return true;
    }
    if (type == GGUF_F64) {
        memcpy(out, data, 8);
        return true;
    }
    if (!load_integer(type, data, &integer))
        return false;
    *out = integer.negative ? -(double)integer.magnitude : (double)integer.magnitude;
    return true;
}

bool gguf_read_u64(const struct gguf_value *value, uint64_t *out)
{
    struct integer integer;
    if (!value || !load_integer(value->type, value->data, &integer) || integer.negative)
        return false;
    *out = integer.magnitude;
    return true;
}

bool gguf_read_u32(const struct gguf_value *value, uint32_t *out)
{
    uint64_t wide;
    if (!gguf_read_u64(value, &wide) || wide > UINT32_MAX)
        return false;
    *out = (uint32_t)wide;
    return true;
}

bool gguf_read_double(const struct gguf_value *value, double *out)
{
    return value && load_double(value->type, value->data, out);
}

bool gguf_read_bool(const struct gguf_value *value, bool *out)
{
    if (!value || value->type != GGUF_BOOL)
        return false;
    *out = value->data[0] != 0;
    return true;
}

bool gguf_read_str(const struct gguf_value *value, struct str *out)
{
    if (!value || value->type != GGUF_STRING)
        return false;
    struct cursor cursor = { value->data, value->data + value->bytes };
    return take_string(&cursor, out);
}

bool gguf_read_strings(const struct gguf_value *value, struct str **out, size_t *n_out)
{
    if (!value || value->type != GGUF_ARRAY || value->item_type != GGUF_STRING)
        return false;
    struct cursor cursor = { value->data, value->data + value->bytes };
    struct str *items = xcalloc((size_t)value->n_items + 1, sizeof *items);
    for (uint64_t i = 0; i < value->n_items; i++)
        must(take_string(&cursor, &items[i]));
    *out = items;
    *n_out = (size_t)value->n_items;
    return true;
}

bool gguf_read_floats(const struct gguf_value *value, float **out, size_t *n_out)
{
    double probe;
    if (!value || value->type != GGUF_ARRAY || value_sizes[value->item_type] == 0 ||
        value->item_type == GGUF_BOOL)
        return false;
    size_t size = value_sizes[value->item_type];
    float *items = xcalloc((size_t)value->n_items + 1, sizeof *items);
    for (uint64_t i = 0; i < value->n_items; i++) {
        must(load_double(value->item_type, value->data + i * size, &probe));
        items[i] = (float)probe;
    }
    *out = items;
    *n_out = (size_t)value->n_items;
    return true;
}

bool gguf_read_integers(const struct gguf_value *value, int64_t **out, size_t *n_out)
{
    if (!value || value->type != GGUF_ARRAY || value_sizes[value->item_type] == 0 ||
        value->item_type == GGUF_F32 || value->item_type == GGUF_F64)
        return false;
    size_t size = value_sizes[value->item_type];
    int64_t *items = xcalloc((size_t)value->n_items + 1, sizeof *items);
    for (uint64_t i = 0; i < value->n_items; i++) {
        const uint8_t *data = value->data + i * size;
        struct integer integer = { false, data[0] }; // a bool
        if (value->item_type != GGUF_BOOL)
            must(load_integer(value->item_type, data, &integer));
        if (!integer.negative && integer.magnitude > INT64_MAX) {
            free(items);
            return false;
        }
        items[i] = (int64_t)(integer.negative ? ~integer.magnitude + 1 : integer.magnitude);
    }
    *out = items;
    *n_out = (size_t)value->n_items;
    return true;
}
