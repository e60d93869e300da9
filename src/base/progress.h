/* A progress bar on stderr: fraction, rate and time left; plain lines every few seconds when stderr
 * is no terminal; silent when quiet. One owner; progress_add from any thread. */
#ifndef CASCADIA_BASE_PROGRESS_H
#define CASCADIA_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label; // "quantising"
    const char *unit;  // "B" prints as KiB, MiB, ...; others as they are
    uint64_t total;
    _Atomic uint64_t done;
    uint64_t started_ms;
    _Atomic uint64_t next_draw_ms;
    bool terminal, quiet;
};

void progress_start(struct progress *progress, const char *label, const char *unit, uint64_t total,
                    bool quiet);
void progress_add(struct progress *progress, uint64_t amount); // draws when it is time
void progress_finish(struct progress *progress); // the last line, with the total and the time

#endif
