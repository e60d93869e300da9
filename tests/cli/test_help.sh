#!/usr/bin/env bash
# What every command has: help on stdout with status 0, usage errors on stderr with status 2, and
# words for a person who typed something nearly right.
set -u
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        cat "$work/out" "$work/err"
        failed=1
    fi
}

ends() { # STATUS WORDS...: runs the program with nothing on standard input
    local status=$1 got
    shift
    timeout 20 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [[ $got == "$status" ]] || { echo "status $got"; return 1; }
}

shows_help() { # COMMAND...
    ends 0 "$@" && grep -q "^usage: cascadia ${*:1:$#-1}" "$work/out" && [[ ! -s $work/err ]] &&
        [[ $(tail -c 1 "$work/out" | od -An -c | tr -d ' ') == '\n' ]]
}
fits_a_terminal() { [[ -z $(grep -E '.{101}' "$work/out") ]]; }
says() { grep -q -- "$1" "$work/err" && [[ ! -s $work/out ]]; }

misused() { # SENTENCE WORDS...
    local sentence=$1
    shift
    ends 2 "$@" && says "$sentence"
}

ends 0 help
mapfile -t names < <(sed -n '/^usage/,/^first steps/s/^  \([a-z ]*[a-z]\)  .*/\1/p' "$work/out")
check "help lists the commands" test "${#names[@]}" -ge 12
for name in "${names[@]}"; do
    read -ra words <<<"$name"
    check "$name --help" shows_help "${words[@]}" --help
    check "$name --help is no wider than a terminal" fits_a_terminal
    check "$name: an unknown option" ends 2 "${words[@]}" --no-such-option
done
check "a first word alone lists the second ones" ends 0 help eval
check "... by name" grep -q "eval perplexity" "$work/out"
check "--version" ends 0 --version

check "no such command" misused 'no command "serve"; cascadia help lists them' serve
check "a slip of the hand" misused 'did you mean shard' shrad
check "half a command" misused "cascadia help eval lists them" eval
check "help on nothing" misused 'no command "nothing"' help nothing
check "a word that is missing has a name" misused "MODEL is missing" run
check "the second one too" misused "TEXTFILE is missing" eval perplexity model.gguf
check "options that are needed" misused "--ids and --output are needed" eval logits model.gguf
check "shard needs two" misused "usage: cascadia shard" shard --model model.gguf
full() { ! timeout 20 "$program" "$@" >/dev/full 2>"$work/err" && grep -q "No space left" "$work/err"; }
check "a full disk is no success: help" full help
check "... --version" full --version
check "... engines" full engines
check "a bad level" misused "takes error, warn, info or debug" --log-level loud help
exit $failed
