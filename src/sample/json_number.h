/* Numbers within bounds as digits: which texts are numbers from here to there. Pure: any thread. */
#ifndef CASCADIA_SAMPLE_JSON_NUMBER_H
#define CASCADIA_SAMPLE_JSON_NUMBER_H

#include "base/err.h"
#include "sample/json_language.h"

#include <stdbool.h>

/* A bound as a schema gives it. */
struct json_bound {
    bool is_given;
    bool is_open; // the bound itself is not allowed
    double value;
};

/* Numbers, or whole ones; RULES_NOTHING when there are none. Numbers with bounds have no exponent.
 * ERR_UNSUPPORTED for bounds of more than 15 digits. */
bool json_number_between(struct json_language *language, bool is_whole, struct json_bound low,
                         struct json_bound high, uint32_t *out, struct err *err);

#endif
