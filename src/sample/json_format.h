/* Formats of strings that schemas may name, as patterns. Pure: any thread. */
#ifndef CASCADIA_SAMPLE_JSON_FORMAT_H
#define CASCADIA_SAMPLE_JSON_FORMAT_H

#include "base/str.h"

/* The pattern that a string of this format matches as a whole; NULL: not known. */
const char *json_format_find(struct str name);

extern const char json_format_names[]; // for a sentence

#endif
