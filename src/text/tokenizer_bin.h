/* tokenizer.bin: a compiled tokenizer, mapped and used in place.
 *
 * Opening reads it once to check the hash and every index in it, so that a damaged file is
 * ERR_CORRUPT or ERR_FORMAT and a valid one can be used without looking. Little-endian. */
#ifndef CASCADIA_TEXT_TOKENIZER_BIN_H
#define CASCADIA_TEXT_TOKENIZER_BIN_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

struct tokenizer;

/* Maps the file; it must not change while the tokenizer lives. Caller frees with tokenizer_free. */
struct tokenizer *tokenizer_load_bin(const char *path, struct err *err);

/* Writes it, atomically. */
bool tokenizer_write_bin(const struct tokenizer *tokenizer, const char *path, struct err *err);

#endif
