/* Knuth, Morris and Pratt, once per stop text: a byte costs a step or two per text, texts are at
 * most sixteen, and n_matched is exactly what must be held back. One automaton of all texts (Aho
 * and Corasick) would save those steps and cost a table of 256 columns. */
#include "generate/stops.h"

#include <stdlib.h>

#include "base/memory.h"

_Static_assert(STOP_BYTES_CAP <= UINT16_MAX, "fallback holds lengths");

static void fill_fallback(struct stop *stop)
{
    uint32_t matched = 0;
    stop->fallback[0] = 0;
    for (uint32_t i = 1; i < stop->size; i++) {
        while (matched > 0 && stop->text[i] != stop->text[matched])
            matched = stop->fallback[matched - 1];
        if (stop->text[i] == stop->text[matched])
            matched++;
        stop->fallback[i] = (uint16_t)matched;
    }
}

static bool check_text(struct str text, struct err *err)
{
    if (text.size == 0)
        return err_set(err, ERR_ARGUMENT, "a stop text is empty");
    if (text.size > STOP_BYTES_CAP)
        return err_set(err, ERR_ARGUMENT, "a stop text has %zu bytes, more than %d", text.size,
                       STOP_BYTES_CAP);
    if (!utf8_valid(text))
        return err_set(err, ERR_ARGUMENT, "a stop text is not UTF-8");
    return true;
}

bool stops_init(struct stops *stops, const struct str *texts, uint32_t n_texts, struct err *err)
{
    *stops = (struct stops){ 0 };
    if (n_texts > STOPS_CAP)
        return err_set(err, ERR_ARGUMENT, "%u stop texts, more than %d", n_texts, STOPS_CAP);
    size_t bytes = 0;
    for (uint32_t i = 0; i < n_texts; i++) {
        if (!check_text(texts[i], err))
            return false;
        bytes += texts[i].size;
    }
    if (n_texts == 0)
        return true;
    uint16_t *fallbacks = xcalloc(bytes, sizeof(*fallbacks) + 1);
    uint8_t *text = (uint8_t *)(fallbacks + bytes);
    for (uint32_t i = 0; i < n_texts; i++) {
        struct stop *stop = &stops->stops[i];
        *stop =
            (struct stop){ .text = text, .fallback = fallbacks, .size = (uint32_t)texts[i].size };
        memcpy(stop->text, texts[i].data, stop->size);
        fill_fallback(stop);
        text += stop->size;
        fallbacks += stop->size;
    }
    stops->n_stops = n_texts;
    return true;
}

void stops_release(struct stops *stops)
{
    free(stops->stops[0].fallback);
    *stops = (struct stops){ 0 };
}

uint32_t stops_push(struct stops *stops, uint8_t byte)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < stops->n_stops; i++) {
        struct stop *stop = &stops->stops[i];
        uint32_t matched = stop->n_matched;
        if (matched == stop->size) // the answer went on behind a match
            matched = stop->fallback[matched - 1];
        while (matched > 0 && stop->text[matched] != byte)
            matched = stop->fallback[matched - 1];
        if (stop->text[matched] == byte)
            matched++;
        stop->n_matched = matched;
        if (matched == stop->size && matched > longest)
            longest = matched;
    }
    return longest;
}

uint32_t stops_held(const struct stops *stops)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < stops->n_stops; i++) {
        if (stops->stops[i].n_matched > held)
            held = stops->stops[i].n_matched;
    }
    return held;
}
