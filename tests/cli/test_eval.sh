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

shard_with() { # IMPORTANCE
    "$program" shard "$work/model" -o "$work/shard" --quiet --importance "$1" >"$work/log" 2>&1
}

divergence_of() { # REFERENCE
    "$program" eval divergence "$model" "$1" --quiet >"$work/log" 2>&1
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
check "int8 keys and values" logits q8.npy --all --quantization f32 --kv-type q8
check "differ from both" \
    eval '! cmp -s "$work/q8.npy" "$work/all.npy" && ! cmp -s "$work/q8.npy" "$work/other.npy"'
check "in plain C, in stages" \
    logits other.npy --all --quantization f32 --kv-type q8 --isa scalar --stages 2
check "int8 ones: the same bits" cmp -s "$work/q8.npy" "$work/other.npy"
check "keys and values of no format" refused 2 "f16" logits no.npy --kv-type q4

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

# Perplexity and divergence, on a vocabulary of a few letters.
mkdir "$work/model"
cp "$model/config.json" "$model/model.safetensors" "$work/model"
cat >"$work/model/tokenizer.json" <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "d": 4}, "merges": ["a b"]},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}}
JSON
for i in $(seq 300); do printf '%s' "abacdabdc" | tail -c $((1 + i % 8)); done >"$work/text"

perplexity() { # OPTIONS...
    "$program" eval perplexity "$work/model" "$work/text" --window 32 --quiet "$@" >"$work/out" 2>"$work/log"
}
divergence() { # OPTIONS...
    "$program" eval divergence "$work/model" "$work/reference" --quiet "$@" >"$work/out" 2>"$work/log"
}
figure() { # EXPRESSION-OVER-r: of the JSON in out
    python3 -c "import json, sys; r = json.load(open('$work/out')); sys.exit(not ($1))" || { cat "$work/out"; return 1; }
}

check "the reference" perplexity --quantization f32 --save "$work/reference"
wanted=$(awk 'END { print $2 }' "$work/out")
check "divergence in words" divergence --quantization f32
check "says that of the first id" grep -q "^same first  100.000 %" "$work/out"
check "the model itself" divergence --quantization f32 --json
check "does not diverge" figure "abs(r['divergence'][0]) < 1e-6 and r['same_top'][0] == 1"
check "has its perplexity" figure "abs(r['perplexity'][0] / $wanted - 1) < 1e-6 and abs(r['ratio'][0] - 1) < 1e-3"
counted=$(python3 -c "import json; print(json.load(open('$work/out'))['counted'])")
check "what is counted" grep -q " $counted counted" <(perplexity --quantization f32; cat "$work/out")
check "int8" divergence --quantization int8 --json
cp "$work/out" "$work/int8"
check "diverges a little" figure "1e-7 < r['divergence'][0] < 0.01 and r['divergence'][0] < r['divergence_99'] <= r['divergence_max']"
check "stages and threads" divergence --quantization int8 --json --stages 2 --threads 3
check "do not show" cmp -s "$work/out" "$work/int8"
check "int4" divergence --quantization int4 --json
cp "$work/out" "$work/int4.json"
check "diverges more" figure "r['divergence'][0] > 5 * json.load(open('$work/int8'))['divergence'][0]"
check "fewer windows" divergence --quantization int4 --json --windows 3
check "count less" figure "r['windows'] == 3 and r['counted'] == 45"
check "fewer windows are saved" perplexity --quantization f32 --windows 2 --save "$work/short"
check "... as many" test $(($(stat -c %s "$work/short") - 24)) = $((2 * (32 * 4 + 15 * (8 + 2 * 272))))

importance() { # OUT OPTIONS...
    local out=$1
    shift
    "$program" eval importance "$work/model" "$work/text" -o "$work/$out" --window 64 --quiet "$@" >"$work/log" 2>&1
}
check "importance" importance importance.json
check "of every column" python3 - "$work/importance.json" <<'PYTHON'
import json, sys
layers = json.load(open(sys.argv[1]))["layers"]
widths = {"attention": 64, "output": 64, "mlp": 64, "down": 96}
assert len(layers) == 3 and all({k: len(v) for k, v in l.items()} == widths for l in layers)
# what a norm gives has a mean square near that of the norm's weights, and no column counts nothing
assert all(0.05 < sum(l[k]) / 64 < 50 and min(l[k]) > 0 for l in layers for k in ("attention", "mlp"))
PYTHON
check "importance of three stages" importance other.json --stages 3 --threads 3
check "is the same" cmp -s "$work/importance.json" "$work/other.json"
check "int4 that heeds it" divergence --quantization int4 --json --importance "$work/importance.json"
check "is another int4" figure "r['divergence'][0] != json.load(open('$work/int4.json'))['divergence'][0]"
sed 's/"down":\[/&1,/' "$work/importance.json" >"$work/other.json"
check "importance of another model" refused 2 "another model" shard_with "$work/other.json"

check "no such reference" refused 1 "not a file" divergence_of "$work/text"
head -c 5000 "$work/reference" >"$work/cut"
check "a reference cut short" refused 1 "5000 bytes" divergence_of "$work/cut"
cp "$here/../fuzz/corpus/logits_file/two_windows" "$work/small"
check "a reference of another vocabulary" refused 2 "272 ids, the reference 9" divergence_of "$work/small"
exit $failed
