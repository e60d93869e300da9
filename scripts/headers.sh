#!/usr/bin/env bash
# Each header compiles alone, under gcc, with the flags of the house.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
while read -r header; do
    printf '#include "%s"\n' "${header#src/}" |
        gcc -std=c17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -Isrc -I/usr/share/include/llhttp -fsyntax-only -x c - || {
        echo "$header does not compile alone" >&2
        failed=1
    }
done < <(find src -name '*.h' | sort)
exit $failed
