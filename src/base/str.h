/* A view of bytes that somebody else owns. Not NUL-terminated; may hold any byte. Any thread. */
#ifndef CASCADIA_BASE_STR_H
#define CASCADIA_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *data; // may be NULL when size is 0
    size_t size;      // bytes
};

#define STR(literal) ((struct str){ .data = (literal), .size = sizeof(literal) - 1 })
#define STR_NONE ((struct str){ .data = NULL, .size = 0 })
/* For printf's "%.*s". */
#define STR_ARG(s) (int)(s).size, (s).data

static inline struct str str_from(const char *text)
{
    return (struct str){ .data = text, .size = strlen(text) };
}

static inline struct str str_slice(struct str s, size_t first, size_t last)
{
    /* An empty view may have no address, and adding to none is undefined. */
    return (struct str){ .data = s.data ? s.data + first : NULL, .size = last - first };
}

bool str_equal(struct str a, struct str b);
bool str_equal_nocase(struct str a, struct str b); // ASCII letters only
int str_compare(struct str a, struct str b);       // bytewise; a prefix sorts first
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
size_t str_find(struct str s, struct str needle); // offset, or SIZE_MAX; empty needle: 0
size_t str_find_char(struct str s, char c);       // offset, or SIZE_MAX
struct str str_trim(struct str s);                // ASCII white space at both ends
bool str_is(struct str s, const char *text);

/* Cuts the part before `separator` off the front of *rest; false when *rest is used up
 * (rest->data == NULL). "a,b" gives "a", "b"; "" gives one empty part. */
bool str_split(struct str *rest, char separator, struct str *part);

/* Letters to change, add or drop until the two are equal: for "did you mean". Of each the first
 * STR_DISTANCE_CAP bytes count. */
#define STR_DISTANCE_CAP 32
uint32_t str_distance(struct str a, struct str b);

/* Whole string as a number; false on anything else (sign, blanks, overflow, range). */
bool str_to_u64(struct str s, uint64_t *out);
bool str_to_double(struct str s, double *out); // decimal or exponent form, finite

/* UTF-8. Decoding is strict: overlong forms, surrogates and values past U+10FFFF are errors. */
size_t utf8_decode(struct str s, uint32_t *code_point); // bytes used (1..4); 0: bad or cut short
size_t utf8_write(uint32_t code_point, char out[4]);    // bytes written (1..4)
bool utf8_valid(struct str s);
/* Length of the longest prefix that is whole, valid UTF-8 or can no longer become it: the bytes
 * after it (at most 3) are the beginning of a character that is still to come. */
size_t utf8_complete_prefix(struct str s);

#endif
