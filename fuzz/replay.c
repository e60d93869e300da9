/* Runs a fuzz target over the files of its corpus, without a fuzzer: what `make check` does.
 * Each file is also cut short and has bits flipped, so that the replay is a small fuzz of its own.
 */
#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_CAP (16u << 20)
#define FLIPS 64u

/* A copy that ends where its allocation ends, so that the sanitizer sees a read past it. */
static void run(const char *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_variants(struct buf *file)
{
    run(file->data ? file->data : "", file->size);
    for (size_t cut = 1; cut < file->size; cut += 1 + file->size / FLIPS)
        run(file->data, file->size - cut);
    for (size_t at = 0; at < file->size; at += 1 + file->size / FLIPS) {
        file->data[at] = (char)(file->data[at] ^ (1 << at % 8));
        run(file->data, file->size);
        file->data[at] = (char)(file->data[at] ^ (1 << at % 8));
    }
}

int main(int argc, char **argv)
{
    struct err err;
    char **names;
    size_t n_names;
    if (argc != 2 || !dir_list(argv[1], &names, &n_names, &err)) {
        fprintf(stderr, "usage: replay CORPUS-DIRECTORY\n");
        return 2;
    }
    for (size_t i = 0; i < n_names; i++) {
        struct buf file;
        char *path = path_join(argv[1], names[i]);
        buf_init(&file, FILE_CAP);
        if (!file_read(path, &file, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        run_variants(&file);
        buf_release(&file);
        free(path);
    }
    dir_list_free(names, n_names);
    printf("%zu inputs replayed\n", n_names);
    return n_names ? 0 : 1;
}
