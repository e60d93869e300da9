/* Lays a spec out as an image.
 *
 * Two things are found out here so that encoding need not: which tokens are whole (a piece equal to
 * the token's key is that one token: nine pieces of ten are, and one look-up replaces the merging),
 * by merging each key with the image that is being made; and, for vocabularies without
 * pre-tokenizer, whether every blank mark begins a token, so that text may be cut there and a
 * megabyte need not be merged as one piece. */
#include "text/tokenizer_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

#define BLANK_MARK STR("\xe2\x96\x81") // U+2581

/* A section being written at the end of the image. */
static void begin_section(struct buf *image, struct tokenizer_image_section *section)
{
    static const char zeros[TOKENIZER_IMAGE_ALIGN];
    const size_t past = image->size % TOKENIZER_IMAGE_ALIGN;
    if (past)
        buf_add(image, zeros, TOKENIZER_IMAGE_ALIGN - past);
    section->first = (uint32_t)image->size;
}

static void end_section(struct buf *image, struct tokenizer_image_section *section)
{
    section->size = (uint32_t)(image->size - section->first);
}

static void add_section(struct buf *image, struct tokenizer_image_section *section,
                        const void *bytes, size_t size)
{
    begin_section(image, section);
    buf_add(image, bytes, size);
    end_section(image, section);
}

static uint32_t power_of_two(size_t least)
{
    uint32_t n = 16;
    while (n < least)
        n *= 2;
    return n;
}

/* The string's place in SECTION_BYTES. */
static uint32_t keep(struct buf *strings, struct str s)
{
    const uint32_t first = (uint32_t)strings->size;
    buf_add_str(strings, s);
    return first;
}

static bool check_spec(const struct tokenizer_spec *spec, struct err *err)
{
    if (spec->n_tokens == 0 || spec->n_tokens > TOKENIZER_TOKENS_CAP)
        return err_set(err, ERR_FORMAT, "a vocabulary of %zu tokens (at most %u)", spec->n_tokens,
                       TOKENIZER_TOKENS_CAP);
    if (spec->n_merges > TOKENIZER_MERGES_CAP || spec->n_added > TOKENIZER_ADDED_CAP)
        return err_set(err, ERR_FORMAT, "%zu merges and %zu added tokens (at most %zu and %zu)",
                       spec->n_merges, spec->n_added, TOKENIZER_MERGES_CAP, TOKENIZER_ADDED_CAP);
    for (size_t i = 0; i < spec->n_tokens; i++) {
        if (spec->tokens[i].key.size > TOKENIZER_TOKEN_BYTES_CAP ||
            spec->tokens[i].text.size > TOKENIZER_TOKEN_BYTES_CAP)
            return err_set(err, ERR_FORMAT, "token %zu has more than %zu bytes", i,
                           TOKENIZER_TOKEN_BYTES_CAP);
    }
    return true;
}

static void add_tokens(const struct tokenizer_spec *spec, struct tokenizer_image_header *header,
                       struct buf *image, struct buf *strings)
{
    const size_t n = spec->n_tokens;
    uint32_t *ends = xcalloc(n + 1, sizeof ends[0]);
    uint8_t *flags = xcalloc(n, 1);
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        const struct tokenizer_spec_token *token = &spec->tokens[i];
        ends[i] = keep(strings, token->key);
        same = same && str_equal(token->key, token->text);
        flags[i] =
            (uint8_t)((token->in_model ? VOCAB_MODEL : 0) | (token->special ? VOCAB_SPECIAL : 0) |
                      (token->control ? VOCAB_CONTROL : 0));
    }
    ends[n] = (uint32_t)strings->size;
    add_section(image, &header->sections[SECTION_KEY_ENDS], ends, (n + 1) * sizeof ends[0]);
    header->sections[SECTION_TEXT_ENDS] = header->sections[SECTION_KEY_ENDS];
    if (!same) {
        for (size_t i = 0; i < n; i++)
            ends[i] = keep(strings, spec->tokens[i].text);
        ends[n] = (uint32_t)strings->size;
        add_section(image, &header->sections[SECTION_TEXT_ENDS], ends, (n + 1) * sizeof ends[0]);
    }
    add_section(image, &header->sections[SECTION_FLAGS], flags, n);
    free(ends);
    free(flags);
}

static void add_slots(const struct tokenizer_spec *spec, struct tokenizer_image_header *header,
                      struct buf *image, const struct buf *strings)
{
    size_t n_model = 0;
    for (size_t i = 0; i < spec->n_tokens; i++)
        n_model += spec->tokens[i].in_model;
    const uint32_t n_slots = power_of_two(2 * n_model);
    struct tokenizer_image_section *section = &header->sections[SECTION_SLOTS];
    begin_section(image, section);
    uint32_t *slots = buf_reserve(image, n_slots * sizeof slots[0]);
    if (!slots)
        return;
    const struct vocab vocab = {
        .n_tokens = (uint32_t)spec->n_tokens,
        .key_ends = (const void *)(image->data + header->sections[SECTION_KEY_ENDS].first),
        .bytes = strings->data,
        .flags = (const void *)(image->data + header->sections[SECTION_FLAGS].first),
    };
    vocab_index(&vocab, slots, n_slots - 1);
    image->size += n_slots * sizeof slots[0];
    end_section(image, section);
}

/* Merges whose result is a control token are left out: a user's text must not become one. */
static bool add_merges(const struct tokenizer_spec *spec, struct tokenizer_image_header *header,
                       struct buf *image, struct err *err)
{
    struct bpe_merge *merges = xcalloc(spec->n_merges ? spec->n_merges : 1, sizeof merges[0]);
    size_t n = 0;
    bool good = true;
    for (size_t i = 0; good && i < spec->n_merges; i++) {
        const struct bpe_merge *merge = &spec->merges[i];
        if (merge->left >= spec->n_tokens || merge->right >= spec->n_tokens ||
            merge->id >= spec->n_tokens || merge->rank == UINT32_MAX)
            good = err_set(err, ERR_FORMAT, "merge %zu names an id outside the vocabulary", i);
        else if (!spec->tokens[merge->id].control)
            merges[n++] = *merge;
    }
    const uint32_t n_slots = power_of_two(n + n / 2 + 1);
    struct tokenizer_image_section *section = &header->sections[SECTION_MERGES];
    begin_section(image, section);
    struct bpe_merge *slots = good ? buf_reserve(image, n_slots * sizeof slots[0]) : NULL;
    if (slots) {
        bpe_index(merges, n, slots, n_slots - 1);
        image->size += n_slots * sizeof slots[0];
    }
    end_section(image, section);
    free(merges);
    return good;
}

/* An added token with what text is searched for. */
struct sought {
    struct str content;
    struct added_token token;
    size_t order; // in the spec: the last of equals counts
};

static int compare_sought(const void *a, const void *b)
{
    const struct sought *x = a, *y = b;
    const int order = str_compare(x->content, y->content);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static uint32_t added_flags(const struct tokenizer_spec *spec,
                            const struct tokenizer_spec_added *added)
{
    return (added->single_word ? ADDED_TOKEN_SINGLE_WORD : 0u) |
           (added->left_strip ? ADDED_TOKEN_LEFT_STRIP : 0u) |
           (added->right_strip ? ADDED_TOKEN_RIGHT_STRIP : 0u) |
           (spec->tokens[added->id].control ? ADDED_TOKEN_CONTROL : 0u);
}

/* The added tokens of one kind, as text will be searched for them. False on failure. */
static bool find_sought(const struct tokenizer_spec *spec, bool normalized, struct arena *arena,
                        struct sought *sought, size_t *n_sought, struct err *err)
{
    struct normalizer *normalizer = normalizer_new(spec->normalizers, spec->n_normalizers, err);
    if (!normalizer)
        return false;
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    bool good = true;
    *n_sought = 0;
    for (size_t i = 0; good && i < spec->n_added; i++) {
        const struct tokenizer_spec_added *added = &spec->added[i];
        if (added->normalized != normalized || added->content.size == 0)
            continue;
        struct marked_text text = { .text = added->content };
        if (added->id >= spec->n_tokens || !utf8_valid(added->content))
            good = err_set(err, ERR_FORMAT, "added token %zu is no UTF-8 text or has no id", i);
        else if (normalized)
            good = normalizer_run(normalizer, scratch, text, TOKENIZER_TOKEN_BYTES_CAP, &text, err);
        if (good && text.text.size > 0)
            sought[(*n_sought)++] = (struct sought){
                .content = arena_str(arena, text.text),
                .token = { .id = added->id, .flags = added_flags(spec, added) },
                .order = i,
            };
    }
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
    return good;
}

static bool add_added(const struct tokenizer_spec *spec, bool normalized,
                      struct tokenizer_image_section *section, struct buf *image,
                      struct buf *strings, struct err *err)
{
    struct arena arena;
    arena_init(&arena, TOKENIZER_BYTES_CAP);
    struct sought *sought = xcalloc(spec->n_added ? spec->n_added : 1, sizeof sought[0]);
    size_t n = 0;
    const bool good = find_sought(spec, normalized, &arena, sought, &n, err);
    qsort(sought, n, sizeof sought[0], compare_sought);
    begin_section(image, section);
    for (size_t i = 0; good && i < n; i++) {
        if (i + 1 < n && str_equal(sought[i].content, sought[i + 1].content))
            continue;
        sought[i].token.first = keep(strings, sought[i].content);
        sought[i].token.size = (uint32_t)sought[i].content.size;
        buf_add(image, &sought[i].token, sizeof sought[i].token);
    }
    end_section(image, section);
    free(sought);
    arena_release(&arena);
    return good;
}

static void add_rules(const struct tokenizer_spec *spec, struct tokenizer_image_header *header,
                      struct buf *image, struct buf *strings)
{
    begin_section(image, &header->sections[SECTION_NORMALIZERS]);
    for (size_t i = 0; i < spec->n_normalizers; i++) {
        const struct normalizer_rule *rule = &spec->normalizers[i];
        const struct tokenizer_image_rule out = {
            .kind = rule->kind,
            .detail = (rule->left ? 1u : 0u) | (rule->right ? 2u : 0u),
            .find_first = keep(strings, rule->find),
            .find_size = (uint32_t)rule->find.size,
            .with_first = keep(strings, rule->with),
            .with_size = (uint32_t)rule->with.size,
        };
        buf_add(image, &out, sizeof out);
    }
    end_section(image, &header->sections[SECTION_NORMALIZERS]);
    begin_section(image, &header->sections[SECTION_PRETOKENS]);
    for (size_t i = 0; i < spec->n_pretokens; i++) {
        const struct pretoken_rule *rule = &spec->pretokens[i];
        const struct tokenizer_image_rule out = {
            .kind = rule->kind,
            .detail = (uint32_t)rule->behaviour | (rule->invert ? 1u << 8 : 0u) |
                      (uint32_t)rule->prefix << 16,
            .find_first = keep(strings, rule->pattern),
            .find_size = (uint32_t)rule->pattern.size,
        };
        buf_add(image, &out, sizeof out);
    }
    end_section(image, &header->sections[SECTION_PRETOKENS]);
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void add_ids(const struct tokenizer_spec *spec, struct tokenizer_image_header *header,
                    struct buf *image)
{
    uint32_t ends[TOKENIZER_END_IDS_CAP];
    memcpy(ends, spec->end_ids, spec->n_end_ids * sizeof ends[0]);
    qsort(ends, spec->n_end_ids, sizeof ends[0], compare_ids);
    add_section(image, &header->sections[SECTION_BEFORE], spec->before,
                spec->n_before * sizeof spec->before[0]);
    add_section(image, &header->sections[SECTION_BEHIND], spec->behind,
                spec->n_behind * sizeof spec->behind[0]);
    add_section(image, &header->sections[SECTION_END_IDS], ends, spec->n_end_ids * sizeof ends[0]);
}

/* Whether text may be cut in front of each blank mark that has another character before it: no
 * token of the model reaches over such a place, and no run of unknown characters could. */
static bool can_cut_at_marks(const struct tokenizer_spec *spec)
{
    if (spec->byte_level || spec->ignore_merges ||
        (spec->unknown_id != VOCAB_NO_ID && !spec->byte_fallback))
        return false;
    for (size_t i = 0; i < spec->n_tokens; i++) {
        struct str rest = spec->tokens[i].key;
        if (!spec->tokens[i].in_model || rest.size == 0)
            continue;
        while (str_starts(rest, BLANK_MARK))
            rest = str_slice(rest, BLANK_MARK.size, rest.size);
        if (str_find(rest, BLANK_MARK) != SIZE_MAX)
            return false;
    }
    return true;
}

static uint32_t header_flags(const struct tokenizer_spec *spec)
{
    return (spec->byte_level ? TOKENIZER_IMAGE_BYTE_LEVEL : 0u) |
           (spec->byte_fallback ? TOKENIZER_IMAGE_BYTE_FALLBACK : 0u) |
           (spec->fuse_unknown ? TOKENIZER_IMAGE_FUSE_UNKNOWN : 0u) |
           (can_cut_at_marks(spec) ? TOKENIZER_IMAGE_CUT_AT_MARKS : 0u);
}

/* Sets VOCAB_WHOLE where it is true. */
static bool mark_whole(const struct tokenizer_spec *spec, struct buf *image, struct err *err)
{
    struct tokenizer tokenizer;
    if (!tokenizer_view(&tokenizer, buf_view(image), err))
        return false;
    uint8_t *flags = (uint8_t *)image->data + tokenizer.header->sections[SECTION_FLAGS].first;
    struct token_list ids;
    token_list_init(&ids, TOKENIZER_TOKEN_BYTES_CAP);
    struct tokenizer_work *work = tokenizer_work_new(&tokenizer, &ids);
    bool good = true;
    for (uint32_t id = 0; good && id < spec->n_tokens; id++) {
        const struct str key = spec->tokens[id].key;
        if (!spec->tokens[id].in_model || spec->tokens[id].control || key.size == 0 ||
            vocab_find(&tokenizer.vocab, key) != id || !(spec->byte_level || utf8_valid(key)))
            continue;
        bool whole = spec->ignore_merges;
        if (!whole) {
            token_list_clear(&ids);
            good = tokenizer_encode_piece(work, key, true, err);
            whole = ids.n_ids == 1 && ids.ids[0] == id;
        }
        if (whole)
            flags[id] |= VOCAB_WHOLE;
    }
    tokenizer_work_free(work);
    token_list_release(&ids);
    tokenizer_view_release(&tokenizer);
    return good;
}

bool tokenizer_compile(const struct tokenizer_spec *spec, struct buf *image, struct err *err)
{
    if (!check_spec(spec, err))
        return false;
    struct tokenizer_image_header header = {
        .magic = TOKENIZER_IMAGE_MAGIC,
        .source_hash = spec->source_hash,
        .version = TOKENIZER_IMAGE_VERSION,
        .n_tokens = (uint32_t)spec->n_tokens,
        .bos_id = spec->bos_id,
        .unknown_id = spec->unknown_id,
        .flags = header_flags(spec),
        .start = spec->start,
        .n_strip = spec->n_strip,
    };
    struct buf strings;
    buf_init(&strings, TOKENIZER_BYTES_CAP);
    buf_add(&strings, "", 1); // so that there is a byte to point at
    buf_clear(image);
    buf_add(image, &header, sizeof header);
    add_tokens(spec, &header, image, &strings);
    bool good = true;
    if (buf_ok(image) && buf_ok(&strings)) {
        add_slots(spec, &header, image, &strings);
        good = add_merges(spec, &header, image, err) &&
               add_added(spec, false, &header.sections[SECTION_ADDED], image, &strings, err) &&
               add_added(spec, true, &header.sections[SECTION_ADDED_NORMAL], image, &strings, err);
        add_rules(spec, &header, image, &strings);
        add_ids(spec, &header, image);
        add_section(image, &header.sections[SECTION_BYTES], strings.data, strings.size);
    }
    if (good && (!buf_ok(image) || !buf_ok(&strings)))
        good = err_set(err, ERR_FORMAT, "a tokenizer of more than %zu bytes", TOKENIZER_BYTES_CAP);
    buf_release(&strings);
    if (!good)
        return false;
    header.size = (uint32_t)image->size;
    memcpy(image->data, &header, sizeof header);
    if (!mark_whole(spec, image, err))
        return false;
    header.hash = tokenizer_image_hash((const uint8_t *)image->data, image->size);
    memcpy(image->data, &header, sizeof header);
    return true;
}
