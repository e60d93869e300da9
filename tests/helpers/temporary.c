/* Directories for tests. */
#include "helpers/temporary.h"

#include "base/file.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

char *temporary_dir(void)
{
    char *path = xstrdup("/tmp/cascadia-test-XXXXXX");
    if (!mkdtemp(path)) {
        perror(path);
        abort();
    }
    return path;
}

void temporary_remove(char *path)
{
    struct err err;
    if (!dir_remove(path, &err))
        fprintf(stderr, "%s\n", err.text);
    free(path);
}
