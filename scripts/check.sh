#!/usr/bin/env bash
# What CI runs. Rules of the house first (seconds), then the gcc release build with all tests, the
# clang build with asan and ubsan running the same, and tsan over what has threads.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

# BUILD [ctest options]: the tests, then what they skipped and why, which ctest keeps to itself.
tests() {
    ctest --test-dir "$1" --output-on-failure "${@:2}"
    grep -hE '^(skipped:|SKIPPED) ' "$1/Testing/Temporary/LastTest.log" | sort -u || true
}

step "setup"
scripts/setup.sh check
command -v ccache >/dev/null && export CMAKE_C_COMPILER_LAUNCHER=ccache

step "house rules: floors, banned functions, sizes, format"
python3 scripts/house.py
scripts/format.sh

step "gcc release build with tests"
cmake --preset check >/dev/null
cmake --build build/check
scripts/headers.sh
python3 scripts/house.py --linkage build/check/cascadia
build/check/cascadia help --markdown | diff -u docs/cli.md - || {
    echo "docs/cli.md is not what the program prints: run make docs" >&2
    exit 1
}
echo "instruction sets here: $(grep -o -w -E 'avx2|avx512f|avx512_vnni|avx_vnni|amx_int8' /proc/cpuinfo | sort -u | tr '\n' ' ')"
tests build/check

step "rungs on emulated CPUs"
scripts/check-rungs.sh

step "clang build with asan and ubsan"
cmake --preset asan >/dev/null
cmake --build build/asan
tests build/asan

step "tsan: base, pipeline, generate"
cmake --preset tsan >/dev/null
cmake --build build/tsan
tests build/tsan -L 'base|pipeline|generate'

step "done"
