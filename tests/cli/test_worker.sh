#!/usr/bin/env bash
# `worker` as processes: what it refuses, that either rank may start first, and how it ends.
set -u
program=$1
work=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
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

refused() { # STATUS WORDS OPTIONS...
    local status=$1 words=$2 got
    shift 2
    timeout 20 "$program" worker "$@" >"$work/refused" 2>&1
    got=$?
    [[ $got == "$status" ]] && grep -q -- "$words" "$work/refused" && return
    echo "status $got"
    cat "$work/refused"
    return 1
}

mock=(--model mock-model)
check "needs --total and --model" refused 2 "--total and --model" --rank 1
check "ranks count from 0" refused 2 "ranks count from 0" --rank 2 --total 2 "${mock[@]}"
check "a worker needs --listen" refused 2 "needs an address to listen at" --rank 1 --total 2 "${mock[@]}"
check "a rank between needs --next" refused 2 "needs the address of the next" \
    --rank 1 --total 3 --listen "unix:$work/a" "${mock[@]}"
check "the head needs --next" refused 2 "needs the address of rank 1" \
    --rank 0 --total 2 --listen "unix:$work/a" --api 127.0.0.1:0 "${mock[@]}"
check "beyond this machine needs --insecure" refused 2 "--insecure" \
    --rank 1 --total 2 --listen 0.0.0.0:0 "${mock[@]}"
check "--layer-start alone" refused 2 "--layer-end" \
    --rank 1 --total 2 --layer-start 4 --listen "unix:$work/a" "${mock[@]}"
check "layers beyond the model" refused 2 "the mock model has 8" \
    --rank 1 --total 2 --layer-start 4 --layer-end 9 --listen "unix:$work/a" "${mock[@]}"
check "the last rank needs the last layer" refused 2 "the last rank has the last" \
    --rank 1 --total 2 --layer-start 4 --layer-end 7 --listen "unix:$work/a" "${mock[@]}"
check "more stages than layers" refused 2 "9 stages of 8 layers" \
    --rank 1 --total 9 --listen "unix:$work/a" --next "unix:$work/b" "${mock[@]}"
check "no such engine" refused 1 "there is no engine" \
    --rank 1 --total 2 --listen "unix:$work/a" --model mock-model --engine steam
check "a bad address" refused 2 "is no address" --rank 1 --total 2 --listen 9000 "${mock[@]}"

ends_well() { # PID
    kill -TERM "$1"
    wait "$1"
}

await() { # WORDS FILE
    for _ in $(seq 200); do
        grep -q -- "$1" "$2" 2>/dev/null && return
        sleep 0.05
    done
    cat "$2"
    return 1
}

"$program" worker --rank 1 --total 2 --listen "unix:$work/odd" --layer-start 3 --layer-end 8 "${mock[@]}" 2>"$work/log-odd" &
odd=$!
refused_head() { # by a rank whose layers do not follow
    timeout 20 "$program" worker --rank 0 --total 2 --listen "unix:$work/odd-head" --next "unix:$work/odd" \
        --api 127.0.0.1:0 "${mock[@]}" >/dev/null 2>"$work/log-odd-head" &
    local head=$!
    await "each layer must be run once" "$work/log-odd-head" && ends_well "$head"
}
check "layers that do not fit: the head says so" refused_head
check "another head too" refused_head
check "the rank says it once" test "$(grep -c refused "$work/log-odd")" = 1
check "and ends with status 0" ends_well "$odd"

rank() { # RANK OPTIONS...: sets $pid
    local number=$1
    shift
    "$program" worker --rank "$number" --total 3 --listen "unix:$work/rank-$number" "${mock[@]}" "$@" \
        >"$work/out-$number" 2>"$work/log-$number" &
    pid=$!
}

rank 0 --next "unix:$work/rank-1" --api 127.0.0.1:0
head=$pid
check "the head says what it waits for" await "waiting for rank 1 at unix:$work/rank-1" "$work/log-0"
rank 2
last=$pid
rank 1 --next "unix:$work/rank-2"
middle=$pid
check "all stages join, the head first" await "all 3 stages are there" "$work/log-0"
url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/out-0" | head -n 1)
answer=$(curl -s -m 20 "$url/v1/chat/completions" -d '{"messages": [{"role": "user", "content": "three stages"}]}')
check "a chat goes through them" grep -q '"content":"three stages"' <<<"$answer"
check "a worker ends with status 0" ends_well "$middle"
check "the head hears of it" await "said goodbye" "$work/log-0"
rank 1 --next "unix:$work/rank-2"
middle=$pid
answer=$(curl -s -m 20 "$url/v1/chat/completions" -d '{"messages": [{"role": "user", "content": "once more"}]}')
check "another takes its place" grep -q '"content":"once more"' <<<"$answer"
check "the head ends with status 0" ends_well "$head"
check "the others wait for the next" await "rank 0: it said goodbye" "$work/log-1"
check "and end with status 0" ends_well "$middle"
check "each" ends_well "$last"
check "Unix paths are removed" test -z "$(ls "$work" | grep '^rank-')"
exit $failed
