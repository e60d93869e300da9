/* Any bytes as a GGUF: refused with a sentence, or read, and then everything in it can be touched.
 */
#include "base/err.h"
#include "weights/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch_value(const struct gguf_value *value)
{
    struct str text, *strings;
    int64_t *integers;
    float *floats;
    double number;
    uint64_t wide;
    bool flag;
    size_t count;
    gguf_read_u64(value, &wide);
    gguf_read_double(value, &number);
    gguf_read_bool(value, &flag);
    gguf_read_str(value, &text);
    if (gguf_read_strings(value, &strings, &count))
        free(strings);
    if (gguf_read_integers(value, &integers, &count))
        free(integers);
    if (gguf_read_floats(value, &floats, &count))
        free(floats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf gguf;
    struct err err = { 0 };
    volatile uint8_t sum = 0;
    if (!gguf_parse(&gguf, data, size, &err)) {
        must(err.code != ERR_NONE && err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < gguf.n_values; i++)
        touch_value(&gguf.values[i]);
    for (size_t i = 0; i < gguf.n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf.tensors[i];
        must(tensor->bytes > 0 && tensor->data >= data &&
             tensor->bytes <= size - (size_t)(tensor->data - data));
        sum = (uint8_t)(sum + tensor->data[0] + tensor->data[tensor->bytes - 1]);
    }
    gguf_close(&gguf);
    return 0;
}
