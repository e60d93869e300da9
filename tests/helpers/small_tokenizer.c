#include "helpers/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "helpers/cm.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

#define MARK "\xe2\x96\x81"
#define TEXT_CAP ((size_t)1 << 20)

const struct small_merge small_byte_merges[] = {
    { "h", "e" },       { "l", "l" },           { "he", "ll" }, { "hell", "o" },
    { " ", "w" },       { "l", "o" },           { "o", "r" },   { " w", "or" },
    { "l", "d" },       { " wor", "ld" },       { " ", "t" },   { " t", "he" },
    { "\xe4", "\xb8" }, { "\xe4\xb8", "\xad" }, { " ", " " },   { NULL, NULL },
};

const struct small_merge small_character_merges[] = {
    { "h", "e" },  { "l", "l" },       { "he", "ll" }, { "hell", "o" }, { MARK, "hello" },
    { MARK, "t" }, { MARK "t", "he" }, { MARK, MARK }, { "l", "o" },    { NULL, NULL },
};

/* The text in the alphabet of byte-level vocabularies. */
static void write_letters(struct buf *out, const char *bytes)
{
    for (const uint8_t *p = (const uint8_t *)bytes; *p; p++) {
        const bool itself = (*p >= 0x21 && *p <= 0x7e) || (*p >= 0xa1 && *p != 0xad);
        unsigned n = *p; // its place among the bytes that do not stand for themselves
        if (*p >= 0x7f)
            n = *p == 0xad ? 67u : *p - 0x7fu + 33u;
        char letter[4];
        buf_add(out, letter, utf8_write(itself ? *p : 0x100u + n, letter));
    }
}

static void write_text(struct buf *out, bool byte_level, const char *left, const char *right)
{
    struct buf text;
    buf_init(&text, TEXT_CAP);
    if (byte_level) {
        write_letters(&text, left);
        write_letters(&text, right);
    } else {
        buf_printf(&text, "%s%s", left, right);
    }
    json_write_string(out, buf_view(&text));
    buf_release(&text);
}

/* The symbols; returns how many ids they took. */
static unsigned write_symbols(struct buf *out, bool byte_level)
{
    if (byte_level) {
        buf_add_text(out, "\"\\u0100\": 0"); // the letter of byte 0
        for (unsigned b = 1; b < 256; b++) {
            const char byte[] = { (char)b, '\0' };
            buf_add_text(out, ", ");
            write_text(out, true, byte, "");
            buf_printf(out, ": %u", b);
        }
        return 256;
    }
    buf_add_text(out, "\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2");
    for (unsigned b = 0; b < 256; b++)
        buf_printf(out, ", \"<0x%02X>\": %u", b, 3 + b);
    buf_add_text(out, ", \"" MARK "\": 259");
    for (unsigned i = 0; i < 26; i++)
        buf_printf(out, ", \"%c\": %u", 'a' + (int)i, 260 + i);
    return 286;
}

static void write_model(const struct small_tokenizer *small, struct buf *out, unsigned *id)
{
    buf_add_text(out, "\"model\": {\"type\": \"BPE\", \"vocab\": {");
    *id = write_symbols(out, small->byte_level);
    for (const struct small_merge *m = small->merges; m->left; m++) {
        buf_add_text(out, ", ");
        write_text(out, small->byte_level, m->left, m->right);
        buf_printf(out, ": %u", (*id)++);
    }
    buf_add_text(out, "}, \"merges\": [");
    for (const struct small_merge *m = small->merges; m->left; m++) {
        buf_add_text(out, m == small->merges ? "[" : ", [");
        write_text(out, small->byte_level, m->left, "");
        buf_add_text(out, ", ");
        write_text(out, small->byte_level, m->right, "");
        buf_add_char(out, ']');
    }
    buf_add_char(out, ']');
    if (!small->byte_level)
        buf_add_text(out,
                     ", \"byte_fallback\": true, \"fuse_unk\": true, \"unk_token\": \"<unk>\"");
    buf_printf(out, "%s}", small->model ? small->model : "");
}

static void write_added(const struct small_tokenizer *small, struct buf *out, unsigned id)
{
    buf_add_text(out, ", \"added_tokens\": [");
    struct str rest = small->added ? str_from(small->added) : STR_NONE, line;
    bool first = true;
    if (!small->byte_level) {
        buf_add_text(out, "{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
                          "{\"id\": 2, \"content\": \"</s>\", \"special\": true}");
        first = false;
    }
    while (small->added && str_split(&rest, '\n', &line)) {
        if (line.size == 0)
            continue;
        buf_printf(out, "%s{\"id\": %u, %.*s", first ? "" : ", ", id++, (int)line.size - 1,
                   line.data + 1);
        first = false;
    }
    buf_add_char(out, ']');
}

void small_tokenizer_write(const struct small_tokenizer *small, struct buf *out)
{
    static const char byte_level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}";
    static const char marks[] =
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"" MARK
        "\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK
        "\"}]}";
    static const char fallback[] =
        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
        "{\"String\": \"" MARK "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, "
        "{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
        "\"stop\": 0}]}";
    unsigned id;
    buf_add_char(out, '{');
    write_model(small, out, &id);
    write_added(small, out, id);
    buf_printf(out, ", \"normalizer\": %s",
               small->normalizer   ? small->normalizer
               : small->byte_level ? "null"
                                   : marks);
    buf_printf(out, ", \"pre_tokenizer\": %s",
               small->pretokenizer ? small->pretokenizer
               : small->byte_level ? byte_level
                                   : "null");
    buf_printf(out, ", \"post_processor\": %s", small->processor ? small->processor : "null");
    buf_printf(out, ", \"decoder\": %s}",
               small->decoder      ? small->decoder
               : small->byte_level ? byte_level
                                   : fallback);
}

struct tokenizer *small_tokenizer_load(const struct small_tokenizer *small)
{
    struct buf text;
    struct err err = { 0 };
    buf_init(&text, TEXT_CAP);
    small_tokenizer_write(small, &text);
    struct tokenizer *tokenizer = tokenizer_load_json(buf_view(&text), STR_NONE, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    buf_release(&text);
    return tokenizer;
}

char *small_tokenizer_ids(const struct tokenizer *tokenizer, const char *text, bool allow_control)
{
    struct token_list ids;
    struct buf out;
    struct err err = { 0 };
    const struct tokenizer_segment segment = { str_from(text), allow_control };
    token_list_init(&ids, TEXT_CAP);
    buf_init(&out, 16 * TEXT_CAP);
    buf_add(&out, "", 0);
    if (!tokenizer_encode(tokenizer, &segment, 1, NULL, &ids, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.n_ids; i++)
        buf_printf(&out, i ? " %u" : "%u", ids.ids[i]);
    token_list_release(&ids);
    return buf_take(&out);
}

void assert_small_ids(const struct tokenizer *tokenizer, const char *text, bool allow_control,
                      const char *ids)
{
    char *have = small_tokenizer_ids(tokenizer, text, allow_control);
    assert_string_equal(have, ids);
    free(have);
}
