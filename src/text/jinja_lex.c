/* Source to tokens, with Jinja's rules of white space.
 *
 * Outside of tags everything is data. trim_blocks drops one newline behind a block or comment tag,
 * lstrip_blocks drops the blanks of a line before one; a minus sign in a tag eats all white space
 * on its side, a plus sign none. Line ends become LF first and one final newline is dropped, so
 * offsets in the normalised copy, which data tokens view, are all that later parts see.
 * A closing delimiter counts only when brackets are balanced: `{{ {'a': {}} }}`. */
#include "text/jinja_internal.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode_case.h"

#define BRACKETS_CAP 512

struct lexer {
    struct arena *arena;
    struct str source; // normalised
    size_t at;
    uint32_t line;
    bool line_starts; // the text that was read last ended with a newline
    char brackets[BRACKETS_CAP];
    size_t n_brackets;
    struct jinja_tokens *out;
    struct err *err;
};

static bool fail(struct lexer *lexer, const char *sentence)
{
    return err_set(lexer->err, ERR_FORMAT, "line %u: %s", lexer->line, sentence);
}

static bool out_of_memory(struct lexer *lexer)
{
    return err_set(lexer->err, ERR_NO_MEMORY, "the template needs more than %zu bytes",
                   lexer->arena->used_bytes_cap);
}

static bool add_token(struct lexer *lexer, struct jinja_token token)
{
    struct jinja_tokens *tokens = lexer->out;
    if (tokens->size == tokens->room) {
        size_t room = tokens->room ? tokens->room * 2 : 64;
        struct jinja_token *items = arena_array(lexer->arena, room, sizeof *items);
        if (!items)
            return out_of_memory(lexer);
        if (tokens->size > 0)
            memcpy(items, tokens->items, tokens->size * sizeof *items);
        tokens->items = items;
        tokens->room = room;
    }
    token.line = lexer->line;
    tokens->items[tokens->size++] = token;
    return true;
}

static bool add(struct lexer *lexer, enum jinja_token_type type, struct str text)
{
    return add_token(lexer, (struct jinja_token){ .type = type, .text = text });
}

static struct str rest(const struct lexer *lexer)
{
    return str_slice(lexer->source, lexer->at, lexer->source.size);
}

static bool looking_at(const struct lexer *lexer, const char *text)
{
    return str_starts(rest(lexer), str_from(text));
}

static void advance(struct lexer *lexer, size_t size)
{
    for (size_t i = 0; i < size; i++)
        lexer->line += lexer->source.data[lexer->at + i] == '\n';
    lexer->at += size;
    if (size > 0)
        lexer->line_starts = lexer->source.data[lexer->at - 1] == '\n';
}

/* Bytes of white space at `at`. */
static size_t space_size(struct str text, size_t at)
{
    size_t end = at;
    while (end < text.size) {
        size_t next = end;
        if (!unicode_is_space(jinja_next_point(text, &next)))
            break;
        end = next;
    }
    return end - at;
}

/* The text without white space at its end. */
static struct str trim_end(struct str text)
{
    while (text.size > 0) {
        size_t start = text.size - 1;
        while (start > 0 && ((unsigned char)text.data[start] & 0xc0) == 0x80)
            start--;
        size_t next = start;
        if (!unicode_is_space(jinja_next_point(text, &next)))
            break;
        text.size = start;
    }
    return text;
}

/* Behind "%}", "#}" or "}}": what the tag's sign and trim_blocks eat. */
static void skip_behind_tag(struct lexer *lexer, char sign, bool trim)
{
    if (sign == '-')
        advance(lexer, space_size(lexer->source, lexer->at));
    else if (sign != '+' && trim && looking_at(lexer, "\n"))
        advance(lexer, 1);
}

/* What is left of the data before a tag that starts at the lexer's position. */
static struct str data_before_tag(struct str data, char sign, bool is_variable, bool line_started)
{
    if (sign == '-')
        return trim_end(data);
    if (sign == '+' || is_variable)
        return data;
    size_t line = data.size;
    while (line > 0 && data.data[line - 1] != '\n')
        line--;
    if ((line > 0 || line_started) && line + space_size(data, line) == data.size)
        data.size = line;
    return data;
}

/* ---- literals and operators inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* Digits of a base with single underscores between them: 1_000. Returns the size. */
static size_t digits_size(struct str text, size_t at, int base, bool leading_underscore)
{
    size_t end = at;
    while (end < text.size) {
        size_t next = end;
        if (text.data[next] == '_' && (next > at || leading_underscore))
            next++;
        if (next >= text.size || digit_value(text.data[next]) >= base)
            break;
        end = next + 1;
    }
    return end - at;
}

static size_t exponent_size(struct str text, size_t at)
{
    if (at >= text.size || (text.data[at] | 0x20) != 'e')
        return 0;
    size_t digits = at + 1;
    if (digits < text.size && (text.data[digits] == '+' || text.data[digits] == '-'))
        digits++;
    size_t size = digits_size(text, digits, 10, false);
    return size == 0 ? 0 : digits + size - at;
}

/* Size of a float literal at the lexer's position, or 0. Behind a dot there are none: `x.0.a`. */
static size_t float_size(const struct lexer *lexer)
{
    struct str text = rest(lexer);
    if (lexer->at > 0 && lexer->source.data[lexer->at - 1] == '.')
        return 0;
    size_t size = digits_size(text, 0, 10, false);
    if (size == 0)
        return 0;
    size_t fraction = 0;
    if (size < text.size && text.data[size] == '.') {
        fraction = digits_size(text, size + 1, 10, false);
        fraction += fraction > 0;
    }
    size_t exponent = exponent_size(text, size + fraction);
    return fraction + exponent > 0 ? size + fraction + exponent : 0;
}

static bool lex_float(struct lexer *lexer, size_t size)
{
    char digits[128];
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        char c = lexer->source.data[lexer->at + i];
        if (c != '_' && n + 1 < sizeof digits)
            digits[n++] = c;
        else if (c != '_')
            return fail(lexer, "a number is longer than 127 digits");
    }
    digits[n] = '\0';
    struct jinja_token token = { .type = TOKEN_FLOAT,
                                 .text = str_slice(rest(lexer), 0, size),
                                 .real = strtod(digits, NULL) };
    if (!add_token(lexer, token))
        return false;
    advance(lexer, size);
    return true;
}

static bool lex_integer(struct lexer *lexer)
{
    struct str text = rest(lexer);
    int base = 10;
    size_t prefix = 0, size = 0;
    if (text.data[0] == '0' && text.size > 1) {
        char kind = (char)(text.data[1] | 0x20);
        base = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 10;
        prefix = base == 10 ? 0 : 2;
        size = base == 10 ? 0 : digits_size(text, 2, base, true);
    }
    if (size == 0) { // "0x" alone is a zero and a name; "012" a zero and a twelve
        base = text.data[0] == '0' ? 1 : 10;
        prefix = 0;
        size = digits_size(text, 0, base, false);
    }
    int64_t number = 0;
    for (size_t i = prefix; i < prefix + size; i++)
        if (text.data[i] != '_' &&
            (__builtin_mul_overflow(number, base, &number) ||
             __builtin_add_overflow(number, digit_value(text.data[i]), &number)))
            return fail(lexer, "an integer does not fit 64 bits");
    struct jinja_token token = { .type = TOKEN_INTEGER,
                                 .text = str_slice(text, 0, prefix + size),
                                 .integer = number };
    if (!add_token(lexer, token))
        return false;
    advance(lexer, prefix + size);
    return true;
}

/* Size of a name at the lexer's position, or 0. */
static size_t name_size(const struct lexer *lexer)
{
    size_t at = lexer->at;
    while (at < lexer->source.size) {
        size_t next = at;
        if (!unicode_is_word(jinja_next_point(lexer->source, &next)))
            break;
        at = next;
    }
    return at - lexer->at;
}

struct escape {
    const char *data; // the whole literal
    size_t size, at;  // behind the backslash and its letter
};

/* `digits` hexadecimal digits (exactly) or up to 3 octal ones. */
static bool read_code(struct escape *escape, int base, size_t digits, uint32_t *out)
{
    uint32_t code = 0;
    size_t n = 0;
    for (; n < digits && escape->at < escape->size; n++, escape->at++) {
        int digit = digit_value(escape->data[escape->at]);
        if (digit >= base)
            break;
        code = code * (uint32_t)base + (uint32_t)digit;
    }
    *out = code;
    return base == 8 || n == digits;
}

static bool write_code(struct lexer *lexer, struct traced_builder *text, uint32_t code)
{
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return fail(lexer, "a string literal holds a code point that is no character");
    traced_add_point(text, code, true);
    return true;
}

/* A backslash before a character beyond ASCII: Python writes the character's number instead. */
static void write_number_escape(struct traced_builder *text, uint32_t point)
{
    static const char hex[] = "0123456789abcdef";
    int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
    char out[10] = { '\\', digits == 2 ? 'x' : digits == 4 ? 'u' : 'U' };
    for (int i = 0; i < digits; i++)
        out[2 + i] = hex[point >> 4 * (digits - 1 - i) & 15];
    traced_add(text, (struct str){ out + 1, (size_t)digits + 1 }, true);
}

static bool unescape_one(struct lexer *lexer, struct escape *escape, struct traced_builder *text)
{
    static const char letters[] = "\\'\"abfnrtv", meanings[] = "\\'\"\a\b\f\n\r\t\v";
    char letter = escape->data[escape->at++];
    const char *found = letter ? strchr(letters, letter) : NULL;
    uint32_t code;
    if (found) {
        traced_add(text, (struct str){ &meanings[found - letters], 1 }, true);
        return true;
    }
    if (letter == '\n')
        return true;
    if (letter >= '0' && letter <= '7') {
        escape->at--;
        return read_code(escape, 8, 3, &code) && write_code(lexer, text, code);
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
        if (!read_code(escape, 16, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, &code))
            return fail(lexer, "a \\x, \\u or \\U escape is cut short");
        return write_code(lexer, text, code);
    }
    if (letter == 'N')
        return fail(lexer, "\\N escapes are not supported");
    traced_add(text, STR("\\"), true);
    escape->at--;
    if ((unsigned char)letter >= 0x80) {
        struct str all = { escape->data, escape->size };
        uint32_t point = jinja_next_point(all, &escape->at);
        write_number_escape(text, point);
    }
    return true;
}

/* Text between the quotes to what it means. */
static bool unescape(struct lexer *lexer, struct str raw, struct str *out)
{
    struct escape escape = { raw.data, raw.size, 0 };
    struct traced_builder text;
    traced_begin(&text, lexer->arena, raw.size * 3 + 16);
    while (escape.at < escape.size) {
        const char *from = raw.data + escape.at;
        const char *backslash = memchr(from, '\\', raw.size - escape.at);
        size_t plain = backslash ? (size_t)(backslash - from) : raw.size - escape.at;
        traced_add(&text, (struct str){ from, plain }, true);
        escape.at += plain;
        if (!backslash)
            break;
        escape.at++;
        if (!unescape_one(lexer, &escape, &text))
            return false;
    }
    struct traced traced;
    if (!traced_finish(&text, &traced))
        return out_of_memory(lexer);
    *out = traced_str(traced);
    return true;
}

static bool lex_string(struct lexer *lexer)
{
    struct str text = rest(lexer);
    size_t end = 1;
    while (end < text.size && text.data[end] != text.data[0])
        end += text.data[end] == '\\' ? 2 : 1;
    if (end >= text.size)
        return fail(lexer, "a string literal is not closed");
    struct str raw = str_slice(text, 1, end), meaning = raw;
    if (memchr(raw.data, '\\', raw.size) && !unescape(lexer, raw, &meaning))
        return false;
    if (!add(lexer, TOKEN_STRING, meaning))
        return false;
    advance(lexer, end + 1);
    return true;
}

static const struct {
    const char *text;
    enum jinja_token_type type;
} operators[] = {
    // the longer ones first
    { "//", TOKEN_FLOORDIV }, { "**", TOKEN_POW },      { "==", TOKEN_EQ },
    { "!=", TOKEN_NE },       { ">=", TOKEN_GTEQ },     { "<=", TOKEN_LTEQ },
    { "+", TOKEN_ADD },       { "-", TOKEN_SUB },       { "/", TOKEN_DIV },
    { "*", TOKEN_MUL },       { "%", TOKEN_MOD },       { "~", TOKEN_TILDE },
    { "[", TOKEN_LBRACKET },  { "]", TOKEN_RBRACKET },  { "(", TOKEN_LPAREN },
    { ")", TOKEN_RPAREN },    { "{", TOKEN_LBRACE },    { "}", TOKEN_RBRACE },
    { ">", TOKEN_GT },        { "<", TOKEN_LT },        { "=", TOKEN_ASSIGN },
    { ".", TOKEN_DOT },       { ":", TOKEN_COLON },     { "|", TOKEN_PIPE },
    { ",", TOKEN_COMMA },     { ";", TOKEN_SEMICOLON },
};

static bool balance(struct lexer *lexer, enum jinja_token_type type)
{
    char closes = type == TOKEN_LBRACE     ? '}'
                  : type == TOKEN_LPAREN   ? ')'
                  : type == TOKEN_LBRACKET ? ']'
                                           : '\0';
    if (closes) {
        if (lexer->n_brackets == BRACKETS_CAP)
            return fail(lexer, "limit of parse depth: too many open brackets");
        lexer->brackets[lexer->n_brackets++] = closes;
        return true;
    }
    if (type != TOKEN_RBRACE && type != TOKEN_RPAREN && type != TOKEN_RBRACKET)
        return true;
    char is = lexer->source.data[lexer->at];
    if (lexer->n_brackets == 0)
        return err_set(lexer->err, ERR_FORMAT, "line %u: unexpected '%c'", lexer->line, is);
    char wanted = lexer->brackets[--lexer->n_brackets];
    if (wanted != is)
        return err_set(lexer->err, ERR_FORMAT, "line %u: unexpected '%c', expected '%c'",
                       lexer->line, is, wanted);
    return true;
}

static bool lex_operator(struct lexer *lexer)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!looking_at(lexer, operators[i].text))
            continue;
        struct str text = str_from(operators[i].text);
        if (!balance(lexer, operators[i].type) || !add(lexer, operators[i].type, text))
            return false;
        advance(lexer, text.size);
        return true;
    }
    size_t end = lexer->at;
    jinja_next_point(lexer->source, &end);
    return err_set(lexer->err, ERR_FORMAT, "line %u: unexpected character '%.*s'", lexer->line,
                   (int)(end - lexer->at), lexer->source.data + lexer->at);
}

static bool lex_inside_tag_once(struct lexer *lexer)
{
    size_t size = space_size(lexer->source, lexer->at);
    if (size > 0) {
        advance(lexer, size);
        return true;
    }
    char c = lexer->source.data[lexer->at];
    if (is_digit(c)) {
        size = float_size(lexer);
        return size > 0 ? lex_float(lexer, size) : lex_integer(lexer);
    }
    size = name_size(lexer);
    if (size > 0) {
        if (!add(lexer, TOKEN_NAME, str_slice(rest(lexer), 0, size)))
            return false;
        advance(lexer, size);
        return true;
    }
    return c == '\'' || c == '"' ? lex_string(lexer) : lex_operator(lexer);
}

/* "%}" or "}}" with an optional sign: the size of the delimiter, or 0. A plus is for blocks. */
static size_t closing_size(const struct lexer *lexer, bool is_variable, char *sign)
{
    const char *plain = is_variable ? "}}" : "%}";
    struct str text = rest(lexer);
    *sign = text.size > 0 ? text.data[0] : '\0';
    if (*sign == '-' || (*sign == '+' && !is_variable))
        return str_starts(str_slice(text, 1, text.size), str_from(plain)) ? 3 : 0;
    *sign = '\0';
    return str_starts(text, str_from(plain)) ? 2 : 0;
}

static bool lex_tag(struct lexer *lexer, bool is_variable)
{
    if (!add(lexer, is_variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, STR_NONE))
        return false;
    lexer->n_brackets = 0;
    while (lexer->at < lexer->source.size) {
        char sign;
        size_t size = lexer->n_brackets == 0 ? closing_size(lexer, is_variable, &sign) : 0;
        if (size == 0) {
            if (!lex_inside_tag_once(lexer))
                return false;
            continue;
        }
        if (!add(lexer, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, STR_NONE))
            return false;
        advance(lexer, size);
        skip_behind_tag(lexer, sign, !is_variable);
        return true;
    }
    return true; // the parser meets the end of the template
}

static bool lex_comment(struct lexer *lexer)
{
    size_t end = str_find(rest(lexer), STR("#}"));
    if (lexer->at == lexer->source.size) // Jinja2 lets a comment that begins at the very end pass
        return true;
    if (end == SIZE_MAX)
        return fail(lexer, "a comment is not closed");
    char sign = end > 0 ? rest(lexer).data[end - 1] : '\0';
    advance(lexer, end + 2);
    skip_behind_tag(lexer, sign, true);
    return true;
}

/* Size of "{%- raw -%}" (or endraw) at `at` in the source, or 0; the signs in front and behind. */
static size_t raw_tag_size(struct str source, size_t at, const char *word, char *front,
                           char *behind)
{
    struct str text = str_slice(source, at, source.size);
    if (!str_starts(text, STR("{%")))
        return 0;
    size_t end = 2;
    *front = end < text.size ? text.data[end] : '\0';
    end += *front == '-' || *front == '+';
    end += space_size(text, end);
    if (!str_starts(str_slice(text, end, text.size), str_from(word)))
        return 0;
    end += strlen(word);
    end += space_size(text, end);
    *behind = end < text.size ? text.data[end] : '\0';
    end += *behind == '-' || *behind == '+';
    return str_starts(str_slice(text, end, text.size), STR("%}")) ? end + 2 : 0;
}

/* Behind {% raw %}: data up to {% endraw %}. */
static bool lex_raw(struct lexer *lexer)
{
    for (size_t at = lexer->at; at < lexer->source.size; at++) {
        char front, behind;
        size_t size = raw_tag_size(lexer->source, at, "endraw", &front, &behind);
        if (size == 0)
            continue;
        struct str data = str_slice(lexer->source, lexer->at, at);
        data = data_before_tag(data, front, false, lexer->line_starts);
        if (data.size > 0 && !add(lexer, TOKEN_DATA, data))
            return false;
        advance(lexer, at + size - lexer->at);
        skip_behind_tag(lexer, behind, true);
        return true;
    }
    return lexer->at == lexer->source.size || fail(lexer, "{% raw %} is not closed");
}

/* Offset of the next "{{", "{%" or "{#", or the end. */
static size_t next_tag(const struct lexer *lexer)
{
    struct str source = lexer->source;
    for (size_t at = lexer->at; at + 1 < source.size; at++) {
        const char *brace = memchr(source.data + at, '{', source.size - 1 - at);
        if (!brace)
            break;
        at = (size_t)(brace - source.data);
        char kind = source.data[at + 1];
        if (kind == '{' || kind == '%' || kind == '#')
            return at;
    }
    return source.size;
}

/* Data, then one tag. */
static bool lex_root_once(struct lexer *lexer)
{
    size_t tag = next_tag(lexer);
    struct str data = str_slice(lexer->source, lexer->at, tag);
    bool line_started = lexer->line_starts;
    if (tag == lexer->source.size) {
        bool ok = add(lexer, TOKEN_DATA, data);
        advance(lexer, data.size);
        return ok;
    }
    char kind = lexer->source.data[tag + 1];
    char sign = tag + 2 < lexer->source.size ? lexer->source.data[tag + 2] : '\0';
    char behind;
    size_t raw = kind == '%' ? raw_tag_size(lexer->source, tag, "raw", &sign, &behind) : 0;
    if (raw > 0 && behind == '+')
        raw = 0;
    struct str kept = data_before_tag(data, sign, kind == '{', line_started);
    if (kept.size > 0 && !add(lexer, TOKEN_DATA, kept))
        return false;
    advance(lexer, data.size);
    if (raw > 0) {
        advance(lexer, raw);
        skip_behind_tag(lexer, behind, false);
        return lex_raw(lexer);
    }
    advance(lexer, sign == '-' || sign == '+' ? 3 : 2);
    return kind == '#' ? lex_comment(lexer) : lex_tag(lexer, kind == '{');
}

/* A copy with LF line ends and without one final newline. */
static bool normalise(struct lexer *lexer, struct str source)
{
    char *copy = arena_alloc(lexer->arena, source.size + 1);
    if (!copy)
        return out_of_memory(lexer);
    size_t size = 0;
    for (size_t i = 0; i < source.size; i++) {
        if (source.data[i] == '\r' && i + 1 < source.size && source.data[i + 1] == '\n')
            continue;
        copy[size++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (size > 0 && copy[size - 1] == '\n')
        size--;
    lexer->source = (struct str){ copy, size };
    return true;
}

bool jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *out, struct err *err)
{
    *out = (struct jinja_tokens){ 0 };
    struct lexer lexer = { .arena = arena, .line = 1, .line_starts = true, .out = out, .err = err };
    if (!utf8_valid(source))
        return err_set(err, ERR_FORMAT, "the template is not valid UTF-8");
    if (!normalise(&lexer, source))
        return false;
    while (lexer.at < lexer.source.size)
        if (!lex_root_once(&lexer))
            return false;
    return add(&lexer, TOKEN_EOF, STR_NONE);
}

struct str jinja_token_name(const struct jinja_token *token)
{
    switch (token->type) {
    case TOKEN_DATA:
        return STR("template text");
    case TOKEN_VARIABLE_BEGIN:
        return STR("{{");
    case TOKEN_VARIABLE_END:
        return STR("}}");
    case TOKEN_BLOCK_BEGIN:
        return STR("{%");
    case TOKEN_BLOCK_END:
        return STR("%}");
    case TOKEN_EOF:
        return STR("end of template");
    default:
        return token->text;
    }
}
