/* Refuses for now: the reader of tokenizer.json follows in the next chapter. */
#include "text/tokenizer_json.h"

#include <stddef.h>

struct tokenizer *tokenizer_load_json(struct str tokenizer_json, struct str tokenizer_config,
                                      struct err *err)
{
    (void)tokenizer_json;
    (void)tokenizer_config;
    err_set(err, ERR_UNSUPPORTED, "tokenizer.json is not read yet");
    return NULL;
}
