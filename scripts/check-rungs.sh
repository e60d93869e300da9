#!/usr/bin/env bash
# Rungs that the CPU at hand lacks, on emulated ones: check_kernels, static, is the only task of each
# machine. It demands the bits of the scalar rung, the pinned hashes, and that the machine's best
# rung is the one chosen. A tenth of a second here is some seconds there, so the cases are few.
# Says that it was skipped where the emulator (../shared/tools/emulate) is missing or not prepared.
set -euo pipefail
cd "$(dirname "$0")/.."
emulate=../shared/tools/emulate
cache=${XDG_CACHE_HOME:-$HOME/.cache}/emulate
timeout_s=300

# CPU model of the emulator, the rung that it is to choose.
machines=(
    "sapphire_rapids avx512"
    "arrow_lake avxvnni"
    "corei7_icelake_u avx512"
)

if [ ! -x "$emulate" ]; then
    echo "SKIPPED check-rungs: there is no $emulate"
    exit 0
fi
if ! compgen -G "$cache/*/done" >/dev/null; then
    echo "SKIPPED check-rungs: the emulator is not prepared; $emulate --prepare does it, as root, in minutes"
    exit 0
fi

cmake --preset check >/dev/null
cmake --build build/check --target check_kernels_static
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for machine in "${machines[@]}"; do
    read -r cpu rung <<<"$machine"
    "$emulate" --cpu "$cpu" --timeout "$timeout_s" build/check/check_kernels_static --brief "$rung" \
        >"$logs/$cpu" 2>&1 &
    pids+=($!)
done
failed=0
for i in "${!machines[@]}"; do
    read -r cpu rung <<<"${machines[i]}"
    status=0
    wait "${pids[i]}" || status=$?
    echo "-- $cpu, to choose $rung: $([ $status = 0 ] && echo passed || echo "FAILED with status $status")"
    if [ $status = 0 ]; then
        tail -n 2 "$logs/$cpu"
    else
        cat "$logs/$cpu"
        failed=1
    fi
done
echo "emulated in $SECONDS s"
exit $failed
