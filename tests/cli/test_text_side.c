/* The text side of a model directory: which template wins, what it may print, which sampling is
 * recommended, and what is refused. */
#include "cli/text_side.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "helpers/cm.h"
#include "helpers/temporary.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tokenizer_bin.h"
#include "text/tokenizer_mock.h"

static void put(const char *directory, const char *name, const char *text)
{
    char *const path = path_join(directory, name);
    struct err err = { 0 };

    assert_true(file_write_atomic(path, str_from(text), &err));
    free(path);
}

/* A directory with the mock model's tokenizer; ended with temporary_remove. */
static char *make_model(void)
{
    char *const directory = temporary_dir();
    char *const path = path_join(directory, "tokenizer.bin");
    struct tokenizer *const tokenizer = tokenizer_load_mock();
    struct err err = { 0 };

    assert_true(tokenizer_write_bin(tokenizer, path, &err));
    tokenizer_free(tokenizer);
    free(path);
    return directory;
}

static void assert_renders(const struct text_side *side, const char *expected)
{
    struct err err = { 0 };
    struct json *const messages = json_parse(STR("[{\"role\":\"user\",\"content\":\"hi\"}]"), &err);
    struct chat_prompt prompt = { 0 };

    if (!chat_render(side->chat,
                     &(struct chat_request){ .messages = messages, .add_generation_prompt = true },
                     &prompt, &err))
        fail_msg("%s", err.text);
    assert_int_equal(prompt.size, strlen(expected));
    assert_memory_equal(prompt.bytes, expected, prompt.size);
    chat_prompt_release(&prompt);
    json_free(messages);
}

static void test_the_mock_model(void **state)
{
    struct text_side side;
    struct err err = { 0 };
    (void)state;

    assert_true(text_side_open(&side, NULL, NULL, &err));
    assert_int_equal(tokenizer_n_tokens(side.tokenizer), TOKENIZER_MOCK_N_TOKENS);
    assert_true(tokenizer_is_end(side.tokenizer, TOKENIZER_MOCK_END));
    assert_renders(&side, "<|user|>hi<|end|><|assistant|>");
    assert_true(side.defaults.temperature == 1 && side.defaults.top_p == 1);
    text_side_close(&side);
    assert_null(side.tokenizer);
}

static void test_a_directory(void **state)
{
    char *const model = make_model();
    struct text_side side;
    struct err err = { 0 };
    (void)state;

    put(model, "config.json", "{\"eos_token_id\": [259, 256]}");
    put(model, "generation_config.json",
        "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, "
        "\"repetition_penalty\": 1.05, \"min_p\": null, \"eos_token_id\": 257}");
    put(model, "chat_template.jinja",
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}[{{ bos_token }}]");
    if (!text_side_open(&side, model, NULL, &err))
        fail_msg("%s", err.text);
    assert_renders(&side, "hi<|end|>[]");
    assert_true(side.defaults.temperature == 0.6f && side.defaults.top_p == 0.95f);
    assert_true(side.defaults.top_k == 20 && side.defaults.min_p == 0);
    assert_true(side.defaults.repetition_penalty == 1.05f);
    assert_true(tokenizer_is_end(side.tokenizer, 256) && tokenizer_is_end(side.tokenizer, 257));
    text_side_close(&side);

    put(model, "generation_config.json", "{\"temperature\": -1, \"top_p\": 7}");
    assert_true(text_side_open(&side, model, NULL, &err));
    assert_true(side.defaults.temperature == 1 && side.defaults.top_p == 1); // ignored, with a word
    text_side_close(&side);
    temporary_remove(model);
}

static void test_other_templates(void **state)
{
    char *const model = make_model();
    char *const file = path_join(model, "other.jinja");
    struct text_side side;
    struct err err = { 0 };
    (void)state;

    assert_true(text_side_open(&side, model, NULL, &err)); // none at all
    assert_null(side.chat);
    text_side_close(&side);

    put(model, "other.jinja", "({% for m in messages %}{{ m.content }}{% endfor %})");
    assert_true(text_side_open(&side, model, file, &err));
    assert_renders(&side, "(hi)");
    text_side_close(&side);

    assert_true(text_side_open(&side, model, "chatml", &err));
    assert_renders(&side, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    text_side_close(&side);

    assert_false(text_side_open(&side, model, "no-such-template", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "chatml")); // the list
    free(file);
    temporary_remove(model);
}

static void test_what_is_refused(void **state)
{
    char *const model = make_model();
    char *const empty = temporary_dir();
    struct text_side side;
    struct err err = { 0 };
    (void)state;

    assert_false(text_side_open(&side, empty, NULL, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_null(side.tokenizer);
    put(model, "chat_template.jinja", "{% for message in %}");
    assert_false(text_side_open(&side, model, NULL, &err));
    assert_non_null(strstr(err.text, "chat template"));
    put(model, "chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    put(model, "generation_config.json", "{\"temperature\": }");
    assert_false(text_side_open(&side, model, NULL, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    temporary_remove(empty);
    temporary_remove(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mock_model),
        cmocka_unit_test(test_a_directory),
        cmocka_unit_test(test_other_templates),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("text_side", tests, NULL, NULL);
}
