/* Characters as Python's str methods see them: case, kinds, white space. Any thread. */
#ifndef CASCADIA_TEXT_UNICODE_CASE_H
#define CASCADIA_TEXT_UNICODE_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNICODE_CASE_POINTS_CAP 3

/* Full mappings: "ß" becomes "SS". Each writes at most three code points; returns how many. */
size_t unicode_upper(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP]);
size_t unicode_lower(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP]); // not the final sigma
size_t unicode_title(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP]);
size_t unicode_fold(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP]);

bool unicode_is_space(uint32_t point); // str.isspace, and \s of Python's re
bool unicode_is_alpha(uint32_t point);
bool unicode_is_decimal(uint32_t point);
unsigned unicode_decimal_value(uint32_t point); // of a decimal digit: 0 to 9
bool unicode_is_digit(uint32_t point);
bool unicode_is_numeric(uint32_t point);
bool unicode_is_upper(uint32_t point);
bool unicode_is_lower(uint32_t point);
bool unicode_is_titlecase(uint32_t point);
bool unicode_is_cased(uint32_t point);
bool unicode_is_case_ignorable(uint32_t point);
bool unicode_is_printable(uint32_t point); // repr() writes it as it is
bool unicode_is_word(uint32_t point);      // part of an identifier

#endif
