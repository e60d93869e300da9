#!/usr/bin/env bash
# Differential runs against programs that nobody here wrote. Each file in tests/peers is self-contained: it
# installs its peer into a cache outside the tree, and takes the program's path. Minutes, not seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh check
scripts/setup.sh build
cmake --preset release >/dev/null
cmake --build build/release --target cascadia
failed=()
for peer in tests/peers/${1:-*}; do
    [[ -x $peer && ! -d $peer ]] || continue
    echo "== $peer"
    "$peer" build/release/cascadia || failed+=("$peer")
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}" >&2; exit 1; }
