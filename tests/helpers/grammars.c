#include "helpers/grammars.h"

#include <string.h>

#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "text/tokenizer.h"

static const struct small_merge merges[] = {
    { "\"", ":" },    { "\":", " " },  { "\"", "," },  { "\",", "\"" }, { "{", "\"" },
    { "\"", "}" },    { "}", "," },    { "},", "{" },  { "}", "}" },    { "]", "}" },
    { "\"", "]" },    { "[", "\"" },   { "1", "2" },   { "12", "3" },   { ",", "1" },
    { "1", "," },     { "1,", "1," },  { "a", "b" },   { "ab", "c" },   { "abc", "\"" },
    { "b", "\":" },   { "a", "\"," },  { " ", " " },   { "  ", "  " },  { "\n", "  " },
    { "r", "u" },     { "ru", "e" },   { "t", "rue" }, { "n", "u" },    { "\xc3", "\xa9" },
    { "a", "\xc3" },  { "\xa9", "b" }, { "[", "[" },   { "]", "]" },    { "\"", "\"" },
    { "\"\"", "," },  { "0", "." },    { "-", "1" },   { "\\", "n" },   { "\\", "\"" },
    { "\\\"", "\"" }, { "(", "(" },    { ")", ")" },   { "))", ")" },   { "1", "-" },
    { "a", "\":" },   { NULL, NULL },
};

void grammars_open(struct grammars *grammars)
{
    const struct small_tokenizer small = {
        .byte_level = true,
        .merges = merges,
        .added = "\n{\"content\": \"<end>\", \"special\": true}"
                 "\n{\"content\": \"<|other|>\", \"special\": true}"
                 "\n{\"content\": \"abcabc\", \"special\": false}",
    };
    struct err err = { 0 };
    uint32_t end;
    grammars->tokenizer = small_tokenizer_load(&small);
    assert_true(tokenizer_find(grammars->tokenizer, STR("<end>"), &end));
    assert_true(tokenizer_add_end_id(grammars->tokenizer, end, &err));
    grammars->trie =
        token_trie_new(grammars->tokenizer, (uint32_t)tokenizer_n_tokens(grammars->tokenizer) + 5);
}

void grammars_close(struct grammars *grammars)
{
    token_trie_free(grammars->trie);
    tokenizer_free(grammars->tokenizer);
}

struct grammar *grammars_compile(const struct grammars *grammars, enum sampling_language language,
                                 const char *text)
{
    const struct sampling_grammar source = { language, str_from(text) };
    struct err err = { 0 };
    struct grammar *grammar = grammar_new(&source, grammars->trie, &err);
    if (grammar == NULL)
        fail_msg("%s: %s", text, err.text);
    return grammar;
}

static bool match(struct grammar *grammar, const char *text)
{
    struct grammar_place place = { 0 };
    int32_t ids[4096];
    struct err err = { 0 };
    const size_t size = strlen(text);
    assert_true(size < sizeof ids / sizeof ids[0]);
    for (size_t i = 0; i < size; i++)
        ids[i] = (uint8_t)text[i];
    return grammar_follow(grammar, &place, ids, (uint32_t)size, &err) &&
           grammar_may_end(grammar, &place);
}

bool grammars_match(const struct grammars *grammars, enum sampling_language language,
                    const char *source, const char *text)
{
    struct grammar *grammar = grammars_compile(grammars, language, source);
    const bool matches = match(grammar, text);
    grammar_free(grammar);
    return matches;
}

void assert_grammar(const struct grammars *grammars, enum sampling_language language,
                    const char *source, const char *const *texts)
{
    struct grammar *grammar = grammars_compile(grammars, language, source);
    for (; *texts != NULL; texts++) {
        if (match(grammar, *texts + 1) != (**texts == '+'))
            fail_msg("%s: \"%s\" should %smatch", source, *texts + 1, **texts == '+' ? "" : "not ");
    }
    grammar_free(grammar);
}

void assert_no_grammar(enum sampling_language language, const char *source, enum err_code code,
                       const char *words)
{
    const struct sampling_grammar grammar = { language, str_from(source) };
    struct err err = { 0 };
    if (grammar_check(&grammar, &err))
        fail_msg("%s: it should not compile", source);
    if (err.code != code || strstr(err.text, words) == NULL)
        fail_msg("%s: \"%s\" (%s), which should have \"%s\"", source, err.text,
                 err_kind(err.code)->name, words);
}
