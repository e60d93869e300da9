/* A directory for one test, removed with what is in it. */
#ifndef CASCADIA_TESTS_HELPERS_TEMPORARY_H
#define CASCADIA_TESTS_HELPERS_TEMPORARY_H

char *temporary_dir(void);         // made under TMPDIR's usual place; caller ends it with the next
void temporary_remove(char *path); // removes it and frees the path

#endif
