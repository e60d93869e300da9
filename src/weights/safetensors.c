/* safetensors: eight bytes of header length, a JSON object of tensors, the data.
 *
 * The format promises that the data is covered exactly; checking that finds truncation, appended
 * bytes and crossed offsets at once, so nothing needs to be trusted later. */
#include "weights/safetensors.h"

#include <stdlib.h>

#include "base/memory.h"

#define SAFETENSORS_HEADER_BYTES_CAP ((uint64_t)100000000)
#define SAFETENSORS_TENSORS_CAP 1048576u

struct dtype {
    const char *name;
    uint32_t bits;
    enum quant_source source;
};

#define UNREAD QUANT_SOURCE_COUNT
static const struct dtype dtypes[] = {
    { "F32", 32, QUANT_SOURCE_F32 },
    { "BF16", 16, QUANT_SOURCE_BF16 },
    { "F16", 16, QUANT_SOURCE_F16 },
    { "F64", 64, QUANT_SOURCE_F64 },
    { "F8_E4M3", 8, QUANT_SOURCE_F8_E4M3 },
    { "F8_E5M2", 8, QUANT_SOURCE_F8_E5M2 },
    { "I64", 64, UNREAD },
    { "I32", 32, UNREAD },
    { "I16", 16, UNREAD },
    { "I8", 8, UNREAD },
    { "U64", 64, UNREAD },
    { "U32", 32, UNREAD },
    { "U16", 16, UNREAD },
    { "U8", 8, UNREAD },
    { "BOOL", 8, UNREAD },
    { "C64", 64, UNREAD },
    { "F8_E8M0", 8, UNREAD },
    { "F8_E4M3FNUZ", 8, UNREAD },
    { "F8_E5M2FNUZ", 8, UNREAD },
    { "F6_E2M3", 6, UNREAD },
    { "F6_E3M2", 6, UNREAD },
    { "F4", 4, UNREAD },
};

#define NAME_SHOWN_BYTES 120
static struct str shown(struct str name)
{
    return name.size <= NAME_SHOWN_BYTES ? name : str_slice(name, 0, NAME_SHOWN_BYTES);
}

static const struct dtype *find_dtype(struct str name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (str_is(name, dtypes[i].name))
            return &dtypes[i];
    return NULL;
}

/* Shape and type to bytes. */
static bool measure_tensor(struct safetensors_tensor *tensor, const struct json *shape,
                           uint32_t bits, struct err *err)
{
    size_t values = 1, all_bits = 0;
    bool good = json_kind(shape) == JSON_KIND_ARRAY && json_size(shape) <= SAFETENSORS_DIMS_CAP;
    tensor->n_dims = (uint32_t)json_size(shape);
    for (uint32_t d = 0; good && d < tensor->n_dims; d++)
        good = json_read_u64(json_at(shape, d), &tensor->dims[d]) && tensor->dims[d] <= SIZE_MAX &&
               size_mul(values, (size_t)tensor->dims[d], &values);
    if (!good || !size_mul(values, bits, &all_bits) || all_bits % 8)
        return err_set(err, ERR_FORMAT, "tensor %.*s: its shape is not one",
                       STR_ARG(shown(tensor->name)));
    tensor->bytes = all_bits / 8;
    return true;
}

static bool parse_tensor(struct safetensors_tensor *tensor, struct str name,
                         const struct json *entry, struct str data, struct err *err)
{
    struct str dtype_name = json_text(json_get(entry, "dtype"));
    const struct json *offsets = json_get(entry, "data_offsets");
    uint64_t first, last;
    tensor->name = name;
    if (dtype_name.data == NULL)
        return err_set(err, ERR_FORMAT, "tensor %.*s has no dtype", STR_ARG(shown(name)));
    const struct dtype *dtype = find_dtype(dtype_name);
    if (!dtype)
        return err_set(err, ERR_UNSUPPORTED, "tensor %.*s has the unknown dtype %.*s",
                       STR_ARG(shown(name)), STR_ARG(shown(dtype_name)));
    tensor->dtype = dtype->name;
    tensor->source = dtype->source;
    if (!measure_tensor(tensor, json_get(entry, "shape"), dtype->bits, err))
        return false;
    if (json_size(offsets) != 2 || !json_read_u64(json_at(offsets, 0), &first) ||
        !json_read_u64(json_at(offsets, 1), &last) || first > last)
        return err_set(err, ERR_FORMAT, "tensor %.*s: its data_offsets are not a range",
                       STR_ARG(shown(name)));
    if (last > data.size)
        return err_set(err, ERR_FORMAT,
                       "tensor %.*s reaches past the end of the file (is it cut short?)",
                       STR_ARG(shown(name)));
    if (last - first != tensor->bytes)
        return err_set(err, ERR_FORMAT, "tensor %.*s has %llu bytes, its shape says %zu",
                       STR_ARG(shown(name)), (unsigned long long)(last - first), tensor->bytes);
    tensor->data = (const uint8_t *)data.data + first;
    return true;
}

static int compare_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = *(const struct safetensors_tensor *const *)a,
                                    *y = *(const struct safetensors_tensor *const *)b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool check_cover(const struct safetensors *st, struct str data, struct err *err)
{
    const struct safetensors_tensor **sorted = xcalloc(st->n_tensors + 1, sizeof *sorted);
    for (size_t i = 0; i < st->n_tensors; i++)
        sorted[i] = &st->tensors[i];
    qsort(sorted, st->n_tensors, sizeof *sorted, compare_place);
    const uint8_t *at = (const uint8_t *)data.data;
    bool good = true;
    for (size_t i = 0; good && i < st->n_tensors; i++) {
        if (sorted[i]->data != at)
            good = err_set(err, ERR_FORMAT, "tensor %.*s overlaps another or leaves a gap",
                           STR_ARG(shown(sorted[i]->name)));
        at = sorted[i]->data + sorted[i]->bytes;
    }
    free(sorted);
    if (good && at != (const uint8_t *)data.data + data.size)
        return err_set(err, ERR_FORMAT, "%zu bytes at the end of the file belong to no tensor",
                       (size_t)((const uint8_t *)data.data + data.size - at));
    return good;
}

static bool parse_header(struct safetensors *st, struct str data, struct err *err)
{
    if (json_kind(st->header) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "the header is no object");
    size_t count = json_size(st->header);
    if (count > SAFETENSORS_TENSORS_CAP)
        return err_set(err, ERR_FORMAT, "%zu tensors are too many", count);
    st->tensors = xcalloc(count + 1, sizeof *st->tensors);
    name_index_init(&st->index, count);
    for (void *it = json_first(st->header); it; it = json_next(st->header, it)) {
        struct str name = json_member_key(it);
        if (str_is(name, "__metadata__"))
            continue;
        uint32_t item = (uint32_t)st->n_tensors;
        if (!parse_tensor(&st->tensors[item], name, json_member_value(it), data, err))
            return false;
        must(name_index_add(&st->index, name, item)); // JSON keys are unique
        st->n_tensors++;
    }
    return check_cover(st, data, err);
}

bool safetensors_parse(struct safetensors *st, const uint8_t *bytes, size_t size, struct err *err)
{
    uint64_t header_bytes = 0;
    *st = (struct safetensors){ 0 };
    if (size < 8)
        return err_set(err, ERR_FORMAT, "too short to be a safetensors file");
    for (unsigned i = 0; i < 8; i++)
        header_bytes |= (uint64_t)bytes[i] << (8 * i);
    if (header_bytes > SAFETENSORS_HEADER_BYTES_CAP || header_bytes > size - 8)
        return err_set(err, ERR_FORMAT,
                       "the header's length does not fit the file (is it cut short?)");
    struct str text = { (const char *)bytes + 8, (size_t)header_bytes };
    struct str data = { (const char *)bytes + 8 + header_bytes, size - 8 - (size_t)header_bytes };
    st->header = json_parse(text, err);
    if (!st->header || !parse_header(st, data, err)) {
        safetensors_close(st);
        return false;
    }
    return true;
}

bool safetensors_open(struct safetensors *st, const char *path, struct err *err)
{
    struct file_map map;
    *st = (struct safetensors){ 0 };
    if (!file_map_open(&map, path, err))
        return false;
    if (!safetensors_parse(st, map.data, map.size, err)) {
        file_map_close(&map);
        return err_wrap(err, "%s", path);
    }
    st->map = map;
    return true;
}

void safetensors_close(struct safetensors *st)
{
    free(st->tensors);
    name_index_release(&st->index);
    json_free(st->header);
    file_map_close(&st->map);
    *st = (struct safetensors){ 0 };
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, struct str name)
{
    uint32_t item;
    return name_index_find(&st->index, name, &item) ? &st->tensors[item] : NULL;
}
