/* Any bytes as a safetensors file: refused with a sentence, or its tensors cover the data exactly.
 */
#include "base/err.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors st;
    struct err err = { 0 };
    size_t covered = 0;
    uint64_t header_bytes = 0;
    if (!safetensors_parse(&st, data, size, &err)) {
        must(err.code != ERR_NONE && err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct safetensors_tensor *tensor = &st.tensors[i];
        must(tensor->data >= data && tensor->bytes <= size - (size_t)(tensor->data - data));
        must(safetensors_find(&st, tensor->name) == tensor);
        covered += tensor->bytes;
    }
    for (unsigned i = 0; i < 8; i++)
        header_bytes |= (uint64_t)data[i] << (8 * i);
    must(covered == size - 8 - (size_t)header_bytes);
    safetensors_close(&st);
    return 0;
}
