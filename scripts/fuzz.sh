#!/usr/bin/env bash
# libFuzzer with asan and ubsan over every fuzz target, or one: scripts/fuzz.sh [NAME] [SECONDS]
# New inputs stay in build/fuzz/corpus; a crash is kept in fuzz/findings and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-} seconds=${2:-60}
scripts/setup.sh check
command -v ccache >/dev/null && export CMAKE_C_COMPILER_LAUNCHER=ccache
cmake --preset fuzz >/dev/null
cmake --build build/fuzz
mkdir -p fuzz/findings
for source in fuzz/fuzz_${name:-*}.c; do
    target=$(basename "$source" .c)
    corpus=build/fuzz/corpus/$target
    mkdir -p "$corpus"
    echo "== $target, $seconds s"
    "build/fuzz/$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
        -artifact_prefix=fuzz/findings/"$target"- "$corpus" "fuzz/corpus/${target#fuzz_}" 2>&1 |
        grep -E '^==|ERROR|SUMMARY|stat::number_of_executed_units|Test unit written|runtime error' || true
done
if compgen -G 'fuzz/findings/*' >/dev/null; then
    echo "there are findings:" && ls fuzz/findings && exit 1
fi
