/* Any bytes as a manifest, and the same with a right hash behind it (a mutated text would hardly
 * ever get past the check of its own). What is accepted can be written and read again. */
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "weights/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tail_begin[] = ",\n\"manifest_xxh3\":\"";

static void try_text(struct str text)
{
    struct manifest manifest, again;
    struct err err = { 0 };
    struct buf written;
    if (!manifest_parse(&manifest, text, &err)) {
        must(err.code != ERR_NONE && err.text[0]);
        return;
    }
    for (size_t f = 0; f < manifest.n_files; f++)
        for (size_t t = 0; t < manifest.files[f].n_tensors; t++) {
            const struct manifest_tensor *tensor = &manifest.files[f].tensors[t];
            must(tensor->bytes <= manifest.files[f].bytes &&
                 tensor->offset <= manifest.files[f].bytes - tensor->bytes);
        }
    buf_init(&written, MANIFEST_BYTES_CAP);
    manifest_write(&manifest, &written);
    must(manifest_parse(&again, buf_view(&written), &err));
    must(again.n_files == manifest.n_files);
    manifest_release(&again);
    manifest_release(&manifest);
    buf_release(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = { (const char *)data, size };
    size_t body = str_find(text, STR(tail_begin));
    struct buf mended;
    char hex[17];
    try_text(text);
    if (body == SIZE_MAX)
        body = size;
    buf_init(&mended, size + 64);
    buf_add(&mended, data, body);
    hash_hex(hash_xxh3(mended.data, mended.size), hex);
    buf_printf(&mended, "%s%s\"}\n", tail_begin, hex);
    try_text(buf_view(&mended));
    buf_release(&mended);
    return 0;
}
