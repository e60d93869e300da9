/* A pattern generates only what is of the format, and what people write of it; dates are those
 * that the calendar has. */
#include "sample/json_format.h"

#include <stddef.h>

#define YEAR "[1-9][0-9]{3}"
#define LEAP_YEAR "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"      \
    "(?:0[13578]|1[02])-31)|" LEAP_YEAR "-02-29)"
#define HOUR_MINUTE "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME HOUR_MINUTE ":[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-]" HOUR_MINUTE ")"
#define HEX "[0-9a-fA-F]"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define ATOM "[A-Za-z0-9_%+-]{1,32}"
#define PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}" },
    { "email", ATOM "(?:\\." ATOM "){0,3}@(?:" LABEL "\\.){1,3}[A-Za-z]{2,12}" },
    { "hostname", LABEL "(?:\\." LABEL "){0,5}" },
    { "ipv4", OCTET "(?:\\." OCTET "){3}" },
    { "ipv6",
      HEX "{1,4}(?::" HEX "{1,4}){7}|::1|::|" HEX "{1,4}(?::" HEX "{1,4}){0,5}::" HEX "{1,4}" },
    { "uri", "[A-Za-z][A-Za-z0-9+.-]{1,15}://" LABEL "(?:\\." LABEL "){0,5}(?::[1-9][0-9]{1,3})?"
             "(?:/" PATH_CHAR "{0,64}){0,8}(?:\\?(?:" PATH_CHAR "|[/?]){0,128})?" },
};

const char json_format_names[] = "date, time, date-time, uuid, email, hostname, ipv4, ipv6 and uri";

const char *json_format_find(struct str name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (str_is(name, formats[i].name))
            return formats[i].pattern;
    }
    return NULL;
}
