/* Decimal numbers are compared digit by digit, so "from here to there" is a tree of choices: as
 * long as the digits are those of a bound the bound counts, after the first that differs it does
 * not. Numbers below zero are those above with the bounds exchanged.
 *
 * Readers of JSON round to double. Whole and fractional digits together are kept to 15: no two such
 * decimals round to the same double, so what is within open bounds stays within them. */
#include "sample/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

#define DIGITS JSON_DIGITS_CAP
#define WHOLE_CAP 999999999999999u // 15 digits

/* A bound of a magnitude, zero or more: whole part, and digits after the point. */
struct decimal {
    uint64_t whole;
    uint32_t n_digits; // the last is not 0
    uint8_t digits[DIGITS];
    bool is_open;
};

struct between {
    struct grammar_rules *rules;
    const struct decimal *low, *high;
    uint32_t n_digits_cap; // after the point
};

static uint32_t digit_range(struct grammar_rules *rules, unsigned first, unsigned last)
{
    const struct code_range range = { '0' + first, '0' + last };
    return rules_class(rules, &range, first <= last ? 1 : 0);
}

static uint32_t then(struct grammar_rules *rules, uint32_t first, uint32_t second)
{
    const uint32_t parts[] = { first, second };
    return rules_sequence(rules, parts, 2);
}

static uint32_t any_digits(struct grammar_rules *rules, uint32_t min, uint32_t max)
{
    return rules_repeat(rules, digit_range(rules, 0, 9), min, max);
}

/* ---- whole numbers ---- */

/* Numbers of as many digits as low and high have, from digit `at` on; tight: so far the digits are
 * those of the bound. */
static uint32_t same_size(struct grammar_rules *rules, const char *low, const char *high, size_t at,
                          bool tight_low, bool tight_high)
{
    const size_t left = strlen(low) - at;
    if (left == 0)
        return RULES_EMPTY;
    if (!tight_low && !tight_high)
        return any_digits(rules, (uint32_t)left, (uint32_t)left);
    unsigned first = tight_low ? (unsigned)(low[at] - '0') : 0;
    unsigned last = tight_high ? (unsigned)(high[at] - '0') : 9;
    if (tight_low && tight_high && first == last)
        return then(rules, digit_range(rules, first, first),
                    same_size(rules, low, high, at + 1, true, true));
    uint32_t kinds[3] = { RULES_NOTHING, RULES_NOTHING, RULES_NOTHING };
    if (tight_low) {
        kinds[0] = then(rules, digit_range(rules, first, first),
                        same_size(rules, low, high, at + 1, true, false));
        first++;
    }
    if (tight_high) {
        kinds[2] = then(rules, digit_range(rules, last, last),
                        same_size(rules, low, high, at + 1, false, true));
        last--;
    }
    if (first <= last && last <= 9)
        kinds[1] = then(rules, digit_range(rules, first, last),
                        any_digits(rules, (uint32_t)left - 1, (uint32_t)left - 1));
    return rules_choice(rules, kinds, 3);
}

/* Whole numbers from low to high, without leading zeros. */
static uint32_t whole_between(struct grammar_rules *rules, uint64_t low, uint64_t high)
{
    struct rules_list kinds = { 0 };
    uint64_t first = 0, last = 9; // of that many digits
    for (uint32_t n_digits = 1; n_digits <= DIGITS; n_digits++) {
        char low_text[24], high_text[24];
        if (low <= last && high >= first) {
            snprintf(low_text, sizeof low_text, "%llu",
                     (unsigned long long)(low > first ? low : first));
            snprintf(high_text, sizeof high_text, "%llu",
                     (unsigned long long)(high < last ? high : last));
            rules_list_add(&kinds, same_size(rules, low_text, high_text, 0, true, true));
        }
        first = last + 1;
        last = last * 10 + 9;
    }
    const uint32_t node = rules_choice(rules, kinds.parts, kinds.n_parts);
    rules_list_release(&kinds);
    return node;
}

/* ---- fractions ---- */

static unsigned digit_at(const struct decimal *bound, uint32_t at)
{
    return at < bound->n_digits ? bound->digits[at] : 0;
}

/* The digits may end before digit `at`. */
static bool may_end(const struct between *between, uint32_t at, bool tight_low, bool tight_high)
{
    if (at == 0)
        return false; // a point is followed by a digit
    if (tight_low && (at < between->low->n_digits || between->low->is_open))
        return false;
    return !tight_high || at < between->high->n_digits || !between->high->is_open;
}

static uint32_t fraction_from(const struct between *between, uint32_t at, bool tight_low,
                              bool tight_high)
{
    struct grammar_rules *rules = between->rules;
    const uint32_t left = between->n_digits_cap - at;
    if (!tight_low && !tight_high)
        return any_digits(rules, at == 0, left);
    uint32_t kinds[4] = { RULES_NOTHING, RULES_NOTHING, RULES_NOTHING, RULES_NOTHING };
    if (may_end(between, at, tight_low, tight_high))
        kinds[0] = RULES_EMPTY;
    if (left > 0) {
        unsigned first = tight_low ? digit_at(between->low, at) : 0;
        unsigned last = tight_high ? digit_at(between->high, at) : 9;
        if (first == last && tight_low && tight_high) {
            kinds[1] = then(rules, digit_range(rules, first, first),
                            fraction_from(between, at + 1, true, true));
        } else if (first <= last) {
            if (tight_low) {
                kinds[1] = then(rules, digit_range(rules, first, first),
                                fraction_from(between, at + 1, true, false));
                first++;
            }
            if (tight_high) {
                kinds[2] = then(rules, digit_range(rules, last, last),
                                fraction_from(between, at + 1, false, true));
            }
            const unsigned middle_last = tight_high ? last - 1 : last; // last 0: no middle
            if (first <= middle_last && middle_last <= 9)
                kinds[3] = then(rules, digit_range(rules, first, middle_last),
                                any_digits(rules, 0, left - 1));
        }
    }
    return rules_choice(rules, kinds, 4);
}

static uint32_t with_fraction(struct grammar_rules *rules, uint32_t whole, uint32_t fraction)
{
    const uint32_t parts[] = { whole, rules_text(rules, STR(".")), fraction };
    return rules_sequence(rules, parts, 3);
}

static uint32_t count_digits(uint64_t value)
{
    uint32_t n = 1;
    for (; value >= 10; value /= 10)
        n++;
    return n;
}

/* Magnitudes from low to high: whole ones, and those with a point unless is_whole. */
static uint32_t magnitude_between(struct grammar_rules *rules, bool is_whole,
                                  const struct decimal *low, const struct decimal *high)
{
    struct between between = { .rules = rules, .low = low, .high = high };
    uint32_t kinds[5] = { RULES_NOTHING, RULES_NOTHING, RULES_NOTHING, RULES_NOTHING,
                          RULES_NOTHING };
    const uint64_t first = low->whole + (low->n_digits > 0 || low->is_open);
    const bool ends_below = high->n_digits == 0 && high->is_open;
    if (!(ends_below && high->whole == 0) && first <= high->whole - ends_below)
        kinds[0] = whole_between(rules, first, high->whole - ends_below);
    between.n_digits_cap = DIGITS - count_digits(high->whole);
    if (is_whole || between.n_digits_cap == 0 || low->whole > high->whole)
        return rules_choice(rules, kinds, 5);
    if (low->whole == high->whole) {
        kinds[1] = with_fraction(rules, whole_between(rules, low->whole, low->whole),
                                 fraction_from(&between, 0, true, true));
        return rules_choice(rules, kinds, 5);
    }
    kinds[1] = with_fraction(rules, whole_between(rules, low->whole, low->whole),
                             fraction_from(&between, 0, true, false));
    kinds[2] = with_fraction(rules, whole_between(rules, high->whole, high->whole),
                             fraction_from(&between, 0, false, true));
    if (low->whole + 1 < high->whole)
        kinds[3] = with_fraction(rules, whole_between(rules, low->whole + 1, high->whole - 1),
                                 any_digits(rules, 1, between.n_digits_cap));
    return rules_choice(rules, kinds, 5);
}

/* ---- bounds ---- */

/* Magnitude of a bound. Its digits are those that a double is printed with. */
static bool read_decimal(double value, bool is_open, struct decimal *out, struct err *err)
{
    char text[64];
    *out = (struct decimal){ .is_open = is_open };
    if (!(value <= (double)WHOLE_CAP))
        return err_set(err, ERR_UNSUPPORTED, "a bound of %g is too large", value);
    for (int precision = 0; precision <= (int)DIGITS; precision++) {
        snprintf(text, sizeof text, "%.*f", precision, value);
        if (strtod(text, NULL) == value)
            break;
        if (precision == (int)DIGITS)
            return err_set(err, ERR_UNSUPPORTED, "a bound of %.17g has too many digits", value);
    }
    out->whole = strtoull(text, NULL, 10);
    const char *point = strchr(text, '.');
    for (const char *p = point ? point + 1 : ""; *p != '\0'; p++)
        out->digits[out->n_digits++] = (uint8_t)(*p - '0');
    while (out->n_digits > 0 && out->digits[out->n_digits - 1] == 0)
        out->n_digits--;
    return true;
}

/* The numbers of one sign; the bounds are those of magnitudes. */
static bool add_sign(struct json_language *language, bool is_whole, struct json_bound low,
                     struct json_bound high, bool is_negative, struct rules_list *kinds,
                     struct err *err)
{
    struct decimal low_decimal = { 0 }, high_decimal = { .whole = WHOLE_CAP };
    if (low.is_given && low.value >= 0 && !read_decimal(low.value, low.is_open, &low_decimal, err))
        return false;
    if (high.is_given && !read_decimal(high.value, high.is_open, &high_decimal, err))
        return false;
    const uint32_t magnitude =
        magnitude_between(language->rules, is_whole, &low_decimal, &high_decimal);
    const uint32_t sign = is_negative ? rules_text(language->rules, STR("-")) : RULES_EMPTY;
    rules_list_add(kinds, then(language->rules, sign, magnitude));
    return true;
}

bool json_number_between(struct json_language *language, bool is_whole, struct json_bound low,
                         struct json_bound high, uint32_t *out, struct err *err)
{
    struct rules_list kinds = { 0 };
    bool good = true;
    if (!low.is_given && !high.is_given && !is_whole) {
        *out = json_number_any(language);
        return true;
    }
    if (!high.is_given || high.value > 0 || (high.value == 0 && !high.is_open))
        good = add_sign(language, is_whole, low, high, false, &kinds, err);
    if (good && (!low.is_given || low.value < 0)) {
        const struct json_bound from = { high.is_given && high.value <= 0, high.is_open,
                                         -high.value };
        const struct json_bound to = { low.is_given, low.is_open, -low.value };
        good = add_sign(language, is_whole, from, to, true, &kinds, err);
    }
    if (good) {
        const uint32_t rule = rules_declare(language->rules, STR("number"));
        const uint32_t body = rules_choice(language->rules, kinds.parts, kinds.n_parts);
        rules_define(language->rules, rule, body);
        *out = body == RULES_NOTHING ? RULES_NOTHING : rules_call(language->rules, rule);
    }
    rules_list_release(&kinds);
    return good;
}
