#!/usr/bin/env bash
# `cascadia shard` and `shard verify` as a person uses them, on a GGUF of one tiny layer.
set -euo pipefail
cascadia=$1
here=$(cd "$(dirname "$0")/../.." && pwd)
model=$here/fuzz/corpus/source/llama_q4_0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "failed: $*" >&2
    exit 1
}

# expect STATUS WORDS COMMAND...: the exit status, and words on either stream
expect() {
    local status=$1 words=$2 got=0
    shift 2
    "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" = "$status" ] || fail "$* ended with $got instead of $status: $(cat "$work/out")"
    grep -qF -- "$words" "$work/out" || fail "$* did not say \"$words\": $(cat "$work/out")"
}

expect 0 "1 layers in 1 stage" "$cascadia" shard --model "$model" -o "$work/s" --quiet
expect 0 "every value equals the source" "$cascadia" shard "$model" -o "$work/t" --quiet
expect 0 "agree with their checksums" "$cascadia" shard verify "$work/s"
expect 0 "agree with their checksums" "$cascadia" shard verify "$work/s" --stage 0
cmp "$work/s/layer-000.weights" "$work/t/layer-000.weights"

# quantised again only on demand, with a word about it
expect 0 "quantised again" "$cascadia" shard "$model" -o "$work/r" --quiet --quantization int8 --group-size 64 --requantize
grep -q '"requantized":true' "$work/r/manifest.json" || fail "the manifest hides it"
expect 0 "relative error" "$cascadia" shard "$model" -o "$work/r" --quiet --force --quantization int8 --requantize
expect 0 "agree with their checksums" "$cascadia" shard verify "$work/r"

# an existing shard, a directory that is none, and what is not there
expect 2 "--force replaces it" "$cascadia" shard --model "$model" -o "$work/s" --quiet
expect 0 "1 stage" "$cascadia" shard --model "$model" -o "$work/s" --quiet --force --quantization f32
mkdir "$work/other" && touch "$work/other/file"
expect 2 "no shard" "$cascadia" shard --model "$model" -o "$work/other" --quiet --force
[ -e "$work/other/file" ] || fail "--force removed what is no shard"
expect 1 "nowhere" "$cascadia" shard --model "$work/nowhere" -o "$work/u" --quiet
[ ! -e "$work/u" ] || fail "a failure left a directory"

# options that mean nothing
expect 2 "int5" "$cascadia" shard --model "$model" -o "$work/u" --quantization int5
expect 2 "int4-min" "$cascadia" shard --model "$model" -o "$work/u" --quantization int4-min
expect 2 "groups of 48" "$cascadia" shard --model "$model" -o "$work/u" --group-size 48
expect 2 "2 stages of 1 layers" "$cascadia" shard --model "$model" -o "$work/u" --num-stages 2
expect 2 "boundaries" "$cascadia" shard --model "$model" -o "$work/u" --layer-split 1
expect 2 "stages are 0 to 0" "$cascadia" shard --model "$model" -o "$work/u" --stage 1
expect 2 "--output" "$cascadia" shard --model "$model"

# damage, with the tensor's name
printf '\xff' | dd of="$work/t/layer-000.weights" bs=1 seek=900 conv=notrunc status=none
expect 1 "layer 0" "$cascadia" shard verify "$work/t"
truncate -s -1 "$work/t/layer-000.weights"
expect 1 "cut short" "$cascadia" shard verify "$work/t"
rm "$work/t/layer-000.weights"
expect 1 "layer-000.weights" "$cascadia" shard verify "$work/t"
rm "$work/t/manifest.json"
expect 1 "no manifest.json" "$cascadia" shard verify "$work/t"
touch "$work/s/stranger"
expect 0 "stranger is not part" "$cascadia" shard verify "$work/s"
echo "shard: all as expected"
