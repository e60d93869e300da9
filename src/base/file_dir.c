/* Directories: made with their parents, listed sorted, removed whole. */
#include "base/file.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool dir_make(const char *path, struct err *err)
{
    char *partial = xstrdup(path);
    bool done = true;
    for (char *at = partial + 1; done && *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        done = mkdir(partial, 0755) == 0 || errno == EEXIST || errno == EROFS;
        *at = '/';
    }
    done = done && (mkdir(path, 0755) == 0 || errno == EEXIST);
    if (!done)
        err_set_errno(err, "cannot make directory %s", path);
    free(partial);
    return done;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool dir_list(const char *path, char ***names, size_t *n_names, struct err *err)
{
    DIR *directory = opendir(path);
    if (!directory)
        return err_set_errno(err, "%s", path);
    char **list = NULL;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        list = xreallocarray(list, count + 1, sizeof *list);
        list[count++] = xstrdup(entry->d_name);
    }
    closedir(directory);
    if (count)
        qsort(list, count, sizeof *list, compare_names);
    *names = list;
    *n_names = count;
    return true;
}

void dir_list_free(char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

static bool remove_entry(const char *path, struct err *err)
{
    struct stat facts;
    if (lstat(path, &facts) != 0)
        return err_set_errno(err, "%s", path);
    return S_ISDIR(facts.st_mode) ? dir_remove(path, err) : file_remove(path, err);
}

bool dir_remove(const char *path, struct err *err)
{
    char **names;
    size_t n_names;
    if (!dir_list(path, &names, &n_names, err))
        return false;
    bool done = true;
    for (size_t i = 0; done && i < n_names; i++) {
        char *entry = path_join(path, names[i]);
        done = remove_entry(entry, err);
        free(entry);
    }
    dir_list_free(names, n_names);
    if (done && rmdir(path) != 0)
        done = err_set_errno(err, "cannot remove %s", path);
    return done;
}
