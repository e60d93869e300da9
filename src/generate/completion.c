/* Text passes two gates. The detokenizer holds back a character that is not complete; the stop
 * matcher holds back what may be the beginning of a stop text. Both gates open at the end, unless a
 * stop text is what ended it. Stop texts are UTF-8, so what is held begins with a whole character
 * and what is given out ends with one. */
#include "generate/completion.h"

#include "base/memory.h"
#include "text/tokenizer.h"

/* Ids of the prompt that the detokenizer looks at: enough for a character begun there. */
#define CONTEXT_IDS 8u
/* Held text is at most a stop text and one token's text; a token's text is short. */
#define HELD_BYTES_CAP ((size_t)16 << 20)

bool completion_init(struct completion *completion, const struct completion_options *options,
                     struct err *err)
{
    *completion = (struct completion){ .tokenizer = options->tokenizer,
                                       .max_tokens = options->max_tokens,
                                       .ignore_eos = options->ignore_eos };
    must(options->max_tokens > 0);
    if (!stops_init(&completion->stops, options->stops, options->n_stops, err))
        return false;
    uint32_t context[CONTEXT_IDS];
    const uint32_t n_context = options->n_prompt < CONTEXT_IDS ? options->n_prompt : CONTEXT_IDS;
    for (uint32_t i = 0; i < n_context; i++)
        context[i] = (uint32_t)options->prompt[options->n_prompt - n_context + i];
    detokenizer_init(&completion->detokenizer, options->tokenizer, !options->keep_special, context,
                     n_context);
    buf_init(&completion->held, HELD_BYTES_CAP);
    buf_reserve(&completion->held, STOP_BYTES_CAP + 1024);
    return true;
}

void completion_release(struct completion *completion)
{
    stops_release(&completion->stops);
    buf_release(&completion->held);
    *completion = (struct completion){ 0 };
}

/* Gives out the first `bytes` of what is held. */
static void give(struct completion *completion, size_t bytes, struct buf *out)
{
    buf_add(out, completion->held.data, bytes);
    buf_drop_front(&completion->held, bytes);
    completion->given_bytes += (uint32_t)bytes;
}

/* Looks at the held text from byte `first` on for a stop text; true when there is one: what is
 * before it is given out, the rest forgotten. */
static bool find_stop(struct completion *completion, size_t first, struct buf *out)
{
    for (size_t i = first; i < completion->held.size; i++) {
        const uint32_t size = stops_push(&completion->stops, (uint8_t)completion->held.data[i]);
        if (size > 0) {
            give(completion, i + 1 - size, out);
            buf_clear(&completion->held);
            return true;
        }
    }
    return false;
}

enum completion_state completion_push(struct completion *completion, int32_t token, struct buf *out)
{
    struct buf *held = &completion->held;
    const size_t first = held->size;
    completion->n_tokens++;
    enum completion_state state = COMPLETION_GOES_ON;
    if (!completion->ignore_eos && tokenizer_is_end(completion->tokenizer, (uint32_t)token)) {
        completion->ended_without_text = true;
        state = COMPLETION_STOP;
    } else {
        detokenizer_push(&completion->detokenizer, (uint32_t)token, held);
        if (completion->n_tokens >= completion->max_tokens)
            state = COMPLETION_LENGTH;
    }
    if (state != COMPLETION_GOES_ON)
        detokenizer_finish(&completion->detokenizer, held);
    completion->text_bytes += (uint32_t)(held->size - first);
    if (find_stop(completion, first, out))
        return COMPLETION_STOP;
    const size_t keep = state == COMPLETION_GOES_ON ? stops_held(&completion->stops) : 0;
    give(completion, held->size - keep, out);
    return state;
}
