/* Errors as values: a code that the program acts on and a sentence that a person reads.
 *
 * A function that can fail returns bool (or a pointer) and takes `struct err *` last; outputs are
 * untouched on failure. A function without an `err` cannot fail. Nobody parses the sentence.
 * `err` is never NULL. Any thread; an err belongs to whoever declared it. */
#ifndef CASCADIA_BASE_ERR_H
#define CASCADIA_BASE_ERR_H

#include <stdbool.h>

enum err_code {
    ERR_NONE,
    ERR_ARGUMENT,    // the caller's input is wrong; the same call will fail again
    ERR_NOT_FOUND,   // the named thing is not there
    ERR_UNSUPPORTED, // understood, and not done by this program
    ERR_FORMAT,      // a file or a frame does not say what it should
    ERR_CORRUPT,     // it says it, and its checksum does not agree
    ERR_BUSY,        // no room now; the same call may succeed later
    ERR_NO_MEMORY,   // what was asked is larger than what there is
    ERR_SYSTEM,      // the operating system refused; errno is in the sentence
    ERR_TIMEOUT,
    ERR_CANCELLED,
    ERR_PEER_LOST,  // a link is dead: rebuild it
    ERR_BATCH_LOST, // one batch failed, its link is healthy: go on with the next
    ERR_CODE_COUNT,
};

struct err {
    enum err_code code;
    char text[512];
};

/* The one table that maps a code to what the world outside sees. */
struct err_kind {
    const char *name;     // "not_found": stable, used on the wire and in logs
    int exit_status;      // of the program: 1 failed, 2 usage
    int http_status;      // of an API answer
    const char *api_type; // OpenAI error type, e.g. "invalid_request_error"
};

const struct err_kind *err_kind(enum err_code code);

/* Sets code and sentence. Always returns false, so `return err_set(err, ...)` reads well. */
bool err_set(struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ERR_SYSTEM (or ERR_NOT_FOUND for ENOENT, ERR_NO_MEMORY for ENOMEM) with errno's words after the
 * sentence. Returns false. */
bool err_set_errno(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts context in front of the sentence: "context: sentence". Once per floor. Returns false. */
bool err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Our own mistakes, never input. Stays on in release builds: prints and aborts. */
#define must(condition)                                                                            \
    ((condition) ? (void)0 : err_must_failed(#condition, __FILE__, __LINE__, __func__))

_Noreturn void err_must_failed(const char *condition, const char *file, int line,
                               const char *function);

#endif
