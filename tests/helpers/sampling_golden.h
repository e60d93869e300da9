/* Reads tests/golden/sampling/sampling.json (made by tools/reference/sampling.py). */
#ifndef CASCADIA_TESTS_SAMPLING_GOLDEN_H
#define CASCADIA_TESTS_SAMPLING_GOLDEN_H

#include "base/json.h"
#include "sample/sampling_params.h"

#define SAMPLING_GOLDEN_CAP 512u // values of a list

struct json *sampling_golden_open(void); // fails the test when it is not there
uint32_t sampling_golden_floats(const struct json *array, float out[SAMPLING_GOLDEN_CAP]);
uint32_t sampling_golden_ids(const struct json *array, int32_t out[SAMPLING_GOLDEN_CAP]);
void sampling_golden_params(const struct json *object, struct sampling_params *out);

#endif
