#!/usr/bin/env bash
# `run` as a process: what it prints, how it ends on signals, and what it refuses before it serves.
set -u
program=$1
work=$(mktemp -d)
server=
trap '[[ -n $server ]] && kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
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

start() { # OPTIONS...: the mock model on a free port; sets $url
    "$program" run mock-model --port 0 "$@" >"$work/out" 2>"$work/log" &
    server=$!
    for _ in $(seq 200); do
        url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/out" | head -n 1)
        [[ -n $url ]] && return
        sleep 0.05
    done
    cat "$work/log"
    exit 1
}

ended_with() { # STATUS
    wait "$server"
    local status=$?
    server=
    [[ $status == "$1" ]] || { echo "status $status"; cat "$work/log"; return 1; }
}

refused() { # STATUS WORDS OPTIONS...
    local status=$1 words=$2
    shift 2
    timeout 20 "$program" run "$@" >"$work/out" 2>"$work/log"
    local got=$?
    [[ $got == "$status" ]] && grep -q -- "$words" "$work/log" || { echo "status $got"; cat "$work/log"; return 1; }
}

ask() { curl -sS -m 30 "$url/v1/completions" -d "$1"; }
# Work that lasts: many answers to the end of the context, although the mock model is fast.
long='{"prompt": [256, 97, 259, 257], "stream": true, "ignore_eos": true}'
ask_much() { curl -sSNZ --parallel-max 100 -m 30 "$url/v1/completions?[1-100]" -d "$long" >"$work/stream" 2>&1 & }
await_stream() { until grep -q data "$work/stream" 2>/dev/null; do sleep 0.01; done; }
refuses_connections() { # soon after a SIGTERM
    for _ in $(seq 100); do curl -s -m 2 -o /dev/null "$url/health" || return 0; done
    return 1
}

start
check "health is 200 when the URL is printed" curl -sf -o /dev/null "$url/health"
check "the printed command is a curl to it" grep -q "curl -N $url/v1/chat/completions" "$work/out"
check "it answers" grep -q '"text":"a"' <(ask '{"prompt": [256, 97, 259, 257]}')
check "its port is taken: status 1" refused 1 "address already in use" mock-model --engine mock --port "${url##*:}"
kill -TERM "$server"
check "idle, SIGTERM: status 0" ended_with 0

start
# A request whose body is on its way keeps a draining server busy; "100 Continue" says it is known.
exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
printf 'POST /v1/completions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n' >&3
read -r -t 10 line <&3
check "the server asks for the body" grep -q "100 Continue" <<<"$line"
kill -TERM "$server"
check "draining, it takes no new connection" refuses_connections
kill -TERM "$server"
check "busy, a second SIGTERM: status 1 at once" ended_with 1
exec 3>&-

start --drain-timeout 0
ask_much
client=$!
await_stream
kill -INT "$server"
check "busy, the drain's time is over: status 0" ended_with 0
wait "$client"
check "streams end with an error event" grep -q '^data: {"error":{"message":".*"code":"' "$work/stream"

check "mock-model on another engine is a file" refused 1 "mock-model: No such file" mock-model --engine native
check "an engine that is not there: those that are" refused 1 "native" mock-model --engine warp
check "a model that is not there: its name" refused 1 "no-such.gguf" "$work/no-such.gguf"
check "a host beyond this machine needs --insecure" refused 2 "--insecure" mock-model --engine mock --host 0.0.0.0 --port 0
check "no model: usage" refused 2 "usage" --port 0
check "an unknown option: usage" refused 2 "usage" mock-model --engine mock --prot 0
exit $failed
