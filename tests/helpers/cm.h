/* cmocka wants these before it, in this order. Tests include this and nothing of cmocka. */
#ifndef CASCADIA_TESTS_HELPERS_CM_H
#define CASCADIA_TESTS_HELPERS_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
