/* Views of bytes, and strict UTF-8 (RFC 3629): decoding refuses overlong forms, surrogates and
 * values past U+10FFFF, so that two spellings of one text cannot exist behind this line. */
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool str_equal(struct str a, struct str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_equal_nocase(struct str a, struct str b)
{
    if (a.size != b.size)
        return false;
    for (size_t i = 0; i < a.size; i++) {
        if (lower(a.data[i]) != lower(b.data[i]))
            return false;
    }
    return true;
}

int str_compare(struct str a, struct str b)
{
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    if (order)
        return order;
    return (a.size > b.size) - (a.size < b.size);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.size >= prefix.size && str_equal(str_slice(s, 0, prefix.size), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.size >= suffix.size && str_equal(str_slice(s, s.size - suffix.size, s.size), suffix);
}

size_t str_find_char(struct str s, char c)
{
    const char *at = s.size ? memchr(s.data, c, s.size) : NULL;
    return at ? (size_t)(at - s.data) : SIZE_MAX;
}

size_t str_find(struct str s, struct str needle)
{
    if (needle.size == 0)
        return 0;
    for (size_t from = 0; from + needle.size <= s.size; from++) {
        size_t step = str_find_char(str_slice(s, from, s.size - needle.size + 1), needle.data[0]);
        if (step == SIZE_MAX)
            return SIZE_MAX;
        from += step;
        if (memcmp(s.data + from, needle.data, needle.size) == 0)
            return from;
    }
    return SIZE_MAX;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str str_trim(struct str s)
{
    while (s.size && is_blank(s.data[0]))
        s = str_slice(s, 1, s.size);
    while (s.size && is_blank(s.data[s.size - 1]))
        s.size--;
    return s;
}

bool str_is(struct str s, const char *text)
{
    return str_equal(s, str_from(text));
}

bool str_split(struct str *rest, char separator, struct str *part)
{
    if (!rest->data)
        return false;
    size_t at = str_find_char(*rest, separator);
    if (at == SIZE_MAX) {
        *part = *rest;
        *rest = STR_NONE;
        return true;
    }
    *part = str_slice(*rest, 0, at);
    *rest = str_slice(*rest, at + 1, rest->size);
    return true;
}

/* Levenshtein's table, of which two rows are enough. */
uint32_t str_distance(struct str a, struct str b)
{
    uint32_t previous[STR_DISTANCE_CAP + 1], current[STR_DISTANCE_CAP + 1];
    a.size = a.size > STR_DISTANCE_CAP ? STR_DISTANCE_CAP : a.size;
    b.size = b.size > STR_DISTANCE_CAP ? STR_DISTANCE_CAP : b.size;
    for (uint32_t j = 0; j <= b.size; j++)
        previous[j] = j;
    for (uint32_t i = 1; i <= a.size; i++) {
        current[0] = i;
        for (uint32_t j = 1; j <= b.size; j++) {
            uint32_t change = previous[j - 1] + (a.data[i - 1] != b.data[j - 1]);
            uint32_t insert = current[j - 1] + 1, drop = previous[j] + 1;
            uint32_t best = insert < drop ? insert : drop;
            current[j] = change < best ? change : best;
        }
        memcpy(previous, current, sizeof previous);
    }
    return previous[b.size];
}

bool str_to_u64(struct str s, uint64_t *out)
{
    uint64_t value = 0;
    if (s.size == 0)
        return false;
    for (size_t i = 0; i < s.size; i++) {
        unsigned digit = (unsigned)(unsigned char)s.data[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool str_to_double(struct str s, double *out)
{
    char copy[64], *end;
    if (s.size == 0 || s.size >= sizeof copy)
        return false;
    for (size_t i = 0; i < s.size; i++) {
        if (!memchr("+-.eE0123456789", s.data[i], 15))
            return false;
    }
    memcpy(copy, s.data, s.size);
    copy[s.size] = '\0';
    errno = 0;
    double value = strtod(copy, &end);
    if (*end != '\0' || !isfinite(value))
        return false;
    *out = value;
    return true;
}

size_t utf8_decode(struct str s, uint32_t *code_point)
{
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (s.size == 0)
        return 0;
    const unsigned char *b = (const unsigned char *)s.data;
    if (b[0] < 0x80) {
        *code_point = b[0];
        return 1;
    }
    size_t size = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || s.size < size)
        return 0;
    uint32_t value = b[0] & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((b[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (b[i] & 0x3F);
    }
    if (value < smallest[size] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *code_point = value;
    return size;
}

size_t utf8_write(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

bool utf8_valid(struct str s)
{
    uint32_t code_point;
    for (size_t at = 0; at < s.size;) {
        size_t used = utf8_decode(str_slice(s, at, s.size), &code_point);
        if (used == 0)
            return false;
        at += used;
    }
    return true;
}

/* Could these 1..3 bytes be the beginning of a character whose rest is still to come? */
static bool may_continue(struct str tail)
{
    static const char *const fillers[] = { "\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80",
                                           "\xBF\xBF\xBF" };
    uint32_t code_point;
    for (size_t f = 0; f < sizeof fillers / sizeof *fillers; f++) {
        for (size_t more = 1; tail.size + more <= 4; more++) {
            char whole[4];
            memcpy(whole, tail.data, tail.size);
            memcpy(whole + tail.size, fillers[f], more);
            struct str candidate = { .data = whole, .size = tail.size + more };
            if (utf8_decode(candidate, &code_point) == candidate.size)
                return true;
        }
    }
    return false;
}

size_t utf8_complete_prefix(struct str s)
{
    for (size_t held = s.size < 3 ? s.size : 3; held > 0; held--) {
        struct str tail = str_slice(s, s.size - held, s.size);
        if (((unsigned char)tail.data[0] & 0xC0) == 0xC0 && may_continue(tail))
            return s.size - held;
    }
    return s.size;
}
