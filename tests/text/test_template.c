/* Templates: every construct against what Python's jinja2 gives (tools/reference/templates.py), the
 * limits, and the origin of bytes. */
#include "base/clock.h"
#include "base/json.h"
#include "helpers/cm.h"
#include "text/template.h"

#include <stdio.h>
#include <stdlib.h>

static bool render(const char *source, const struct value *context,
                   const struct template_limits *limits, struct rendering *out, struct err *err)
{
    struct template_options options = { .limits = limits, .now_unix_seconds = 1700000000 };
    struct template *template = template_compile(str_from(source), err);
    bool ok = template && template_render(template, context, &options, out, err);
    template_free(template);
    return ok;
}

/* ---- against jinja2 ---- */

static void check_case(const struct json *test, const struct json *golden,
                       const struct value *context, size_t *n_wrong)
{
    struct err err = { 0 };
    struct rendering out = { 0 };
    struct template_options options = { .now_unix_seconds = 1700000000 };
    struct str source = json_text(json_get(test, "template"));
    struct template *template = template_compile(source, &err);
    bool ok = template && template_render(template, context, &options, &out, &err);
    bool raises = json_bool(json_get(golden, "raises"), false);
    struct str expected = json_text(json_get(golden, "text"));
    struct str text = { out.bytes, out.size };
    if (ok == raises || (ok && !str_equal(text, expected))) {
        (*n_wrong)++;
        print_error("%.*s: %.*s\n  jinja2   %.*s\n  cascadia %.*s\n",
                    STR_ARG(json_text(json_get(test, "name"))), STR_ARG(source),
                    STR_ARG(raises ? STR("raises") : expected),
                    STR_ARG(ok ? text : str_from(err.text)));
    }
    template_free(template);
    rendering_release(&out);
}

static void test_equals_jinja2(void **state)
{
    struct err err = { 0 };
    struct arena arena;
    struct value context;
    size_t n_wrong = 0;
    (void)state;
    setenv("TZ", "UTC", 1);
    struct json *cases =
        json_parse_file(SOURCE_DIR "/tests/text/template_cases.json", 1 << 24, &err);
    struct json *golden =
        json_parse_file(SOURCE_DIR "/tests/text/template_golden.json", 1 << 24, &err);
    if (!cases || !golden)
        fail_msg("%s", err.text);
    arena_init(&arena, 1 << 24);
    assert_true(value_from_json(&arena, json_get(cases, "context"), false, &context, &err));
    const struct json *list = json_get(cases, "cases");
    assert_int_equal(json_size(list), json_size(golden));
    assert_true(json_size(list) > 400);
    for (size_t i = 0; i < json_size(list); i++)
        check_case(json_at(list, i), json_at(golden, i), &context, &n_wrong);
    assert_int_equal(n_wrong, 0);
    arena_release(&arena);
    json_free(cases);
    json_free(golden);
}

/* ---- limits ---- */

static void assert_limit(const char *source, enum err_code code, const char *named)
{
    struct err err = { 0 };
    struct rendering out = { 0 };
    struct value context;
    struct arena arena;
    struct template_limits limits = template_limits_default;
    limits.time_ms_cap = 60000; // on a busy machine the others must still come first
    arena_init(&arena, 1 << 20);
    assert_true(value_dict_new(&arena, &context));
    uint64_t begin = clock_ms();
    if (render(source, &context, &limits, &out, &err))
        fail_msg("no limit stopped: %.80s", source);
    if (err.code != code || !strstr(err.text, named))
        fail_msg("%.80s: expected '%s' (%d), got %d: %s", source, named, code, err.code, err.text);
    assert_true(clock_ms() - begin < 20000); // generous: the sanitizers are slow
    arena_release(&arena);
}

/* `count` times `piece`, between `front` and `behind`. */
static char *repeated(const char *front, const char *piece, size_t count, const char *behind)
{
    struct buf text;
    buf_init(&text, 1 << 26);
    buf_add_text(&text, front);
    for (size_t i = 0; i < count; i++)
        buf_add_text(&text, piece);
    buf_add_text(&text, behind);
    return buf_take(&text);
}

static void assert_repeated_limit(const char *front, const char *piece, size_t count,
                                  const char *behind, enum err_code code, const char *named)
{
    char *source = repeated(front, piece, count, behind);
    assert_limit(source, code, named);
    free(source);
}

static void test_deep_sources_are_refused(void **state)
{
    (void)state;
    assert_repeated_limit("{{ ", "(", 5000, "", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ ", "(", 200, "1", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ ", "[", 200, "1", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ ", "not ", 5000, "1 }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ ", "- ", 5000, "1 }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ x", ".y", 5000, " }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ x", "|e", 5000, " }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ x", "()", 5000, " }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("{{ 1", " if 1 else 1", 5000, " }}", ERR_FORMAT, "parse depth");
    assert_repeated_limit("", "{% if 1 %}", 5000, "", ERR_FORMAT, "parse depth");
    assert_repeated_limit("", "{% macro m() %}", 5000, "", ERR_FORMAT, "parse depth");
    assert_repeated_limit("", "x", TEMPLATE_SOURCE_BYTES_CAP + 1, "", ERR_FORMAT,
                          "template source");
}

static void test_wide_sources_are_fine(void **state)
{
    struct err err = { 0 };
    struct value context = { .type = VALUE_NONE };
    char *sum = repeated("{{ 1", " + 1", 20000, " }}");
    char *choice = repeated("{% if 0 %}", "{% elif 0 %}", 10000, "{% else %}yes{% endif %}");
    struct rendering out;
    (void)state;
    assert_true(render(sum, &context, NULL, &out, &err));
    assert_string_equal(out.bytes, "20001");
    rendering_release(&out);
    assert_true(render(choice, &context, NULL, &out, &err));
    assert_string_equal(out.bytes, "yes");
    rendering_release(&out);
    free(sum);
    free(choice);
}

static void test_endless_work_is_stopped(void **state)
{
    (void)state;
    assert_limit("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
                 ERR_ARGUMENT, "limit of steps");
    assert_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_ARGUMENT,
                 "limit of macro recursion");
    assert_limit("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", ERR_ARGUMENT,
                 "limit of macro recursion");
    assert_limit("{{ 'x' * 1000000000 }}", ERR_ARGUMENT, "limit of string size");
    assert_limit("{{ 'x' * 16000000 ~ 'x' * 16000000 }}", ERR_ARGUMENT, "limit of string size");
    assert_limit("{{ [1] * 1000000000 }}", ERR_ARGUMENT, "limit of steps");
    assert_limit("{{ range(100001) }}", ERR_ARGUMENT, "Range too big");
    assert_limit("{{ 'ab'.center(1000000000) }}", ERR_ARGUMENT, "limit of string size");
    assert_limit("{{ 'x'|indent(1000000000) }}", ERR_ARGUMENT, "limit of string size");
    assert_limit("{{ ('x' * 1000000).replace('x', 'y' * 1000) }}", ERR_ARGUMENT,
                 "limit of string size");
    assert_limit("{% set ns = namespace(s='x') %}{% for i in range(100) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 ERR_ARGUMENT, "limit of string size");
    assert_limit("{% set ns = namespace(a=[]) %}{% for i in range(100) %}"
                 "{% set ns.a = ns.a + ns.a + [1] %}{% endfor %}",
                 ERR_NO_MEMORY, "limit of memory");
    assert_repeated_limit("{% for i in range(100000) %}", "0123456789", 100, "{% endfor %}",
                          ERR_ARGUMENT, "limit of output size");
    assert_limit("{{ 9223372036854775807 + 1 }}", ERR_ARGUMENT, "limit of integers");
    assert_limit("{{ 10 ** 30 }}", ERR_ARGUMENT, "limit of integers");
    assert_limit("{{ -(-9223372036854775807 - 1) }}", ERR_ARGUMENT, "limit of integers");
    assert_limit("{{ 9223372036854775808 }}", ERR_FORMAT, "64 bits");
}

static void test_deep_values_are_refused(void **state)
{
    (void)state;
    static const char nest[] = "{% set ns = namespace(a=[]) %}{% for i in range(500) %}"
                               "{% set ns.a = [ns.a] %}{% endfor %}";
    static const char *const uses[] = { "{{ ns.a }}", "{{ ns.a|tojson }}", "{{ ns.a < [ns.a] }}" };
    for (size_t i = 0; i < 2; i++) {
        char *source = repeated(nest, uses[i], 1, "");
        assert_limit(source, ERR_ARGUMENT, "limit of evaluation depth");
        free(source);
    }
    assert_limit("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", ERR_ARGUMENT,
                 "limit of evaluation depth");
    assert_limit(
        "{% macro m(n) %}{% if n %}{% if n %}{% if n %}{% if n %}{% if n %}{% if n %}"
        "{% if n %}{% if n %}{% if n %}{% if n %}{% if n %}{{ m(n - 1) }}{% endif %}{% endif %}"
        "{% endif %}{% endif %}{% endif %}{% endif %}{% endif %}{% endif %}{% endif %}"
        "{% endif %}{% endif %}{% endmacro %}{{ m(1000) }}",
        ERR_ARGUMENT, "limit of");
}

static void test_limits_can_be_set(void **state)
{
    struct template_limits limits = template_limits_default;
    struct value context = { .type = VALUE_NONE };
    struct rendering out;
    struct err err = { 0 };
    (void)state;
    limits.time_ms_cap = 0;
    assert_false(render("{% for i in range(10000) %}{% endfor %}", &context, &limits, &out, &err));
    assert_int_equal(err.code, ERR_TIMEOUT);
    struct arena arena;
    struct value many, messages;
    static const char walk[] = "{% for i in range(300) %}{{ i }}{% endfor %}";
    limits = template_limits_default;
    limits.steps_cap = 100;
    assert_false(render(walk, &context, &limits, &out, &err));
    arena_init(&arena, 1 << 16);
    assert_true(value_dict_new(&arena, &many));
    assert_true(value_list_new(&arena, VALUE_LIST, &messages));
    assert_true(value_list_add(&arena, &messages, context));
    assert_true(value_dict_put(&arena, &many, "messages", messages));
    assert_true(render(walk, &many, &limits, &out, &err)); // a message raises the limit
    rendering_release(&out);
    arena_release(&arena);
    limits = template_limits_default;
    limits.output_bytes_cap = 3;
    assert_true(render("abc", &context, &limits, &out, &err));
    rendering_release(&out);
    assert_false(render("abcd", &context, &limits, &out, &err));
    assert_non_null(strstr(err.text, "limit of output size"));
}

/* ---- origins ---- */

/* The rendering with the bytes of the request in brackets. */
static void assert_origins(const char *source, const char *expected)
{
    struct err err = { 0 };
    struct arena arena;
    struct value context;
    struct rendering out = { 0 };
    struct buf shown;
    struct json *json =
        json_parse(STR("{\"u\":\"<|x|>\",\"s\":\" aB \",\"l\":[\"p\",\"q\"],\"d\":{\"k\":\"v\\n\"},"
                       "\"n\":5,\"m\":\"a,b\"}"),
                   &err);
    arena_init(&arena, 1 << 20);
    assert_true(value_from_json(&arena, json, false, &context, &err));
    if (!render(source, &context, NULL, &out, &err))
        fail_msg("%s: %s", source, err.text);
    buf_init(&shown, 1 << 16);
    size_t at = 0;
    for (size_t i = 0; i < out.n_runs; i++) {
        bool request = !out.runs[i].from_template;
        buf_add_text(&shown, request ? "[" : "");
        buf_add(&shown, out.bytes + at, out.runs[i].end - at);
        buf_add_text(&shown, request ? "]" : "");
        at = out.runs[i].end;
    }
    assert_int_equal(at, out.size);
    assert_string_equal(shown.size ? shown.data : "", expected);
    buf_release(&shown);
    rendering_release(&out);
    arena_release(&arena);
    json_free(json);
}

static void test_bytes_know_their_origin(void **state)
{
    (void)state;
    assert_origins("<|a|>{{ u }}<|b|>", "<|a|>[<|x|>]<|b|>");
    assert_origins("{{ '<' + u + '>' }}", "<[<|x|>]>");
    assert_origins("{{ '<' ~ u ~ '>' }}{{ n }}", "<[<|x|>]>5");
    assert_origins("{{ u[1:3] }}{{ u[::-1] }}{{ u[0] }}", "[|x>|x|<<]");
    assert_origins("{{ ('<' + s + '>')|trim|upper }}", "<[ AB ]>");
    assert_origins("{{ s|trim }}{{ s.strip() }}{{ s|lower }}{{ s.title() }}", "[aBaB ab  Ab ]");
    assert_origins("{{ l|join('-') }}{{ l }}", "[p]-[q]['[p]', '[q]']");
    assert_origins("{{ d|tojson }}{{ d }}", "{\"[k]\": \"[v\\n]\"}{'[k]': '[v\\n]'}");
    assert_origins("{{ m|replace(',', ';') }}{{ m.replace('a', 'X') }}", "[a];[b]X[,b]");
    assert_origins("{{ 'a,b'|replace('a', u) }}", "[<|x|>],b");
    assert_origins("{{ m.split(',')[1] }}{{ '-'.join(m.split(',')) }}", "[ba]-[b]");
    assert_origins("{{ '%s=%s' % (u, 1) }}{{ '{}!'.format(u) }}", "[<|x|>]=1[<|x|>]!");
    assert_origins("{{ s * 2 }}{{ s.center(6, '*') }}", "[ aB  aB ]*[ aB ]*");
    assert_origins("{% set x %}a{{ u }}b{% endset %}{{ x }}", "a[<|x|>]b");
    assert_origins("{% macro f(v) %}({{ v }}){% endmacro %}{{ f(u) }}{{ f(u)[1:] }}",
                   "([<|x|>])[<|x|>])");
    assert_origins("{% for c in m %}{{ c }}.{% endfor %}", "[a].[,].[b].");
    assert_origins("{{ u|e }}{{ '<'|e }}{{ ('<'|safe) + u }}", "[&lt;|x|&gt;]&lt;<[&lt;|x|&gt;]");
    assert_origins(
        "{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
        "[kk]");
    assert_origins("{{ namespace(**d).k|trim }}{{ dict(**d) }}", "[v]{'[k]': '[v\\n]'}");
    assert_origins("{{ m|indent(2, true) }}{{ u|string }}{{ u|default('z') }}",
                   "  [a,b<|x|><|x|>]");
    assert_origins("{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t + '<' + x %}"
                   "{% endfor %}{{ ns.t }}",
                   "<[p]<[q]");
}

/* A text that grew in place must not change the texts that were views of it. */
static void test_values_do_not_change_behind_their_names(void **state)
{
    (void)state;
    assert_origins("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}"
                   "{{ a }}{{ b }}{{ c }}{{ b + c }}{{ a + a }}{{ a[1:] + 'z' }}{{ b }}",
                   "xyxy1xy2xy1xy2xyxyyzxy1");
}

static void test_errors_tell_the_line(void **state)
{
    struct err err = { 0 };
    struct value context = { .type = VALUE_NONE };
    struct rendering out;
    (void)state;
    assert_false(render("a\n{{ 1 }}\n{{ x.y }}", &context, NULL, &out, &err));
    assert_string_equal(err.text, "template line 3: 'x' is undefined");
    assert_false(render("a\n{% if %}", &context, NULL, &out, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_non_null(strstr(err.text, "line 2"));
    assert_false(render("{{ raise_exception('Only ' ~ 1) }}", &context, NULL, &out, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_string_equal(err.text, "Only 1");
    assert_false(render("{% include 'x' %}", &context, NULL, &out, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_jinja2),
        cmocka_unit_test(test_deep_sources_are_refused),
        cmocka_unit_test(test_wide_sources_are_fine),
        cmocka_unit_test(test_endless_work_is_stopped),
        cmocka_unit_test(test_deep_values_are_refused),
        cmocka_unit_test(test_limits_can_be_set),
        cmocka_unit_test(test_bytes_know_their_origin),
        cmocka_unit_test(test_values_do_not_change_behind_their_names),
        cmocka_unit_test(test_errors_tell_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
