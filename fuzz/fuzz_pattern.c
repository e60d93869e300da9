/* Regular expressions from clients. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return grammar_fuzz(SAMPLING_GRAMMAR_REGEX, data, size);
}
