/* The parts that loaders share: names that mean the end of generation or the structure of a
 * conversation, and the two ways in which vocabularies write bytes. */
#include "text/tokenizer_spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/vocab.h"

void tokenizer_spec_init(struct tokenizer_spec *spec)
{
    *spec = (struct tokenizer_spec){ .bos_id = VOCAB_NO_ID, .unknown_id = VOCAB_NO_ID };
    arena_init(&spec->arena, TOKENIZER_BYTES_CAP);
}

void tokenizer_spec_release(struct tokenizer_spec *spec)
{
    arena_release(&spec->arena);
    free(spec->tokens);
    free(spec->merges);
    free(spec->added);
    *spec = (struct tokenizer_spec){ 0 };
}

bool tokenizer_spec_add_end_id(struct tokenizer_spec *spec, uint32_t id, struct err *err)
{
    if (id >= spec->n_tokens)
        return err_set(err, ERR_FORMAT, "end-of-sequence id %u of a vocabulary of %zu", id,
                       spec->n_tokens);
    for (size_t i = 0; i < spec->n_end_ids; i++) {
        if (spec->end_ids[i] == id)
            return true;
    }
    if (spec->n_end_ids == TOKENIZER_END_IDS_CAP)
        return err_set(err, ERR_FORMAT, "more than %zu end-of-sequence ids", TOKENIZER_END_IDS_CAP);
    spec->end_ids[spec->n_end_ids++] = id;
    return true;
}

uint32_t tokenizer_spec_find(const struct tokenizer_spec *spec, struct str content)
{
    for (size_t i = spec->n_added; i-- > 0;) {
        if (str_equal(spec->added[i].content, content))
            return spec->added[i].id;
    }
    for (size_t id = 0; id < spec->n_tokens; id++) {
        if (spec->tokens[id].key.data && str_equal(spec->tokens[id].key, content))
            return (uint32_t)id;
    }
    return VOCAB_NO_ID;
}

/* The added token with this content, or NULL. */
static const struct tokenizer_spec_added *find_added(const struct tokenizer_spec *spec,
                                                     const char *content)
{
    for (size_t i = spec->n_added; i-- > 0;) {
        if (str_is(spec->added[i].content, content))
            return &spec->added[i];
    }
    return NULL;
}

bool tokenizer_spec_add_known_ends(struct tokenizer_spec *spec, struct err *err)
{
    static const char *const names[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|end_of_turn|>",
        "<end_of_turn>",
        "<turn|>",
        "<|return|>",
        "<|call|>",
        "</s>",
        "<|END_OF_TURN_TOKEN|>",
        "<|eot|>",
        "<|eom|>",
        "<EOT>",
        "[EOS]",
        "<\xef\xbd\234end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
        "<|end|>",
    };
    /* In harmony <|end|> ends a message of which more follow; there <|return|> ends an answer. */
    const bool harmony = find_added(spec, "<|return|>") && find_added(spec, "<|call|>");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct tokenizer_spec_added *added = find_added(spec, names[i]);
        if (!added || (harmony && strcmp(names[i], "<|end|>") == 0))
            continue;
        if (!tokenizer_spec_add_end_id(spec, added->id, err))
            return false;
    }
    return true;
}

/* "[INST]", "[/TOOL_CALLS]": capitals, digits and lines within brackets. */
static bool is_bracketed_capitals(struct str content)
{
    if (content.size < 4 || content.data[0] != '[' || !str_ends(content, STR("]")))
        return false;
    for (size_t i = content.data[1] == '/' ? 2 : 1; i + 1 < content.size; i++) {
        const char c = content.data[i];
        if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_')
            return false;
    }
    return true;
}

bool tokenizer_spec_is_structural(struct str content)
{
    static const char *const names[] = {
        "think",     "tool_call", "tool_response", "tools",    "tool",      "arg_key",
        "arg_value", "function",  "function_call", "thinking", "reasoning", "answer",
    };
    const struct str bar = STR("\xef\xbd\x9c"); // the full-width bar of DeepSeek's tokens
    if (is_bracketed_capitals(content))
        return true;
    if (content.size < 3 || content.data[0] != '<' || content.data[content.size - 1] != '>')
        return false;
    struct str inside = str_slice(content, 1, content.size - 1);
    if (inside.data[0] == '|' || inside.data[inside.size - 1] == '|' || str_starts(inside, bar) ||
        str_ends(inside, bar))
        return true;
    if (inside.data[0] == '/')
        inside = str_slice(inside, 1, inside.size);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_is(inside, names[i]))
            return true;
    }
    return false;
}

/* The alphabet of GPT-2: printable Latin-1 stands for itself, every other byte for U+0100 and on,
 * in order. */
static bool read_letter(uint32_t code_point, uint8_t *byte)
{
    if ((code_point >= 0x21 && code_point <= 0x7e) || (code_point >= 0xa1 && code_point <= 0xac) ||
        (code_point >= 0xae && code_point <= 0xff)) {
        *byte = (uint8_t)code_point;
        return true;
    }
    const uint32_t n = code_point - 0x100; // the n-th byte that does not stand for itself
    if (code_point < 0x100 || n >= 68)
        return false;
    *byte = (uint8_t)(n < 33 ? n : n < 67 ? n - 33 + 0x7f : 0xad);
    return true;
}

bool tokenizer_spec_read_letters(struct str text, char *bytes, size_t *n_bytes)
{
    size_t n = 0;
    while (text.size > 0) {
        uint32_t code_point;
        uint8_t byte;
        const size_t size = utf8_decode(text, &code_point);
        if (size == 0 || !read_letter(code_point, &byte))
            return false;
        bytes[n++] = (char)byte;
        text = str_slice(text, size, text.size);
    }
    *n_bytes = n;
    return true;
}

bool tokenizer_spec_read_byte(struct str text, uint8_t *byte)
{
    if (text.size != 6 || !str_starts(text, STR("<0x")) || text.data[5] != '>')
        return false;
    unsigned value = 0;
    for (size_t i = 3; i < 5; i++) {
        const char c = text.data[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + (unsigned)(c - '0');
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + (unsigned)(c - 'A') + 10;
        else
            return false;
    }
    *byte = (uint8_t)value;
    return true;
}
