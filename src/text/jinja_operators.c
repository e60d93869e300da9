/* Arithmetic, order and membership with Python's rules; integers are 64 bits and overflow is an
 * error, where Python's would grow. */
#include "text/jinja_internal.h"

#include <math.h>

const char *jinja_type_name(struct value value)
{
    static const char *const names[] = {
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INTEGER] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_DICT] = "dict",
        [VALUE_RANGE] = "range",
        [VALUE_ITERATOR] = "generator",
        [VALUE_DICT_VIEW] = "dict_items",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_MACRO] = "Macro",
        [VALUE_METHOD] = "builtin_function_or_method",
        [VALUE_FUNCTION] = "function",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_CYCLER] = "Cycler",
        [VALUE_JOINER] = "Joiner",
        [VALUE_SLICE] = "slice",
    };
    if (value.type == VALUE_STRING && value.markup)
        return "Markup";
    return names[value.type];
}

bool jinja_truth(struct value value)
{
    size_t length;
    switch (value.type) {
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INTEGER:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_STRING:
        return traced_size(value.string) > 0;
    default:
        return !jinja_length(value, &length) || length > 0;
    }
}

bool jinja_is_number(struct value value)
{
    return value.type == VALUE_BOOL || value.type == VALUE_INTEGER || value.type == VALUE_FLOAT;
}

bool jinja_as_integer(struct value value, int64_t *out)
{
    if (value.type != VALUE_BOOL && value.type != VALUE_INTEGER)
        return false;
    *out = value.type == VALUE_BOOL ? value.boolean : value.integer;
    return true;
}

bool jinja_as_float(struct value value, double *out)
{
    int64_t integer;
    if (value.type == VALUE_FLOAT)
        *out = value.real;
    else if (jinja_as_integer(value, &integer))
        *out = (double)integer;
    else
        return false;
    return true;
}

bool jinja_raise_undefined(struct jinja_eval *eval, struct value value)
{
    return jinja_raise(eval, "%s", value.missing ? value.missing : "a value is undefined");
}

/* ---- arithmetic ---- */

static const char *op_text(enum jinja_token_type op)
{
    switch (op) {
    case TOKEN_ADD:
        return "+";
    case TOKEN_SUB:
        return "-";
    case TOKEN_MUL:
        return "*";
    case TOKEN_DIV:
        return "/";
    case TOKEN_FLOORDIV:
        return "//";
    case TOKEN_MOD:
        return "%";
    case TOKEN_POW:
        return "**";
    case TOKEN_LT:
        return "<";
    case TOKEN_LTEQ:
        return "<=";
    case TOKEN_GT:
        return ">";
    default:
        return ">=";
    }
}

static bool bad_operands(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                         struct value b)
{
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, a.type == VALUE_UNDEFINED ? a : b);
    if (op == TOKEN_ADD && a.type == VALUE_STRING)
        return jinja_raise(eval, "can only concatenate str (not \"%s\") to str",
                           jinja_type_name(b));
    return jinja_raise(eval, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
                       jinja_type_name(a), jinja_type_name(b));
}

static bool integer_overflow(struct jinja_eval *eval)
{
    return jinja_raise(eval, "limit of integers: the result does not fit 64 bits");
}

/* a ** b by squaring; b is not negative. */
static bool integer_power(struct jinja_eval *eval, int64_t a, int64_t b, struct value *out)
{
    int64_t result = 1;
    while (b > 0) {
        if (b & 1 && __builtin_mul_overflow(result, a, &result))
            return integer_overflow(eval);
        b >>= 1;
        if (b > 0 && __builtin_mul_overflow(a, a, &a)) {
            if (a == 0)
                break;
            return integer_overflow(eval);
        }
    }
    *out = value_integer(result);
    return true;
}

/* The floor of a / b and the rest, which has the sign of b. */
static bool divide_integers(struct jinja_eval *eval, enum jinja_token_type op, int64_t a, int64_t b,
                            struct value *out)
{
    if (b == 0)
        return jinja_raise(eval, "division by zero");
    if (op == TOKEN_DIV) {
        *out = value_float((double)a / (double)b);
        return true;
    }
    if (b == -1) { // INT64_MIN / -1 overflows in C as well
        int64_t quotient;
        if (op == TOKEN_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &quotient))
            return integer_overflow(eval);
        *out = value_integer(op == TOKEN_FLOORDIV ? -a : 0);
        return true;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = value_integer(op == TOKEN_FLOORDIV ? quotient : rest);
    return true;
}

static bool integer_arithmetic(struct jinja_eval *eval, enum jinja_token_type op, int64_t a,
                               int64_t b, struct value *out)
{
    int64_t result = 0;
    bool overflow;
    switch (op) {
    case TOKEN_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case TOKEN_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case TOKEN_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case TOKEN_POW:
        if (b >= 0)
            return integer_power(eval, a, b, out);
        if (a == 0)
            return jinja_raise(eval, "0.0 cannot be raised to a negative power");
        *out = value_float(pow((double)a, (double)b));
        return true;
    default:
        return divide_integers(eval, op, a, b, out);
    }
    if (overflow)
        return integer_overflow(eval);
    *out = value_integer(result);
    return true;
}

/* Python's float modulo: the sign of b. */
static double float_modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest != 0)
        return (rest < 0) != (b < 0) ? rest + b : rest;
    return copysign(0.0, b);
}

static double float_floor_divide(double a, double b)
{
    double quotient = (a - float_modulo(a, b)) / b;
    if (quotient == 0)
        return copysign(0.0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static bool float_power(struct jinja_eval *eval, double a, double b, struct value *out)
{
    double result = pow(a, b);
    if (a == 0 && b < 0)
        return jinja_raise(eval, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return jinja_raise(eval, "complex numbers are not supported");
    if (isinf(result) && isfinite(a) && isfinite(b))
        return jinja_raise(eval, "numerical result out of range");
    *out = value_float(result);
    return true;
}

static bool float_arithmetic(struct jinja_eval *eval, enum jinja_token_type op, double a, double b,
                             struct value *out)
{
    if (b == 0 && (op == TOKEN_DIV || op == TOKEN_FLOORDIV || op == TOKEN_MOD))
        return jinja_raise(eval, "float division by zero");
    switch (op) {
    case TOKEN_ADD:
        *out = value_float(a + b);
        return true;
    case TOKEN_SUB:
        *out = value_float(a - b);
        return true;
    case TOKEN_MUL:
        *out = value_float(a * b);
        return true;
    case TOKEN_DIV:
        *out = value_float(a / b);
        return true;
    case TOKEN_FLOORDIV:
        *out = value_float(float_floor_divide(a, b));
        return true;
    case TOKEN_MOD:
        *out = value_float(float_modulo(a, b));
        return true;
    default:
        return float_power(eval, a, b, out);
    }
}

static bool string_room(struct jinja_eval *eval, size_t size)
{
    return size <= eval->limits->string_bytes_cap ||
           jinja_raise(eval, "limit of string size: more than %zu bytes",
                       eval->limits->string_bytes_cap);
}

/* str + str; when one side is markup, the other one is escaped and the sum is markup. */
static bool add_strings(struct jinja_eval *eval, struct value a, struct value b, struct value *out)
{
    bool markup = a.markup || b.markup;
    if (markup && (!jinja_escape(eval, a, &a) || !jinja_escape(eval, b, &b)))
        return false;
    size_t size = traced_size(a.string) + traced_size(b.string);
    struct traced sum;
    if (!string_room(eval, size) || !jinja_work(eval, traced_size(b.string)))
        return false;
    if (!traced_concat(&eval->arena, a.string, b.string, &sum))
        return jinja_no_memory(eval);
    *out = value_text(sum);
    out->markup = markup;
    return true;
}

static bool add_lists(struct jinja_eval *eval, struct value a, struct value b, struct value *out)
{
    struct value sum;
    if (!jinja_steps(eval, (a.list->size + b.list->size) / 8))
        return false;
    if (!value_list_new(&eval->arena, a.type, &sum))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < a.list->size + b.list->size; i++) {
        struct value item = i < a.list->size ? a.list->items[i] : b.list->items[i - a.list->size];
        if (!value_list_add(&eval->arena, &sum, item))
            return jinja_no_memory(eval);
    }
    *out = sum;
    return true;
}

#define REPEAT_CHUNK_BYTES 4096

static void add_times(struct traced_builder *builder, struct traced text, size_t count)
{
    for (size_t i = 0; i < count && !builder->exhausted && !builder->overflowed; i++)
        traced_add_text(builder, text);
}

/* Short texts are first repeated to a chunk, which is then what is repeated. */
static bool repeat_string(struct jinja_eval *eval, struct value string, int64_t count,
                          struct value *out)
{
    size_t size = traced_size(string.string), times = count > 0 && size > 0 ? (size_t)count : 0;
    struct traced_builder builder, chunk_builder;
    struct value chunk;
    if (times > 0 && size > eval->limits->string_bytes_cap / times)
        return string_room(eval, SIZE_MAX);
    if (!jinja_work(eval, size * times))
        return false;
    size_t chunk_times = size < REPEAT_CHUNK_BYTES && size > 0 ? REPEAT_CHUNK_BYTES / size : 1;
    jinja_text_begin(eval, &chunk_builder);
    add_times(&chunk_builder, string.string, chunk_times < times ? chunk_times : 0);
    if (!jinja_text_end(eval, &chunk_builder, &chunk))
        return false;
    jinja_text_begin(eval, &builder);
    traced_reserve(&builder, size * times);
    if (chunk_times < times)
        add_times(&builder, chunk.string, times / chunk_times);
    add_times(&builder, string.string, chunk_times < times ? times % chunk_times : times);
    if (!jinja_text_end(eval, &builder, out))
        return false;
    out->markup = string.markup;
    return true;
}

static bool repeat_list(struct jinja_eval *eval, struct value list, int64_t count,
                        struct value *out)
{
    struct value sum;
    size_t size = list.list->size;
    uint64_t cap = eval->steps_cap; // a copy is a step
    if (count > 0 && size > cap / (uint64_t)count)
        return jinja_steps(eval, (size_t)cap);
    if (count > 0 && !jinja_steps(eval, size * (size_t)count))
        return false;
    if (!value_list_new(&eval->arena, list.type, &sum))
        return jinja_no_memory(eval);
    for (int64_t i = 0; size > 0 && i < count; i++)
        for (size_t j = 0; j < size; j++)
            if (!value_list_add(&eval->arena, &sum, list.list->items[j]))
                return jinja_no_memory(eval);
    *out = sum;
    return true;
}

static bool is_list(struct value value)
{
    return value.type == VALUE_LIST || value.type == VALUE_TUPLE;
}

static bool multiply(struct jinja_eval *eval, struct value a, struct value b, struct value *out)
{
    int64_t count;
    if (jinja_as_integer(a, &count)) { // 3 * 'x' is 'x' * 3
        struct value swapped = a;
        a = b;
        b = swapped;
    }
    if (!jinja_as_integer(b, &count) || (a.type != VALUE_STRING && !is_list(a)))
        return bad_operands(eval, TOKEN_MUL, a, b);
    return a.type == VALUE_STRING ? repeat_string(eval, a, count, out)
                                  : repeat_list(eval, a, count, out);
}

bool jinja_arithmetic(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                      struct value b, struct value *out)
{
    int64_t integer_a, integer_b;
    double real_a, real_b;
    if (jinja_as_integer(a, &integer_a) && jinja_as_integer(b, &integer_b))
        return integer_arithmetic(eval, op, integer_a, integer_b, out);
    if (jinja_as_float(a, &real_a) && jinja_as_float(b, &real_b))
        return float_arithmetic(eval, op, real_a, real_b, out);
    if (op == TOKEN_ADD && a.type == VALUE_STRING && b.type == VALUE_STRING)
        return add_strings(eval, a, b, out);
    if (op == TOKEN_ADD && is_list(a) && a.type == b.type)
        return add_lists(eval, a, b, out);
    if (op == TOKEN_MUL)
        return multiply(eval, a, b, out);
    if (op == TOKEN_MOD && a.type == VALUE_STRING)
        return jinja_format_percent(eval, a, b, out);
    return bad_operands(eval, op, a, b);
}

bool jinja_negate(struct jinja_eval *eval, struct value value, bool plus, struct value *out)
{
    int64_t integer;
    if (jinja_as_integer(value, &integer))
        return integer_arithmetic(eval, plus ? TOKEN_ADD : TOKEN_SUB, 0, integer, out);
    if (value.type == VALUE_FLOAT) {
        *out = value_float(plus ? value.real : -value.real);
        return true;
    }
    if (value.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, value);
    return jinja_raise(eval, "bad operand type for unary %s: '%s'", plus ? "+" : "-",
                       jinja_type_name(value));
}

/* ---- order ---- */

enum order {
    ORDER_LESS,
    ORDER_EQUAL,
    ORDER_GREATER,
    ORDER_NONE, // with NaN
};

static bool compare(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                    struct value b, int depth, enum order *out);

static enum order order_of(int sign)
{
    return sign < 0 ? ORDER_LESS : sign > 0 ? ORDER_GREATER : ORDER_EQUAL;
}

static enum order compare_numbers(struct value a, struct value b)
{
    int64_t integer_a, integer_b;
    double real_a = 0, real_b = 0;
    if (jinja_as_integer(a, &integer_a) && jinja_as_integer(b, &integer_b))
        return order_of((integer_a > integer_b) - (integer_a < integer_b));
    jinja_as_float(a, &real_a);
    jinja_as_float(b, &real_b);
    if (isnan(real_a) || isnan(real_b))
        return ORDER_NONE;
    return order_of((real_a > real_b) - (real_a < real_b));
}

/* By the first items that differ; else by length. */
static bool compare_lists(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                          struct value b, int depth, enum order *out)
{
    size_t size_a = a.list->size, size_b = b.list->size;
    for (size_t i = 0; i < size_a && i < size_b; i++)
        if (!value_equal(a.list->items[i], b.list->items[i]))
            return compare(eval, op, a.list->items[i], b.list->items[i], depth + 1, out);
    *out = order_of((size_a > size_b) - (size_a < size_b));
    return true;
}

static bool compare(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                    struct value b, int depth, enum order *out)
{
    if (depth > VALUE_DEPTH_CAP)
        return jinja_raise(eval, "limit of evaluation depth: values nested deeper than %d",
                           VALUE_DEPTH_CAP);
    if (!jinja_step(eval))
        return false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = compare_numbers(a, b);
        return true;
    }
    if (a.type == VALUE_STRING && b.type == VALUE_STRING) {
        *out = order_of(str_compare(traced_str(a.string), traced_str(b.string)));
        return jinja_work(eval, traced_size(a.string));
    }
    if (is_list(a) && a.type == b.type)
        return compare_lists(eval, op, a, b, depth, out);
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, a.type == VALUE_UNDEFINED ? a : b);
    return jinja_raise(eval, "'%s' not supported between instances of '%s' and '%s'", op_text(op),
                       jinja_type_name(a), jinja_type_name(b));
}

bool jinja_compare(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                   struct value b, bool *out)
{
    enum order order;
    if (op == TOKEN_EQ || op == TOKEN_NE) {
        if (a.type == VALUE_STRING && !jinja_work(eval, traced_size(a.string)))
            return false;
        *out = value_equal(a, b) == (op == TOKEN_EQ);
        return true;
    }
    if (op == TOKEN_IN || op == TOKEN_NOT_IN) {
        if (!jinja_contains(eval, b, a, out))
            return false;
        *out = *out == (op == TOKEN_IN);
        return true;
    }
    if (!compare(eval, op, a, b, 0, &order))
        return false;
    if (op == TOKEN_LT || op == TOKEN_LTEQ)
        *out = order == ORDER_LESS || (op == TOKEN_LTEQ && order == ORDER_EQUAL);
    else
        *out = order == ORDER_GREATER || (op == TOKEN_GTEQ && order == ORDER_EQUAL);
    return true;
}

bool jinja_less(struct jinja_eval *eval, struct value a, struct value b, bool *out)
{
    return jinja_compare(eval, TOKEN_LT, a, b, out);
}

bool jinja_contains(struct jinja_eval *eval, struct value container, struct value item, bool *out)
{
    if (container.type == VALUE_STRING) {
        if (item.type != VALUE_STRING)
            return jinja_raise(eval, "'in <string>' requires string as left operand, not %s",
                               jinja_type_name(item));
        *out = str_find(traced_str(container.string), traced_str(item.string)) != SIZE_MAX;
        return jinja_work(eval, traced_size(container.string));
    }
    if (container.type == VALUE_DICT) {
        if (!value_hashable(item))
            return jinja_raise(eval, "unhashable type: '%s'", jinja_type_name(item));
        *out = value_dict_find(&container, item) != NULL;
        return true;
    }
    struct jinja_cursor cursor;
    struct value other;
    bool more;
    if (!jinja_is_iterable(container))
        return jinja_raise(eval, "argument of type '%s' is not iterable",
                           jinja_type_name(container));
    if (!jinja_iterate(eval, container, &cursor))
        return false;
    for (*out = false; !*out;) {
        if (!jinja_next(eval, &cursor, &other, &more))
            return false;
        if (!more)
            break;
        if (!jinja_step(eval))
            return false;
        *out = value_equal(other, item);
    }
    return true;
}
