/* One write a line, so that threads and processes that share stderr do not mix their words. */
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *const names[] = { "error", "warn", "info", "debug" };
static enum log_level wanted = LOG_INFO;
static bool json_lines;

void log_setup(enum log_level level, bool as_json)
{
    wanted = level;
    json_lines = as_json;
}

bool log_wanted(enum log_level level)
{
    return level <= wanted;
}

static void add_json_line(struct buf *line, enum log_level level, const char *text)
{
    buf_printf(line,
               "{\"time\":%lld,\"level\":\"%s\",\"message\":", (long long)clock_unix_seconds(),
               names[level]);
    json_write_string(line, str_from(text));
    buf_add_text(line, "}\n");
}

void log_line(enum log_level level, const char *format, ...)
{
    char text[1024], stamp[16];
    struct buf line;
    va_list arguments;
    if (!log_wanted(level))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buf_init(&line, 8192);
    if (json_lines) {
        add_json_line(&line, level, text);
    } else {
        if (clock_format(clock_unix_seconds(), "%H:%M:%S", stamp, sizeof stamp) == 0)
            stamp[0] = '\0';
        buf_printf(&line, "%s %-5s %s\n", stamp, names[level], text);
    }
    ssize_t written = write(STDERR_FILENO, line.data, line.size);
    (void)written; // a log that cannot be written has nowhere to complain
    buf_release(&line);
}

bool log_limit_pass(struct log_limit *limit, uint64_t interval_ms)
{
    uint64_t now = clock_ms();
    if (now < limit->next_ms)
        return false;
    limit->next_ms = now + interval_ms;
    return true;
}
