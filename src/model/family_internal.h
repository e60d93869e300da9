/* What the files of families share among themselves. */
#ifndef CASCADIA_MODEL_FAMILY_INTERNAL_H
#define CASCADIA_MODEL_FAMILY_INTERNAL_H

#include "model/family.h"

extern const struct family family_llama;
extern const struct family family_mistral;
extern const struct family family_qwen2;
extern const struct family family_qwen3;

/* Layers built and named like Llama's, with every tensor that one of them may have; the switches of
 * a family say which. And the names of old files that nobody reads. */
extern const struct family_tensor family_llama_tensors[];
extern const char *const family_llama_passed_over[];

#endif
