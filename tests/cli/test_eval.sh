#!/usr/bin/env bash
# `eval logits` as a process: the file it writes, that stages, threads and instruction sets do not
# show in it, and what it refuses.
set -u
program=$1
here=$(cd "$(dirname "$0")/.." && pwd)
model=$here/golden/llama
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        failed=1
    fi
}

logits() { # OUT OPTIONS...
    local out=$1
    shift
    "$program" eval logits "$model" --ids "$work/ids.json" -o "$work/$out" "$@" >"$work/log" 2>&1
}

refused() { # STATUS WORDS COMMAND...
    local expected=$1 words=$2
    shift 2
    "$@"
    [[ $? == "$expected" ]] && grep -q "$words" "$work/log" || { cat "$work/log"; return 1; }
}

printf '[' >"$work/ids.json"
for i in $(seq 140); do printf '%d, ' $((i * 37 % 272)); done >>"$work/ids.json"
printf '7]' >>"$work/ids.json"

check "all rows" logits all.npy --all --quantization f32
check "a NumPy header of its shape" grep -qa "'<f4', 'fortran_order': False, 'shape': (141, 272)" \
    "$work/all.npy"
check "its size" test "$(stat -c %s "$work/all.npy")" = $((128 + 141 * 272 * 4))
check "the last row alone" logits last.npy --quantization f32
check "is the last of all" cmp -s <(tail -c 1088 "$work/all.npy") <(tail -c 1088 "$work/last.npy")
check "int4 is something else" logits int4.npy --all --quantization int4
check "float is not int4" eval '! cmp -s "$work/int4.npy" "$work/all.npy"'
for options in "--stages 2" "--stages 3 --threads 1" "--isa scalar --threads 2" "--ctx-size 200"; do
    # shellcheck disable=SC2086
    check "$options" logits other.npy --all --quantization int4 $options
    check "$options: the same bits" cmp -s "$work/int4.npy" "$work/other.npy"
done
check "f16 keys and values" logits other.npy --all --quantization f32 --kv-type f16
check "differ from f32 ones" eval '! cmp -s "$work/other.npy" "$work/all.npy"'

check "a short context" refused 2 "do not fit" logits no.npy --ctx-size 100
check "more stages than layers" refused 2 "stages" logits no.npy --stages 4
check "an unknown instruction set" refused 2 "scalar" logits no.npy --isa neon
echo '[1, 272]' >"$work/ids.json"
check "an id that is none" refused 2 "272" logits no.npy
echo '[1, "2"]' >"$work/ids.json"
check "an element that is none" refused 2 "element 1" logits no.npy
echo '{}' >"$work/ids.json"
check "not an array" refused 2 "not an array" logits no.npy
check "nothing was written" test ! -e "$work/no.npy"
exit $failed
