/* Categories and simple case mappings come from utf8proc; what Unicode keeps in other files
 * (mappings to several characters, derived properties) from a generated table that is small. */
#include "text/unicode_case.h"

#include <utf8proc.h>

#include "text/unicode_case_table.h"

#define IN_RANGES(table, point) in_ranges(table, sizeof(table) / sizeof(table)[0], point)

static bool in_ranges(const struct unicode_range *ranges, size_t n_ranges, uint32_t point)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_ranges && ranges[low].first <= point;
}

static utf8proc_category_t category(uint32_t point)
{
    return utf8proc_category((utf8proc_int32_t)point);
}

static const struct unicode_special *special(uint32_t point)
{
    size_t low = 0, high = sizeof unicode_specials / sizeof unicode_specials[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (unicode_specials[middle].point == point)
            return &unicode_specials[middle];
        if (unicode_specials[middle].point < point)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static size_t copy_points(const uint32_t from[UNICODE_CASE_POINTS_CAP],
                          uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    size_t n = 0;
    for (; n < UNICODE_CASE_POINTS_CAP && from[n] != 0; n++)
        out[n] = from[n];
    return n;
}

size_t unicode_upper(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    const struct unicode_special *row = point < 0x80 ? NULL : special(point);
    if (row)
        return copy_points(row->upper, out);
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)point);
    return 1;
}

size_t unicode_title(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    const struct unicode_special *row = point < 0x80 ? NULL : special(point);
    if (row)
        return copy_points(row->title, out);
    out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)point);
    return 1;
}

size_t unicode_lower(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    if (point == 0x130) { // the dotted capital I is the only one that becomes two
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
    return 1;
}

size_t unicode_fold(uint32_t point, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    utf8proc_int32_t points[UNICODE_CASE_POINTS_CAP];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)point, points,
                                                 UNICODE_CASE_POINTS_CAP, UTF8PROC_CASEFOLD, &last);
    if (n < 1 || n > UNICODE_CASE_POINTS_CAP)
        return unicode_lower(point, out);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)points[i];
    return (size_t)n;
}

bool unicode_is_space(uint32_t point)
{
    if (point < 0x80)
        return point == ' ' || (point >= '\t' && point <= '\r') || (point >= 0x1c && point <= 0x1f);
    return point == 0x85 || point == 0xa0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
           point == 0x202f || point == 0x205f || point == 0x3000;
}

bool unicode_is_alpha(uint32_t point)
{
    utf8proc_category_t is = category(point);
    return is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_ND;
}

/* Digits of a script stand in a row, tens behind tens. */
unsigned unicode_decimal_value(uint32_t point)
{
    uint32_t zero = point;
    while (zero > 0 && unicode_is_decimal(zero - 1))
        zero--;
    return (point - zero) % 10;
}

bool unicode_is_digit(uint32_t point)
{
    return unicode_is_decimal(point) || IN_RANGES(unicode_other_digit, point);
}

bool unicode_is_numeric(uint32_t point)
{
    utf8proc_category_t is = category(point);
    return (is >= UTF8PROC_CATEGORY_ND && is <= UTF8PROC_CATEGORY_NO) ||
           IN_RANGES(unicode_other_numeric, point);
}

bool unicode_is_upper(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LU || IN_RANGES(unicode_other_upper, point);
}

bool unicode_is_lower(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LL || IN_RANGES(unicode_other_lower, point);
}

bool unicode_is_titlecase(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_cased(uint32_t point)
{
    return unicode_is_upper(point) || unicode_is_lower(point) || unicode_is_titlecase(point);
}

bool unicode_is_case_ignorable(uint32_t point)
{
    switch (category(point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return IN_RANGES(unicode_other_ignorable, point);
    }
}

bool unicode_is_printable(uint32_t point)
{
    switch (category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return point == ' ';
    default:
        return true;
    }
}

bool unicode_is_word(uint32_t point)
{
    if (point < 0x80)
        return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z') ||
               (point >= '0' && point <= '9') || point == '_';
    utf8proc_category_t is = category(point);
    return (is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_MC) ||
           is == UTF8PROC_CATEGORY_ND || is == UTF8PROC_CATEGORY_NL || is == UTF8PROC_CATEGORY_PC;
}
