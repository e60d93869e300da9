/* Apart from request.c, so that who only asks this question is not bound to a scheduler. */
#include "generate/request.h"
#include "sample/grammar.h"

bool request_check_grammar(const struct sampling_grammar *grammar, struct err *err)
{
    return grammar_check(grammar, err);
}
