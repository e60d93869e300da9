#include "base/option.h"
#include "helpers/cm.h"

#include <string.h>

struct sample {
    bool force;
    uint32_t group;
    uint64_t memory;
    double ratio;
    const char *name;
    const char *kind;
    struct option_list peers;
};

static const struct option_row rows[] = {
    OPTION_BOOL(struct sample, force, "force", "overwrite"),
    OPTION_U32(struct sample, group, "group-size", "N", 32, 128, "weights that share a scale"),
    OPTION_BYTES(struct sample, memory, "kv-memory", "pool of pages"),
    OPTION_DOUBLE(struct sample, ratio, "ratio", "X", 0, 1, "a share"),
    OPTION_TEXT(struct sample, name, "name", "TEXT", "a name"),
    OPTION_CHOICE(struct sample, kind, "kind", "a|bb|c", "a kind"),
    OPTION_LIST(struct sample, peers, "peer", "HOST",
                "a peer, about which there is so much to say that it does not fit one line of a "
                "terminal and goes on"),
    OPTION_END,
};

static bool parse(struct sample *sample, const char *line, const char **words, size_t *n_words,
                  struct err *err)
{
    static char copy[512];
    char *argv[32], *save = NULL;
    int argc = 0;
    struct option_table table = { NULL, rows, sample };
    strncpy(copy, line, sizeof copy - 1);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    return option_parse(&table, 1, argc, argv, words, 2, n_words, err);
}

static void test_values_of_every_type(void **state)
{
    struct sample s = { .group = 32 };
    const char *words[2];
    size_t n_words = 0;
    struct err err = { 0 };
    (void)state;
    assert_true(parse(&s,
                      "in --force --group-size=64 --kv-memory 1.5GiB --ratio .5 --name x=y "
                      "--kind bb --peer a --peer b -- --out",
                      words, &n_words, &err));
    assert_true(s.force && s.group == 64 && s.memory == (uint64_t)3 << 29 && s.ratio == .5);
    assert_string_equal(s.name, "x=y");
    assert_string_equal(s.kind, "bb");
    assert_int_equal(s.peers.n_items, 2);
    assert_int_equal(n_words, 2);
    assert_string_equal(words[1], "--out");
    assert_true(parse(&s, "--force=off", words, &n_words, &err) && !s.force);
}

static void refuse(const char *line, const char *sentence)
{
    struct sample s = { .group = 32 };
    const char *words[2];
    size_t n_words = 0;
    struct err err = { 0 };
    assert_false(parse(&s, line, words, &n_words, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    if (!strstr(err.text, sentence))
        fail_msg("\"%s\" says \"%s\", not \"%s\"", line, err.text, sentence);
}

static void test_bad_values_are_named(void **state)
{
    (void)state;
    refuse("--group-size 16", "from 32 to 128");
    refuse("--group-size 4294967328", "from 32 to 128");
    refuse("--group-size", "needs a value");
    refuse("--grop-size 32", "did you mean --group-size");
    refuse("--whatever", "unknown option --whatever");
    refuse("-x", "unknown option -x");
    refuse("--force=maybe", "on or off");
    refuse("--kind b", "one of a|bb|c");
    refuse("--kv-memory 12X", "a size such as");
    refuse("--kv-memory G", "a size such as");
    refuse("a b c", "one word too many");
}

static void test_help_shows_defaults(void **state)
{
    struct sample s = { .group = 32, .kind = "a", .memory = 3 << 20 };
    struct option_table table = { "the options", rows, &s };
    struct buf out;
    (void)state;
    buf_init(&out, 10000);
    option_help(&table, 1, &out);
    assert_non_null(strstr(out.data, "the options:\n"));
    assert_non_null(strstr(out.data, "--group-size N"));
    assert_non_null(strstr(out.data, "(default 32)"));
    assert_non_null(strstr(out.data, "(default a)"));
    assert_non_null(strstr(out.data, "(default 3M)"));
    assert_non_null(strstr(out.data, "may be repeated"));
    struct str rest = buf_view(&out), line;
    while (str_split(&rest, '\n', &line))
        assert_true(line.size <= 100);
    assert_non_null(
        strstr(out.data, "\n                              line of a terminal and goes on"));
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_every_type),
        cmocka_unit_test(test_bad_values_are_named),
        cmocka_unit_test(test_help_shows_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
