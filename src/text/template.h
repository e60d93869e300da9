/* Jinja templates, as Hugging Face's chat templates use them.
 *
 * A template is compiled once and is immutable: any number of threads may render it at once. The
 * language is Jinja2 3.1 with trim_blocks, lstrip_blocks, loop controls, the immutable sandbox, no
 * autoescape, `tojson` as Python's json.dumps, `raise_exception`, `strftime_now` and the
 * `generation` block. Where Jinja2 raises, rendering fails; where it renders, the bytes are equal.
 * Not done: blocks of inheritance and imports, which need a loader (ERR_UNSUPPORTED).
 *
 * Templates come from model files, so they are not trusted: every resource has a limit, and an
 * error that passes one names it. */
#ifndef CASCADIA_TEXT_TEMPLATE_H
#define CASCADIA_TEXT_TEMPLATE_H

#include "base/err.h"
#include "base/str.h"
#include "text/traced.h"
#include "text/value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct template;

struct template_limits {
    uint64_t steps_cap;       // node evaluations and loop rounds
    uint64_t steps_a_message; // that each item of `messages` in the context adds to steps_cap
    uint64_t time_ms_cap;     // wall clock, looked at every 1,024 steps
    size_t string_bytes_cap;  // of any one string, checked before it is made
    size_t output_bytes_cap;  // of the rendering
    size_t memory_bytes_cap;  // of everything that a rendering allocates
    uint32_t depth_cap;       // nested evaluations, macro bodies included
    uint32_t macro_depth_cap; // nested macro calls
    uint32_t range_cap;       // length of a range
};

extern const struct template_limits template_limits_default;

#define TEMPLATE_SOURCE_BYTES_CAP ((size_t)256 << 10)
#define TEMPLATE_PARSE_DEPTH_CAP 128

/* Compiles `source` (copied). ERR_FORMAT with the line for a syntax error, ERR_UNSUPPORTED for
 * what is understood and not done. NULL on failure; template_free. */
struct template *template_compile(struct str source, struct err *err);
void template_free(struct template *template); // NULL is fine

struct template_options {
    const struct template_limits *limits; // NULL: the default ones
    int64_t now_unix_seconds;             // what strftime_now shows, in local time
};

/* A rendered text and the origin of its bytes. */
struct rendering {
    char *bytes; // NUL-terminated behind size
    size_t size;
    struct traced_run *runs; // in order; neighbours differ; the last one ends at size
    size_t n_runs;
};

/* `context` is a dictionary of variables with string keys. Errors: ERR_ARGUMENT when the template
 * raises (raise_exception: the sentence is the template's own message; else the line is named) or
 * passes a limit, ERR_TIMEOUT past time_ms_cap, ERR_NO_MEMORY past memory_bytes_cap. */
bool template_render(const struct template *template, const struct value *context,
                     const struct template_options *options, struct rendering *out,
                     struct err *err);
void rendering_release(struct rendering *rendering); // zeroed values are fine

#endif
