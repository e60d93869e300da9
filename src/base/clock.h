/* Monotonic time, and the wall clock for time stamps that people read. Any thread. */
#ifndef CASCADIA_BASE_CLOCK_H
#define CASCADIA_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

uint64_t clock_ns(void);          // monotonic
uint64_t clock_ms(void);          // monotonic
int64_t clock_unix_seconds(void); // wall clock
void clock_sleep_ms(uint64_t ms);
/* strftime in local time of `unix_seconds`; returns bytes written, 0 when it does not fit. */
size_t clock_format(int64_t unix_seconds, const char *format, char *out, size_t out_bytes);

#endif
