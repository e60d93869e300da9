/* Time from the operating system, in one place. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ms(void)
{
    return clock_ns() / 1000000u;
}

int64_t clock_unix_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec;
}

void clock_sleep_ms(uint64_t ms)
{
    struct timespec left = { .tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

size_t clock_format(int64_t unix_seconds, const char *format, char *out, size_t out_bytes)
{
    time_t seconds = (time_t)unix_seconds;
    struct tm parts;
    if (!localtime_r(&seconds, &parts))
        return 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return strftime(out, out_bytes, format, &parts);
#pragma GCC diagnostic pop
}
