/* Sampling parameters off the wire: what is accepted passes the check and encodes to the same
 * bytes. */
#include "sample/sampling_params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sampling_params params;
    size_t used;
    struct err err;
    const struct str bytes = { .data = (const char *)data, .size = size };
    if (!sampling_params_decode(bytes, &params, &used, &err))
        return 0;
    must(used <= size);
    must(sampling_params_check(&params, 0, &err));
    struct buf again;
    buf_init(&again, size);
    sampling_params_encode(&params, &again);
    must(str_equal(buf_view(&again), str_slice(bytes, 0, used)));
    buf_release(&again);
    return 0;
}
