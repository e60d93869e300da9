#!/usr/bin/env bash
# Interleaved against llama.cpp on the demo's model; raw data to bench/. Options go to bench/compare.py.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build
cmake --preset release >/dev/null
cmake --build build/release --target cascadia
exec python3 bench/compare.py build/release/cascadia --out "bench/llama-$(date +%Y-%m-%d).json" "$@"
