#include "text/pretoken_scan.h"

#include <stdlib.h>

#include "base/buf.h"
#include "helpers/cm.h"
#include "text/regex.h"

/* Characters of every class that an expression asks about; all of them in Unicode 14, which PCRE2
 * knows, too. */
static const char *const characters[] = {
    "a",
    "b",
    "s",
    "t",
    "S",
    "T",
    "r",
    "e",
    "R",
    "E",
    "A",
    "Z",
    "l",
    "L",
    "m",
    "d",
    "D",
    "v",
    " ",
    " ",
    " ",
    "\n",
    "\r",
    "\t",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "\xe2\x80\xa8",
    "\xc2\x85",
    "'",
    "'",
    "'",
    "\xe2\x80\x99",
    ".",
    "/",
    "-",
    "$",
    "\xe2\x82\xac",
    "\xe2\x82\x82",
    "0",
    "1",
    "9",
    "\xd9\xa3",
    "\xe2\x85\xa7",
    "\xc2\xbd",
    "\xc3\xa9",
    "\xc3\x89",
    "\xc7\x85",
    "\xca\xb0",
    "\xe4\xb8\xad",
    "\xd7\x90",
    "\xc5\xbf",
    "\xcc\x81",
    "\xe0\xa4\xbf",
    "\xe2\x83\x9d",
    "\xf0\x9f\x8e\x89",
    "\xe2\x80\x8d",
    "\x01",
    "\xe1\xa0\x8e",
    "\xef\xb8\x8f",
    "\xe2\x84\xaa",
    "\xf0\x90\x90\x80",
    "\xf0\x90\x90\xa8",
};

static void random_text(struct buf *out, uint32_t *state, size_t n)
{
    buf_clear(out);
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        buf_add_text(out, characters[(*state >> 8) % (sizeof characters / sizeof characters[0])]);
    }
}

static void assert_same_pieces(const struct pretoken_scan *scan, const struct regex *regex,
                               struct regex_state *match, struct str text)
{
    struct err err;
    for (size_t at = 0; at < text.size;) {
        size_t first, last;
        const size_t end = pretoken_scan_next(scan, text, at);
        assert_int_equal(regex_find(regex, match, text, at, &first, &last, &err), REGEX_FOUND);
        if (first != at || last != end)
            fail_msg("%s: at %zu of \"%.*s\": %zu instead of %zu", pretoken_scan_name(scan), at,
                     (int)text.size, text.data, end, last);
        at = end;
    }
}

static void test_scanners_are_their_expressions(void **state)
{
    struct buf text;
    struct err err = { 0 };
    struct regex_state *match = regex_state_new();
    (void)state;
    buf_init(&text, 1 << 20);
    for (size_t i = 0; pretoken_scan_at(i); i++) {
        const struct pretoken_scan *scan = pretoken_scan_at(i);
        struct regex *regex = regex_new(pretoken_scan_pattern(scan), &err);
        if (!regex)
            fail_msg("%s", err.text);
        uint32_t random = 1;
        for (unsigned round = 0; round < 4000; round++) {
            random_text(&text, &random, 1 + round % 24);
            assert_same_pieces(scan, regex, match, buf_view(&text));
        }
        regex_free(regex);
    }
    regex_state_free(match);
    buf_release(&text);
}

/* "[a][bc]" of the pieces of a text. */
static void assert_pieces(const char *name, const char *text, const char *expected)
{
    const struct pretoken_scan *scan = pretoken_scan_named(name);
    struct buf out;
    assert_non_null(scan);
    buf_init(&out, 1 << 16);
    for (size_t at = 0; text[at];) {
        const size_t end = pretoken_scan_next(scan, str_from(text), at);
        buf_printf(&out, "[%.*s]", (int)(end - at), text + at);
        at = end;
    }
    assert_string_equal(out.data, expected);
    buf_release(&out);
}

static void test_what_people_write(void **state)
{
    (void)state;
    assert_pieces("gpt2", "I'll  go, 1234!\n\n x", "[I]['ll][ ][ go][,][ 1234][!][\n\n][ x]");
    assert_pieces("gpt2", "I'LL  ", "[I]['][LL][  ]");
    assert_pieces("llama3", "I'LL  go, 12345!\n\n x", "[I]['LL][ ][ go][,][ ][123][45][!\n\n][ x]");
    assert_pieces("qwen2", "don't 42 \n  y", "[don]['t][ ][4][2][ \n][ ][ y]");
    assert_pieces("o200k", "HTMLParser's fooBar/", "[HTMLParser's][ foo][Bar][/]");
    assert_pieces("tekken", "HTMLParser's 12", "[HTMLParser]['s][ ][1][2]");
    assert_pieces("qwen35", "a\xcc\x81 \xcc\x81", "[a\xcc\x81][ \xcc\x81]");
    /* A letter without case after capitals: given back as far as it goes. */
    assert_pieces("o200k",
                  "\xe4\xb8\xad"
                  "AB",
                  "[\xe4\xb8\xad][AB]");
    assert_pieces("o200k",
                  "AB\xe4\xb8\xad"
                  "C",
                  "[AB\xe4\xb8\xad][C]");
}

/* Unicode 15 and 16 letters, which PCRE2 of Debian 12 does not know. */
static void test_knows_unicode_16(void **state)
{
    (void)state;
    assert_pieces("llama3", "\xf0\x90\x97\x80\xf0\x90\x97\x80!",
                  "[\xf0\x90\x97\x80\xf0\x90\x97\x80][!]");
}

static void test_found_by_exact_expression(void **state)
{
    (void)state;
    const struct pretoken_scan *llama3 = pretoken_scan_named("llama3");
    assert_ptr_equal(pretoken_scan_find(pretoken_scan_pattern(llama3)), llama3);
    assert_null(pretoken_scan_find(STR("\\s+")));
    assert_null(pretoken_scan_named("gpt3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scanners_are_their_expressions),
        cmocka_unit_test(test_what_people_write),
        cmocka_unit_test(test_knows_unicode_16),
        cmocka_unit_test(test_found_by_exact_expression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
