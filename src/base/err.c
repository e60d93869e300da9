/* Errors as values. One table says what each code means outside; sentences are built in place, so
 * that reporting an error never allocates and never fails. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct err_kind kinds[ERR_CODE_COUNT] = {
    [ERR_NONE] = { "none", 0, 200, "" },
    [ERR_ARGUMENT] = { "argument", 2, 400, "invalid_request_error" },
    [ERR_NOT_FOUND] = { "not_found", 1, 404, "not_found_error" },
    [ERR_UNSUPPORTED] = { "unsupported", 1, 400, "invalid_request_error" },
    [ERR_FORMAT] = { "format", 1, 500, "server_error" },
    [ERR_CORRUPT] = { "corrupt", 1, 500, "server_error" },
    [ERR_BUSY] = { "busy", 1, 503, "overloaded_error" },
    [ERR_NO_MEMORY] = { "no_memory", 1, 500, "server_error" },
    [ERR_SYSTEM] = { "system", 1, 500, "server_error" },
    [ERR_TIMEOUT] = { "timeout", 1, 504, "timeout_error" },
    [ERR_CANCELLED] = { "cancelled", 1, 499, "cancelled_error" },
    [ERR_PEER_LOST] = { "stage_lost", 1, 503, "stage_lost_error" },
    [ERR_BATCH_LOST] = { "batch_lost", 1, 500, "server_error" },
};

const struct err_kind *err_kind(enum err_code code)
{
    must((unsigned)code < ERR_CODE_COUNT);
    return &kinds[code];
}

bool err_set(struct err *err, enum err_code code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    return false;
}

static enum err_code code_of_errno(int number)
{
    switch (number) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case ENOMEM:
        return ERR_NO_MEMORY;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    default:
        return ERR_SYSTEM;
    }
}

bool err_set_errno(struct err *err, const char *format, ...)
{
    int number = errno;
    va_list arguments;
    va_start(arguments, format);
    err->code = code_of_errno(number);
    int used = vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s", strerror(number));
    return false;
}

bool err_wrap(struct err *err, const char *format, ...)
{
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s", old);
    return false;
}

_Noreturn void err_must_failed(const char *condition, const char *file, int line,
                               const char *function)
{
    fprintf(stderr, "cascadia: internal error: %s at %s:%d in %s\n", condition, file, line,
            function);
    abort();
}
