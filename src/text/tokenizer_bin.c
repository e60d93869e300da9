/* Opening an image: first that each section is where the header says and holds what it may (after
 * that no index needs to be looked at again), then pointers into it.
 *
 * The checks are independent of the hash, which says only that the file is as it was written. */
#include "text/tokenizer_bin.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "text/tokenizer.h"
#include "text/tokenizer_internal.h"

/* An image under examination. */
struct check {
    const uint8_t *image;
    const struct tokenizer_image_header *header;
    struct err *err;
};

static bool bad(const struct check *check, const char *what)
{
    return err_set(check->err, ERR_FORMAT, "tokenizer.bin: %s", what);
}

static const void *section_data(const struct tokenizer_image_header *header, size_t section)
{
    return (const uint8_t *)header + header->sections[section].first;
}

static size_t section_items(const struct tokenizer_image_header *header, size_t section,
                            size_t item_bytes)
{
    return header->sections[section].size / item_bytes;
}

uint64_t tokenizer_image_hash(const uint8_t *image, size_t size)
{
    const size_t first = offsetof(struct tokenizer_image_header, source_hash);
    return hash_xxh3(image + first, size - first);
}

static bool check_header(const struct check *check, size_t size)
{
    const struct tokenizer_image_header *header = check->header;
    if (size < sizeof *header || header->magic != TOKENIZER_IMAGE_MAGIC)
        return bad(check, "this is no compiled tokenizer");
    if (header->version != TOKENIZER_IMAGE_VERSION)
        return err_set(check->err, ERR_UNSUPPORTED,
                       "tokenizer.bin has version %u; this program reads %u: make the shard again",
                       header->version, TOKENIZER_IMAGE_VERSION);
    if (header->size != size)
        return err_set(check->err, ERR_FORMAT, "tokenizer.bin: %zu bytes instead of %u", size,
                       header->size);
    if (header->hash != tokenizer_image_hash(check->image, size))
        return err_set(check->err, ERR_CORRUPT, "tokenizer.bin: its hash does not agree");
    return true;
}

static bool check_sections(const struct check *check)
{
    static const size_t item_bytes[SECTION_COUNT] = {
        [SECTION_KEY_ENDS] = 4,
        [SECTION_TEXT_ENDS] = 4,
        [SECTION_FLAGS] = 1,
        [SECTION_SLOTS] = 4,
        [SECTION_MERGES] = sizeof(struct bpe_merge),
        [SECTION_ADDED] = sizeof(struct added_token),
        [SECTION_ADDED_NORMAL] = sizeof(struct added_token),
        [SECTION_NORMALIZERS] = sizeof(struct tokenizer_image_rule),
        [SECTION_PRETOKENS] = sizeof(struct tokenizer_image_rule),
        [SECTION_BEFORE] = 4,
        [SECTION_BEHIND] = 4,
        [SECTION_END_IDS] = 4,
        [SECTION_BYTES] = 1,
    };
    const struct tokenizer_image_header *header = check->header;
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        const struct tokenizer_image_section *section = &header->sections[i];
        if (section->first % TOKENIZER_IMAGE_ALIGN || section->first > header->size ||
            section->size > header->size - section->first || section->size % item_bytes[i])
            return bad(check, "a section is out of place");
    }
    const size_t n = header->n_tokens;
    if (n == 0 || n > TOKENIZER_TOKENS_CAP || section_items(header, SECTION_KEY_ENDS, 4) != n + 1 ||
        section_items(header, SECTION_TEXT_ENDS, 4) != n + 1 ||
        section_items(header, SECTION_FLAGS, 1) != n)
        return bad(check, "the vocabulary's sections disagree");
    if (section_items(header, SECTION_BEFORE, 4) > TOKENIZER_AROUND_CAP ||
        section_items(header, SECTION_BEHIND, 4) > TOKENIZER_AROUND_CAP ||
        section_items(header, SECTION_END_IDS, 4) > TOKENIZER_END_IDS_CAP ||
        header->sections[SECTION_NORMALIZERS].size >
            TOKENIZER_RULES_CAP * sizeof(struct tokenizer_image_rule) ||
        header->sections[SECTION_PRETOKENS].size >
            TOKENIZER_RULES_CAP * sizeof(struct tokenizer_image_rule))
        return bad(check, "more rules or ids than there may be");
    return true;
}

static bool good_id(const struct check *check, uint32_t id, bool may_be_none)
{
    return id < check->header->n_tokens || (may_be_none && id == VOCAB_NO_ID);
}

static bool check_ends(const struct check *check, size_t section)
{
    const uint32_t *ends = section_data(check->header, section);
    const uint32_t size = check->header->sections[SECTION_BYTES].size;
    for (size_t i = 0; i < check->header->n_tokens; i++) {
        if (ends[i] > ends[i + 1] || ends[i + 1] - ends[i] > TOKENIZER_TOKEN_BYTES_CAP)
            return bad(check, "a token's bytes are out of order");
    }
    return ends[check->header->n_tokens] <= size ||
           bad(check, "a token's bytes are outside the file");
}

static bool is_power_of_two(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

static bool check_tables(const struct check *check)
{
    const struct tokenizer_image_header *header = check->header;
    const size_t n_slots = section_items(header, SECTION_SLOTS, sizeof(uint32_t));
    const size_t n_merges = section_items(header, SECTION_MERGES, sizeof(struct bpe_merge));
    if (!is_power_of_two(n_slots) || !is_power_of_two(n_merges))
        return bad(check, "a hash table's size is no power of two");
    const uint32_t *slots = section_data(header, SECTION_SLOTS);
    for (size_t i = 0; i < n_slots; i++) {
        if (!good_id(check, slots[i], true))
            return bad(check, "the table of tokens names an id outside the vocabulary");
    }
    const struct bpe_merge *merges = section_data(header, SECTION_MERGES);
    for (size_t i = 0; i < n_merges; i++) {
        const struct bpe_merge *merge = &merges[i];
        if (merge->left != BPE_NO_ID &&
            !(good_id(check, merge->left, false) && good_id(check, merge->right, false) &&
              good_id(check, merge->id, false) && merge->rank != UINT32_MAX))
            return bad(check, "the table of merges names an id outside the vocabulary");
    }
    return true;
}

/* The string, when it is inside the file and UTF-8; data NULL otherwise. */
static struct str checked_text(const struct check *check, uint32_t first, uint32_t size)
{
    const struct tokenizer_image_section *bytes = &check->header->sections[SECTION_BYTES];
    if (first > bytes->size || size > bytes->size - first)
        return STR_NONE;
    const struct str text = { (const char *)check->image + bytes->first + first, size };
    return utf8_valid(text) ? text : STR_NONE;
}

static bool check_added(const struct check *check, size_t section)
{
    const struct added_token *added = section_data(check->header, section);
    const size_t n = section_items(check->header, section, sizeof added[0]);
    struct str before = STR("");
    if (n > TOKENIZER_ADDED_CAP)
        return bad(check, "more added tokens than there may be");
    for (size_t i = 0; i < n; i++) {
        const struct str text = checked_text(check, added[i].first, added[i].size);
        if (!text.data || text.size == 0 || str_compare(before, text) >= 0 ||
            !good_id(check, added[i].id, false))
            return bad(check, "a bad added token");
        before = text;
    }
    return true;
}

static bool check_rules(const struct check *check, size_t section)
{
    const struct tokenizer_image_rule *rules = section_data(check->header, section);
    const size_t n = section_items(check->header, section, sizeof rules[0]);
    for (size_t i = 0; i < n; i++) {
        const struct tokenizer_image_rule *rule = &rules[i];
        const struct str find = checked_text(check, rule->find_first, rule->find_size);
        if (!find.data || !checked_text(check, rule->with_first, rule->with_size).data)
            return bad(check, "a rule's text is no UTF-8");
        if (section == SECTION_NORMALIZERS) {
            if (rule->kind == 0 || rule->kind >= NORMALIZER_KIND_END || rule->detail > 3)
                return bad(check, "an unknown normalizer");
            continue;
        }
        const bool needs_text =
            rule->kind == PRETOKEN_SPLIT_TEXT || rule->kind == PRETOKEN_METASPACE;
        if (rule->kind == 0 || rule->kind >= PRETOKEN_KIND_END ||
            (rule->detail & 0xff) >= PRETOKEN_BEHAVIOUR_END || (rule->detail >> 8 & 0xff) > 1 ||
            rule->detail >> 16 >= PRETOKEN_PREFIX_END || (needs_text && find.size == 0))
            return bad(check, "an unknown pre-tokenizer");
    }
    return true;
}

static bool check_ids(const struct check *check)
{
    const struct tokenizer_image_header *header = check->header;
    for (size_t section = SECTION_BEFORE; section <= SECTION_END_IDS; section++) {
        const uint32_t *ids = section_data(header, section);
        for (size_t i = 0; i < section_items(header, section, sizeof ids[0]); i++) {
            if (!good_id(check, ids[i], false) ||
                (section == SECTION_END_IDS && i > 0 && ids[i] <= ids[i - 1]))
                return bad(check, "a bad list of ids");
        }
    }
    if (!good_id(check, header->bos_id, true) || !good_id(check, header->unknown_id, true) ||
        (header->flags & ~(uint32_t)TOKENIZER_IMAGE_FLAGS) || header->start >= TOKENIZER_START_END)
        return bad(check, "a bad header");
    return true;
}

static bool check_image(const uint8_t *image, size_t size, struct err *err)
{
    const struct check check = { image, (const void *)image, err };
    return check_header(&check, size) && check_sections(&check) &&
           check_ends(&check, SECTION_KEY_ENDS) && check_ends(&check, SECTION_TEXT_ENDS) &&
           check_tables(&check) && check_added(&check, SECTION_ADDED) &&
           check_added(&check, SECTION_ADDED_NORMAL) && check_rules(&check, SECTION_NORMALIZERS) &&
           check_rules(&check, SECTION_PRETOKENS) && check_ids(&check);
}

static bool view_rules(struct tokenizer *tokenizer, struct err *err)
{
    const struct tokenizer_image_header *header = tokenizer->header;
    struct normalizer_rule normalizers[TOKENIZER_RULES_CAP];
    struct pretoken_rule pretokens[TOKENIZER_RULES_CAP];
    const char *bytes = tokenizer->vocab.bytes;
    const struct tokenizer_image_rule *rules = section_data(header, SECTION_NORMALIZERS);
    const size_t n_normalizers = section_items(header, SECTION_NORMALIZERS, sizeof rules[0]);
    for (size_t i = 0; i < n_normalizers; i++)
        normalizers[i] = (struct normalizer_rule){
            .kind = (enum normalizer_kind)rules[i].kind,
            .left = rules[i].detail & 1,
            .right = rules[i].detail & 2,
            .find = { bytes + rules[i].find_first, rules[i].find_size },
            .with = { bytes + rules[i].with_first, rules[i].with_size },
        };
    rules = section_data(header, SECTION_PRETOKENS);
    const size_t n_pretokens = section_items(header, SECTION_PRETOKENS, sizeof rules[0]);
    for (size_t i = 0; i < n_pretokens; i++)
        pretokens[i] = (struct pretoken_rule){
            .kind = (enum pretoken_kind)rules[i].kind,
            .behaviour = (enum pretoken_behaviour)(rules[i].detail & 0xff),
            .invert = rules[i].detail >> 8 & 1,
            .prefix = (enum pretoken_prefix)(rules[i].detail >> 16),
            .pattern = { bytes + rules[i].find_first, rules[i].find_size },
        };
    tokenizer->normalizer = normalizer_new(normalizers, n_normalizers, err);
    if (!tokenizer->normalizer)
        return false;
    tokenizer->pretoken = pretoken_new(pretokens, n_pretokens, err);
    return tokenizer->pretoken != NULL;
}

/* The symbols that text begins as. */
static void view_symbols(struct tokenizer *tokenizer)
{
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++) {
        const char byte = (char)b;
        const char name[] = { '<', '0', 'x', digits[b >> 4], digits[b & 15], '>' };
        tokenizer->byte_ids[b] = VOCAB_NO_ID;
        if (tokenizer->byte_level)
            tokenizer->byte_ids[b] = vocab_find(&tokenizer->vocab, (struct str){ &byte, 1 });
        else if (tokenizer->byte_fallback)
            tokenizer->byte_ids[b] = vocab_find(&tokenizer->vocab, (struct str){ name, 6 });
        if (b < 128)
            tokenizer->ascii_ids[b] = vocab_find(&tokenizer->vocab, (struct str){ &byte, 1 });
    }
}

bool tokenizer_view(struct tokenizer *tokenizer, struct str image, struct err *err)
{
    const struct tokenizer_image_header *header = (const void *)image.data;
    *tokenizer = (struct tokenizer){
        .image = image,
        .header = header,
        .vocab = {
            .n_tokens = header->n_tokens,
            .key_ends = section_data(header, SECTION_KEY_ENDS),
            .text_ends = section_data(header, SECTION_TEXT_ENDS),
            .bytes = section_data(header, SECTION_BYTES),
            .flags = section_data(header, SECTION_FLAGS),
            .slots = section_data(header, SECTION_SLOTS),
            .slot_mask = (uint32_t)section_items(header, SECTION_SLOTS, sizeof(uint32_t)) - 1,
        },
        .bpe = {
            .slots = section_data(header, SECTION_MERGES),
            .slot_mask =
                (uint32_t)section_items(header, SECTION_MERGES, sizeof(struct bpe_merge)) - 1,
        },
        .before = section_data(header, SECTION_BEFORE),
        .n_before = section_items(header, SECTION_BEFORE, sizeof(uint32_t)),
        .behind = section_data(header, SECTION_BEHIND),
        .n_behind = section_items(header, SECTION_BEHIND, sizeof(uint32_t)),
        .n_end_ids = section_items(header, SECTION_END_IDS, sizeof(uint32_t)),
        .byte_level = header->flags & TOKENIZER_IMAGE_BYTE_LEVEL,
        .byte_fallback = header->flags & TOKENIZER_IMAGE_BYTE_FALLBACK,
        .fuse_unknown = header->flags & TOKENIZER_IMAGE_FUSE_UNKNOWN,
        .cut_at_marks = header->flags & TOKENIZER_IMAGE_CUT_AT_MARKS,
    };
    struct added_tokens *const sets[] = { &tokenizer->added, &tokenizer->added_normal };
    for (size_t i = 0; i < 2; i++) {
        sets[i]->tokens = section_data(header, SECTION_ADDED + i);
        sets[i]->n_tokens =
            (uint32_t)section_items(header, SECTION_ADDED + i, sizeof(struct added_token));
        sets[i]->bytes = tokenizer->vocab.bytes;
        added_tokens_index(sets[i]);
    }
    memcpy(tokenizer->end_ids, section_data(header, SECTION_END_IDS),
           tokenizer->n_end_ids * sizeof tokenizer->end_ids[0]);
    view_symbols(tokenizer);
    if (!view_rules(tokenizer, err)) {
        tokenizer_view_release(tokenizer);
        return false;
    }
    return true;
}

void tokenizer_view_release(struct tokenizer *tokenizer)
{
    normalizer_free(tokenizer->normalizer);
    pretoken_free(tokenizer->pretoken);
    tokenizer->normalizer = NULL;
    tokenizer->pretoken = NULL;
}

/* A tokenizer over a checked image, or NULL. */
static struct tokenizer *open_image(struct str image, struct err *err)
{
    if (!check_image((const uint8_t *)image.data, image.size, err))
        return NULL;
    struct tokenizer *tokenizer = xcalloc(1, sizeof *tokenizer);
    if (!tokenizer_view(tokenizer, image, err)) {
        free(tokenizer);
        return NULL;
    }
    return tokenizer;
}

struct tokenizer *tokenizer_open_memory(char *image, size_t size, struct err *err)
{
    struct tokenizer *tokenizer = open_image((struct str){ image, size }, err);
    if (tokenizer)
        tokenizer->memory = image;
    else
        free(image);
    return tokenizer;
}

struct tokenizer *tokenizer_open_map(struct file_map map, struct err *err)
{
    struct tokenizer *tokenizer = open_image((struct str){ (const char *)map.data, map.size }, err);
    if (tokenizer)
        tokenizer->map = map;
    else
        file_map_close(&map);
    return tokenizer;
}

struct tokenizer *tokenizer_open_spec(const struct tokenizer_spec *spec, struct err *err)
{
    struct buf image;
    buf_init(&image, TOKENIZER_BYTES_CAP);
    if (!tokenizer_compile(spec, &image, err)) {
        buf_release(&image);
        return NULL;
    }
    const size_t size = image.size;
    return tokenizer_open_memory(buf_take(&image), size, err);
}

struct tokenizer *tokenizer_load_bin(const char *path, struct err *err)
{
    struct file_map map;
    if (!file_map_open(&map, path, err))
        return NULL;
    struct tokenizer *tokenizer = tokenizer_open_map(map, err);
    if (!tokenizer)
        err_wrap(err, "%s", path);
    return tokenizer;
}

bool tokenizer_write_bin(const struct tokenizer *tokenizer, const char *path, struct err *err)
{
    return file_write_atomic(path, tokenizer->image, err);
}
