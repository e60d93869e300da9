/* Names are string literals of the blocks, few enough to be looked for one by one. */
#include "model/profile.h"

#include <stdlib.h>
#include <string.h>

void profile_add(struct profile *profile, const char *name, uint64_t ns)
{
    uint32_t at = 0;
    while (at < profile->n_entries && strcmp(profile->entries[at].name, name) != 0)
        at++;
    if (at == PROFILE_ENTRIES_CAP)
        at--;
    else if (at == profile->n_entries)
        profile->entries[profile->n_entries++] = (struct profile_entry){ .name = name };
    profile->entries[at].n++;
    profile->entries[at].ns += ns;
}

static int compare(const void *a, const void *b)
{
    const struct profile_entry *left = a, *right = b;
    return left->ns > right->ns ? -1 : left->ns < right->ns;
}

void profile_report(const struct profile *profile, struct buf *out)
{
    struct profile_entry sorted[PROFILE_ENTRIES_CAP];
    const double steps = profile->n_steps ? (double)profile->n_steps : 1;
    const double whole = profile->ns ? (double)profile->ns : 1;
    memcpy(sorted, profile->entries, sizeof sorted);
    qsort(sorted, profile->n_entries, sizeof *sorted, compare);
    buf_printf(out, "%-16s %10s %7s %7s\n", "loops", "us a step", "share", "number");
    for (uint32_t i = 0; i < profile->n_entries; i++) {
        const struct profile_entry *entry = &sorted[i];
        buf_printf(out, "%-16s %10.1f %6.1f%% %7.0f\n", entry->name,
                   (double)entry->ns / 1000 / steps, (double)entry->ns / whole * 100,
                   (double)entry->n / steps);
    }
    buf_printf(out, "%-16s %10.1f, of %llu steps\n", "a step", (double)profile->ns / 1000 / steps,
               (unsigned long long)profile->n_steps);
}
