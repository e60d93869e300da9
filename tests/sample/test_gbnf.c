/* GBNF: what its constructs match, and what is wrong with texts that are none. */
#include "sample/gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers/grammars.h"

#include "helpers/cm.h"

#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static struct grammars grammars;

static int set_up(void **state)
{
    (void)state;
    grammars_open(&grammars);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grammars_close(&grammars);
    return 0;
}

static void check(const char *source, const char *const *texts)
{
    assert_grammar(&grammars, SAMPLING_GRAMMAR_GBNF, source, texts);
}

static void test_constructs(void **state)
{
    (void)state;
    check("root ::= \"a\" \"b\"", TEXTS("+ab", "-a", "-abc", "-"));
    check("root ::= \"a\" | \"b\" |", TEXTS("+a", "+b", "+", "-ab"));
    check("root ::= [a-c\\-x]+", TEXTS("+a", "+-", "+abcx-", "-", "-d"));
    check("root ::= [^a-y]", TEXTS("+z", "+\xc3\xa9", "+\xf0\x9f\x99\x82", "-a", "-\xc3", "-zz"));
    check("root ::= [a-]", TEXTS("+a", "+-", "-b"));
    check("root ::= .{2}", TEXTS("+ab", "+\xc3\xa9\n", "-a", "-abc"));
    check("root ::= \"\\x41\\u00e9\\U0001F642\\n\\t\\\\\\\"\"",
          TEXTS("+A\xc3\xa9\xf0\x9f\x99\x82\n\t\\\""));
    check("root ::= \"a\"* \"b\"? \"c\"+", TEXTS("+c", "+aabc", "+bcc", "-ab", "-bbc"));
    check("root ::= \"a\"{2} \"b\"{1,} \"c\"{,2} \"d\"{2,3}",
          TEXTS("+aabdd", "+aabbbccddd", "-abdd", "-aabcccdd", "-aabd"));
    check("root ::= (\"a\" (\"b\" | \"c\")){2}", TEXTS("+abac", "-ab", "-abacab"));
    check("root ::= x # a comment\n\n# another\nx ::= \"a\"\n  | \"b\"\n",
          TEXTS("+a", "+b", "-ab"));
    check("root ::=\n  (\n \"a\"\n # within\n \"b\" )\n", TEXTS("+ab"));
    check("root ::= \"a\" | # behind a bar\n \"b\"", TEXTS("+a", "+b"));
    check("root ::= \"\"", TEXTS("+", "-a"));
}

/* Recursion in the middle, at the end, and between rules; nothing of it is a call in the first. */
static void test_recursion(void **state)
{
    (void)state;
    check("root ::= \"a\" root | \"b\"", TEXTS("+b", "+aaaaab", "-aaaa"));
    check("root ::= \"(\" root \")\" | \"x\"", TEXTS("+x", "+((x))", "-((x)", "-(x))"));
    check("root ::= s\ns ::= \"(\" s \")\" s |", TEXTS("+", "+()", "+(())()", "-(", "-)("));
    check("root ::= a | b\na ::= \"x\" b?\nb ::= \"y\" a?", TEXTS("+x", "+xyxy", "+yx", "-xx"));
    check("root ::= e\ne ::= t ((\"+\" | \"-\") t)*\nt ::= f (\"*\" f)*\n"
          "f ::= \"(\" e \")\" | [0-9]+",
          TEXTS("+1", "+1+2*(3-4)", "+((12))", "-1+", "-(1", "-1**2"));
    check("root ::= p\np ::= \"a\" p \"a\" | \"b\" p \"b\" | \"a\" | \"b\" |",
          TEXTS("+", "+aba", "+abba", "+babab", "-ab", "-abab"));
}

/* Several readings of one text are followed side by side. */
static void test_ambiguity(void **state)
{
    (void)state;
    check("root ::= a | b\na ::= \"x\"* \"y\"\nb ::= \"x\"* \"z\"", TEXTS("+xxxy", "+xxxz", "-xx"));
    check("root ::= (\"a\" | \"a\" \"b\") (\"b\" | \"c\")",
          TEXTS("+ab", "+ac", "+abb", "+abc", "-a"));
    check("root ::= (\"a\" | \"aa\")*", TEXTS("+", "+aaaaaaa", "-ab"));
    check("root ::= w w\nw ::= [a-z]+ [0-9]*", TEXTS("+ab", "+a1b2", "+abc12", "-a", "-a1"));
    check("root ::= ([a-z]+ \",\"?){2,40}", TEXTS("+ab", "+a,b,c", "-a", "-,"));
}

/* Repetitions that become loops: the bounds hold to one. */
static void test_long_repetitions(void **state)
{
    (void)state;
    char text[700] = "+";
    for (int n = 0; n < 420; n++, strcat(text, "a")) {
        text[0] = n >= 150 && n <= 400 ? '+' : '-';
        if (n < 3 || (n > 147 && n < 153) || n > 397)
            check("root ::= [a-z]{150,400}", TEXTS(text));
        text[0] = n >= 300 ? '+' : '-';
        if (n > 297 && n < 303)
            check("root ::= x{300,}\nx ::= [a-z] | [0-9]", TEXTS(text));
    }
    char pairs[1300] = "+";
    for (int n = 1; n <= 210; n++) {
        strcat(pairs, n > 1 ? ",(x)" : "(x)");
        pairs[0] = n >= 101 && n <= 201 ? '+' : '-';
        if (n < 3 || (n > 98 && n < 104) || n > 198)
            check("root ::= i (\",\" i){100,200}\ni ::= \"(\" i \")\" | \"x\"", TEXTS(pairs));
    }
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *source, *words;
    } wrong[] = {
        { "", "no rule \"root\"" },
        { "x ::= \"a\"", "no rule \"root\"" },
        { "root ::= x", "\"x\" is used and not defined" },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 6" },
        { "root ::= \"a", "the grammar ends here" },
        { "root ::= [a", "the grammar ends here" },
        { "root ::= (\"a\"", "a ) is missing" },
        { "root ::= \"a\")", "does not belong" },
        { "root = \"a\"", "::= is missing" },
        { "root ::= \"\\q\"", "escape is not known" },
        { "root ::= \"\\x4\"", "hexadecimal" },
        { "root ::= \"\\ud800\"", "no character" },
        { "root ::= [z-a]", "ends before it begins" },
        { "root ::= \"a\"{3,2}", "ends before it begins" },
        { "root ::= \"a\"{99999}", "too long" },
        { "root ::= \"a\"{x}", "a number is missing" },
        { "root ::= *", "does not belong" },
        { "\xff", "is missing" },
        { "root ::= \"\xff\"", "not valid UTF-8" },
        { "root ::= root \"a\" | \"b\"", "begins with itself" },
        { "root ::= x\nx ::= \"\"? y\ny ::= \"z\"* x | \"w\"", "begins with itself" },
        { "root ::= \"a\" root", "no text that satisfies" },
        { "root ::= [a-c]{2} x\nx ::= [^\\U00000000-\\U0010FFFF]", "no text that satisfies" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_no_grammar(SAMPLING_GRAMMAR_GBNF, wrong[i].source, ERR_ARGUMENT, wrong[i].words);
}

/* Each ceiling is reached by something and says its name. */
static void test_ceilings(void **state)
{
    (void)state;
    const size_t room = SAMPLING_GRAMMAR_BYTES_CAP + 2;
    char *text = calloc(room, 1);
    strcpy(text, "root ::= ");
    for (int i = 0; i < 101; i++)
        strcat(text, "(");
    assert_no_grammar(SAMPLING_GRAMMAR_GBNF, text, ERR_ARGUMENT, "nested too deep");
    strcpy(text, "root ::= \"x\" r0 \"y\"\n");
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "r%d ::= (r%d [a-z]{30} [0-9]{30})\n", i, i + 1);
    strcat(text, "r40 ::= [a-z]{30} \"z\" [0-9]{30}\n");
    assert_no_grammar(SAMPLING_GRAMMAR_GBNF, text, ERR_UNSUPPORTED, "more than 32 rules begin");
    assert_no_grammar(SAMPLING_GRAMMAR_GBNF, "root ::= [ab]* \"a\" [ab]{18}", ERR_UNSUPPORTED,
                      "too large");
    memset(text, 'a', SAMPLING_GRAMMAR_BYTES_CAP + 1);
    text[room - 1] = '\0';
    assert_no_grammar(SAMPLING_GRAMMAR_GBNF, text, ERR_UNSUPPORTED, "at most");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constructs), cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_ambiguity),  cmocka_unit_test(test_long_repetitions),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_ceilings),
    };
    return cmocka_run_group_tests_name("gbnf", tests, set_up, tear_down);
}
