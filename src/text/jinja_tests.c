/* value is test. */
#include "text/jinja_internal.h"

#define TEST(name)                                                                                 \
    static bool name(struct jinja_eval *eval, struct value subject,                                \
                     const struct jinja_bound *args, bool *out)

/* A test that looks at the value alone. */
#define PLAIN_TEST(name, condition)                                                                \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)eval, (void)args;                                                                    \
        *out = (condition);                                                                        \
        return true;                                                                               \
    }

static bool is_sequence(struct value value)
{
    switch (value.type) {
    case VALUE_UNDEFINED: // Jinja2's undefined has a length and an index operator
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
        return true;
    default:
        return false;
    }
}

PLAIN_TEST(test_boolean, subject.type == VALUE_BOOL)
PLAIN_TEST(test_callable, jinja_is_callable(subject))
PLAIN_TEST(test_defined, subject.type != VALUE_UNDEFINED)
PLAIN_TEST(test_undefined, subject.type == VALUE_UNDEFINED)
PLAIN_TEST(test_escaped, subject.type == VALUE_STRING && subject.markup)
PLAIN_TEST(test_false, subject.type == VALUE_BOOL && !subject.boolean)
PLAIN_TEST(test_true, subject.type == VALUE_BOOL && subject.boolean)
PLAIN_TEST(test_float, subject.type == VALUE_FLOAT)
PLAIN_TEST(test_integer, subject.type == VALUE_INTEGER)
PLAIN_TEST(test_iterable, jinja_is_iterable(subject) || subject.type == VALUE_LOOP)
PLAIN_TEST(test_mapping, subject.type == VALUE_DICT)
PLAIN_TEST(test_none, subject.type == VALUE_NONE)
PLAIN_TEST(test_number, jinja_is_number(subject))
PLAIN_TEST(test_sequence, is_sequence(subject))
PLAIN_TEST(test_string, subject.type == VALUE_STRING)

/* subject % divisor == rest */
static bool has_rest(struct jinja_eval *eval, struct value subject, struct value divisor,
                     int64_t rest, bool *out)
{
    struct value modulo;
    if (!jinja_arithmetic(eval, TOKEN_MOD, subject, divisor, &modulo))
        return false;
    *out = value_equal(modulo, value_integer(rest));
    return true;
}

TEST(test_divisibleby)
{
    return has_rest(eval, subject, args->values[0], 0, out);
}

TEST(test_even)
{
    (void)args;
    return has_rest(eval, subject, value_integer(2), 0, out);
}

TEST(test_odd)
{
    (void)args;
    return has_rest(eval, subject, value_integer(2), 1, out);
}

#define COMPARE_TEST(name, op)                                                                     \
    TEST(name)                                                                                     \
    {                                                                                              \
        return jinja_compare(eval, op, subject, args->values[0], out);                             \
    }

COMPARE_TEST(test_eq, TOKEN_EQ)
COMPARE_TEST(test_ne, TOKEN_NE)
COMPARE_TEST(test_lt, TOKEN_LT)
COMPARE_TEST(test_le, TOKEN_LTEQ)
COMPARE_TEST(test_gt, TOKEN_GT)
COMPARE_TEST(test_ge, TOKEN_GTEQ)
COMPARE_TEST(test_in, TOKEN_IN)

/* Python's `is`: the same object; equal values of one type cannot be told apart here. */
TEST(test_sameas)
{
    struct value other = args->values[0];
    (void)eval;
    *out = subject.type == other.type && value_equal(subject, other);
    if (subject.type == VALUE_LIST || subject.type == VALUE_TUPLE || subject.type == VALUE_DICT)
        *out = *out && subject.list == other.list;
    return true;
}

/* str(value).islower() */
static bool has_case(struct jinja_eval *eval, struct value subject, const char *method, bool *out)
{
    struct value text, answer;
    struct jinja_bound none = { 0 };
    if (!jinja_to_text(eval, subject, &text) ||
        !jinja_method_find(text, str_from(method))->apply(eval, text, &none, &answer))
        return false;
    *out = answer.boolean;
    return true;
}

TEST(test_lower)
{
    (void)args;
    return has_case(eval, subject, "islower", out);
}

TEST(test_upper)
{
    (void)args;
    return has_case(eval, subject, "isupper", out);
}

TEST(test_filter)
{
    (void)eval, (void)args;
    *out = subject.type == VALUE_STRING && jinja_filter_find(traced_str(subject.string)) != NULL;
    return true;
}

TEST(test_test)
{
    (void)eval, (void)args;
    *out = subject.type == VALUE_STRING && jinja_test_find(traced_str(subject.string)) != NULL;
    return true;
}

const struct jinja_test jinja_tests[] = {
    { "!=", "other", test_ne },
    { "<", "other", test_lt },
    { "<=", "other", test_le },
    { "==", "other", test_eq },
    { ">", "other", test_gt },
    { ">=", "other", test_ge },
    { "boolean", "", test_boolean },
    { "callable", "", test_callable },
    { "defined", "", test_defined },
    { "divisibleby", "num", test_divisibleby },
    { "eq", "other", test_eq },
    { "equalto", "other", test_eq },
    { "escaped", "", test_escaped },
    { "even", "", test_even },
    { "false", "", test_false },
    { "filter", "", test_filter },
    { "float", "", test_float },
    { "ge", "other", test_ge },
    { "greaterthan", "other", test_gt },
    { "gt", "other", test_gt },
    { "in", "seq", test_in },
    { "integer", "", test_integer },
    { "iterable", "", test_iterable },
    { "le", "other", test_le },
    { "lessthan", "other", test_lt },
    { "lower", "", test_lower },
    { "lt", "other", test_lt },
    { "mapping", "", test_mapping },
    { "ne", "other", test_ne },
    { "none", "", test_none },
    { "number", "", test_number },
    { "odd", "", test_odd },
    { "sameas", "other", test_sameas },
    { "sequence", "", test_sequence },
    { "string", "", test_string },
    { "test", "", test_test },
    { "true", "", test_true },
    { "undefined", "", test_undefined },
    { "upper", "", test_upper },
    { NULL, NULL, NULL },
};

const struct jinja_test *jinja_test_find(struct str name)
{
    for (const struct jinja_test *row = jinja_tests; row->name; row++)
        if (str_is(name, row->name))
            return row;
    return NULL;
}

bool jinja_apply_test(struct jinja_eval *eval, const struct jinja_test *test, struct value subject,
                      const struct jinja_args *args, bool *out)
{
    struct jinja_bound bound;
    return jinja_bind(eval, test->name, test->parameters, args, &bound) &&
           test->apply(eval, subject, &bound, out);
}
