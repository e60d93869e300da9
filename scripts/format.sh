#!/usr/bin/env bash
# clang-format over our own C: checks, or with --fix rewrites.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files '*.c' '*.h' && git ls-files --others --exclude-standard '*.c' '*.h')
mode=(--dry-run --Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
printf '%s\0' "${files[@]}" | xargs -0 -n 64 clang-format "${mode[@]}"
