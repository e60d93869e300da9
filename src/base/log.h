/* One line an event, to stderr. Level and form are set once by main, before other threads start;
 * lines from several threads do not mix. Rate limiting is the caller's affair (struct log_limit).
 */
#ifndef CASCADIA_BASE_LOG_H
#define CASCADIA_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_setup(enum log_level level, bool as_json);
bool log_wanted(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) (log_wanted(LOG_DEBUG) ? log_line(LOG_DEBUG, __VA_ARGS__) : (void)0)

/* True at most once per interval: put it before a line that a failing peer could repeat. */
struct log_limit {
    uint64_t next_ms;
};
bool log_limit_pass(struct log_limit *limit, uint64_t interval_ms);

#endif
