/* Any bytes as a shard: two bytes of manifest length, a manifest, and one content that all of its
 * weight files share. The manifest gets a right hash; with the top bit of the length also right
 * hashes of the files, so that whatever it claims about sizes and places is followed. Opening ends
 * with a sentence, or every byte of every tensor can be read. */
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "weights/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tail_begin[] = ",\n\"manifest_xxh3\":\"";

static void put_file(const char *directory, const char *name, struct str bytes)
{
    struct file_writer writer;
    struct err err;
    char *path = path_join(directory, name);
    if (file_writer_open(&writer, path, &err)) {
        file_writer_append(&writer, bytes.data, bytes.size, &err);
        file_writer_close(&writer, false, &err); // no sync: it is gone in a moment
    }
    free(path);
}

/* The manifest's text with its hash right, and the hashes of its files too when `all`. */
static bool mend(struct str body, struct str content, bool all, struct buf *out)
{
    struct manifest manifest;
    struct err err;
    char hex[17];
    size_t end = str_find(body, STR(tail_begin));
    buf_add_str(out, str_slice(body, 0, end == SIZE_MAX ? body.size : end));
    hash_hex(hash_xxh3(out->data, out->size), hex);
    buf_printf(out, "%s%s\"}\n", tail_begin, hex);
    if (!all || !manifest_parse(&manifest, buf_view(out), &err))
        return true;
    bool fits = true;
    for (size_t f = 0; f < manifest.n_files; f++) {
        struct manifest_file *file = &manifest.files[f];
        fits = fits && file->bytes == content.size;
        file->xxh3 = hash_xxh3(content.data, content.size);
        for (size_t t = 0; fits && t < file->n_tensors; t++)
            file->tensors[t].xxh3 =
                hash_xxh3(content.data + file->tensors[t].offset, (size_t)file->tensors[t].bytes);
    }
    buf_clear(out);
    manifest_write(&manifest, out);
    manifest_release(&manifest);
    return fits;
}

static void open_shard(const char *directory)
{
    struct err err = { 0 };
    struct weights_options options = { .any_layers = true };
    volatile uint8_t sum = 0;
    struct weights *weights = weights_open(directory, &options, &err);
    if (!weights) {
        must(err.code != ERR_NONE && err.text[0]);
        return;
    }
    for (size_t i = 0; i < weights_count(weights); i++) {
        const struct tensor *tensor = weights_at(weights, i);
        must(weights_find(weights, tensor->layer, tensor->role) == tensor);
        for (size_t at = 0; at < tensor->bytes; at++)
            sum = (uint8_t)(sum + tensor->data[at]);
    }
    weights_close(weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t length = (size_t)(data[0] | (data[1] & 0x7f) << 8);
    if (length > size - 2)
        length = size - 2;
    struct str body = { (const char *)data + 2, length };
    struct str content = { (const char *)data + 2 + length, size - 2 - length };
    struct buf text;
    struct err err;
    char directory[64];
    snprintf(directory, sizeof directory, "/tmp/cascadia-fuzz-shard-%ld", (long)getpid());
    buf_init(&text, (size_t)1 << 20);
    if (mend(body, content, data[1] & 0x80, &text) && dir_make(directory, &err)) {
        put_file(directory, MANIFEST_NAME, buf_view(&text));
        put_file(directory, "config.json", content);
        put_file(directory, "embedding.weights", content);
        put_file(directory, "layer-000.weights", content);
        put_file(directory, "head.weights", content);
        open_shard(directory);
        dir_remove(directory, &err);
    }
    buf_release(&text);
    return 0;
}
