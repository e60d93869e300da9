/* JSON Schemas from clients. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return grammar_fuzz(SAMPLING_GRAMMAR_JSON_SCHEMA, data, size);
}
