/* A stream of requests: the first byte says how the rest is cut into reads. Whatever comes, the
 * reader stays within its ceilings, and the same bytes in one piece give the same requests. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/memory.h"
#include "net/http_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_CAP 4096u

/* What a run over the stream saw, to compare two runs. */
struct outcome {
    uint32_t n_requests;
    int status;
    size_t used_bytes;
    size_t body_bytes;
};

static struct outcome read_all(struct str stream, size_t step)
{
    struct outcome outcome = { 0 };
    struct http_reader reader;
    size_t first = 0;

    http_reader_init(&reader, BODY_CAP);
    while (first < stream.size && reader.state != HTTP_READER_BAD) {
        const size_t last = stream.size - first < step ? stream.size : first + step;
        const size_t used = http_reader_feed(&reader, str_slice(stream, first, last));

        must(used <= last - first);
        must(reader.head.size <= HTTP_HEAD_BYTES_CAP && reader.body.size <= BODY_CAP);
        must(reader.state >= HTTP_READER_DONE || used == last - first);
        first += used;
        if (reader.state == HTTP_READER_DONE) {
            must(reader.path.size > 0 && reader.method.size > 0);
            outcome.n_requests++;
            outcome.body_bytes += reader.body.size;
            outcome.used_bytes = first;
            http_reader_release(&reader);
            http_reader_init(&reader, BODY_CAP);
        }
    }
    outcome.status = reader.state == HTTP_READER_BAD ? reader.status : 0;
    http_reader_release(&reader);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > (1u << 20))
        return 0;
    const struct str stream = { .data = (const char *)data + 1, .size = size - 1 };
    const struct outcome cut = read_all(stream, (size_t)data[0] + 1);
    const struct outcome whole = read_all(stream, stream.size + 1);

    must(cut.n_requests == whole.n_requests);
    must(cut.used_bytes == whole.used_bytes && cut.body_bytes == whole.body_bytes);
    must((cut.status == 0) == (whole.status == 0));
    return 0;
}
