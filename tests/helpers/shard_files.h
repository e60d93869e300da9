/* Makes shards of small models for tests of what reads them. */
#ifndef CASCADIA_TESTS_HELPERS_SHARD_FILES_H
#define CASCADIA_TESTS_HELPERS_SHARD_FILES_H

#include "base/err.h"
#include "shard/export.h"

#include <stdbool.h>

/* Writes `model` (a directory or GGUF) as a shard; false and `err` as export_shard gives. */
bool shard_files_make(const char *model, const char *directory, const char *quantization,
                      uint32_t group_size, uint32_t n_stages, uint32_t stage,
                      struct export_report *report, struct err *err);
/* The same with defaults; fails the test when it fails. */
void shard_files_make_default(const char *model, const char *directory, const char *quantization);
/* Flips one bit of a file. */
void shard_files_flip(const char *directory, const char *name, uint64_t byte, unsigned bit);
/* Shortens a file (or lengthens it, with zeros). */
void shard_files_resize(const char *directory, const char *name, int64_t by);

#endif
